"""``directmail-lab cassette …``: show, check, repair and convert cassettes."""

from __future__ import annotations

from pathlib import Path

import typer

import directmail_lab as dm

from ..cassettes import cassettes_by_name, convert as files
from ..display import plural
from .output import CSV, FORCE, FOUND, JSON, cassette_file, complete_cassette, refuse_existing, show

app = typer.Typer(no_args_is_help=True, help="Show, check, repair and convert cassettes.")

_NAME = typer.Argument(help="A cassette's name, or a file.", autocompletion=complete_cassette)
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
    name: str = _NAME,
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
    from ..questions.audit import audit as audit_file

    findings = [finding for name in names for finding in audit_file(cassette_file(name))]
    typer.echo("".join(f"{finding}\n" for finding in findings), nl=False)
    typer.echo(f"{len(findings)} found in {plural(len(names), 'file')}.", err=True)
    if findings:
        raise FOUND


@app.command()
def redact(
    name: str = _NAME,
    rules: list[str] = typer.Option(["personal"], "--redact", "-r", help="A field. Repeatable."),
) -> None:
    """Replace personal data in a cassette by stable pseudonyms, in place.

    With --redact, only the fields named: "name", a dotted path "company.name", or "personal".
    """
    changed = files.redact(cassette_file(name), rules)
    typer.echo(f"Changed {plural(changed, 'interaction')} of {name}.")


@app.command()
def repair(name: str = _NAME) -> None:
    """Close a recording that was interrupted; every whole interaction is kept.

    A file that an interrupted record mode "all" left beside the cassette is named.
    """
    problems = files.repair(cassette_file(name))
    typer.echo("\n".join(f"{name}: {problem}" for problem in problems) or f"{name} is clean.")


@app.command()
def convert(
    source: str = _NAME,
    target: Path = typer.Argument(help="The file to write."),
    to: files.Layout | None = typer.Option(None, help="Its layout; by default by its name."),
    force: bool = FORCE,
) -> None:
    """Convert between our lines, vcrpy's YAML and JSON, and HAR 1.2."""
    refuse_existing(target, force)
    count = files.convert(cassette_file(source), target, to or files.layout_of(target))
    typer.echo(f"Wrote {plural(count, 'interaction')} to {target}.")


@app.command()
def openapi(
    names: list[str] = _NAMES,
    out: Path | None = typer.Option(None, help="The file to write, as YAML, or JSON by its name."),
    title: str = typer.Option("Recorded API", help="What the document calls the API."),
    version: str = typer.Option("0", help="What it says is the API's version."),
    paths: list[str] = typer.Option([], "--path", help='As "/v1/domains/{domain}". Repeatable.'),
    force: bool = FORCE,
) -> None:
    """Describe what cassettes hold as an OpenAPI 3.1 document, on standard output or in a file."""
    if out is not None:
        refuse_existing(out, force)
    sources = [cassette_file(name) for name in names]
    document = dm.openapi(sources, title=title, version=version, paths=paths)
    if out is None:
        typer.echo(document.text(), nl=False)
    else:
        document.save(out)


@app.command()
def verify(
    name: str = _NAME,
    ignore: list[str] = typer.Option([], help="A path or header that may change. Repeatable."),
    as_json: bool = JSON,
    as_csv: bool = CSV,
) -> None:
    """Send a cassette's reads again and list the differences; exits with 1 if there are any."""
    changes = dm.drift(cassette_file(name), ignore=ignore)
    show(changes, as_json=as_json, as_csv=as_csv)
    if len(changes):
        raise FOUND
