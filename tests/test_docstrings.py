"""What the docstrings and the messages say to a person who types."""

import ast
import doctest
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import directmail_lab as dm
from directmail_lab.arguments import RECORD_MODES
from directmail_lab.cassettes import Cassette
from directmail_lab.sessions.session import SessionOptions

PACKAGE = Path(str(dm.__file__)).parent
NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def test_a_call_in_a_message_can_be_pasted_into_a_notebook():
    """It has `dm.` in front, in docstrings too; only the list of all calls has none."""
    names = [name for name in dir(dm) if inspect.isfunction(getattr(dm, name))]
    calls = rf"(?<![\w.])(?:{'|'.join(names)})\((?![,?])"
    bare = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and text != dm.__doc__ and re.search(calls, text):
                bare.append(f"{path.name}:{node.lineno}")

    assert len(names) > 25
    assert bare == []


README = (PACKAGE.parent / "README.md").read_text(encoding="utf-8")
(EXPLORE,) = re.findall(r"^## Explore$.*?^```python notest\n(.*?)^```$", README, re.M | re.S)
CALLS = [re.findall(r"dm\.(\w+)\(", line.split("#")[0])[0] for line in EXPLORE.splitlines()]


WITH_EXAMPLES = {name for name in dir(dm) if ">>>" in (inspect.getdoc(getattr(dm, name)) or "")}


@pytest.mark.parametrize("name", sorted({*CALLS, *WITH_EXAMPLES}))
def test_the_examples_of_a_call_print_what_they_show(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    call = getattr(dm, name)
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    runner, said = doctest.DocTestRunner(verbose=False, optionflags=options), list[str]()
    (examples,) = doctest.DocTestFinder(recurse=False).find(call, name, globs={"dm": dm})
    runner.run(examples, out=said.append)

    assert not said, "".join(said)
    assert any(f"dm.{name}(" in example.source for example in examples.examples)


def documented() -> Iterator[tuple[str, int, Any]]:
    """Yield each public name that has a docstring, and how far help() indents it."""
    for name in dir(dm):
        if name != "__version__":
            yield name, 4, getattr(dm, name)
    for owner in (dm.Session, dm.stand_in):
        for name, value in inspect.getmembers(owner):
            is_shown = inspect.isroutine(value) or inspect.isdatadescriptor(value)
            if is_shown and not name.startswith("_"):
                yield f"{owner.__name__}.{name}", 8, value
    for name, value in inspect.getmembers(dm.errors, inspect.isclass):
        if issubclass(value, Exception):
            yield name, 4, value


def test_help_fits_in_80_columns():
    names = dict[str, str]()
    for name, indent, value in documented():
        widest = max((inspect.getdoc(value) or "").splitlines() or [""], key=len)
        if indent + len(widest) > 80:
            names[name] = widest

    assert names == {}


WITH_TABLE = [
    name for name in dir(dm) if re.search(r"(?m)^ *=+ =", getattr(dm, name).__doc__ or "")
]


@pytest.mark.parametrize("name", WITH_TABLE)
def test_the_table_of_a_docstring_names_each_column(name):
    """Whoever adds a column also says what it means."""
    call = getattr(dm, name)
    lines = (inspect.getdoc(call) or "").splitlines()
    borders = [at for at, line in enumerate(lines) if re.match(r" *=+ =", line)]
    width = lines[borders[0]].index("= ") + 1
    rows = [line[:width] for line in lines[borders[0] : borders[-1]] if "=" not in line[:width]]
    named = [each for each in " ".join(rows).replace(",", " ").split() if each != "column"]
    frame = call("first-look", *["first-look"] * (name == "drift"))

    too_wide = [line for line in lines[borders[0] : borders[-1]] if line[width : width + 1].strip()]
    assert not too_wide, f"Widen the first column of the table in the docstring of {name}"
    assert named == [*frame.columns], f"Name each column in the docstring of {name}, in their order"


# What these are for has another word: service address, key, operation, allowance, refused, sign in.
AVOIDED = re.compile(
    r"(?<![\w`/.=-])(?:base (?:address(?:es)?|URLs?)|API (?:keys?|tokens?)|endpoints?|quotas?"
    r"|exhausted|throttled|log(?:ged)? in|online|offline|playback)(?![\w`=-])",
    re.IGNORECASE,
)


def texts() -> Iterator[tuple[str, str]]:
    """Yield each text that a person may read, and where it is."""
    for path in PACKAGE.rglob("*.py"):
        if "node_modules" not in path.parts:
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield f"{path.name}:{node.lineno}", node.value
    root = PACKAGE.parent
    for path in (
        *root.glob("R*.md"),
        *root.glob("notebooks/*.md"),
        *PACKAGE.glob("notebook/src/*.ts"),
    ):
        yield path.name, path.read_text("utf-8")


@pytest.mark.parametrize(
    "text",
    [
        str(dm.Session.record.__doc__),
        str(Cassette.__doc__),
        (NOTEBOOKS / "glossary.md").read_text("utf-8"),
        (NOTEBOOKS / "04-record-and-replay.ipynb").read_text("utf-8"),
    ],
    ids=["record", "Cassette", "the glossary", "tutorial 4"],
)
def test_each_record_mode_is_described(text):
    assert {mode for mode in RECORD_MODES if not re.search(rf"[`\"]{mode}[`\\\"]", text)} == set()


@pytest.mark.parametrize("call", [dm.connect, dm.login, dm.Session])
def test_each_option_of_a_session_is_described(call):
    words = set(re.findall(r"\w+", str(call.__doc__)))

    assert SessionOptions.__annotations__.keys() - words == set()


def test_one_thing_has_one_word():
    """The list of words is ours; what another program calls its own stays."""
    found = [(place, word[0]) for place, text in texts() for word in AVOIDED.finditer(text)]

    assert found == []
