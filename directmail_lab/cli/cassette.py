"""``directmail-lab cassette …``: show, check, repair and convert cassettes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import typer

from ..cassettes import (
    cassettes_by_name,
    convert as files,
    find_cassette,
    new_cassette_path,
    read_cassette,
)
from ..cassettes.library import SUFFIXES, command_name, is_folder, shown_path, stays_in
from ..display import plural, printable, printable_line, size_text
from ..errors import CassetteError, CassetteFormatError
from ..exchange.bodies import body_text
from ..exchange.changes import varies
from ..exchange.values import Request, Response
from .output import (
    FORCE,
    FOUND,
    KEEP,
    NAME,
    refuse_existing,
    say,
    show,
)

app = typer.Typer(no_args_is_help=True, help="Show, check, repair and convert cassettes.")

# A file that git-lfs left in place of another one begins with this.
_POINTER = b"version https://git-lfs"
# The member of each cassette, in YAML and in JSON.
_INTERACTIONS = re.compile(rb'(?m)^interactions:|"interactions"\s*:|\A' + _POINTER)


@app.command("list")
def list_() -> None:
    """List the cassettes that can be found by name."""
    import pandas as pd

    rows = []
    for name, path in cassettes_by_name().items():
        count = None
        recorded = "cannot be read"
        with suppress(CassetteError):
            recording = read_cassette(path)
            count = len(recording)
            recorded = recording.recorded_when.removeprefix("on ")
        own = shown_path(path) or "package"
        rows.append((name, count, recorded, size_text(path.stat().st_size), own))
    names = ["name", "requests", "recorded", "size", "where"]
    show(pd.DataFrame(rows, columns=names).convert_dtypes(), names)


@app.command("show")
def show_(
    name: str = NAME,
    number: int | None = typer.Argument(None, help="Show this interaction in full."),
    full: bool = typer.Option(
        False, "--full", help="Show all in full, without what differs from run to run: for git."
    ),
) -> None:
    """Show a cassette's interactions, or one of them in full."""
    from ..questions.interactions import interactions

    if number is not None:
        typer.echo(repr(interactions(name, number=number)), nl=False)
        return
    if full:
        typer.echo(_in_full(find_cassette(name)), nl=False)
        return
    frame = interactions(name)
    show(frame.reset_index(), ["number", "method", "path", "query", "status", "at"])
    if frame.attrs.get("problem"):
        say(f"{name}: {frame.attrs['problem']}.", err=True)


def _in_full(path: Path) -> str:
    """Return the text of a cassette that git compares, or its file if that is damaged."""
    texts = []
    try:
        for each in read_cassette(path):
            request = _text_of(f"{each.request.method} {each.request.uri}", each.request)
            response = _text_of(f"{each.response.status} {each.response.reason}", each.response)
            texts.append(f"{request}\n{response}\n")
    except CassetteFormatError:  # such as a conflict of git
        texts = [path.read_text(encoding="utf-8", errors="replace")]
    texts.sort(key=lambda text: text.partition("\n")[0])
    return printable("\n".join(texts))


def _text_of(title: str, message: Request | Response) -> str:
    """Return a message with its headers and its whole body, with a ``…`` for values that vary."""
    lines = [title]
    for name, value in sorted(message.headers):
        lines.append(f"{name}: {'…' if varies(name) else value}")
    body = body_text(message.body or b"", sys.maxsize)
    return "\n".join([*map(printable_line, lines), body])


@app.command()
def audit(
    names: list[str] = typer.Argument(None, help="Cassettes, files or folders."),
    secrets: bool = typer.Option(False, "--secrets", help="Leave personal data out."),
    keep: list[str] = KEEP,
) -> None:
    """Look for secrets and personal data; exit with 1 if there are any.

    In a folder, it reads cassettes, HAR files and notebooks. A cassette that cannot
    be read counts as one.
    """
    from ..share.audit import audited

    if not names:
        raise CassetteError(
            "Nothing was named to look into.",
            "Name cassettes, files or folders: directmail-lab cassette audit cassettes.",
        )
    paths = _files_of(names, ".ipynb")
    count = 0
    unread = 0
    for path in paths:
        if path.read_bytes().startswith(_POINTER):
            say(f"{path} was not searched: its content is in git-lfs. Run git lfs pull.", err=True)
            unread += 1
            continue
        findings, problem = audited(path, keep)
        lines = [str(found) for found in findings if found.kind == "secret" or not secrets]
        if problem:
            lines.append(problem)
        for line in lines:
            say(line)
        count += len(lines)
    rest = f", and {plural(unread, 'file')} not searched" if unread else ""
    say(f"{count} found in {plural(len(paths) - unread, 'file')}{rest}.", err=True)
    # The hook of a commit must pass a pointer, which has nothing to leak.
    if count or (unread and not secrets):
        raise FOUND


