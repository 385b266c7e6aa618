"""Find the operation of a path: its part below the service address, with ``{id}`` in place of ids.

A number, a token with digits, a domain or an e-mail address is an id; a plain word is a name. Where
words are ids, such as ``acme`` in ``/shops/acme``, a template of the caller's says so.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from urllib.parse import quote, unquote, urlsplit

from ..arguments import argument_error

# A path segment that identifies one record: a number, a UUID, a hash, another token with a digit
# (`lst_8f3kq2`), a domain, an e-mail address, text with a space, a telephone number, or a
# placeholder of redaction (`<API_KEY>`).
_ID_LIKE = re.compile(
    r"\d+(?:\.\d+){2,}|\d+|(?=[^/]*\d)[A-Za-z0-9_~.:-]{6,}|[A-Za-z]+[-_]\d+"
    r"|(?:[a-z0-9-]+\.)+(?:com|org|net|edu|gov|mil|biz|dev|app|xyz|example|(?!me|go|do)[a-z]{2})"
    r"|(?!@me$)[^/]*[@\s][^/]*|\+[\d().\-]{6,}|<[^/]*>",
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
# A number or date at the front is a version: `/2013-04-01/zones`, `/rest/api/2/issue`.
_FRONT = re.compile(r"(?:(?:/[a-z]+)?/api|/rest)?/(?:\d{1,2}|20\d\d-\d\d(?:-\d\d)?)(?=/)")


# An id may have a suffix in its segment: the verb in `{id}:cancel`, the format in `{id}.json`.
_SUFFIX = re.compile(r"(?::[a-z][A-Za-z]+|\.(?:json|xml|csv|ya?ml|html|txt|pdf))\Z")


def base_path(base_url: str) -> str:
    """Return a service address's path prefix, without a trailing slash: ``""`` or ``"/eu"``."""
    return urlsplit(base_url).path.rstrip("/")


# A fast path: loading a cassette splits all its addresses, and urlsplit takes ten times as long.
_PLAIN_ADDRESS = re.compile(r"https?://[^/?#\s]*(/[^?#\s]*)?(?:\?([^#\s]*))?(?:#|\Z)")


def path_below(uri: str, prefix: str = "") -> str:
    """Return the path of ``uri`` below the path prefix of a service address (see `base_path`).

    If the path does not begin with the prefix, the whole path is returned.
    """
    plain = _PLAIN_ADDRESS.match(uri)
    path = plain[1] if plain else urlsplit(uri).path
    return _encoded(below(path or "/", prefix))


def query_of(uri: str) -> str:
    """Return the query of ``uri``, without its question mark."""
    plain = _PLAIN_ADDRESS.match(uri)
    return _encoded((plain[2] or "") if plain else urlsplit(uri).query)


def with_query(path: str, uri: str) -> str:
    """Return a path with the query of ``uri``, if that has one."""
    query = query_of(uri)
    return f"{path}?{query}" if query else path


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
    version = _FRONT.match(path)
    front = version[0] if version else ""
    segments = path[len(front) :].split("/")
    # Most ids are numbers, and each is another one.
    return front + "/".join(
        ["{id}" if each.isdecimal() else _without_id(each) for each in segments]
    )


def _without_id(segment: str) -> str:
    text = unquote(segment)
    stem = _SUFFIX.sub("", text)
    if _NAME_WITH_DIGIT.fullmatch(text) or not _ID_LIKE.fullmatch(stem):
        return segment
    return "{id}" + text[len(stem) :]


_IES = re.compile(r"(?<!mov)(?<!cook)(?<!ser)(?<!spec)ies$")
_PLURAL = re.compile(r"(?<=ss|sh|ch)es$|(?<=x)es$|(?<![sui])s$")


def operations_of(paths: Iterable[str], templates: Collection[str] = ()) -> dict[str, str]:
    """Return the operation of each path: the first of the caller's templates that it matches.

    If none matches, it is that of `operation_of`. A template is a path such as
    ``/v1/domains/{domain}``.
    """
    patterns = {template: pattern_of(template) for template in templates}
    return {path: first_fitting(path, patterns) or operation_of(path) for path in paths}


def first_fitting(path: str, patterns: Mapping[str, re.Pattern[str]]) -> str:
    """Return the first template whose pattern a path matches, or an empty string."""
    return next((each for each, pattern in patterns.items() if pattern.fullmatch(path)), "")


def singular(name: str) -> str:
    """Return the singular of a name: ``list`` for ``lists``, ``company`` for ``companies``."""
    return _PLURAL.sub("", _IES.sub("y", name))


def take_name(name: str, taken: dict[str, int]) -> str:
    """Return a name that is not taken yet, and take it: ``id``, ``id_2``, ``id_3`` and so on."""
    unused = name
    while unused in taken:
        taken[name] += 1
        unused = f"{name}_{taken[name]}"
    taken[unused] = 1
    return unused


def pattern_of(template: str) -> re.Pattern[str]:
    """Return a pattern for the paths that a template stands for; its groups are the ids."""
    if not re.fullmatch(r"(/([^/{}]|\{\w+\})*)+", template):
        raise argument_error(
            f"{template!r} in templates is not a template. "
            'Give a list such as ["/v1/domains/{domain}"].'
        )
    return re.compile(re.sub(r"\\\{\w+\\\}", "([^/]+)", re.escape(template)))
