"""Find the operation of a path: its part below the base address, with ``{id}`` in place of ids.

`operation_of` sees only one path, and treats a plain word as a name. `operations_of` compares all
paths of a recording. It treats words as ids if the same segments follow them, such as
``/shops/acme/orders`` and ``/shops/globex/orders``. Whatever `operation_of` treats as an id stays
one, and more paths only turn more words into ids.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from urllib.parse import quote, unquote, urlsplit

from ..arguments import argument_error

# -- one path ----------------------------------------------------------------------------------

# A path segment that identifies one record: a number, a UUID, a hash, another token with a digit
# (`lst_8f3kq2`), a domain, a DOI, an e-mail address, text with a space, a telephone number, or a
# placeholder of redaction (`<API_KEY>`).
_ID_LIKE = re.compile(
    r"\d+(?:\.\d+){2,}|\d+|(?=[^/]*\d)[A-Za-z0-9_~.:-]{6,}|[A-Za-z]+[-_]\d+"
    r"|(?:[a-z0-9-]+\.)+(?:com|org|net|edu|gov|mil|biz|dev|app|xyz|example|(?!me|go|do)[a-z]{2})"
    r"|10\.\d{4,9}(?:/.*)?|(?!@me$)[^/]*[@\s][^/]*|\+[\d().\-]{6,}|<[^/]*>",
    re.DOTALL,
)


# A segment that is a name although it has a digit: a version (`v1beta1`, `v2.6.1`), and words such
# as `oauth2`, `base64`, `s3-bucket` and `k8s-clusters`.
# Each text matches a word in at most one way; otherwise a long segment would take exponential time.
_WORD = r"(?:(?:base|sha|utf|int|float)\d{2,3}|[A-Za-z]{2,}\d?)"
_SHORT = r"(?:[A-Za-z]{1,3}\d{1,2}[A-Za-z]?|\d[A-Za-z])"
_NAME_WITH_DIGIT = re.compile(
    r"v\d+(?:[._-]\d+|[._-]?(?:alpha|beta|rc|preview|p)\d*)*|\d{1,2}\.\d{1,2}"
    rf"|(?:{_SHORT}[-_])?{_WORD}(?:[-_](?:{_WORD}|v\d))*"
)
# A number or date at the front is a version: `/2013-04-01/zones`, `/rest/api/2/issue`. A domain may
# be a Kubernetes group: `/apis/networking.k8s.io/v1`.
_FRONT = re.compile(
    r"(?:(?:/[a-z]+)?/api|/rest)?/(?:\d{1,2}|20\d\d-\d\d(?:-\d\d)?)(?=/)|/apis/[^/]+(?=/v\d)"
)


# An id may have a suffix in its segment: the verb in `{id}:cancel`, the format in `{id}.json`.
_SUFFIX = re.compile(r"(?::[a-z][A-Za-z]+|\.(?:json|xml|csv|ya?ml|html|txt|pdf))\Z")


def base_path(base_url: str) -> str:
    """Return the path prefix of a base address, without a trailing slash: ``""`` or ``"/eu"``."""
    return urlsplit(base_url).path.rstrip("/")


# A fast path: loading a cassette splits all its addresses, and urlsplit takes ten times as long.
_PLAIN_ADDRESS = re.compile(r"https?://[^/?#\s]*(/[^?#\s]*)?(?:\?([^#\s]*))?(?:#|\Z)")


def path_below(uri: str, prefix: str = "") -> str:
    """Return the path of ``uri`` below the path prefix of a base address (see `base_path`).

    If the path does not begin with the prefix, the whole path is returned.
    """
    plain = _PLAIN_ADDRESS.match(uri)
    path = plain[1] if plain else urlsplit(uri).path
    return _encoded(below(path or "/", prefix))


def query_of(uri: str) -> str:
    """Return the query of ``uri``, without its question mark."""
    plain = _PLAIN_ADDRESS.match(uri)
    return _encoded((plain[2] or "") if plain else urlsplit(uri).query)


def _encoded(text: str) -> str:
    """Return a part of an address with its control characters as a client sends them."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else quote(c, errors="replace") for c in text)


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
    version = _FRONT.match(path)
    front = version[0] if version else ""
    segments = path[len(front) :].split("/")
    # Most ids are numbers, and each is another one.
    return front + "/".join(["{id}" if each.isdecimal() else without_id(each) for each in segments])


