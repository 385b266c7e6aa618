"""``directmail-lab cassette …``: show, check, repair and convert cassettes."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import cast, get_args

import typer

import directmail_lab as dm

from ..cassettes import cassettes_by_name, convert as files, read_cassette
from ..cassettes.library import cassettes_in, stays_in
from ..cassettes.recording import most_days
from ..display import ProgressBar, plural
from .output import (
    CSV,
    FORCE,
    FOUND,
    JSON,
    NAME,
    cassette_file,
    complete_cassette,
    one_of,
    refuse_existing,
    show,
)

app = typer.Typer(no_args_is_help=True, help="Show, check, repair and convert cassettes.")

_BEGINS = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*(?:interactions:|\{\s*"version":\s*\d+,\s*"interactions":)'
)
_NAMES = typer.Argument(help="Cassettes, or files.", autocompletion=complete_cassette)


@app.command("list")
def list_(as_json: bool = JSON, as_csv: bool = CSV) -> None:
    """List the cassettes that can be found by name."""
    import pandas as pd

    rows = [(name, path.stat().st_size, str(path)) for name, path in cassettes_by_name().items()]
    frame = pd.DataFrame(rows, columns=["name", "bytes", "path"])
    show(frame, as_json=as_json, as_csv=as_csv)


@app.command("show")
def show_(
    name: str = NAME,
    number: int | None = typer.Option(
        None, "--number", "-n", help="Show this interaction in full."
    ),
    as_json: bool = JSON,
    as_csv: bool = CSV,
) -> None:
    """Show a cassette's interactions, one on each line, or one of them in full."""
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
    """Look for secrets and personal data; exit with 1 if there are any."""
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
    """Replace the personal data in a cassette with stable pseudonyms.

    With --redact, replace only these fields: "name", a dotted path "company.name", or "personal".
    """
    changed = files.redact(cassette_file(name), rules)
    typer.echo(f"Changed {plural(changed, 'interaction')} of {name}.")


@app.command()
def repair(name: str = NAME) -> None:
    """Close an interrupted recording, and keep every whole interaction.

    The command also names the files that interrupted recordings left next to the cassette.
    """
    problems = files.repair(cassette_file(name))
    typer.echo("\n".join(f"{name}: {problem}" for problem in problems) or f"{name} is clean.")


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
    count = files.convert(cassette_file(source), target, layout, notice=typer.echo)
    typer.echo(f"Wrote {plural(count, 'interaction')} to {target}.")


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
    from ..widgets.page import save_page

    path = cassette_file(name)
    target = target or Path(f"{path.stem}.html")
    refuse_existing(target, force)
    save_page(read_cassette(path), target)
    typer.echo(f"Wrote {target} ({target.stat().st_size:,} bytes). Open it in a web browser.")


@app.command()
def adopt(
    folder: Path = typer.Argument(
        help="The folder of a test suite's cassettes.", exists=True, file_okay=False
    ),
    write: bool = typer.Option(False, "--write", help="Redact the cassettes and rewrite them."),
    max_age: str = typer.Option("365 days", help="Report cassettes that are older."),
    serializer: str | None = typer.Option(
        None, help="The suite's own serializer, as module.name. Its code is run."
    ),
) -> None:
    """Look through a folder of cassettes that vcrpy or pytest-recording wrote.

    The command names the cassettes that contain a secret, have comments, do not replay, cannot be
    read, or were recorded by a client that does not go through a session. It counts the old ones,
    and exits with 1 if there are any of these. With --write, it redacts the cassettes and rewrites
    them in our layout, without comments. They still replay, and vcrpy still loads them.
    """
    from . import adopting

    most_days(max_age)  # raises an error before anything is changed
    named = {path for _, path in cassettes_in(folder)}
    all_files = [each for each in folder.rglob("*") if stays_in(folder, each) and each.is_file()]
    packed = sorted(filter(adopting.is_packed, all_files))
    paths = sorted(named.union(filter(_is_of_vcrpy, all_files), packed if serializer else ()))
    ignore = adopting.filtered_parameters(folder)
    looks = []
    for look in adopting.look_through(
        paths, max_age, write=write, ignore=ignore, serializer=serializer
    ):
        looks.append(look)
        if look.problems:
            typer.echo("\n    ".join([str(look.path), *look.problems]))
    counts = Counter(look.kind for look in looks)
    shown = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    done = "Rewrote" if write else "Changed nothing: --write would rewrite"
    typer.echo(f"\n{plural(len(looks), 'file')}: {shown or 'no cassettes'}.")
    if others := [look.path for look in looks if look.kind == adopting.OTHER]:
        typer.echo(f"The first without interactions, so no cassette, is {others[0]}.")
    if packed and not serializer:
        typer.echo(
            f"Passed over {plural(len(packed), 'file')} of a suffix that vcrpy does not know. The "
            f"first is {packed[0]}. If they are cassettes, name the suite's own serializer: "
            "--serializer=module.name"
        )
    typer.echo(f"{done} {plural(counts[adopting.THEIRS], 'cassette')}, redacted.")
    for text in adopting.settings(folder, looks, ignore, max_age):
        typer.echo(text)
    if any(look.problems or look.old_days is not None for look in looks):
        raise FOUND


def _is_of_vcrpy(path: Path) -> bool:
    """Return whether a file is a cassette without a suffix, which vcrpy names after a function."""
    if path.suffix:
        return False
    with path.open("rb") as file:
        return _BEGINS.match(file.read(200)) is not None


@app.command()
def openapi(
    names: list[str] = _NAMES,
    title: str = typer.Option("Recorded API", help="The name of the API in the document."),
    version: str = typer.Option("0", help="The version of the API in the document."),
    paths: list[str] = typer.Option(
        [], "--path", help='A template such as "/v1/domains/{domain}". Repeatable.'
    ),
) -> None:
    """Print an OpenAPI 3.1 document, in YAML, of what cassettes contain."""
    sources = [cassette_file(name) for name in names]
    document = dm.openapi(sources, title=title, version=version, paths=paths)
    typer.echo(document.text(), nl=False)
