"""``directmail-lab cassette …``: show, check, repair and convert cassettes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import typer

import directmail_lab as dm

from ..cassettes import Cassette, cassettes_by_name, convert as files
from ..cassettes.library import cassettes_in, stays_in
from ..display import ProgressBar, plural
from ..errors import DirectMailLabError
from .output import (
    CSV,
    FORCE,
    FOUND,
    JSON,
    NAME,
    cassette_file,
    complete_cassette,
    refuse_existing,
    show,
)

app = typer.Typer(no_args_is_help=True, help="Show, check, repair and convert cassettes.")

_THEIRS = "of another program"
_NAMES = typer.Argument(help="Cassettes, or files.", autocompletion=complete_cassette)


@app.command("list")
def list_(as_json: bool = JSON, as_csv: bool = CSV) -> None:
    """List the cassettes that are found by name, without reading what is in them."""
    import pandas as pd

    rows = [(name, path.stat().st_size, str(path)) for name, path in cassettes_by_name().items()]
    frame = pd.DataFrame(rows, columns=["name", "bytes", "path"])
    show(frame, as_json=as_json, as_csv=as_csv)


@app.command("show")
def show_(
    name: str = NAME,
    number: int | None = typer.Option(None, "--number", "-n", help="Show this one in full."),
    as_json: bool = JSON,
    as_csv: bool = CSV,
) -> None:
    """Show a cassette's interactions, a line each, or one of them in full."""
    path = cassette_file(name)
    if number is not None:
        typer.echo(repr(dm.interactions(path, number=number)), nl=False)
        return
    frame = dm.interactions(path)
    if as_json or as_csv:
        frame.insert(0, "number", frame.index)
    show(frame, as_json=as_json, as_csv=as_csv)
    if frame.attrs["problem"]:
        typer.echo(f"{name}: {frame.attrs['problem']}.", err=True)


@app.command()
def audit(names: list[str] = _NAMES) -> None:
    """Look for secrets and personal data; exits with 1 if there are any."""
    from ..questions.audit import audit_many

    findings = []
    paths = list(map(cassette_file, names))
    with ProgressBar(len(paths), desc="Audit", unit="file") as bar:
        for found in audit_many(paths):
            findings += found
            bar.update()
    typer.echo("".join(f"{finding}\n" for finding in findings), nl=False)
    typer.echo(f"{len(findings)} found in {plural(len(names), 'file')}.", err=True)
    if findings:
        raise FOUND


@app.command()
def redact(
    name: str = NAME,
    rules: list[str] = typer.Option(["personal"], "--redact", "-r", help="A field. Repeatable."),
) -> None:
    """Replace personal data in a cassette by stable pseudonyms, in place.

    With --redact, only the fields named: "name", a dotted path "company.name", or "personal".
    """
    changed = files.redact(cassette_file(name), rules)
    typer.echo(f"Changed {plural(changed, 'interaction')} of {name}.")


@app.command()
def repair(name: str = NAME) -> None:
    """Close a recording that was interrupted; every whole interaction is kept.

    A file that a recording left beside the cassette is named.
    """
    problems = files.repair(cassette_file(name))
    typer.echo("\n".join(f"{name}: {problem}" for problem in problems) or f"{name} is clean.")


@app.command()
def convert(
    source: str = NAME,
    target: Path = typer.Argument(help="The file to write."),
    to: files.Layout | None = typer.Option(None, help="Its layout; by default by its name."),
    force: bool = FORCE,
) -> None:
    """Convert between our lines, vcrpy's YAML and JSON, and HAR 1.2."""
    refuse_existing(target, force)
    layout = to or files.layout_of(target)
    count = files.convert(cassette_file(source), target, layout, notice=typer.echo)
    typer.echo(f"Wrote {plural(count, 'interaction')} to {target}.")


