"""Every regular expression of the package takes time that is linear in the text.

A search keeps Python's global lock, so a slow pattern would block JupyterLab's server. The test
finds the patterns in the package's modules and in calls of `re`, so a new pattern is tested without
being listed. Patterns that a function builds at run time are listed in `MADE`. A test fails if one
is missing there.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import itertools
import json
import pkgutil
import re
import time
from collections import defaultdict, deque
from contextlib import suppress
from pathlib import Path
from re import _constants as ops, _parser  # type: ignore[attr-defined]
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

import directmail_lab
from directmail_lab.cassettes.files import parse_cassette
from directmail_lab.cassettes.layout import header_text, interaction_text
from directmail_lab.clients import own
from directmail_lab.errors import CassetteFormatError
from directmail_lab.exchange.operations import pattern_of
from directmail_lab.questions import audit
from directmail_lab.redaction import Redactor
from directmail_lab.redaction.key import KeySearch
from directmail_lab.redaction.personal import count_personal, texts_of
from directmail_lab.rewriting import Rewriting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import ModuleType

Pattern = re.Pattern[Any]

KEY = "8fK2+/x1"

ANCHORED = {"match", "fullmatch"}
METHODS = ANCHORED | {"search", "sub", "findall", "finditer", "split"}

LENGTH = 5_000
LEAST_S = 0.005
"""A text of four times the length that takes less time is not measured again."""
MOST_TIMES = 8
MOST_STARTS = 100
"""The pattern for one key is long and repeats its parts, so only some beginnings are tried."""
MOST_REPEATS = 255
"""Fewer repeats are only a constant factor."""

SEEDS = (
    '; name="x"',
    '; name="',
    '; name="x"\r\nA: b\r\n',
    '"password": "',
    '\\"password\\":\\"',
    "- recorded_at: ",
    "://a:b",
    "a@",
    "1.1.",
    "+31 6",
    "%41%",
    "\\\\",
    '"a" :',
    "name=",
    "'a', \"",
    "'a', '",
    "key: ",
    " \t",
    "\r\n",
    "a",
    "0",
    "/",
    "&#x0",
)
"""Texts that once made a pattern slow, or might. Every pattern is tried with each."""


def compiled_by(call: Callable[[], object]) -> list[Pattern]:
    """Return the patterns that a call compiles."""
    made: list[Pattern] = []
    compile_ = re.compile
    with mock.patch.object(re, "compile", lambda *args: made.append(compile_(*args)) or made[-1]):
        call()
    return made


MADE: dict[str, list[Pattern]] = {
    "directmail_lab.clients.own._explain": [
        re.compile(pattern) for _, pattern, *_ in own._MESSAGES
    ],
    "directmail_lab.exchange.operations.pattern_of": compiled_by(
        lambda: pattern_of("/v1/{a}:{b}/{c}")
    ),
    "directmail_lab.pytest_plugin.unused.pytest_collection_modifyitems": [],  # an escaped name
    "directmail_lab.questions.audit.credentials_in": [*map(re.compile, audit._FORMS.values())],
    "directmail_lab.redaction.key.__init__": compiled_by(lambda: KeySearch([KEY, "Schlüßel"])),
    "directmail_lab.rewriting._any_of": compiled_by(lambda: Rewriting("http://a", ["https://b/c"])),
    "directmail_lab.rewriting._own_header": [],  # a literal text
    "directmail_lab.rewriting.to_service": [],  # a literal text
}
"""The patterns that functions build at run time, by function."""


# -- the patterns of the package ---------------------------------------------------------------


def modules() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(directmail_lab.__path__, "directmail_lab."):
        # These modules run a program on import.
        if not found.name.endswith(("__main__", "sitecustomize")):
            yield importlib.import_module(found.name)


@functools.cache
def nodes_of(module: ModuleType) -> list[ast.AST]:
    return list(ast.walk(ast.parse(inspect.getsource(module))))


def held_by(value: object) -> Iterator[Pattern]:
    """Yield a pattern, or all patterns in a nested collection."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        yield from held_by([*value.values()])
    elif isinstance(value, list | tuple | set | frozenset):
        yield from itertools.chain.from_iterable(map(held_by, value))


def calls_of_re(module: ModuleType) -> Iterator[tuple[str, str, Pattern | None]]:
    """Yield the function around each call, the method, and the pattern if it is constant."""
    functions = [node for node in nodes_of(module) if isinstance(node, ast.FunctionDef)]
    for node in nodes_of(module):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=method), args=args):
                if method in METHODS | {"compile"}:
                    line = node.lineno
                    around = [f.name for f in functions if f.lineno <= line <= (f.end_lineno or 0)]
                    yield ".".join((module.__name__, *around[-1:])), method, written(args, module)


