"""Operations decided over all paths of a recording: `operations_of`.

`interaction.operation_of` sees one path alone, and takes plain words for names. Many paths show
which words are ids, since the same follows them: ``/shops/acme/orders``, ``/shops/globex/orders``.
What it takes for an id stays one, and more paths only turn more words into ids.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from typing import Final

from .errors import argument_error
from .interaction import operation_of

_Route = tuple[str, ...]

_ID: Final = "/{id}"
# A segment with its slash, and a verb after an id or a name: `/models`, `/{id}`, `:embed`.
_TOKEN: Final = re.compile(r"/[^/]*?(?=:[a-z][A-Za-z]+(?:/|$))|:[^/]+|/[^/]*|[^/]+")
_PLURAL: Final = re.compile(r"/.*[^su]s")
# Names, however many siblings they have: words that stand where ids do, versions and other words
# with a digit in front, words_like_this and likeThis, and what no template can have: "", "{".
_COMMON: Final = re.compile(
    r"/(me|self|current|mine|search|count|all|new|latest|batch|bulk|default)"
)
_NAME: Final = re.compile(r"/(v?\d.*|.*[{}].*|[a-z]+(_[a-z\d]+)+|[a-z]+([A-Z][a-z]+)+|)")
_PLAIN: Final = re.compile(r"/[a-z-]+")


def operations_of(paths: Iterable[str], templates: Collection[str] = ()) -> dict[str, str]:
    """Return each path's operation: the template that it matches, else the path, ids as ``{id}``.

    Parameters
    ----------
    templates
        What the caller knows, such as ``/v1/domains/{domain}``. The first that matches counts.
    """
    patterns = [(pattern_of(template), template) for template in templates]
    known = {}
    for path in paths:
        matches = (template for pattern, template in patterns if pattern.fullmatch(path))
        known[path] = next(matches, None) or operation_of(path)
    routes = {each: tuple(_TOKEN.findall(each)) for each in {*known.values()} - {*templates}}
    while ids := _ids(set(routes.values())):
        for each, route in routes.items():
            starts = (route[:end] for end in range(1, len(route) + 1))
            routes[each] = tuple([_ID if start in ids else start[-1] for start in starts])
    return {path: "".join(routes.get(each, [each])) for path, each in known.items()}


def _ids(routes: Collection[_Route]) -> set[_Route]:
    """Return the beginnings of routes whose last token is a word, and is an id by its siblings."""
    below: dict[_Route, dict[str, set[_Route]]] = defaultdict(lambda: defaultdict(set))
    for route in routes:
        for end, token in enumerate(route):
            below[route[:end]][token].add(route[end + 1 :])
    places = Counter(token for siblings in below.values() for token in siblings)
    names = {
        token
        for token, count in places.items()
        if (count >= 3 or token[0] == ":" or _PLURAL.fullmatch(token))
        and not _COMMON.fullmatch(token)
    }
    return {
        (*parent, token)
        for parent, siblings in below.items()
        for token in _ids_among(siblings, parent[-1:], names - {_ID})
    }


def _ids_among(siblings: dict[str, set[_Route]], parent: _Route, names: set[str]) -> set[str]:
    """Return those of a parent's tokens that are ids; each sibling has the routes that follow it."""
    beside = siblings.get(_ID, set())
    is_list = any(map(_PLURAL.fullmatch, parent))
    words = {
        token: tails
        for token, tails in siblings.items()
        if token[0] == "/" and not _COMMON.fullmatch(token) and not _NAME.fullmatch(token)
    }
    # A plural is the name of a list, and so is what an id follows, save below another list.
    single = {
        token: tails
        for token, tails in words.items()
        if not _PLURAL.fullmatch(token) and (is_list or all(tail[:1] != (_ID,) for tail in tails))
    }
    shapes = {token: {_shape(tail, names) for tail in tails} for token, tails in single.items()}
    counts = Counter(shape for each in shapes.values() for shape in each if any(shape))
    enough = 3 if is_list else 5
    ids = {
        token for token, each in shapes.items() if any(counts[shape] >= enough for shape in each)
    }
    ids |= {token for token, tails in words.items() if any(_is_like(t, beside) for t in tails)}
    known = beside.union(*[words[token] for token in ids])
    ids |= {
        token
        for token, tails in single.items()
        if tails <= known and ((ids and is_list) or (beside and not _PLAIN.fullmatch(token)))
    }
    leaves = {token for token, tails in single.items() if tails == {()} and "." not in token}
    is_many = len(leaves) >= (8 if is_list else 20) and parent != (_ID,)
    return ids | leaves if is_many else ids


def _shape(tail: _Route, names: set[str]) -> _Route:
    return tuple([token if token in names else "" for token in tail])


def _is_like(tail: _Route, others: set[_Route]) -> bool:
    """Return whether others have a route, with one word as an id perhaps, that has a name in it."""
    variants = [tail, *((*tail[:n], _ID, *tail[n + 1 :]) for n in range(len(tail)))]
    return any(
        each in others and any(t != _ID and not _COMMON.fullmatch(t) for t in each)
        for each in variants
    )


def pattern_of(template: str) -> re.Pattern[str]:
    """Return the pattern of the paths that a template names; its groups are the ids."""
    is_template = isinstance(template, str) and re.fullmatch(r"(/([^/{}]|\{\w+\})*)+", template)
    if not is_template:
        raise argument_error(
            f'{template!r} in paths is no template. Give a list such as ["/v1/domains/{{domain}}"].'
        )
    return re.compile(re.sub(r"\\\{\w+\\\}", "([^/]+)", re.escape(template)))