def _without_id(segment: str) -> str:
    text = unquote(segment)
    stem = _SUFFIX.sub("", text)
    if _NAME_WITH_DIGIT.fullmatch(text) or not _ID_LIKE.fullmatch(stem):
        return segment
    return "{id}" + text[len(stem) :]


# -- all paths of a recording -------------------------------------------------------------------

_Route = tuple[str, ...]

_ID = "/{id}"
# A segment with its slash, and a verb that ends it: `/models`, `/{id}`, `:embed`.
_TOKEN = re.compile(r"/[^/]*?(?=:[a-z][A-Za-z]+(?:/|$))|:[^/]+|/[^/]*|[^/]+")
# Names that many APIs accept in place of an id.
_COMMON = re.compile(r"/(me|self|current|mine|search|count|all|new|latest|batch|bulk|default)")
# Segments that are never ids: versions and other words that begin with a digit, camelCase,
# snake_case, and tokens that are not segments.
_NAME = re.compile(r"/(v?\d.*|[a-z]+([A-Z][a-z]+)+|[a-z]+(_[a-z\d]+)+|\{id\}|)|[^/].*")
_MOST_SEGMENTS = 20
# How many words with one shape are ids, and how many that nothing follows are no actions.
_LEAST_ALIKE_BELOW_A_LIST = 3
_LEAST_ALIKE_ELSEWHERE = 5
_LEAST_WITHOUT_MORE = 8
_IES = re.compile(r"(?<!mov)(?<!cook)(?<!ser)(?<!spec)ies$")
_PLURAL = re.compile(r"(?<=ss|sh|ch)es$|(?<=x)es$|(?<![sui])s$")


def operations_of(paths: Iterable[str], templates: Collection[str] = ()) -> dict[str, str]:
    """Return the operation of each path: the first of the caller's templates that it matches.

    If none matches, it is the path with ``{id}`` in place of ids. A template is a path such as
    ``/v1/domains/{domain}``.
    """
    patterns = {template: pattern_of(template) for template in templates}
    without_id = cache(_without_id)  # only for this call: a segment may be a key
    known = {}
    for path in paths:
        known[path] = _first_match(path, patterns) or _joined(path, without_id)
    routes = {}
    for each in {*known.values()}.difference(templates):
        if each.count("/") < _MOST_SEGMENTS:
            routes[each] = tuple(_TOKEN.findall(each))
    ids = _ids(set(routes.values()))
    while ids:
        for each, route in routes.items():
            starts = (route[:end] for end in range(1, len(route) + 1))
            routes[each] = tuple([_ID if start in ids else start[-1] for start in starts])
        ids = _ids(set(routes.values()))
    operations = {each: "".join(route) for each, route in routes.items()}
    return {path: operations.get(each, each) for path, each in known.items()}


def _first_match(path: str, patterns: Mapping[str, re.Pattern[str]]) -> str | None:
    for template, pattern in patterns.items():
        if pattern.fullmatch(path):
            return template
    return None


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


_Words = dict[str, set[_Route]]
"""The words below one parent, each with the routes that follow it."""


def _ids_among(siblings: _Words, parent: str) -> set[str]:
    """Return which of the words below a parent are ids, by the routes that follow each."""
    words = {
        token: tails
        for token, tails in siblings.items()
        if not (_COMMON.fullmatch(token) or _NAME.fullmatch(token))
    }
    after_ids = siblings.get(_ID, set())
    is_list = _is_plural(parent)
    ids = _with_one_shape(words, after_ids, is_list=is_list)
    ids |= _followed_as_ids_are(words, after_ids)
    if is_list:
        ids |= _followed_by_nothing_else(words, after_ids, ids)
        ids |= _many_that_end(words)
    return ids


