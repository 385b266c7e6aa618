"""Whole cassettes made anew: mended, redacted once more, or in another program's layout."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, get_args

from directmail_lab.errors import CassetteFormatError
from directmail_lab.redaction import Redactor
from directmail_lab.redaction.named_secrets import secrets_in

from . import layout
from .reader import read_cassette
from .recorder import hold, let_go, replace_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from directmail_lab.interaction import Interaction

__all__ = ["LAYOUTS", "Layout", "convert", "layout_of", "redact", "repair"]

Layout = Literal["lines", "vcrpy", "json", "har"]
LAYOUTS: Final[tuple[Layout, ...]] = get_args(Layout)


def layout_of(path: Path) -> Layout:
    """Return the layout that a file's name asks for: HAR, JSON, else our own lines."""
    return {".har": "har", ".json": "json"}.get(path.suffix.lower(), "lines")  # type: ignore[return-value]


def convert(source: Path, target: Path, to: Layout) -> int:
    """Write what ``source`` holds to ``target`` in another layout, and return how many that were.

    Both may be HAR. What another program wrote is redacted on the way: the credentials that stand
    in it, also where the service echoed them. ``target`` stands as it was until the new one is
    whole.

    Raises
    ------
    CassetteFormatError
        Where ``source`` cannot be read.
    CassetteError
        Where a credential would have been written.
    CassetteInUseError
        Where ``target`` is being recorded.
    """
    metadata, interactions = _read(source)
    redactor = Redactor(secrets_in(interactions))
    redacted = [redactor.interaction(each) for each in interactions]
    with _held(target):
        _write(target, to, _redacted(metadata, redactor), redacted, check=redactor.refuse_leak)
    return len(interactions)


def redact(path: Path, rules: Sequence[str]) -> int:
    """Redact a cassette once more, in place, and return how many interactions that changed.

    Credentials that another program left in it go too, as `convert` removes them.

    Parameters
    ----------
    rules
        Field names, dotted paths and ``"personal"``, as `record` takes them.
    """
    loaded = read_cassette(path)
    redactor = Redactor(secrets_in(loaded.interactions), redact=rules)
    done = [redactor.interaction(each) for each in loaded.interactions]
    changed = sum(new != old for new, old in zip(done, loaded.interactions, strict=True))
    before = loaded.metadata.get("redact")
    known = [str(rule) for rule in before] if isinstance(before, list) else []
    metadata = _redacted(loaded.metadata, redactor)
    metadata["redact"] = [*known, *(rule for rule in rules if rule not in known)]
    with _held(path):
        _write(path, "lines", metadata, done, check=redactor.refuse_leak)
    return changed


def repair(path: Path) -> str | None:
    """Close a recording that broke off, and return what was wrong with it, or None.

    Every whole interaction is kept; an interaction that was torn goes.
    """
    with _held(path):
        loaded = read_cassette(path)
        if loaded.problem is not None:
            _write(path, "lines", loaded.metadata, loaded.interactions, check=_sound)
    return loaded.problem


def _read(source: Path) -> tuple[Mapping[str, object], Sequence[Interaction]]:
    if layout_of(source) != "har":
        loaded = read_cassette(source)
        return {**loaded.metadata, "base_url": loaded.base_url}, loaded.interactions
    from directmail_lab.cassettes.har import read_har

    try:
        return {}, read_har(source.read_bytes())
    except OSError as error:
        raise CassetteFormatError(f"{source} cannot be read ({error.strerror}).") from None


def _redacted(metadata: Mapping[str, object], redactor: Redactor) -> dict[str, object]:
    return {
        name: redactor.text(value) if isinstance(value, str) else value
        for name, value in metadata.items()
    }


def _sound(_: str) -> None:
    """Check nothing: what is kept was written by us."""


def _write(
    target: Path,
    to: Layout,
    metadata: Mapping[str, object],
    interactions: Sequence[Interaction],
    *,
    check: Callable[[str], None],
) -> None:
    """Write a whole cassette; ``check`` sees each text before that and may refuse it."""
    if to == "lines":
        from directmail_lab import __version__

        header = layout.header_text({"recorded_with": f"directmail-lab {__version__}", **metadata})
        lines = map(layout.interaction_text, interactions)
        replace_whole(target, _checked(header, check), (_checked(line, check) for line in lines))
        return
    text = _checked(_foreign_text(to, metadata, interactions), check)
    fresh = target.with_name(f".{target.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(target)


def _checked(text: str, check: Callable[[str], None]) -> str:
    check(text)
    return text


def _foreign_text(
    to: Layout, metadata: Mapping[str, object], interactions: Sequence[Interaction]
) -> str:
    if to == "har":
        from directmail_lab.cassettes.har import har_text

        return har_text(interactions)
    from .vcr_files import block_text

    # Else our own loader would take the block layout for the line layout.
    told = {name: value for name, value in metadata.items() if name != "recorded_with"}
    return block_text(interactions, metadata=told, as_json=to == "json")


@contextmanager
def _held(path: Path) -> Iterator[None]:
    lock = hold(path)
    try:
        yield
    finally:
        let_go(lock)