@app.command()
def adopt(
    folder: Path = typer.Argument(
        help="Of a test suite's cassettes.", exists=True, file_okay=False
    ),
    write: bool = typer.Option(False, "--write", help="Rewrite them in place, redacted."),
    max_age: str = typer.Option("365 days", help="Name those that are older."),
) -> None:
    """Look through the cassettes in a folder that vcrpy or pytest-recording wrote.

    Names those that hold a secret, have comments, are old, do not replay as they are or cannot be
    read; exits with 1 if there are any. With --write they are rewritten in our layout, redacted and
    without their comments, and named is what remains. The same interactions replay, and vcrpy loads
    them still.
    """
    from ..questions.drift import age_problem

    age_problem((), max_age)  # a wrong one is an error before anything is changed
    counts: Counter[str] = Counter()
    has_problems = False
    named = {path for _, path in cassettes_in(folder)}
    without_suffix = (each for each in folder.rglob("*") if stays_in(folder, each))
    for path in sorted(named.union(filter(_is_of_vcrpy, without_suffix))):
        if problems := list(_look_through(path, max_age, counts, write=write)):
            has_problems = True
            typer.echo("\n    ".join([str(path), *problems]))
    shown = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    done = "Rewrote" if write else "Changed nothing: --write would rewrite"
    typer.echo(f"{plural(counts.total(), 'file')}: {shown or 'no cassettes'}.")
    typer.echo(f"{done} {plural(counts[_THEIRS], 'cassette')}, redacted.")
    if has_problems:
        raise FOUND


def _is_of_vcrpy(path: Path) -> bool:
    """Return whether a file is one that vcrpy names without a suffix, after a test's function."""
    start = b"interactions:"
    return not path.suffix and path.is_file() and path.read_bytes()[: len(start)] == start


def _look_through(path: Path, max_age: str, counts: Counter[str], *, write: bool) -> Iterator[str]:
    """Yield what is to be said of a cassette, and count whose it is; with ``write`` adopt it."""
    from ..cassettes.vcr_files import count_comments
    from ..questions.audit import audit as audit_file
    from ..questions.drift import age_problem

    try:
        cassette = Cassette(path, repeat="strict")
        recording = cassette.recording()
        theirs = list(recording) if recording.is_third_party else []
        played = [cassette.play(each.request)[-1][1].response for each in theirs]
        comments = count_comments(path) if theirs else 0
        before = findings = audit_file(path)
        if write and theirs:
            files.adopt(path)
            findings = audit_file(path)
    except (DirectMailLabError, OSError) as error:
        counts["that cannot be adopted"] += 1
        yield f"stays as it is: {error}"
        return
    counts[_THEIRS if theirs else "of ours"] += 1
    if comments:
        had, are = ("had", "were") if write else ("has", "would be")
        yield f"{had} {plural(comments, 'comment')}, which {are} dropped"
    secrets = {each.what: each.where for each in findings if each.kind == "secret"}
    for what, where in secrets.items():
        yield f"holds {what} ({where.removeprefix(f'{path}, ')})"
    if any(each.kind == "secret" and each.where.endswith(", address") for each in before):
        yield "holds a secret in an address: when it is redacted, vcrpy finds no response to it"
    if played != [each.response for each in theirs]:
        yield "does not replay in the order of its recording"
    dated = [each for each in recording if each.recorded_at]
    if dated and (problem := age_problem(dated, max_age)):
        yield problem


@app.command()
def openapi(
    names: list[str] = _NAMES,
    title: str = typer.Option("Recorded API", help="What the document calls the API."),
    version: str = typer.Option("0", help="What it says is the API's version."),
    paths: list[str] = typer.Option([], "--path", help='As "/v1/domains/{domain}". Repeatable.'),
) -> None:
    """Describe what cassettes hold as an OpenAPI 3.1 document, in YAML on standard output."""
    sources = [cassette_file(name) for name in names]
    document = dm.openapi(sources, title=title, version=version, paths=paths)
    typer.echo(document.text(), nl=False)
