"""What a credential looks like: by its form, or by the place where it is.

In the place of a key, a text that looks random counts: an argument of ``connect``, or the value of
a name with "key" in it (the names that detect-secrets and bandit look for). Placeholders and the
stand-in's public key do not count, since people switch off an audit that raises false alarms.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator
from itertools import chain, pairwise
from typing import Final, Literal

from ..redaction.key import unescape_html
from ..standin import STAND_IN_KEY

# Descriptions and patterns; the group `secret` is the secret itself. The patterns take time linear
# in the text: no match starts within text already read, and what may be read twice is bounded.
_SHAPES: Final = tuple(
    (what, re.compile(pattern))
    for what, pattern in (
        ("a private key", r"(?P<secret>-----BEGIN (?:[A-Z]{1,20} ){0,4}PRIVATE KEY-----)"),
        (
            "a service's key, by its prefix",
            r"(?<![A-Za-z0-9])(?P<secret>"
            r"(?:live|prod|secret)_(?:pub_)?[A-Za-z0-9_]{16,}"
            r"|test_(?:pub_)?[0-9a-f]{24,}|[sr]k-(?:[a-z]{1,20}-)?[A-Za-z0-9_-]{20,}"
            r"|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|glpat-[\w-]{20,}|xox[abprs]-[\w-]{10,}"
            r"|(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[\w-]{35}|SG\.[\w-]{16,99}\.[\w-]{16,}"
            r"|npm_[A-Za-z0-9]{30,}|hf_[A-Za-z0-9]{30,}|pypi-[\w-]{50,})(?![A-Za-z0-9])",
        ),
        ("a signed token (JWT)", r"(?P<secret>eyJ(?<![\w-]eyJ)[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,})"),
        ("a bearer token", r"[Bb](?:earer|EARER)\s{1,9}(?P<secret>[\w.~+/-]{16,})"),
        (
            "credentials in an address",
            r"://(?P<secret>[^\s/?#@:\"'<>\\]{0,256}:[^\s/?#@\"'<>\\]{0,256}"
            r"|(?=[^\s/@]{0,99}\d)[^\s/?#@:\"'<>\\]{16,256})@",
        ),
        (
            "a credential in a header",
            r"(?i)\A(?:(?:proxy-)?authorization|(?:set-)?cookie|(?:x-)?api-key): (?!basic )"
            r"(?P<secret>[^\r\n]+)",
        ),
        ("an api_key parameter", r"(?i)[?&;]api[-_]?key=(?P<secret>[^&;#\s\"'<>\\]+)"),
    )
)
_BASIC = re.compile(r"[Bb](?:asic|ASIC)\s{1,9}([A-Za-z0-9+/_-]{8,}={0,2})")
# A name with a word for a key in it, and what it is given: `key: str = f"x"`, `auth=("x", "")`,
# `"key": "x"`, `environ["KEY"] = "x"`, `setenv("KEY", "x")`, `KEY=x`, `<key>x`, `key is x`, and in
# a column of its own `key  x` or `| key | x`; with escaped quotes too.
_ASSIGNMENT = re.compile(
    r"(?:[kK](?:ey|EY)|[tT](?:oken|OKEN)|[sS](?:ecret|ECRET)|[pP](?:ass|ASS|wd|WD)|[aA](?:uth|UTH)"
    r"|[cC](?:redential|REDENTIAL)|[bB](?:earer|EARER))(?P<rest>[\w-]{0,40}+)"
    r"(?:(?P<closed>\\*+[\"'])\]?+)?+(?:\s{0,9}:\s{0,9}[\w.|]{1,40})?"
    r"(?:\s{0,9}[:=,>][=>]?\s{0,9}|\s(?:is\s|[ |]{1,40}))"
    r"[(\[]?[bfruBFRU]{0,2}\\*+(?P<quote>[\"']{0,3})"
    r"(?=[^\s\"'\\<>(),;&]{0,19}?\d|[^\s\"'\\<>(),;&]{20})(?P<secret>[^\s\"'\\<>(),;&]{8,512})"
)
_NAME_BEFORE = re.compile(r"[\w-]+\Z")
# `%env KEY x`, `--key x`: what stands before x is made an assignment.
_OPTION = re.compile(r"(?:%(?:set_)?env\s{1,9}|-(?<![\w-]-)-(?=\w))([\w-]{1,64}+)\s{1,9}")
# The arguments of a call that takes a key, and each text among them.
_CALL = re.compile(
    r"(?:connect|login|Session|ApiKey|BasicAuth|Configuration|set_password)"
    r"\(((?:[^()]|\([^()]*+\)){0,400}+)"
)
_ARGUMENT = re.compile(r"[\"']([^\s\"'\\]{8,512})\\*[\"']")
_CURL_USER = re.compile(r"\s(?:-u|--user)[\s=]{0,9}\\*[\"']?([^\s\"':]{8,512}):")
_TABLE_CELL = re.compile(r"<t[hd](?:\s[^<>]{0,999})?>\s{0,99}([^<>]{0,512})")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FILE_PATH = re.compile(r"[\w.=-]+(?:/[\w.=-]+)+\.[a-z]\w{0,4}")
_LONG_PART = re.compile(r"[A-Za-z0-9]{8,}")
_CHANGE = re.compile(r"[A-Za-z](?=\d)|\d(?=[A-Za-z])|[a-z](?=[A-Z])")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_KEY_WORDS: Final = _words(
    "key apikey token secret password passwd pwd passphrase auth authorization credential "
    "credentials bearer"
)
_SURE_WORDS: Final = _words("apikey secret password passwd pwd passphrase credentials")
_KEY_OF: Final = _words("api secret private access auth account app client service")
# With one of these words a name is not a secret's: page_token, key_name, sort_key.
_OTHER_WORDS: Final = _words(
    "public page next previous continuation cursor idempotency cache sort primary foreign "
    "partition group id ids name names hash digest sha type hint file path url count index length"
)
_PLAIN_WORDS: Final = _KEY_WORDS | _words(
    "a an api access my the some this test user username pass foo bar baz none null true false "
    "string value"
)
_PLACEHOLDER = re.compile(
    r"<[^<>]*>|\$?\{.*\}|\$\w+|%\w+%|\[\w+\]|\.\.\.|…|[A-Z]{1,12}(?:[_-][A-Z]{1,12})*|(.)\1*",
    re.DOTALL,
)
_PLACEHOLDER_WORD = re.compile(
    r"[<…]|\.\.\.|\*\*\*|xxxx|your|example|placeholder|dummy|changeme|redact|filtered|removed|masked"
    r"|sanitized|fake|replace",
    re.IGNORECASE,
)


def _is_placeholder(secret: str) -> bool:
    """Return whether a text in a secret's place is not a secret: a placeholder, or public."""
    return (
        secret in ("", STAND_IN_KEY)
        or _PLACEHOLDER.fullmatch(secret) is not None
        or _PLACEHOLDER_WORD.search(secret) is not None
        or all(word in _PLAIN_WORDS for word in re.split(r"[\W_]+", secret.lower()) if word)
    )


