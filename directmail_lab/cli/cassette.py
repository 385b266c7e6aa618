"""``directmail-lab cassette …``: show, check, repair and convert cassettes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..cassettes.convert import Layout
from ..errors import CassetteError
from .output import AsCsv, AsJson, CassetteArgument, Exit, cassette_file, names_of_cassettes, show

app = typer.Typer(no_args_is_help=True, help="Show, check, repair and convert cassettes.")


@app.command("list")
def list_(as_json: AsJson = False, as_csv: AsCsv = False) -> None:
    """List the cassettes that a name finds, with what is wrong with them if anything is."""
    import pandas as pd

    from ..cassettes import cassettes_by_name

    rows = [_about(path) for path in cassettes_by_name().values()]
    columns = ["name", "interactions", "recorded_at", "layout", "bytes", "problem", "path"]
    show(pd.DataFrame(rows, columns=columns), as_json=as_json, as_csv=as_csv)


@app.command("show")
def show_(
    name: CassetteArgument,
    number: Annotated[
        int | None, typer.Option("--number", "-n", help="Show this one in full, counted from 1.")
    ] = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Show a cassette's interactions, a line each, or one of them in full."""
    from ..cassettes.view import read_interactions, show_interaction

    path = cassette_file(name)
    if number is not None:
        if as_json or as_csv:
            raise typer.BadParameter(
                "One interaction is shown as text: leave out --json and --csv."
            )
        typer.echo(repr(show_interaction(path, number)), nl=False)
        return
    frame = read_interactions(path)
    frame.insert(0, "number", range(1, len(frame) + 1))
    show(frame, as_json=as_json, as_csv=as_csv)
    if frame.attrs["problem"]:
        typer.echo(f"{name}: {frame.attrs['problem']}.", err=True)


@app.command()
def audit(
    names: Annotated[
        list[str],
        typer.Argument(help="Cassettes, notebooks, or files.", autocompletion=names_of_cassettes),
    ],
    secrets_only: Annotated[
        bool, typer.Option("--secrets-only", help="Do not look for personal data.")
    ] = False,
) -> None:
    """Look for secrets and personal data; exits with 1 where there are any."""
    from ..display import plural
    from ..sharing.audit import audit_cassette, audit_notebook

    found = []
    for name in names:
        path = cassette_file(name)
        look = audit_notebook if path.suffix == ".ipynb" else audit_cassette
        found += [each for each in look(path) if not (secrets_only and each.kind == "personal")]
    for each in found:
        typer.echo(str(each))
    typer.echo(f"{len(found)} found in {plural(len(names), 'file')}.", err=True)
    if found:
        raise typer.Exit(Exit.FOUND)


@app.command()
def redact(
    name: CassetteArgument,
    rules: Annotated[
        list[str] | None,
        typer.Option(
            "--redact",
            "-r",
            help='A field, a dotted path, or "personal" (names, addresses, e-mail and the like), '
            "which is the default. Repeatable.",
        ),
    ] = None,
) -> None:
    """Replace personal data in a cassette by stable pseudonyms, in place."""
    from ..cassettes.convert import redact as redact_file
    from ..display import plural

    changed = redact_file(cassette_file(name), rules or ["personal"])
    typer.echo(f"Changed {plural(changed, 'interaction')} of {name}.")


@app.command()
def repair(name: CassetteArgument) -> None:
    """Close a recording that broke off; every whole interaction is kept.

    The file that an interrupted record mode "all" left beside the cassette is put into it.
    """
    from ..cassettes.convert import repair as repair_file

    found = repair_file(cassette_file(name))
    typer.echo("\n".join(f"{name}: {said}" for said in found) or f"{name} is clean.")


@app.command()
def convert(
    source: CassetteArgument,
    target: Annotated[Path, typer.Argument(help="The file to write.")],
    to: Annotated[
        Layout | None,
        typer.Option(help="Its layout; by default its name's: .har, .json, or lines."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the file if it is there.")
    ] = False,
) -> None:
    """Convert between our lines, vcrpy's YAML and JSON, and HAR 1.2."""
    from ..cassettes.convert import convert as convert_file, layout_of
    from ..display import plural

    if target.exists() and not force:
        raise CassetteError(f"{target} exists already. Give another name, or --force.")
    count = convert_file(cassette_file(source), target, to or layout_of(target))
    typer.echo(f"Wrote {plural(count, 'interaction')} to {target}.")


@app.command("openapi")
def openapi_(
    names: Annotated[
        list[str],
        typer.Argument(help="Cassettes, by name or file.", autocompletion=names_of_cassettes),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Write it to this file, as YAML, or JSON by its name.")
    ] = None,
    examples: Annotated[
        bool, typer.Option("--examples", help="Put in bodies that were seen, redacted.")
    ] = False,
    diff: Annotated[
        Path | None,
        typer.Option(help="Say what changed since this document; exits with 1 where anything did."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the file if it is there.")
    ] = False,
) -> None:
    """Describe what cassettes hold as an OpenAPI 3.1 document, on standard output or in a file."""
    from ..api_changes import api_changes, read_document, written
    from ..describing import openapi

    if out is not None and out.exists() and not force:
        raise CassetteError(f"{out} exists already. Give another name, or --force.")
    old = None if diff is None else read_document(diff)
    document = openapi([cassette_file(name) for name in names], examples=examples)
    if out is not None:
        out.write_text(written(document, as_json=out.suffix == ".json"), encoding="utf-8")
    elif old is None:
        typer.echo(written(document), nl=False)
    if old is not None:
        changes = api_changes(old, document)
        show(changes, as_json=False, as_csv=False)
        if len(changes):
            raise typer.Exit(Exit.FOUND)


@app.command()
def verify(
    name: CassetteArgument,
    ignore: Annotated[
        list[str] | None, typer.Option(help="A path or header that may change. Repeatable.")
    ] = None,
    max_age: Annotated[
        str | None, typer.Option(help='Fail where the recording is older, as "90 days".')
    ] = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Send a cassette's reads again and list the differences; exits with 1 if there are any."""
    from .. import drift

    changed = drift(cassette_file(name), ignore=ignore or (), max_age=max_age, on_old="raise")
    show(changed, as_json=as_json, as_csv=as_csv)
    if len(changed):
        raise typer.Exit(Exit.FOUND)


def _about(path: Path) -> dict[str, object]:
    from ..cassettes import read_cassette

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
