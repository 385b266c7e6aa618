"""Which cassettes and packages a notebook's code names, read from its source, nothing run."""

from __future__ import annotations

import ast
import sys
import warnings
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["CassetteUse", "cassette_uses", "code_cells", "imported_packages"]

# The calls that take a cassette, and whether it is their first argument.
_CALLS: Final = {
    "replay": True,
    "record": True,
    "connect": False,
    "rate_limits": True,
    "interactions": True,
    "check_contract": True,
    "findings": True,
    "drift": True,
    "open_cassette": True,
}

_RUNS_PYTHON: Final = frozenset(("time", "timeit", "capture", "prun"))


@dataclass(frozen=True, slots=True)
class CassetteUse:
    """One call with a cassette.

    ``cassette`` is the name, or the path where the code says ``Path("…")``; None where that is only
    known when the code runs. ``call`` is the function's name and ``cell`` counts cells from 1.
    ``records`` says that the call makes the cassette.
    """

    cassette: str | PurePosixPath | None
    call: str
    cell: int
    records: bool


def code_cells(notebook: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Return the source of each code cell of a parsed notebook, with its place among all cells."""
    cells = notebook.get("cells", [])
    return [
        (number, "".join(cell.get("source", "")))
        for number, cell in enumerate(cells, start=1)
        if cell.get("cell_type") == "code"
    ]


def cassette_uses(cells: Sequence[tuple[int, str]]) -> list[CassetteUse]:
    """Return each use of a cassette in a notebook's code, in the order of the cells.

    A name that is a variable is followed to its value where it is assigned one text and no other.
    """
    trees = list(_trees(cells))
    names = _texts_by_name(tree for _, tree in trees)
    return [
        CassetteUse(_value(argument, names), call, cell, _records(call, node))
        for cell, tree in trees
        for node in _calls(tree)
        if (call := _called(node)) in _CALLS
        for argument in _cassette_argument(call, node)
    ]


def imported_packages(cells: Iterable[tuple[int, str]]) -> set[str]:
    """Return the top-level modules that a notebook imports, the standard library's left out."""
    found: set[str] = set()
    for _, tree in _trees(cells):
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add((node.module or "").partition(".")[0])
    return found - set(sys.stdlib_module_names)


def _trees(cells: Iterable[tuple[int, str]]) -> Iterator[tuple[int, ast.Module]]:
    """Yield the cells that can be run at all, magics turned into the calls that they stand for."""
    from IPython.core.inputtransformer2 import TransformerManager

    manager = TransformerManager()  # type: ignore[no-untyped-call]
    waiting = list(reversed(list(cells)))
    while waiting:
        number, source = waiting.pop()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # the reader's own code, not ours
            try:
                tree = ast.parse(manager.transform_cell(source))
            except (SyntaxError, ValueError, RecursionError):
                continue
        yield number, tree
        waiting.extend((number, inner) for inner in _inside_magics(tree))


def _inside_magics(tree: ast.Module) -> list[str]:
    """Return the Python that magics such as ``%time`` and ``%%capture`` run."""
    arguments = [
        [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _called(node) in ("run_line_magic", "run_cell_magic")
    ]
    return [str(given[-1]) for given in arguments if given and given[0] in _RUNS_PYTHON]


def _calls(tree: ast.Module) -> list[ast.Call]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return sorted(calls, key=lambda node: (node.lineno, node.col_offset))


def _called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _cassette_argument(call: str, node: ast.Call) -> list[ast.expr]:
    """Return the argument that names a cassette, or nothing."""
    named = [keyword.value for keyword in node.keywords if keyword.arg == "cassette"]
    first = node.args[:1] if _CALLS[call] and not named else []
    return [
        argument
        for argument in named or first
        # None, a number, a DataFrame made in place: another function of that name.
        if not (isinstance(argument, ast.Constant) and not isinstance(argument.value, str))
    ]


def _records(call: str, node: ast.Call) -> bool:
    modes = [keyword.value for keyword in node.keywords if keyword.arg == "record_mode"]
    replays = all(isinstance(mode, ast.Constant) and mode.value in (None, "none") for mode in modes)
    return (call == "record" and not (modes and replays)) or (call == "connect" and not replays)


def _texts_by_name(trees: Iterable[ast.Module]) -> dict[str, ast.expr]:
    """Return the variables that are given one constant and never anything else."""
    values: dict[str, list[ast.expr | None]] = {}
    for tree in trees:
        assigned = {
            id(target): (target.id, node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                name, value = assigned.get(id(node), (node.id, None))
                values.setdefault(name, []).append(value)
    return {
        name: given[0] for name, given in values.items() if len(given) == 1 and given[0] is not None
    }


def _value(node: ast.expr, names: Mapping[str, ast.expr]) -> str | PurePosixPath | None:
    if isinstance(node, ast.Name):
        node = names.get(node.id, node)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Call) and _called(node) == "Path" and len(node.args) == 1:
        inner = node.args[0]
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            return PurePosixPath(inner.value)
    return None