def looks_random(text: str, fewest: int) -> bool:
    """Return whether a text looks random: letters, digits and case alternate often in it.

    ``hk_8fK2xQ9zLr7T`` and each part of a UUID do; ``recordings-2026-11-21``, ``utf8`` do not.
    """
    if len(text) < fewest or "://" in text or text[0] in "/." or _FILE_PATH.fullmatch(text):
        return False
    return any(
        len(_CHANGE.findall(part)) > max(3, len(part) * 0.2) for part in _LONG_PART.findall(text)
    )


def _names_a_key(name: str) -> Literal["", "maybe", "surely"]:
    words = [word.lower() for word in _WORD.findall(name)]
    if _KEY_WORDS.isdisjoint(words) or not _OTHER_WORDS.isdisjoint(words):
        return ""
    sure = any(a in _KEY_OF and b in ("key", "token") for a, b in pairwise(words))
    return "surely" if sure or not _SURE_WORDS.isdisjoint(words) else "maybe"


def _is_key_beside_name(match: re.Match[str]) -> bool:
    secret, quoted = match["secret"], bool(match["quote"])
    if "," in match[0] and not (quoted and match["closed"]):
        return False
    name = _NAME_BEFORE.search(match.string, max(0, match.start() - 40), match.end("rest"))
    kind = _names_a_key(name[0] if name else "")
    if kind == "surely" and quoted and "://" not in secret:
        return not _is_placeholder(secret) and (len(secret) >= 20 or any(map(str.isdigit, secret)))
    return bool(kind) and _is_random_key(secret, 8 if kind == "surely" else 12)


def _is_random_key(text: str, fewest: int) -> bool:
    return looks_random(text, fewest) and not _is_placeholder(text)


def _has_key_column(text: str) -> bool:
    """Return whether a cell of a table looks random below a key's name, or to the right of one."""
    rows = [_TABLE_CELL.findall(row) for row in text.split("<tr")]
    names = [[len(cell) <= 40 and bool(_names_a_key(cell)) for cell in cells] for cells in rows]
    columns = {n for row in names for n, is_name in enumerate(row) if is_name}
    return any(
        (n in columns or (n and is_name[n - 1])) and _is_random_key(cell.strip(), 12)
        for cells, is_name in zip(rows, names, strict=True)
        for n, cell in enumerate(cells)
    )


def _is_credential(digits: str) -> bool:
    """Return whether base64 is ``user:password``, and not a word that follows "basic"."""
    padded = digits.rstrip("=") + "=" * (-len(digits.rstrip("=")) % 4)
    try:
        pair = b64decode(padded, altchars=b"-_").decode("utf-8")
    except ValueError:
        return False
    user, colon, password = pair.partition(":")
    return (
        bool(colon)
        and pair.isprintable()
        and not (_is_placeholder(user) and _is_placeholder(password))
    )


def credentials_in(text: str) -> Iterator[str]:
    """Yield a description of each kind of credential in a text, once; never the credential."""
    if "&#" in text or "&quot;" in text:
        text = unescape_html(text)
    for what, pattern in _SHAPES:
        if any(not _is_placeholder(match["secret"][:512]) for match in pattern.finditer(text)):
            yield what
    users = _CURL_USER.findall(text)
    if any(map(_is_credential, _BASIC.findall(text))) or any(_is_random_key(u, 8) for u in users):
        yield "credentials of HTTP Basic"
    arguments = chain.from_iterable(map(_ARGUMENT.findall, _CALL.findall(text)))
    if any(map(_is_key_beside_name, _ASSIGNMENT.finditer(_OPTION.sub(r"\1=", text)))):
        yield "a key or password beside its name"
    elif any(_is_random_key(argument, 8) for argument in arguments):
        yield "a key as an argument"
    elif _has_key_column(text):
        yield "a key in a table"
