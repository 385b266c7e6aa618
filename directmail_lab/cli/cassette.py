"""``directmail-lab cassette …``: show, check, repair and convert cassettes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

import typer

import directmail_lab as dm

from ..cassettes import (
    cassettes_by_name,
    convert as files,
    find_cassette,
    read_cassette,
)
from ..cassettes.library import SUFFIXES, is_folder, stays_in
from ..display import ProgressBar, plural, printable
from ..errors import CassetteError, CassetteFormatError
from ..exchange.bodies import plain_text
from ..exchange.changes import varies
from ..exchange.values import Request, Response
from .output import (
    FORCE,
    FOUND,
    NAME,
    complete_cassette,
    one_of,
    refuse_existing,
    say,
    show,
)

if TYPE_CHECKING:
    from ..share.audit import Audited

app = typer.Typer(no_args_is_help=True, help="Show, check, repair and convert cassettes.")

_PLACES = typer.Argument(help="Cassettes, files or folders.", autocompletion=complete_cassette)
_PLACE = typer.Argument(help="A cassette, a file or a folder.", autocompletion=complete_cassette)
# The member of each cassette, in YAML and in JSON.
_INTERACTIONS = re.compile(rb'(?m)^interactions:|"interactions"\s*:')


@app.command("list")
def list_(
    folder: Path | None = typer.Argument(
        None, exists=True, file_okay=False, help="List what is below this folder, such as tests."
    ),
) -> None:
    """List the cassettes that can be found by name, or those below a folder.

    The day and the count of a file that cannot be read are empty.
    """
    import pandas as pd

    if folder is None:
        found = list(cassettes_by_name().items())
    else:
        paths = _cassettes_below(folder)
        found = [(path.relative_to(folder).with_suffix("").as_posix(), path) for path in paths]
    rows = []
    for name, path in found:
        count, day = _count_and_day(path)
        rows.append((name, count, day, path.stat().st_size))
    frame = pd.DataFrame(rows, columns=["name", "interactions", "recorded", "bytes"])
    frame["interactions"] = frame["interactions"].astype("Int64")
    show(frame, list(frame.columns))


def _count_and_day(path: Path) -> tuple[int | None, str | None]:
    """Return how many interactions a cassette has, and the day on which the last was recorded."""
    with suppress(CassetteError):
        recording = read_cassette(path)
        if len(recording):
            at = recording.interaction(len(recording)).recorded_at
            return len(recording), f"{at:%Y-%m-%d}" if at else None
    return None, None


@app.command("show")
def show_(
    name: str = NAME,
    number: int | None = typer.Option(
        None, "--number", "-n", help="Show this interaction in full."
    ),
    full: bool = typer.Option(
        False, "--full", help="Show all in full, without what differs from run to run: for git."
    ),
) -> None:
    """Show a cassette's interactions, one on each line, or one of them in full."""
    if number is not None:
        typer.echo(repr(dm.interactions(name, number=number)), nl=False)
        return
    if full:
        typer.echo(_in_full(find_cassette(name)), nl=False)
        return
    frame = dm.interactions(name)
    show(frame.reset_index(), ["number", "method", "path", "query", "status", "at"])
    if frame.attrs.get("problem"):
        say(f"{name}: {frame.attrs['problem']}.", err=True)


def _in_full(path: Path) -> str:
    """Return the text of a cassette that git compares, or its file if that is damaged."""
    texts = []
    try:
        for each in read_cassette(path):
            status = f"{each.response.status} {each.response.reason}"
            request = [f"{each.request.method} {each.request.uri}", *_lines_of(each.request)]
            texts.append("\n".join([*request, status, *_lines_of(each.response), ""]))
    except CassetteFormatError:  # such as a conflict of git
        texts = [path.read_text(encoding="utf-8", errors="replace")]
    texts.sort(key=lambda text: text.partition("\n")[0])
    return printable("\n".join(texts))


def _lines_of(message: Request | Response) -> list[str]:
    """Return the headers and the whole body of a message, with a ``…`` for values that vary."""
    lines = []
    for name, value in sorted(message.headers):
        lines.append(f"{name}: {'…' if varies(name) else value}")
    body = message.body or b""
    text = plain_text(body)
    if text is None:
        text = f"({len(body):,} bytes, not text)"
    with suppress(ValueError, RecursionError):
        text = json.dumps(json.loads(text), ensure_ascii=False, indent=2)
    return [*lines, text]


