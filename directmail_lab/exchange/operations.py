"""Find the operation of a path: its part below the base address, with ``{id}`` in place of ids.

`operation_of` sees only one path, and treats a plain word as a name. `operations_of` compares all
paths of a recording. It treats words as ids if the same segments follow them, such as
``/shops/acme/orders`` and ``/shops/globex/orders``. Whatever `operation_of` treats as an id stays
one, and more paths only turn more words into ids.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from functools import cache
from typing import Final
from urllib.parse import unquote, urlsplit

from ..arguments import argument_error

# -- one path ----------------------------------------------------------------------------------

# A path segment that identifies one record: a number, a UUID, a hash, another token with a digit
# (`lst_8f3kq2`), a domain, a DOI, an e-mail address, text with a space, a telephone number, or a
# placeholder of redaction (`<API_KEY>`).
_ID_LIKE: Final = re.compile(
    r"\d+(?:\.\d+){2,}|\d+|(?=[^/]*\d)[A-Za-z0-9_~.:-]{6,}|[A-Za-z]+[-_]\d+"
    r"|(?:[a-z0-9-]+\.)+(?:com|org|net|edu|gov|mil|biz|dev|app|xyz|example|(?!me|go|do)[a-z]{2})"
    r"|10\.\d{4,9}(?:/.*)?|(?!@me$)[^/]*[@\s][^/]*|\+[\d().\-]{6,}|<[^/]*>",
    re.DOTALL,
)


# A segment that is a name although it has a digit: a version (`v1beta1`, `v2.6.1`), and words such
# as `oauth2`, `base64`, `s3-bucket` and `k8s-clusters`.
# Each text matches a word in at most one way; otherwise a long segment would take exponential time.
_WORD: Final = r"(?:(?:base|sha|utf|int|float)\d{2,3}|[A-Za-z]{2,}\d?)"
_SHORT: Final = r"(?:[A-Za-z]{1,3}\d{1,2}[A-Za-z]?|\d[A-Za-z])"
_NAME_WITH_DIGIT: Final = re.compile(
    r"v\d+(?:[._-]\d+|[._-]?(?:alpha|beta|rc|preview|p)\d*)*|\d{1,2}\.\d{1,2}"
    rf"|(?:{_SHORT}[-_])?{_WORD}(?:[-_](?:{_WORD}|v\d))*"
)
# A number or date at the front is a version: `/2013-04-01/zones`, `/rest/api/2/issue`. A domain may
# be a Kubernetes group: `/apis/networking.k8s.io/v1`.
_FRONT: Final = re.compile(
    r"(?:(?:/[a-z]+)?/api|/rest)?/(?:\d{1,2}|20\d\d-\d\d(?:-\d\d)?)(?=/)|/apis/[^/]+(?=/v\d)"
)


# An id may have a suffix in its segment: the verb in `{id}:cancel`, the format in `{id}.json`.
_SUFFIX: Final = re.compile(r"(?::[a-z][A-Za-z]+|\.(?:json|xml|csv|ya?ml|html|txt|pdf))\Z")


def base_path(base_url: str) -> str:
    """Return the path prefix of a base address, without a trailing slash: ``""`` or ``"/eu"``."""
    return urlsplit(base_url).path.rstrip("/")


# A fast path: loading a cassette splits all its addresses, and urlsplit takes ten times as long.
_PLAIN_ADDRESS: Final = re.compile(r"https?://[^/?#\s]*(/[^?#\s]*)?(?:\?([^#\s]*))?(?:#|\Z)")


def path_below(uri: str, prefix: str = "") -> str:
    """Return the path of ``uri`` below the path prefix of a base address (see `base_path`).

    If the path does not begin with the prefix, the whole path is returned.
    """
    plain = _PLAIN_ADDRESS.match(uri)
    return below(plain[1] or "/" if plain else urlsplit(uri).path or "/", prefix)


def query_of(uri: str) -> str:
    """Return the query of ``uri``, without its question mark."""
    plain = _PLAIN_ADDRESS.match(uri)
    return plain[2] or "" if plain else urlsplit(uri).query


def below(target: str, prefix: str) -> str:
    """Return a path, which may have a query, without its prefix and query; see `path_below`."""
    path = target.partition("?")[0]
    if prefix and (path == prefix or path.startswith(prefix + "/")):
        return path[len(prefix) :] or "/"
    return path


def operation_of(path: str) -> str:
    """Return the operation of a path, which has ``{id}`` in place of each id.

    >>> operation_of("/v1/lists/8f14e45f/members/12")
    '/v1/lists/{id}/members/{id}'
    """
    return _joined(path, _without_id)


def _joined(path: str, without_id: Callable[[str], str]) -> str:
    front = match[0] if (match := _FRONT.match(path)) else ""
    return front + "/".join(map(without_id, path[len(front) :].split("/")))


def _without_id(segment: str) -> str:
    text = unquote(segment)
    stem = _SUFFIX.sub("", text)
    if _NAME_WITH_DIGIT.fullmatch(text) or not _ID_LIKE.fullmatch(stem):
        return segment
    return "{id}" + text[len(stem) :]


# -- all paths of a recording -------------------------------------------------------------------

_Route = tuple[str, ...]

_ID: Final = "/{id}"
# A segment with its slash, and a verb that ends it: `/models`, `/{id}`, `:embed`.
_TOKEN: Final = re.compile(r"/[^/]*?(?=:[a-z][A-Za-z]+(?:/|$))|:[^/]+|/[^/]*|[^/]+")
_PLURAL: Final = re.compile(r"/.*[^su]s")
# Names that many APIs accept in place of an id.
_COMMON: Final = re.compile(
    r"/(me|self|current|mine|search|count|all|new|latest|batch|bulk|default)"
)
# Segments that are never ids: versions and other words that begin with a digit, camelCase,
# snake_case, and tokens that are not segments.
_NAME: Final = re.compile(r"/(v?\d.*|[a-z]+([A-Z][a-z]+)+|[a-z]+(_[a-z\d]+)+|\{id\}|)|[^/].*")
_MOST_SEGMENTS: Final = 20


def operations_of(paths: Iterable[str], templates: Collection[str] = ()) -> dict[str, str]:
    """Return the operation of each path: the first of the caller's templates that it matches.

    If none matches, it is the path with ``{id}`` in place of ids. A template is a path such as
    ``/v1/domains/{domain}``.
    """
    patterns = {template: pattern_of(template) for template in templates}
    known = {}
    without_id = cache(_without_id)  # only for this call: a segment may be a key
    for path in paths:
        named = (each for each, pattern in patterns.items() if pattern.fullmatch(path))
        known[path] = next(named, None) or _joined(path, without_id)
    others = {*known.values()} - {*templates}
    routes = {
        each: tuple(_TOKEN.findall(each)) for each in others if each.count("/") < _MOST_SEGMENTS
    }
    while ids := _ids(set(routes.values())):
        for each, route in routes.items():
            starts = (route[:end] for end in range(1, len(route) + 1))
            routes[each] = tuple([_ID if start in ids else start[-1] for start in starts])
    return {path: "".join(routes.get(each, [each])) for path, each in known.items()}


def _ids(routes: Collection[_Route]) -> set[_Route]:
    """Return the beginnings of routes whose last token has turned out to be an id."""
    below: dict[_Route, dict[str, set[_Route]]] = defaultdict(lambda: defaultdict(set))
    for route in routes:
        for end, token in enumerate(route):
            below[route[:end]][token].add(route[end + 1 :])
    ids = {
        (*parent, token)
        for parent, siblings in below.items()
        if len(siblings) > 1
        for token in _ids_among(siblings, "".join(parent[-1:]))
    }
    # Only the shortest: once they are replaced, the routes below them can be compared.
    shortest = min(map(len, ids), default=0)
    return {each for each in ids if len(each) == shortest}


def _ids_among(siblings: dict[str, set[_Route]], parent: str) -> set[str]:
    """Return which of the words below a parent are ids, by the routes that follow each."""
    is_list = _PLURAL.fullmatch(parent) is not None
    beside = siblings.get(_ID, set())
    words = {
        token: tails
        for token, tails in siblings.items()
        if not (_COMMON.fullmatch(token) or _NAME.fullmatch(token))
    }
    # If the parent is not a list, `/lists` and `/list/{id}` are lists themselves.
    lists = set() if is_list else {w for w, tails in words.items() if _is_list(w, tails)}
    # What follows a word, such as `*/orders`. Several words with the same shape are ids.
    shapes = {word: set(map(_shape, words[word])) for word in words.keys() - lists}
    counts = Counter(shape for each in shapes.values() for shape in each)
    least = 3 if is_list else 5
    telling = {shape for shape, count in counts.items() if count >= least}
    telling |= set(map(_shape, beside))
    ids = {word for word, each in shapes.items() if any(map(any, each & telling))}
    named = {tail for tail in beside if any(token != _ID for token in tail)}
    ids |= {word for word, tails in words.items() if tails & named}
    if is_list and ids:  # a word followed by nothing else than these ids is one: `/shops/initech`
        known = beside.union(*[words[word] for word in ids])
        ids |= {word for word in words if words[word] <= known}
    leaves = {word for word, tails in words.items() if tails == {()}}
    return ids | leaves if is_list and len(leaves) >= 8 else ids


def _shape(tail: _Route) -> _Route:
    """Return a route with only its plurals and verbs, which are certainly names."""
    return tuple([t if _PLURAL.fullmatch(t) or t[0] == ":" else "" for t in tail])


def _is_list(word: str, tails: set[_Route]) -> bool:
    return _PLURAL.fullmatch(word) is not None or any(tail[:1] == (_ID,) for tail in tails)


def pattern_of(template: str) -> re.Pattern[str]:
    """Return a pattern for the paths that a template stands for; its groups are the ids."""
    if not re.fullmatch(r"(/([^/{}]|\{\w+\})*)+", template):
        raise argument_error(
            f"{template!r} in paths is not a template. "
            'Give a list such as ["/v1/domains/{domain}"].'
        )
    return re.compile(re.sub(r"\\\{\w+\\\}", "([^/]+)", re.escape(template)))