def written(args: list[ast.expr], module: ModuleType) -> Pattern | None:
    """Return the pattern of a call's arguments, or None if they are not constants."""
    names = vars(module)
    flags = [ast.unparse(each) for each in args if ast.unparse(each).startswith("re.")]
    try:
        text = eval(ast.unparse(args[0]), names)
        return re.compile(text, eval(" | ".join(flags) or "0", names))
    except (NameError, TypeError):
        return None


def uses_of(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Yield each variable on which a pattern's method is called, and the method."""
    for node in nodes_of(module):
        match node:
            case ast.Attribute(value=ast.Name(id=name) | ast.Attribute(attr=name), attr=method):
                if method in METHODS:
                    yield name, method


def collected() -> dict[str, tuple[Pattern, str]]:
    """Return each pattern and the method to test it with, by the place of its definition."""
    found = [(where, pattern, "finditer") for where, made in MADE.items() for pattern in made]
    uses = defaultdict[tuple[str, str], set[str]](set)  # private names belong to one module
    for module in modules():
        for name, method in uses_of(module):
            uses[module.__name__ if name[0] == "_" else "", name].add(method)
            if not hasattr(module, name):
                uses[module.__name__, ""].add(method)
        found += [
            (where, pattern, tried({method}))
            for where, method, pattern in calls_of_re(module)
            if pattern is not None and method != "compile"
        ]
    for module in modules():
        for name, value in vars(module).items():
            own = uses[module.__name__ if name[0] == "_" else "", name]
            # Patterns in a collection are used through a local variable.
            methods = own or uses[module.__name__, ""]
            found += [
                (f"{module.__name__}.{name}", each, tried(methods)) for each in held_by(value)
            ]
    return {f"{where} {each.pattern!r}": (each, method) for where, each, method in found}


def tried(methods: set[str]) -> str:
    """Return the method to test: one that may match anywhere, if the package uses such a method."""
    if methods and methods <= ANCHORED:
        return "match" if "match" in methods else "fullmatch"
    return "finditer"


# -- the texts for each pattern ----------------------------------------------------------------


def texts_for(pattern: Pattern, length: int) -> Iterator[str]:
    """Yield texts made from a pattern's own parts: its beginnings and its unbounded repeats."""
    parsed = _parser.parse(pattern.pattern, pattern.flags)
    starts = list(dict.fromkeys(["", *beginnings(parsed, "")]))
    starts = starts[:: 1 + len(starts) // MOST_STARTS]
    loops = list(dict.fromkeys(["", *repeated(parsed)]))
    for seed in SEEDS:
        yield grown(seed, length)
    for start, loop in itertools.product(starts, loops):
        yield grown(start + loop, length)
        yield start + grown(loop, length) + "\0"
        yield grown(start + loop + "\0", length)


def grown(piece: str, length: int) -> str:
    return piece * (length // len(piece)) if piece else ""


def parts(code: Any, value: Any) -> list[list[Any]]:
    """Return the sequences inside an element of a parsed pattern."""
    if code is ops.BRANCH:
        return list(value[1])
    if code in (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT):
        return [value[2]]
    if code is ops.SUBPATTERN:
        return [value[3]]
    if code in (ops.ASSERT, ops.ASSERT_NOT):
        return [value[1]]
    return [value] if code is ops.ATOMIC_GROUP else []


def beginnings(sequence: Any, before: str) -> Iterator[str]:
    """Yield texts that match up to each element of a parsed pattern."""
    for code, value in sequence:
        for inner in parts(code, value):
            yield from beginnings(inner, before)
        before += sample(code, value)
        yield before


def repeated(sequence: Any) -> Iterator[str]:
    """Yield a text for each part that repeats without a limit, or often."""
    for code, value in sequence:
        for inner in parts(code, value):
            yield from repeated(inner)
            if "REPEAT" in str(code) and value[1] > MOST_REPEATS:
                yield "".join(itertools.starmap(sample, inner))


def sample(code: Any, value: Any) -> str:
    """Return a text that an element of a parsed pattern matches."""
    if code is ops.LITERAL:
        return chr(value)
    if code is ops.ANY or code is ops.NOT_LITERAL:
        return "x" if value != ord("x") else "y"
    if code is ops.IN:
        return next(char for char in member_candidates(value) if is_member(value, char))
    if code is ops.GROUPREF:
        return "'"  # our group references all repeat a quotation mark
    if code is ops.ASSERT_NOT or (code is ops.ASSERT and value[0] > 0):
        return ""
    inner = "".join(itertools.starmap(sample, next(iter(parts(code, value)), [])))
    return inner * max(1, value[0]) if "REPEAT" in str(code) else inner


def member_candidates(members: Any) -> Iterable[str]:
    own = [chr(value) for code, value in members if code is ops.LITERAL]
    own += [chr(value[0]) for code, value in members if code is ops.RANGE]
    return [*own[:1], *"x0 -/.:\n", *own]


def is_member(members: Any, char: str) -> bool:
    found = any(
        (code is ops.LITERAL and char == chr(value))
        or (code is ops.RANGE and value[0] <= ord(char) <= value[1])
        or (code is ops.CATEGORY and CATEGORIES[str(value)](char))
        for code, value in members
    )
    return found != (members[0][0] is ops.NEGATE)


CATEGORIES: dict[str, Callable[[str], object]] = {
    "CATEGORY_DIGIT": re.compile(r"\d").match,
    "CATEGORY_NOT_DIGIT": re.compile(r"\D").match,
    "CATEGORY_SPACE": re.compile(r"\s").match,
    "CATEGORY_NOT_SPACE": re.compile(r"\S").match,
    "CATEGORY_WORD": re.compile(r"\w").match,
    "CATEGORY_NOT_WORD": re.compile(r"\W").match,
}


# -- the measurement ---------------------------------------------------------------------------


def seconds(pattern: Pattern, method: str, text: str, *, runs: int = 1) -> float:
    """Return the shortest CPU time of several runs, because other programs only add to it."""
    given = text.encode() if isinstance(pattern.pattern, bytes) else text
    search, least_s = getattr(pattern, method), float("inf")
    for _ in range(runs):
        started = time.process_time()
        found = search(given)
        if method == "finditer":
            deque(found, maxlen=0)
        least_s = min(least_s, time.process_time() - started)
    return least_s


def slow_texts(pattern: Pattern, method: str) -> Iterator[str]:
    """Yield each text that takes super-linear time, and the factor."""
    for short, long in zip(texts_for(pattern, LENGTH), texts_for(pattern, 4 * LENGTH), strict=True):
        if seconds(pattern, method, long) > LEAST_S:
            factor = seconds(pattern, method, long, runs=3) / seconds(
                pattern, method, short, runs=3
            )
            if factor > MOST_TIMES:
                yield f"{short[:60]!r}: {factor:.0f} times"


def cassette_of(body: str) -> bytes:
    """Return a vcrpy cassette with this body in its request and its response."""
    request = {"method": "POST", "uri": "https://a.test/", "body": body, "headers": {}}
    response = {"status": {"code": 200, "message": "OK"}, "headers": {}, "body": {"string": body}}
    entry = {"request": request, "response": response}
    return json.dumps({"version": 1, "interactions": [entry]}).encode()


def opened(text: str) -> None:
    """Do what opening, closing and sharing do with a cassette, and with a torn one."""
    redactor = Redactor([KEY], redact=["personal"])
    recording = parse_cassette(cassette_of(text), Path("stranger.json"))
    for interaction in recording:
        redactor.interaction(interaction)
        redactor.redacted_text(interaction, interaction_text)
        count_personal(texts_of(interaction))
    # A torn recording is searched for complete interactions.
    with suppress(CassetteFormatError):
        parse_cassette((header_text({}) + text).encode(), Path("torn.yaml"))
    list(audit.credentials_in(text))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*SEEDS, "token"])
def test_a_cassette_takes_linear_time_whatever_it_contains(seed: str) -> None:
    """Bodies of 50 kB and 200 kB repeat texts that once made a pattern slow."""
    took_s = []
    for length in (50_000, 200_000):
        runs = []
        for _ in range(2):
            started = time.process_time()
            opened(f"key=1 {grown(seed, length)}")
            runs.append(time.process_time() - started)
        took_s.append(min(runs))

    assert took_s[1] < MOST_TIMES * took_s[0]


@pytest.mark.slow
def test_every_pattern_takes_linear_time() -> None:
    """Four times the text takes at most eight times as long, whatever the text is."""
    patterns = collected()
    slow = {where: next(slow_texts(*each), None) for where, each in patterns.items()}

    assert {where: text for where, text in slow.items() if text} == {}
    assert len(patterns) > 100


def test_every_pattern_that_a_function_makes_is_tried() -> None:
    """A pattern that is not a constant of a module must be listed in `MADE`."""
    made = {
        where
        for module in modules()
        for where, _, pattern in calls_of_re(module)
        if pattern is None and where != module.__name__
    }

    assert made == set(MADE)


def test_a_pattern_that_is_not_linear_is_found() -> None:
    """The example is a pattern that once parsed multipart forms."""
    slow = re.compile(r"(;\s*name=\"([^\"\r\n]*)\"[^\r\n]*\r\n)")

    assert next(slow_texts(slow, "finditer"), None) is not None
