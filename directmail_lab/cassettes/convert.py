"""Writes whole cassettes again: repaired, with more redacted, or in another layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Final, Literal, get_args

from ..bodies import json_in, read_json
from ..credentials import known_keys
from ..display import plural
from ..errors import CassetteError
from ..interaction import Interaction, header
from ..redaction import Redactor, secrets_in
from ..redaction.personal import count_personal, personal_notice, texts_of
from .library import command_name, create, locked
from .player import Matching
from .reader import LARGEST_FOREIGN_BYTES, parse_cassette, read_bytes, read_cassette
from .recorder import adopt, redacted_metadata, unfinished_files, write_whole

Layout = Literal["lines", "vcrpy", "json", "har"]
LAYOUTS: Final[tuple[Layout, ...]] = get_args(Layout)

# Bounds, so that closing takes about a tenth of a second at most, however much was recorded.
_MOST_READ_BYTES: Final = 32 * 1024**2
_MOST_INTERACTIONS: Final = 1000
_MOST_BYTES: Final = 1024**2


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
    redacted = [redactor.interaction(each) for each in interactions]
    with locked(target) as path:
        if to == "lines":
            write_whole(path, metadata, redacted, redactor)
            return len(redacted)
        try:
            text = _foreign_text(to, redacted_metadata(metadata, redactor), redacted)
        except RecursionError:
            raise CassetteError(f"{source} is nested too deeply for that layout.") from None
        redactor.refuse_leak(text)
        with create(path) as fresh:
            fresh.write_text(text, encoding="utf-8")
    return len(redacted)


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
        after = [redactor.interaction(each) for each in before]

        def is_json(body: bytes | None) -> bool:
            return read_json(body or b"")[1] is None

        for number, (old, new) in enumerate(zip(before, after, strict=True), 1):
            bodies = (old.request.body, new.request.body), (old.response.body, new.response.body)
            if any(is_json(was) and not is_json(now) for was, now in bodies):
                raise CassetteError(
                    f"Interaction {number} of {path} has a body of JSON that redaction would have "
                    "broken, so nothing was changed. Please report it."
                )
        write_whole(file, loaded.metadata, after, redactor)
    return sum(new != old for new, old in zip(after, before, strict=True))


def repair(path: Path) -> list[str]:
    """Close a recording that broke off, and return what was found, a sentence each.

    Every whole interaction is kept, and one that was torn is removed. The file that an interrupted
    record mode ``"all"`` left beside the cassette is put into it. A body that is not JSON although
    its header says so is reported, and left as it is.
    """
    found: list[str] = []
    with locked(path) as file:
        loaded = read_cassette(file)
        if loaded.problem is not None:
            write_whole(file, loaded.metadata, loaded.interactions, Redactor())
            found.append(f"Repaired: {loaded.problem}.")
        for unfinished in unfinished_files(file):
            with locked(unfinished):
                new = read_cassette(unfinished)
                redactor = Redactor(redact=loaded.redact).also(new.redact)
                count = adopt(file, unfinished, Matching(), redactor)
            found.append(f"Put {plural(count, 'interaction')} of {unfinished.name} into it.")
        broken = [
            str(number)
            for number, each in enumerate(read_cassette(file).interactions, 1)
            if _is_broken_json(each)
        ]
    if broken:
        found.append(
            f"Their headers say JSON, but the body is not, in interaction {', '.join(broken[:10])}"
            f"{' and others' * (len(broken) > 10)}. Record it again."
        )
    return found


def notice_of_personal_data(path: Path, name: str) -> str:
    """Return a line that says what personal data a closed cassette holds; empty for none.

    Of a large one only a sample is searched, spread evenly over its first 32 MiB, and the line says
    how many interactions that was. An error gives an empty line: the recording itself went well.
    """
    with suppress(OSError, CassetteError), path.open("rb") as file:
        data = file.read(_MOST_READ_BYTES)
        found = parse_cassette(data, path).interactions
        step = 1 + max(len(found) // _MOST_INTERACTIONS, len(data) // _MOST_BYTES)
        searched = [found[index] for index in range(0, len(found), step)]
        is_whole = step == 1 and not file.read(1)
        counts = count_personal(chain.from_iterable(map(texts_of, searched)))
        number = None if is_whole else len(searched)
        return personal_notice(counts, command_name(path, name), searched=number)
    return ""


def _read(source: Path) -> tuple[Mapping[str, object], Sequence[Interaction]]:
    if layout_of(source) != "har":
        loaded = read_cassette(source)
        # The writer adds its own; with ours in another layout, our reader would expect our lines.
        about = {name: each for name, each in loaded.metadata.items() if name != "recorded_with"}
        return {**about, "base_url": loaded.base_url}, loaded.interactions
    from .har import read_har

    return {}, read_har(read_bytes(source, LARGEST_FOREIGN_BYTES))


def _secrets(metadata: Mapping[str, object], interactions: Sequence[Interaction]) -> set[str]:
    """Return the credentials that a cassette carries, and the keyring's for its address."""
    address = metadata.get("base_url")
    remembered = known_keys(remembered_for=[address] if isinstance(address, str) else ())
    return {*secrets_in(interactions), *remembered}


def _foreign_text(
    to: Layout, metadata: Mapping[str, object], interactions: Sequence[Interaction]
) -> str:
    if to == "har":
        from .har import har_text

        return har_text(interactions)
    from .vcr_files import block_text

    return block_text(interactions, metadata=metadata, as_json=to == "json")


def _is_broken_json(interaction: Interaction) -> bool:
    response = interaction.response
    kind = (header(response.headers, "content-type") or "").partition(";")[0].strip().lower()
    if not response.body or (kind != "application/json" and not kind.endswith("+json")):
        return False
    return json_in(response.headers, response.body)[1] is not None
