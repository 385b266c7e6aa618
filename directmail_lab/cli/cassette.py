"""``directmail-lab cassette …``: show, check, repair and convert cassettes."""

from __future__ import annotations

from pathlib import Path

import typer

import directmail_lab as dm

from ..cassettes import cassettes_by_name, convert as files, read_cassette
from ..display import plural
from ..errors import CassetteError
from .output import CSV, FORCE, FOUND, JSON, cassette_file, complete_cassette, refuse_existing, show

app = typer.Typer(no_args_is_help=True, help="Show, check, repair and convert cassettes.")

_NAME = typer.Argument(help="A cassette's name, or a file.", autocompletion=complete_cassette)
_NAMES = typer.Argument(help="Cassettes, or files.", autocompletion=complete_cassette)


@app.command("list")
def list_(as_json: bool = JSON, as_csv: bool = CSV) -> None:
    """List the cassettes that are found by name, with their problems if they have any."""
    import pandas as pd

    rows = [_describe(path) for path in cassettes_by_name().values()]
    columns = ["name", "interactions", "recorded_at", "problem", "layout", "bytes", "path"]
    frame = pd.DataFrame(rows, columns=columns).convert_dtypes()
    started_at = pd.to_datetime(frame["recorded_at"], utc=True, format="ISO8601", errors="coerce")
    show(frame.assign(recorded_at=started_at), as_json=as_json, as_csv=as_csv)


@app.command("show")
def show_(
    name: str = _NAME,
    number: int | None = typer.Option(None, "--number", "-n", help="Show this one in full."),
    as_json: bool = JSON,
    as_csv: bool = CSV,
) -> None:
    """Show a cassette's interactions, a line each, or one of them in full."""
    from ..questions.interactions import show_interaction

    path = cassette_file(name)
    if number is not None:
        if as_json or as_csv:
            raise typer.BadParameter("With --number, leave out --json and --csv.")
        typer.echo(repr(show_interaction(path, number)), nl=False)
        return
    frame = dm.read_interactions(path)
    if as_json or as_csv:
        frame.insert(0, "number", range(1, len(frame) + 1))
    else:
        frame.index += 1
    show(frame, as_json=as_json, as_csv=as_csv)
    if frame.attrs["problem"]:
        typer.echo(f"{name}: {frame.attrs['problem']}.", err=True)


@app.command()
def audit(
    names: list[str] = _NAMES,
    secrets_only: bool = typer.Option(False, "--secrets-only", help="Ignore personal data."),
) -> None:
    """Look for secrets and personal data; exits with 1 if there are any."""
    from ..questions.audit import audit_cassette, audit_notebook

    findings = [
        finding
        for path in map(cassette_file, names)
        for finding in (audit_notebook if path.suffix == ".ipynb" else audit_cassette)(path)
        if not (secrets_only and finding.kind == "personal")
    ]
    typer.echo("".join(f"{finding}\n" for finding in findings), nl=False)
    typer.echo(f"{len(findings)} found in {plural(len(names), 'file')}.", err=True)
    if findings:
        raise FOUND


@app.command()
def redact(
    name: str = _NAME,
    rules: list[str] = typer.Option(
        ["personal"],
        "--redact",
        "-r",
        help='A field, a dotted path, or "personal": names, addresses and the like. Repeatable.',
    ),
) -> None:
    """Replace personal data in a cassette by stable pseudonyms, in place."""
    changed = files.redact(cassette_file(name), rules)
    typer.echo(f"Changed {plural(changed, 'interaction')} of {name}.")


@app.command()
def repair(name: str = _NAME) -> None:
    """Close a recording that was interrupted; every whole interaction is kept.

    The file that an interrupted record mode "all" left beside the cassette is put into it.
    """
    problems = files.repair(cassette_file(name))
    typer.echo("\n".join(f"{name}: {problem}" for problem in problems) or f"{name} is clean.")


@app.command()
def convert(
    source: str = _NAME,
    target: Path = typer.Argument(help="The file to write."),
    to: files.Layout | None = typer.Option(
        None, help="Its layout; by default by its name's ending."
    ),
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
    force: bool = FORCE,
) -> None:
    """Describe what cassettes hold as an OpenAPI 3.1 document, on standard output or in a file."""
    from ..questions.openapi import written

    if out is not None:
        refuse_existing(out, force)
    document = dm.openapi([cassette_file(name) for name in names])
    if out is None:
        typer.echo(written(document), nl=False)
    else:
        out.write_text(written(document, as_json=out.suffix == ".json"), encoding="utf-8")


@app.command()
def verify(
    name: str = _NAME,
    ignore: list[str] = typer.Option([], help="A path or header that may change. Repeatable."),
    max_age: str | None = typer.Option(None, help='Fail on an older recording: "90 days".'),
    as_json: bool = JSON,
    as_csv: bool = CSV,
) -> None:
    """Send a cassette's reads again and list the differences; exits with 1 if there are any."""
    changes = dm.drift(cassette_file(name), ignore=ignore, max_age=max_age, on_old="raise")
    show(changes, as_json=as_json, as_csv=as_csv)
    if len(changes):
        raise FOUND


def _describe(path: Path) -> dict[str, object]:
    try:
        loaded = read_cassette(path)
    except CassetteError as error:
        return {"name": path.stem, "problem": str(error), "path": str(path)}
    return {
        "name": path.stem,
        "interactions": len(loaded.interactions),
        "recorded_at": loaded.metadata.get("started_at"),
        "layout": loaded.layout,
        "bytes": path.stat().st_size,
        "problem": loaded.problem,
        "path": str(path),
    }