@app.command()
def redact(
    name: str = typer.Argument(help="A cassette, a file or a folder."),
    rules: list[str] = typer.Option(
        [], "--redact", "-r", help='"personal", or the name of a field. Repeatable.'
    ),
    keep: list[str] = KEEP,
) -> None:
    """Remove the credentials from a cassette or a folder.

    With --redact, stable pseudonyms replace personal data, too: "personal", or
    fields such as "name" and "company.name". The files get directmail_lab's
    layout. No copy of an old file is kept. The command exits with 1 if a
    credential is left.
    """
    from ..share.audit import audit as findings_of

    problems = []
    left = []
    unchanged = 0
    for path in _files_of([name]):
        try:
            if files.redact(path, [*rules, *map("-{}".format, keep)], notice=say):
                say(f"Changed {path}.")
            else:
                unchanged += 1
            left += [each for each in findings_of(path) if each.kind == "secret"]
        except CassetteError as error:
            problems.append(error)
    if unchanged:
        say(f"Nothing to change in {plural(unchanged, 'file')}.")
    if problems:
        raise CassetteError("\n".join(map(str, problems)))
    for finding in left:
        say(finding, err=True)
    if left:
        say("To remove what is left, record it with before_record=….", err=True)
        raise FOUND


def _files_of(names: list[str], *more_suffixes: str) -> list[Path]:
    """Return the files of cassettes' names, files, and folders, and more files of folders."""
    paths: list[Path] = []
    for name in names:
        if not is_folder(name):
            paths.append(find_cassette(name))
            continue
        below = list(_cassettes_below(Path(name), (".har", *more_suffixes)))
        if not below:
            raise CassetteError(
                f"The folder {name} has no cassette.", "Name a folder or a file that has one."
            )
        paths += below
    return paths


def _cassettes_below(folder: Path, other_suffixes: tuple[str, ...]) -> Iterator[Path]:
    """Yield the cassettes below a folder: vcrpy may have written them without a suffix."""
    for path in sorted(folder.rglob("*")):
        if not (path.is_file() and stays_in(folder, path)):
            continue
        is_candidate = path.suffix in ("", *SUFFIXES) and _INTERACTIONS.search(path.read_bytes())
        if is_candidate or path.suffix.lower() in other_suffixes:
            yield path


@app.command()
def repair(name: str = NAME) -> None:
    """Add to a cassette what a killed recording left beside it.

    It stands in NAME.yaml.part, which is then removed.
    """
    problems = files.repair(find_cassette(name))
    say("\n".join(f"{name}: {problem}" for problem in problems) or f"{name} is clean.")


@app.command()
def convert(
    source: str = NAME,
    target: Path = typer.Argument(help="The .yaml file to write."),
    force: bool = FORCE,
) -> None:
    """Convert HAR, or vcrpy's YAML or JSON, to our layout.

    vcrpy loads it, too.
    """
    target = new_cassette_path(target)
    refuse_existing(target, force)
    count = files.convert(find_cassette(source), target, notice=say)
    say(f"Wrote {plural(count, 'interaction')} to {target}.")


@app.command("test")
def write_tests(
    name: str = typer.Argument(help="A cassette's name, a file or a folder."),
    target: Path | None = typer.Option(
        None, "--to", help="The file to write; for a folder, where each cassette's file goes."
    ),
    force: bool = FORCE,
) -> None:
    """Print first pytest tests of a cassette, or write them.

    There is one test for each path that was read and each status that it had, with
    the fields of the response and their types. The tests replay the cassette.
    """
    from .first_tests import first_tests

    if not is_folder(name):
        path = find_cassette(name)
        _write(target, first_tests(read_cassette(path), name), force)
        return
    problems = []
    for path in _files_of([name]):
        own = path.relative_to(name).with_suffix("").as_posix()
        file = re.sub(r"\W+", "_", f"test_{own}")
        try:
            text = first_tests(read_cassette(path), command_name(path, own))
        except CassetteError as error:
            problems.append(str(error))
        else:
            _write((target or Path()) / f"{file}.py", text, force)
    if problems:
        raise CassetteError("\n".join(problems))


def _write(path: Path | None, text: str, force: bool) -> None:
    if path is None:
        typer.echo(text, nl=False)
        return
    refuse_existing(path, force)
    path.write_text(text, encoding="utf-8")
    say(f"Wrote {path}.")


@app.command()
def page(
    name: str = NAME,
    target: Path | None = typer.Option(
        None, "--to", help="The file to write; by default, NAME.html in this folder."
    ),
    force: bool = FORCE,
) -> None:
    """Write a cassette as one HTML file.

    Any web browser opens it from disk. Nothing is written if the cassette contains a secret.
    """
    from ..share.cassette_page import save_page

    path = find_cassette(name)
    target = target or Path(f"{path.stem}.html")
    refuse_existing(target, force)
    save_page(read_cassette(path), target)
    say(f"Wrote {target} ({target.stat().st_size:,} bytes). Open it in a web browser.")
