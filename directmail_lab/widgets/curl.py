"""Reads curl commands, such as those that a browser's network panel or `browse` copies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple
from urllib.parse import quote_plus

from ..errors import DirectMailLabError
from ..http import httpx

_words = str.split
_SHORT: Final = dict(
    zip(
        "XHdFGIuUbETAeomxwDcKsSvigfNLk#",
        _words(
            "request header data form get head user proxy-user cookie cert upload-file user-agent "
            "referer output max-time proxy write-out dump-header cookie-jar config silent "
            "show-error verbose include globoff fail no-buffer location insecure progress-bar"
        ),
        strict=True,
    )
)
_DATA: Final = frozenset(_words("data data-ascii data-raw data-binary data-urlencode json"))
_CREDENTIALS: Final = frozenset(
    _words(
        "user proxy-user cookie oauth2-bearer cert key pass aws-sigv4 proxy-pass proxy-header "
        "tlsuser tlspassword"
    )
)
_READ: Final = _DATA | {"", *_words("url request header get head form form-string")}
# Options that only change what curl shows, or that ask for what the session does anyway.
_WITHOUT_EFFECT: Final = frozenset(
    _words(
        "silent show-error verbose include globoff path-as-is compressed fail no-buffer "
        "progress-bar output write-out dump-header http1.1 http2"
    )
)
_OTHERS_WITH_VALUE: Final = _words(
    "upload-file user-agent referer output max-time proxy write-out dump-header cookie-jar config "
    "connect-timeout retry retry-delay cacert resolve cert-type key-type capath connect-to "
    "interface limit-rate max-redirs noproxy proto range request-target retry-max-time socks5 "
    "trace trace-ascii unix-socket url-query"
)
_WITH_VALUE: Final = (_READ - {"get", "head"}) | _CREDENTIALS | {*_OTHERS_WITH_VALUE}

# The parts of a command for bash. A line that begins with an option belongs to the line before it,
# although a backslash is missing there.
_BARE: Final = r"(?:[^\s'\"\\;|&<>$]|\$(?!['\"]))+"
_PART: Final = re.compile(
    r"(?P<joined>\\(?:\r?\n|\Z))|(?P<space>[ \t]+|\s+(?=-))|'(?P<plain>[^']*)'"
    r"|\$'(?P<ansi>(?:[^'\\]|\\.)*)'|\$?\"(?P<double>(?:[^\"\\]|\\.)*)\"|\\(?P<escaped>.)"
    rf"|(?P<bare>{_BARE}(?:&{_BARE})*)|(?P<end>[\r\n;|&<>])",
    re.DOTALL,
)
_IN_DOUBLE_QUOTES: Final = re.compile(r"\\(?:\r?\n|([$`\"\\]))")
# An escape of bash between $' and ': two halves of one character, a character, a byte, or a letter.
_ANSI_ESCAPE: Final = re.compile(
    r"\\(?:u(?P<high>[dD][89abAB][\da-fA-F]{2})\\u(?P<low>[dD][c-fC-F][\da-fA-F]{2})"
    r"|[uU](?P<char>(?<=u)[\da-fA-F]{1,4}|(?<=U)[\da-fA-F]{1,8})"
    r"|x(?P<hex>[\da-fA-F]{1,2})|(?P<octal>[0-7]{1,3})|(?P<letter>.))",
    re.DOTALL,
)
_LETTERS: Final = dict(zip("abeEfnrtv\\'\"?", "\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ABOUT_FIELD: Final = re.compile(r"\s*(type|filename|headers|encoder)=(.*)", re.DOTALL)


class _Option(NamedTuple):
    """An option as it was typed, its long name (empty for a URL) and its value."""

    written: str
    name: str
    value: str = ""

    @property
    def is_of_file(self) -> bool:
        """Whether curl reads the data from a file."""
        if self.name == "data-urlencode":
            return "@" in self.value.partition("=")[0]
        if self.name == "form":
            return self.value.partition("=")[2][:1] in ("@", "<")
        names = _DATA - {"data-raw"} | {"header"}
        return self.name in names and self.value.startswith("@")


@dataclass(frozen=True, slots=True)
class CurlCommand:
    """The request of a curl command, without its credentials.

    Attributes
    ----------
    has_credentials
        Whether an option contained credentials. They are not kept.
    left_out
        What is ignored: unknown options, data from a file, and what follows the command.
    """

    method: str
    url: str
    headers: list[tuple[str, str]]
    body: bytes
    has_credentials: bool
    left_out: list[str]


def read_curl(text: str) -> CurlCommand:
    """Read a curl command.

    Raises
    ------
    DirectMailLabError
        The text is not a curl command for bash, or its quotes do not match.
    """
    try:
        command = _read(text)
        texts = chain([command.method, command.url], command.left_out, *command.headers)
        "".join(texts).encode()
    except UnicodeEncodeError:  # a byte that is not UTF-8, and in no body
        raise _unreadable() from None
    return command


def _read(text: str) -> CurlCommand:
    words, rest = _split(text)
    # A command for Windows' cmd has carets before its quotes and at the ends of its lines.
    if words[:1] != ["curl"] or any(word.startswith("^") for word in words):
        raise _unreadable()
    options = list(_options(iter(words[1:])))
    sent = [option for option in options if not option.is_of_file]
    known = _READ | _CREDENTIALS | _WITHOUT_EFFECT
    left_out = [option.written for option in options if option.name not in known]
    left_out += [f"{option.written} {option.value}" for option in options if option.is_of_file]
    left_out += ["the text after the command"] * bool(rest)

    def values(*names: str) -> list[str]:
        return [value for _, name, value in sent if name in names]

    urls = values("", "url")
    url = next((each for each in urls if "/" in each), urls[0] if urls else "")
    headers = list(_headers(values("header")))
    left_out += ["a header without a colon"] * any(
        ":" not in value and value[-1:] != ";" for value in values("header")
    )
    query, body, types = _body(sent)
    if "multipart/" in types.get("Content-Type", ""):  # a given one has no boundary, or another one
        headers = [pair for pair in headers if pair[0].lower() != "content-type"]
    if query:
        url += f"{'&' if '?' in url else '?'}{query}"
    given = {name.lower() for name, _ in headers}
    headers += [(name, value) for name, value in types.items() if name.lower() not in given]
    is_post = any(name in _DATA or name.startswith("form") for _, name, _ in options)
    usual = "HEAD" if values("head") else "POST" if is_post and not values("get") else "GET"
    method = next(iter(values("request")), usual)
    has_credentials = any(option.name in _CREDENTIALS for option in options)
    return CurlCommand(method.upper(), url, headers, body, has_credentials, left_out)


def _split(text: str) -> tuple[list[str], str]:
    """Return the words of the first command, as bash reads them, and what follows the command."""
    words: list[list[str]] = []  # of their parts
    rest = ""
    text = text.lstrip()
    at = 0
    is_new = True
    while part := _PART.match(text, at):
        kind = part.lastgroup
        at = part.end()
        if kind == "end":
            rest = text[at:].strip()
            break
        if kind == "space":
            is_new = True
        elif kind != "joined":
            if is_new:
                words.append([])
            words[-1].append(_word(part))
            is_new = False
    else:
        if at < len(text):  # a quotation mark without its pair
            return [], ""
    return ["".join(parts) for parts in words], rest


def _word(part: re.Match[str]) -> str:
    if (ansi := part["ansi"]) is not None:
        return _unescape(ansi)
    if (double := part["double"]) is not None:
        return _IN_DOUBLE_QUOTES.sub(lambda found: found[1] or "", double)
    return str(part[part.lastgroup or 0])


def _unescape(text: str) -> str:
    """Decode the escapes of a bash string that is written between $' and '."""
    data, at = list[bytes](), 0
    for found in _ANSI_ESCAPE.finditer(text):
        data += [text[at : found.start()].encode(), _escaped(found)]
        at = found.end()
    return b"".join([*data, text[at:].encode()]).decode(errors="surrogateescape")


def _escaped(found: re.Match[str]) -> bytes:
    if found["high"]:
        return bytes.fromhex(found["high"] + found["low"]).decode("utf-16-be").encode()
    if digits := found["char"]:
        return chr(min(int(digits, 16), 0x10FFFF)).encode(errors="replace")
    if digits := found["hex"] or found["octal"]:
        return bytes([int(digits, 16 if found["hex"] else 8) & 0xFF])
    return _LETTERS.get(found["letter"], found[0]).encode()


def _options(words: Iterator[str]) -> Iterator[_Option]:
    for word in words:
        if word in ("--next", "-:"):  # another request
            yield _Option(word, "next")
            return
        if word.startswith("--"):
            name = word[2:]
            # Nothing after "=" is shown: curl takes no value there, and it may be a secret.
            yield _Option(
                word.partition("=")[0], name, next(words, "") if name in _WITH_VALUE else ""
            )
        elif not word.startswith("-"):
            yield _Option("", "", word)
        else:
            for at, letter in enumerate(word[1:], 2):
                name = _SHORT.get(letter, letter)
                if name in _WITH_VALUE:
                    yield _Option(f"-{letter}", name, word[at:] or next(words, ""))
                    break
                yield _Option(f"-{letter}", name)


def _headers(values: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the headers. As in curl, ``X-Note;`` adds an empty one, and ``Accept:`` adds none."""
    for value in values:
        name, colon, content = value.partition(":")
        if content.strip():
            yield name.strip(), content.strip()
        elif not colon and name.endswith(";"):
            yield name[:-1].strip(), ""


