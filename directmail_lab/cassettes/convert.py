"""Rewrite whole cassettes: repair them, redact more in them, or convert others to our layout."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from itertools import chain
from pathlib import Path

from ..credentials import known_keys
from ..display import plural, shell_word
from ..errors import CassetteError
from ..exchange.bodies import MissingBody
from ..exchange.values import Interaction
from ..redaction import Redactor
from ..redaction.personal import count_personal, personal_notice, spared_by
from ..redaction.suspects import (
    credentials_in,
    parts_of,
    secrets_of,
    text_of,
)
from .files import FileRecording, read_cassette, read_journal, sides_of, write_cassette
from .journal import digest_of, journal_of, remove_journal
from .library import Version, command_name, locked, typed_path, version_of
from .recorder import fold_left_journal
from .recording import service_of

# The search at the end of a recording is limited to this, to be quick.
_SEARCHED = 1000
_SEARCHED_BYTES = 1024**2


def convert(
    source: Path,
    target: Path,
    *,
    notice: Callable[[str], object] = lambda _: None,
) -> int:
    """Write HAR or any cassette to ``target`` in our layout; return its number of interactions.

    The credentials in ``source`` are removed wherever they occur, and so are the keys that this
    process and the keyring know. ``target`` is replaced only when the new file is complete.
    ``notice`` is called with a sentence if a HAR file lacks entries or bodies.

    Raises
    ------
    CassetteFormatError
        ``source`` cannot be read.
    CassetteError
        The new file would contain a credential.
    CassetteInUseError
        ``target`` is being recorded, or another program changed it meanwhile.
    """
    version = version_of(target)
    recording = read_cassette(source)
    with locked(target) as path:
        _write(path, version, recording, _redactor(recording))
        remove_journal(path)  # of a killed recording of the replaced file
    if recording.layout == "har":
        if recording.problem:
            notice(f"{source.name}: {recording.problem}.")
        bodies = chain.from_iterable((each.request.body, each.response.body) for each in recording)
        missing = sum(isinstance(body, MissingBody) for body in bodies)
        if missing:
            notice(
                f"{source.name} lacks the content of {plural(missing, 'message')}; each became "
                "<not recorded: N bytes>. Save it again with the contents of requests and "
                "responses."
            )
    return len(recording)


def _write(
    path: Path,
    version: Version | None,
    recording: FileRecording,
    redactor: Redactor,
) -> None:
    """Redact a recording and write it, if the locked file still has that version."""
    # `recorded_with` is the mark of our own lines, which `write_cassette` adds.
    metadata = {**recording.metadata, "base_url": recording.base_url}
    metadata.pop("recorded_with", None)
    redacted = redactor.interactions(recording.interactions)
    write_cassette(path, metadata, redacted, redactor, version=version)


def redact(
    path: Path, rules: Sequence[str], *, notice: Callable[[str], object] = lambda _: None
) -> bool:
    """Redact a cassette once more, and return whether that changed its file.

    Its credentials and known keys are removed too, as by `convert`, and so is what only looks like
    a credential (see `redaction.suspects`). The file gets our layout.

    Parameters
    ----------
    rules
        Field names, dotted paths and ``"personal"``, as `record` takes them.
    notice
        Called with a sentence about each thing that was not replaced.

    Raises
    ------
    CassetteError
        The file is HAR or JSON, which is not written.
    """
    with locked(path) as file:
        fold_left_journal(file, Redactor(), lambda _: None)
        recording = read_cassette(file)
        if recording.layout in ("har", "json"):
            raise CassetteError(
                f"{path} is not YAML, so it cannot be redacted.",
                "Convert it, redact the new file, and delete this one, which has what is to go: "
                f"directmail-lab cassette convert {shell_word(typed_path(path))} NAME.yaml.",
            )
        redactor = _redactor(recording).extended(rules)
        redactor.learn(chain.from_iterable(map(secrets_of, recording)), are_shown=True)
        before = file.read_bytes()
        _write(file, recording.version, recording, redactor)
        spared = _what_was_spared(rules)
        if spared:
            notice(f"{path.name}: {spared}")
        return file.read_bytes() != before


def repair(path: Path) -> list[str]:
    """Add what a killed recording left beside a cassette, and return sentences about that.

    A damaged journal is kept beside it.

    If git has left a conflict of a merge in it, it has the interactions of both sides then.

    Raises
    ------
    CassetteFormatError
        The cassette is damaged, which only a person can repair.
    CassetteError
        The sides of a conflict are of two service addresses.
    """
    said: list[str] = []
    with locked(path) as file:
        said += _join_sides(file)
        journal = read_journal(file, is_repair=True)
        if journal is not None and journal.damage and not journal.is_aside:
            part = journal_of(file)
            kept = part.with_name(f"{part.name}.damaged-{digest_of(part.read_bytes())[:8]}")
            shutil.copy2(part, kept)
            lines = ", ".join(map(str, journal.damage))
            said.append(
                f"what could not be read, in line {lines} of its journal, is left out. The whole "
                f"journal is in {kept.name}: see there which writes were sent"
            )
        fold_left_journal(file, Redactor(), said.append, is_repair=True)
    read_cassette(path)
    return said


def _join_sides(file: Path) -> Iterator[str]:
    """Write the interactions of both sides of a conflict, equal ones once, and say how many."""
    version = version_of(file)
    sides = sides_of(file)
    if not sides:
        return
    ours, theirs = sides
    is_same = service_of(ours.base_url) == service_of(theirs.base_url)
    if len(ours) and len(theirs) and not is_same:
        raise CassetteError(
            f"The sides of the conflict in {file} are of two services, {ours.base_url} and "
            f"{theirs.base_url}.",
            f"Keep one: git checkout --ours {shell_word(typed_path(file))} (or --theirs).",
        )
    joined: list[Interaction] = []
    known = set(ours.interactions)
    parts = SequenceMatcher(None, ours.interactions, theirs.interactions, autojunk=False)
    for _, begin, end, their_begin, their_end in parts.get_opcodes():
        joined += ours.interactions[begin:end]
        new = theirs.interactions[their_begin:their_end]
        joined += [each for each in new if each not in known]
    redactor = _redactor(ours).extended(theirs.redact)
    metadata = {**theirs.metadata, **ours.metadata}
    write_cassette(file, metadata, redactor.interactions(joined), redactor, version=version)
    added = len(joined) - len(ours)
    yield (
        f"both sides of the conflict are kept: {plural(len(ours), 'interaction')} of the first "
        f"and {added} of the second, which the first did not have"
    )


def notice_of_contents(path: Path, name: str) -> str:
    """Return what a closed cassette has that may not be shared, and what to do; or nothing.

    That is personal data, and what looks like a credential.

    In a large cassette, only an even sample is searched, and the first megabyte of each body; the
    line says of how many interactions. After an error, the line is empty, since the recording
    itself succeeded.
    """
    with suppress(OSError, CassetteError):
        recording = read_cassette(path)
        numbered = list(enumerate(recording, 1))
        step = 1 + max(len(numbered) // _SEARCHED, path.stat().st_size // _SEARCHED_BYTES)
        sample = numbered[::step]
        texts: dict[str, str] = {}  # many are alike
        for number, interaction in sample:
            for where, content in parts_of(interaction, f"interaction {number}"):
                texts.setdefault(text_of(content)[:_SEARCHED_BYTES], where)
        searched = len(sample) if step > 1 else None
        command = command_name(path, name)
        counts = count_personal(texts, keep=spared_by(recording.redact))
        notices = [personal_notice(counts, command, searched=searched)]
        suspects: dict[str, str] = {}
        for text, where in texts.items():
            for what in credentials_in(text):
                suspects.setdefault(what, f"{what} ({where})")
        if suspects:
            notices.append(
                f"Cassette {command!r} contains what looks like a credential: "
                f"{', '.join(suspects.values())}. To remove it: directmail-lab cassette redact "
                f"{shell_word(command)}."
            )
        notices.append(_what_was_spared(recording.redact))
        return " ".join(filter(None, notices))
    return ""


def _what_was_spared(rules: Sequence[str]) -> str:
    spared = spared_by(rules)
    return f"As you asked, {', '.join(spared)} was not replaced." if spared else ""


def _redactor(recording: FileRecording) -> Redactor:
    """Return a redactor for the keys of this process, and the keyring's for these services."""
    return Redactor(known_keys(remembered_for=recording.base_urls), redact=recording.redact)
