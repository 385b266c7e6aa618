"""Writes whole cassettes again: repaired, with more redacted, or in another layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Final, Literal, get_args

from ..bodies import json_in
from ..credentials import known_keys
from ..display import plural
from ..errors import CassetteError
from ..interaction import Interaction, RecordedRequest, RecordedResponse, header
from ..redaction import Redactor, secrets_in
from ..redaction.personal import count_personal, personal_notice, texts_of
from .library import command_name, create, locked
from .player import Matching
from .reader import MAX_FOREIGN_BYTES, parse_cassette, read_bytes, read_cassette
from .recorder import merge, redacted_metadata, unfinished_files, write_cassette

Layout = Literal["lines", "vcrpy", "json", "har"]
LAYOUTS: Final[tuple[Layout, ...]] = get_args(Layout)

# Bounds, so that closing takes about a tenth of a second at most, however much was recorded.
_MAX_READ_BYTES: Final = 32 * 1024**2
_MAX_INTERACTIONS: Final = 1000
_MAX_BYTES: Final = 1024**2


def layout_of(path: Path) -> Layout:
    """Return the layout that a file's name asks for: HAR, JSON, else our own lines."""
    return {".har": "har", ".json": "json"}.get(path.suffix.lower(), "lines")  # type: ignore[return-value]


def convert(source: Path, target: Path, to: Layout) -> int:
    """Write what ``source`` holds to ``target`` in another layout, and return how many that were.

    Both may be HAR. The credentials in ``source`` are removed, also where the service repeated
    them, and so is every key that this process and the keyring know. ``target`` is replaced only
    when the new file is complete.

    Raises
    ------
    CassetteFormatError
        Where ``source`` cannot be read.
    CassetteError
        A credential would have been written, or that layout cannot hold a body.
    CassetteInUseError
        Where ``target`` is being recorded.
    """
    metadata, interactions = _read(source)
    redactor = Redactor(_secrets(metadata, interactions))
    with locked(target) as path:
        if to == "lines":
            write_cassette(path, metadata, interactions, redactor)
            return len(interactions)
        redacted = list(map(redactor.interaction, interactions))
        try:
            text = _foreign_text(to, redacted_metadata(metadata, redactor), redacted)
        except RecursionError:
            raise CassetteError(f"{source} is nested too deeply for that layout.") from None
        redactor.refuse_leak(text)
        with create(path) as new:
            new.write_text(text, encoding="utf-8")
    return len(interactions)


def redact(path: Path, rules: Sequence[str]) -> int:
    """Redact a cassette once more, in place, and return how many interactions that changed.

    Credentials that stand in it, and known keys, go too, as `convert` removes them.

    Parameters
    ----------
    rules
        Field names, dotted paths and ``"personal"``, as `record` takes them.

    Raises
    ------
    CassetteError
        Where a body that was JSON would be none afterwards. The file is left as it was.
    """
    with locked(path) as file:
        loaded = read_cassette(file)
        before = list(loaded.interactions)
        secrets = _secrets({"base_url": loaded.base_url}, before)
        redactor = Redactor(secrets, redact=loaded.redact).also(rules)
        after = list(map(redactor.interaction, before))
        for number, (old, new) in enumerate(zip(before, after, strict=True), 1):
            messages = (old.request, new.request), (old.response, new.response)
            if any(_is_json(old) and not _is_json(new) for old, new in messages):
                raise CassetteError(
                    f"Interaction {number} of {path} has a body of JSON that redaction would have "
                    "broken, so nothing was changed. Please report it."
                )
        write_cassette(file, loaded.metadata, after, redactor)
    return sum(new != old for new, old in zip(after, before, strict=True))


def repair(path: Path) -> list[str]:
    """Close a recording that broke off, and return a sentence on each problem that was found.

    Every whole interaction is kept, and one that was torn is removed. The file that an interrupted
    record mode ``"all"`` left beside the cassette is merged into it. A body that is not JSON
    although its header says so is reported, and left as it is.
    """
    problems: list[str] = []
    with locked(path) as file:
        loaded = read_cassette(file)
        if loaded.problem is not None:
            write_cassette(file, loaded.metadata, loaded.interactions, Redactor())
            problems.append(f"Repaired: {loaded.problem}.")
        for unfinished in unfinished_files(file):
            with locked(unfinished):
                redactor = Redactor(redact=(*loaded.redact, *read_cassette(unfinished).redact))
                count = merge(file, unfinished, Matching(), redactor)
            problems.append(f"Put {plural(count, 'interaction')} of {unfinished.name} into it.")
        interactions = enumerate(read_cassette(file).interactions, 1)
        broken = [str(number) for number, each in interactions if _is_broken_json(each.response)]
    if broken:
        problems.append(
            f"Their headers say JSON, but the body is not, in interaction {', '.join(broken[:10])}"
            f"{' and others' * (len(broken) > 10)}. Record it again."
        )
    return problems


def _is_json(message: RecordedRequest | RecordedResponse) -> bool:
    return json_in(message.headers, message.body or b"")[1] is None


def _is_broken_json(response: RecordedResponse) -> bool:
    kind = (header(response.headers, "content-type") or "").partition(";")[0].strip().lower()
    is_said_to_be = kind == "application/json" or kind.endswith("+json")
    return is_said_to_be and bool(response.body) and not _is_json(response)


def notice_of_personal_data(path: Path, name: str) -> str:
    """Return a line that says what personal data a closed cassette holds; empty for none.

    Of a large one only a sample is searched, spread evenly over its first 32 MiB, and the line says
    how many interactions that was. An error gives an empty line: the recording itself went well.
    """
    with suppress(OSError, CassetteError), path.open("rb") as file:
        data = file.read(_MAX_READ_BYTES)
        interactions = parse_cassette(data, path).interactions
        step = 1 + max(len(interactions) // _MAX_INTERACTIONS, len(data) // _MAX_BYTES)
        sample = [interactions[index] for index in range(0, len(interactions), step)]
        sample_size = len(sample) if step > 1 or file.read(1) else None
        counts = count_personal(chain.from_iterable(map(texts_of, sample)))
        return personal_notice(counts, command_name(path, name), searched=sample_size)
    return ""


def _read(source: Path) -> tuple[Mapping[str, object], Sequence[Interaction]]:
    if layout_of(source) != "har":
        loaded = read_cassette(source)
        # The writer adds its own; with ours in another layout, our reader would expect our lines.
        metadata = {**loaded.metadata, "base_url": loaded.base_url}
        metadata.pop("recorded_with", None)
        return metadata, loaded.interactions
    from .har import read_har

    return {}, read_har(read_bytes(source, MAX_FOREIGN_BYTES))


def _secrets(metadata: Mapping[str, object], interactions: Sequence[Interaction]) -> set[str]:
    """Return the credentials that a cassette carries, and the keyring's for its address."""
    base_url = metadata.get("base_url")
    keys = known_keys(remembered_for=[base_url] if isinstance(base_url, str) else ())
    return {*secrets_in(interactions), *keys}


def _foreign_text(
    to: Layout, metadata: Mapping[str, object], interactions: Sequence[Interaction]
) -> str:
    if to == "har":
        from .har import har_text

        return har_text(interactions)
    from .vcr_files import block_text

    return block_text(interactions, metadata=metadata, as_json=to == "json")