def _body(options: list[_Option]) -> tuple[str, bytes, dict[str, str]]:
    """Return what the data adds to the query, the body, and the headers that describe the body."""
    data = [_data(option) for option in options if option.name in _DATA]
    fields = [_field(option) for option in options if option.name.startswith("form")]
    is_json = any(option.name == "json" for option in options)
    joined = ("" if is_json else "&").join(data)
    if any(option.name == "get" for option in options):
        return joined, b"", {}
    if fields:
        form = httpx.Request("POST", "http://form", files=fields)
        return "", form.read(), {"Content-Type": form.headers["Content-Type"]}
    body = joined.encode(errors="surrogateescape")
    if is_json:
        return "", body, dict.fromkeys(["Content-Type", "Accept"], "application/json")
    return "", body, {"Content-Type": "application/x-www-form-urlencoded"} if data else {}


def _data(option: _Option) -> str:
    if option.name != "data-urlencode":
        return option.value
    name, sign, content = option.value.partition("=")
    if not sign:
        name, content = "", name
    quoted = quote_plus(content, errors="surrogateescape")
    return f"{name.strip()}={quoted}" if name else quoted


def _field(option: _Option) -> tuple[str, tuple[None, bytes, str | None]]:
    """Return a field of a form. After its value, which may be quoted, its type may follow."""
    name, _, value = option.value.partition("=")
    kind = None
    if option.name == "form":
        quoted = _QUOTED.match(value)
        first, *rest = (value[quoted.end() :] if quoted else value).split(";")
        about = [_ABOUT_FIELD.fullmatch(each) for each in rest]
        if all(about) and not (quoted and first):
            value = re.sub(r"\\(.)", r"\1", quoted[1], flags=re.DOTALL) if quoted else first
            kind = next((each[2] for each in about if each and each[1] == "type"), None)
    return name.strip(), (None, value.encode(errors="surrogateescape"), kind)


def _unreadable() -> DirectMailLabError:
    return DirectMailLabError(
        "This curl command cannot be read.", "Copy it again as a command for bash."
    )