def _with_one_shape(words: _Words, after_ids: set[_Route], *, is_list: bool) -> set[str]:
    """Return the words that several others are like: the same plurals and verbs follow them.

    ``/shops/acme/orders``, ``/shops/globex/orders`` and ``/shops/hooli/orders`` are enough, since
    ``shops`` is a list. Elsewhere it takes five, and a word that is a list itself does not count:
    ``/v1/letters/{id}`` and ``/v1/contacts/{id}`` are two lists. One word is enough if an id is
    like it: ``/shops/{id}/eu/orders`` makes ``acme`` in ``/shops/acme/us/orders`` an id.
    """
    shapes = {}
    for word, tails in words.items():
        if is_list or not _is_list(word, tails):
            shapes[word] = {_shape(tail) for tail in tails}
    counts = Counter(shape for each in shapes.values() for shape in each)
    least = _LEAST_ALIKE_BELOW_A_LIST if is_list else _LEAST_ALIKE_ELSEWHERE
    telling = {shape for shape, count in counts.items() if count >= least}
    telling |= {_shape(tail) for tail in after_ids}
    telling = {shape for shape in telling if any(shape)}
    return {word for word, each in shapes.items() if each & telling}


def _followed_as_ids_are(words: _Words, after_ids: set[_Route]) -> set[str]:
    """Return the words that a name follows which also follows an id.

    ``/shops/{id}/settings`` makes ``acme`` in ``/shops/acme/settings`` an id.
    """
    named = {tail for tail in after_ids if any(token != _ID for token in tail)}
    return {word for word, tails in words.items() if tails & named}


def _followed_by_nothing_else(words: _Words, after_ids: set[_Route], ids: set[str]) -> set[str]:
    """Return the words below a list that only that follows which follows its words that are ids.

    If ``acme`` is an id by ``/shops/acme/orders``, and ``/shops/acme`` was requested too, then so
    is ``initech`` in ``/shops/initech``.
    """
    if not ids:
        return set()
    known = after_ids.union(*[words[word] for word in ids])
    return {word for word, tails in words.items() if tails <= known}


def _many_that_end(words: _Words) -> set[str]:
    """Return the words below a list that nothing follows, if they are too many for actions.

    Eight of ``/tags/spring``, ``/tags/summer``, … are enough. Seven may be ``/tags/export``, ….
    """
    leaves = {word for word, tails in words.items() if tails == {()}}
    return leaves if len(leaves) >= _LEAST_WITHOUT_MORE else set()


def _shape(tail: _Route) -> _Route:
    """Return a route with only its plurals and verbs, which are certainly names."""
    return tuple([token if _is_plural(token) or token[0] == ":" else "" for token in tail])


def _is_list(word: str, tails: set[_Route]) -> bool:
    return _is_plural(word) or any(tail[:1] == (_ID,) for tail in tails)


def _is_plural(token: str) -> bool:
    return token.startswith("/") and singular(token) != token


def singular(name: str) -> str:
    """Return the singular of a name: ``list`` for ``lists``, ``company`` for ``companies``."""
    return _PLURAL.sub("", _IES.sub("y", name))


def pattern_of(template: str) -> re.Pattern[str]:
    """Return a pattern for the paths that a template stands for; its groups are the ids."""
    if not re.fullmatch(r"(/([^/{}]|\{\w+\})*)+", template):
        raise argument_error(
            f"{template!r} in paths is not a template. "
            'Give a list such as ["/v1/domains/{domain}"].'
        )
    return re.compile(re.sub(r"\\\{\w+\\\}", "([^/]+)", re.escape(template)))