@app.command()
def audit(
    names: list[str] = _PLACES,
    secrets: bool = typer.Option(False, "--secrets", help="Leave personal data out."),
) -> None:
    """Look for secrets and personal data; exit with 1 if there are any.

    For a folder, the command prints a line for each kind of finding, with its number of files. It
    also says which cassettes cannot be read.
    """
    from ..share.audit import audited

    paths = _files_of(names)
    found = []
    with ProgressBar(len(paths), desc="Audit", unit="file") as bar:
        for path in paths:
            each = audited(path)
            wanted = [
                finding for finding in each.findings if finding.kind == "secret" or not secrets
            ]
            found.append(each._replace(findings=wanted))
            bar.update()
    count = sum(len(each.findings) for each in found)
    if any(map(is_folder, names)):
        lines = list(_summary(found))
    else:
        lines = [str(finding) for each in found for finding in each.findings]
    for line in lines:
        say(line)
    say(f"{count} found in {plural(len(paths), 'file')}.", err=True)
    if lines:
        raise FOUND


def _summary(audited: list[Audited]) -> Iterator[str]:
    """Yield a line for each kind of finding: in how many files it is, and its first place."""
    places: dict[str, list[str]] = {}
    for each in audited:
        first = {finding.what: finding.where for finding in reversed(each.findings)}
        for what, where in first.items():
            places.setdefault(what, []).append(where)
    for what, found in places.items():
        yield f"{plural(len(found), 'file')}: {what}, first in {found[0]}"
    yield from (each.problem for each in audited if each.problem)


@app.command()
def redact(
    name: str = _PLACE,
    rules: list[str] = typer.Option(
        [], "--redact", "-r", help='"personal", or the name of a field. Repeatable.'
    ),
) -> None:
    """Remove what the audit finds as a credential from a cassette, or from a folder's.

    With --redact, replace personal data by stable pseudonyms, too: "personal", or fields such as
    "name" and "company.name". The files get our layout, but JSON stays JSON. No copy of an old file
    is kept, since it would have what is to be removed. The command exits with 1 if a credential is
    left.
    """
    from ..share.audit import audit as findings_of

    problems = []
    left = []
    unchanged = 0
    for path in _files_of([name]):
        try:
            if files.redact(path, rules):
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


def _files_of(names: list[str]) -> list[Path]:
    """Return the files of cassettes' names, files, and folders."""
    paths: list[Path] = []
    for name in names:
        if is_folder(name):
            paths += _cassettes_below(Path(name))
        else:
            paths.append(find_cassette(name))
    return paths


def _cassettes_below(folder: Path) -> Iterator[Path]:
    """Yield the cassettes below a folder: vcrpy may have written them without a suffix."""
    for path in sorted(folder.rglob("*")):
        is_candidate = path.suffix in ("", *SUFFIXES) and path.is_file() and stays_in(folder, path)
        if is_candidate and _INTERACTIONS.search(path.read_bytes()):
            yield path


@app.command()
def repair(name: str = NAME) -> None:
    """Add what a killed recording left beside a cassette, in NAME.yaml.part, to its file."""
    problems = files.repair(find_cassette(name))
    say("\n".join(f"{name}: {problem}" for problem in problems) or f"{name} is clean.")


@app.command()
def convert(
    source: str = NAME,
    target: Path = typer.Argument(help="The file to write."),
    to: str | None = one_of(
        get_args(files.Layout), None, "The layout of that file; by default, its name decides."
    ),
    force: bool = FORCE,
) -> None:
    """Convert a cassette to our layout, to vcrpy's YAML or JSON, or to HAR 1.2."""
    refuse_existing(target, force)
    layout = cast("files.Layout", to) if to else files.layout_of(target)
    count = files.convert(find_cassette(source), target, layout, notice=say)
    say(f"Wrote {plural(count, 'interaction')} to {target}.")


@app.command()
def page(
    name: str = NAME,
    target: Path | None = typer.Option(
        None, "--to", help="The file to write; by default, NAME.html in this folder."
    ),
    force: bool = FORCE,
) -> None:
    """Write a cassette as one HTML file, which any web browser opens from disk.

    Nothing is written if the cassette contains a secret.
    """
    from ..share.cassette_page import save_page

    path = find_cassette(name)
    target = target or Path(f"{path.stem}.html")
    refuse_existing(target, force)
    save_page(read_cassette(path), target)
    say(f"Wrote {target} ({target.stat().st_size:,} bytes). Open it in a web browser.")
