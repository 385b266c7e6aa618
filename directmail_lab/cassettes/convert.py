"""Writes whole cassettes again: repaired, with more redacted, or in another layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Final, Literal

from ..credentials import known_keys
from ..display import plural
from ..errors import CassetteError
from ..exchange.bodies import missing_bytes
from ..exchange.values import Interaction
from ..redaction import Redactor
from ..redaction.personal import count_personal, personal_notice, texts_of
from .files import FileRecording, read_cassette
from .library import Version, command_name, create, locked, version_of
from .recorder import redacted_metadata, unfinished_files, write_cassette

Layout = Literal["lines", "vcrpy", "json", "har"]

# About as much is searched for personal data when a recording is closed, which must not take long.
_SEARCHED: Final = 1000
_SEARCHED_BYTES: Final = 1024**2


def layout_of(path: Path) -> Layout:
    """Return the layout that a file's name asks for: HAR, JSON, else our own lines."""
    return {".har": "har", ".json": "json"}.get(path.suffix.lower(), "lines")  # type: ignore[return-value]


def convert(
    source: Path, target: Path, to: Layout, *, notice: Callable[[str], object] = lambda _: None
) -> int:
    """Write what ``source`` holds to ``target`` in another layout, and return how many that were.

    Both may be HAR. The credentials in ``source`` are removed, also where the service repeated
    them, and so is every key that this process and the keyring know. ``target`` is replaced only
    when the new file is complete. ``notice`` is called with a sentence if bodies are missing.

    Raises
    ------
    CassetteFormatError
        Where ``source`` cannot be read.
    CassetteError
        A credential would have been written, or that layout cannot hold a body.
    CassetteInUseError
        Where ``target`` is being recorded, or another program changed it meanwhile.
    """
    version, recording = version_of(target), read_cassette(source)
    with locked(target) as path:
        _write(path, version, to, recording, _redactor(recording))
    bodies = (body for each in recording for body in (each.request.body, each.response.body))
    if recording.layout == "har" and (missing := missing_bytes(bodies)):
        notice(_notice_of_missing(missing, source))
    return len(recording)


def _notice_of_missing(sizes: Sequence[int | None], source: Path) -> str:
    known = [size for size in sizes if size is not None]
    parts = [f"{sum(known):,} bytes"] if known else []
    parts += [f"{len(sizes) - len(known)} of unknown size"] if len(known) < len(sizes) else []
    return (
        f"{source.name} lacks the content of {plural(len(sizes), 'message')} "
        f"({', and '.join(parts)}); <not recorded: N bytes> stands for each. Save it again with "
        "the contents of requests and responses."
    )


def _write(
    path: Path, version: Version | None, to: Layout, recording: FileRecording, redactor: Redactor
) -> None:
    """Write a recording in a layout, redacted, in the place of that version of a locked file."""
    # The writer adds its own; with ours in another layout, our reader would expect our lines.
    metadata = {**recording.metadata, "base_url": recording.base_url}
    metadata.pop("recorded_with", None)
    if to == "lines":
        write_cassette(path, metadata, recording, redactor, version=version)
        return
    redacted = list(map(redactor.interaction, recording))
    try:
        if to == "har":
            from .har import har_text

            text = har_text(redacted)
        else:
            from .vcr_files import block_text

            about = redacted_metadata(metadata, redactor)
            text = block_text(redacted, metadata=about, as_json=to == "json")
    except RecursionError:
        raise CassetteError(f"{recording.path} is nested too deeply for that layout.") from None
    redactor.refuse_leak(text)
    with create(path, version) as new:
        new.write_text(text, encoding="utf-8")


def adopt(path: Path) -> None:
    """Rewrite another program's cassette in place: redacted, in our layout, or as JSON if it is.

    It is replaced only if what was written has the same interactions for us and for vcrpy.

    Raises
    ------
    CassetteError
        It cannot be read, is being recorded, or would not be the same afterwards; it is unchanged.
    """
    from .vcr_files import load_cassette_text

    with locked(path) as file, create(file, version_of(file)) as new:
        convert(file, new, layout_of(file))
        recording = read_cassette(file)
        before = _messages(map(_redactor(recording).interaction, recording))
        theirs = load_cassette_text(new.read_text(encoding="utf-8"))[1]
        if not before == _messages(read_cassette(new)) == _messages(theirs):
            raise CassetteError(f"{path} would not be the same afterwards.", "Report it.")


def _messages(interactions: Iterable[Interaction]) -> list[tuple[object, ...]]:
    return [(each.request, each.response) for each in interactions]


def redact(path: Path, rules: Sequence[str]) -> int:
    """Redact a cassette once more, in place, and return how many interactions that changed.

    Credentials that stand in it, and known keys, go too, as `convert` removes them. A .har or .json
    file stays one; any other is in our layout afterwards.

    Parameters
    ----------
    rules
        Field names, dotted paths and ``"personal"``, as `record` takes them.
    """
    with locked(path) as file:
        recording = read_cassette(file)
        redactor = _redactor(recording).extended(rules)
        changed = sum(redactor.interaction(each) != each for each in recording)
        _write(file, recording.version, layout_of(file), recording, redactor)
    return changed


def repair(path: Path) -> list[str]:
    """Close a recording that broke off, and return a sentence on each problem that was found.

    Every whole interaction is kept, and one that was cut is removed. A file that a recording left
    beside the cassette is named, and stays (see `recorder.unfinished_files`).
    """
    problems: list[str] = []
    with locked(path) as file:
        recording = read_cassette(file)
        if recording.problem is not None:
            about, version = recording.metadata, recording.version
            write_cassette(file, about, recording, Redactor(), version=version)
            problems.append(f"Repaired: {recording.problem}.")
        for left in unfinished_files(file):
            count = plural(len(read_cassette(left)), "interaction")
            problems.append(
                f"A recording did not end in this file: it is in {left} ({count}), which is a "
                "cassette of its own. Look at it, then rename or remove it."
            )
    return problems


def notice_of_personal_data(path: Path, name: str) -> str:
    """Return a line that says what personal data a closed cassette holds; empty for none.

    In a large cassette only a sample is searched, spread evenly. The line says how many
    interactions that was. An error gives an empty line, since the recording itself went well.
    """
    with suppress(OSError, CassetteError):
        interactions = read_cassette(path).interactions
        step = 1 + max(len(interactions) // _SEARCHED, path.stat().st_size // _SEARCHED_BYTES)
        sample = [interactions[index] for index in range(0, len(interactions), step)]
        counts = count_personal(chain.from_iterable(map(texts_of, sample)))
        searched = len(sample) if step > 1 else None
        return personal_notice(counts, command_name(path, name), searched=searched)
    return ""


def _redactor(recording: FileRecording) -> Redactor:
    """Return what removes the keys of this process, and the keyring's for the base addresses."""
    recording.redactor.learn(known_keys(remembered_for=recording.base_urls))
    return recording.redactor.extended(recording.redact)
