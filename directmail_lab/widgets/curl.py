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

_SHORT: Final = {
    "#": "progress-bar",
    "A": "user-agent",
    "C": "continue-at",
    "D": "dump-header",
    "E": "cert",
    "F": "form",
    "G": "get",
    "H": "header",
    "I": "head",
    "K": "config",
    "L": "location",
    "N": "no-buffer",
    "P": "ftp-port",
    "Q": "quote",
    "S": "show-error",
    "T": "upload-file",
    "U": "proxy-user",
    "X": "request",
    "Y": "speed-limit",
    "b": "cookie",
    "c": "cookie-jar",
    "d": "data",
    "e": "referer",
    "f": "fail",
    "g": "globoff",
    "i": "include",
    "k": "insecure",
    "m": "max-time",
    "o": "output",
    "r": "range",
    "s": "silent",
    "t": "telnet-option",
    "u": "user",
    "v": "verbose",
    "w": "write-out",
    "x": "proxy",
    "y": "speed-time",
    "z": "time-cond",
}
"""The long names of short options. Others take no value, and are left out."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_DATA: Final = _words("data data-ascii data-raw data-binary data-urlencode json")
_CREDENTIALS: Final = _words(
    "user proxy-user cookie oauth2-bearer cert key pass aws-sigv4 proxy-pass proxy-header "
    "tlsuser tlspassword"
)
_READ: Final = _DATA | {"", "url", "request", "header", "get", "head", "form", "form-string"}
# Options that only change what curl shows, or that ask for what the session does anyway.
_WITHOUT_EFFECT: Final = _words(
    "silent show-error verbose include globoff path-as-is compressed fail no-buffer "
    "progress-bar output write-out dump-header http1.1 http2"
)
# All of curl 7.88 and later: the word after another option may be the address.
_WITH_VALUE: Final = _words(
    "abstract-unix-socket alt-svc aws-sigv4 cacert capath cert cert-type ciphers config "
    "connect-timeout connect-to continue-at cookie cookie-jar create-file-mode crlfile curves "
    "data data-ascii data-binary data-raw data-urlencode delegation dns-interface dns-ipv4-addr "
    "dns-ipv6-addr dns-servers doh-url dump-header ech egd-file engine etag-compare etag-save "
    "expect100-timeout form form-string ftp-account ftp-alternative-to-user ftp-method ftp-port "
    "ftp-ssl-ccc-mode happy-eyeballs-timeout-ms haproxy-clientip header hostpubmd5 hostpubsha256 "
    "hsts interface ip-tos ipfs-gateway json keepalive-cnt keepalive-time key key-type krb "
    "libcurl limit-rate local-port login-options mail-auth mail-from mail-rcpt max-filesize "
    "max-redirs max-time netrc-file noproxy oauth2-bearer output output-dir parallel-max "
    "parallel-max-host pass pinnedpubkey preproxy proto proto-default proto-redir proxy "
    "proxy-cacert proxy-capath proxy-cert proxy-cert-type proxy-ciphers proxy-crlfile "
    "proxy-header proxy-key proxy-key-type proxy-pass proxy-pinnedpubkey proxy-service-name "
    "proxy-tls13-ciphers proxy-tlsauthtype proxy-tlspassword proxy-tlsuser proxy-user proxy1.0 "
    "pubkey quote random-file range rate referer request request-target resolve retry retry-delay "
    "retry-max-time sasl-authzid service-name sigalgs socks4 socks4a socks5 socks5-gssapi-service "
    "socks5-hostname speed-limit speed-time stderr telnet-option tftp-blksize time-cond tls-max "
    "tls13-ciphers tlsauthtype tlspassword tlsuser trace trace-ascii trace-config unix-socket "
    "upload-file upload-flags url url-query user user-agent variable vlan-priority write-out"
)

# The parts of a command for bash. A line that begins with an option belongs to the line before it,
# although a backslash is missing there.
_BARE: Final = r"(?:[^\s'\"\\;|&<>$]|\$(?!['\"]))+"
_PART: Final = re.compile(
    r"(?P<joined>\\(?:\r?\n|\Z))|(?P<comment>(?<!\S)#[^\r\n]*)|(?P<space>[ \t]+|\s+(?=-))"
    r"|'(?P<plain>[^']*)'|\$'(?P<ansi>(?:[^'\\]|\\.)*)'|\$?\"(?P<double>(?:[^\"\\]|\\.)*)\"|\\(?P<escaped>.)"
    rf"|(?P<bare>{_BARE}(?:&{_BARE})*)|(?P<end>[\r\n;|&<>])",
    re.DOTALL,
)
_COMMENTS_BEFORE: Final = re.compile(r"\A(?:\s*#[^\n]*\n)+")
_IN_DOUBLE_QUOTES: Final = re.compile(r"\\(?:\r?\n|([$`\"\\]))")
# An escape of bash between $' and ': two halves of one character, a character, a byte, or a letter.
_ANSI_ESCAPE: Final = re.compile(
    r"\\(?:u(?P<high>[dD][89abAB][\da-fA-F]{2})\\u(?P<low>[dD][c-fC-F][\da-fA-F]{2})"
    r"|[uU](?P<char>(?<=u)[\da-fA-F]{1,4}|(?<=U)[\da-fA-F]{1,8})"
    r"|x(?P<hex>[\da-fA-F]{1,2})|(?P<octal>[0-7]{1,3})|(?P<letter>.))",
    re.DOTALL,
)
_LETTERS: Final = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "?": "?",
}
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
    words, rest = _split(_COMMENTS_BEFORE.sub("", text))
    # A command for Windows has carets before its quotes, and carets or backticks at the ends of its
    # lines.
    is_for_windows = any(word.startswith(("^", "`")) for word in words)
    if words[:1] != ["curl"] or is_for_windows:
        raise _unreadable()
    options = list(_options(iter(words[1:])))
    sent = [option for option in options if not option.is_of_file]
    known = _READ | _CREDENTIALS | _WITHOUT_EFFECT
    left_out = [option.written for option in options if option.name not in known]
    left_out += [f"{option.written} {option.value}" for option in options if option.is_of_file]
    if rest:
        left_out.append("the text after the command")

    def values(*names: str) -> list[str]:
        return [value for _, name, value in sent if name in names]

    urls = sorted(values("", "url"), key=_unlikely_address)
    url = urls[0] if urls else ""
    if len(urls) > 1:
        left_out.append("another address")
    headers = list(_headers(values("header")))
    if any(":" not in value and not value.endswith(";") for value in values("header")):
        left_out.append("a header without a colon")
    query, body, types = _body(sent)
    if "multipart/" in types.get("Content-Type", ""):  # a given one has no boundary, or another one
        headers = [pair for pair in headers if pair[0].lower() != "content-type"]
    if query:
        url += f"{'&' if '?' in url else '?'}{query}"
    given = {name.lower() for name, _ in headers}
    headers += [(name, value) for name, value in types.items() if name.lower() not in given]
    has_credentials = any(option.name in _CREDENTIALS for option in options)
    return CurlCommand(_method(options), url, headers, body, has_credentials, left_out)


def _method(options: list[_Option]) -> str:
    """Return the method that is given last, or else the one that curl uses."""
    given = [option.value for option in options if option.name == "request"]
    if given:
        return given[-1].upper()
    names = {option.name for option in options}
    if "head" in names:
        return "HEAD"
    has_data = any(name in _DATA or name.startswith("form") for name in names)
    return "POST" if has_data and "get" not in names else "GET"


def _unlikely_address(word: str) -> int:
    """Return how unlikely a word is the address; of several, the likeliest comes first."""
    if "://" in word:
        return 0
    return 1 if "/" in word else 2


def _split(text: str) -> tuple[list[str], str]:
    """Return the words of the first command, as bash reads them, and what follows the command."""
    words: list[list[str]] = []  # of their parts
    rest = ""
    text = text.lstrip()
    at = 0
    kind = None
    is_new = True
    while part := _PART.match(text, at):
        if kind == part.lastgroup == "double":  # cmd of Windows doubles a quote in quotes
            return [], ""
        kind = part.lastgroup
        at = part.end()
        if kind == "end":
            rest = text[at:].strip()
            break
        if kind in ("space", "comment"):
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
    if part["ansi"] is not None:
        return _unescape(part["ansi"])
    if part["double"] is not None:
        return _IN_DOUBLE_QUOTES.sub(lambda found: found[1] or "", part["double"])
    return str(part[part.lastgroup or 0])


def _unescape(text: str) -> str:
    """Decode the escapes of a bash string that is written between $' and '."""
    data: list[bytes] = []
    at = 0
    for found in _ANSI_ESCAPE.finditer(text):
        data += [text[at : found.start()].encode(), _escaped(found)]
        at = found.end()
    return b"".join([*data, text[at:].encode()]).decode(errors="surrogateescape")


def _escaped(found: re.Match[str]) -> bytes:
    if found["high"]:
        return bytes.fromhex(found["high"] + found["low"]).decode("utf-16-be").encode()
    if found["char"]:
        return chr(min(int(found["char"], 16), 0x10FFFF)).encode(errors="replace")
    if found["hex"]:
        return bytes([int(found["hex"], 16)])
    if found["octal"]:
        return bytes([int(found["octal"], 8) & 0xFF])
    return _LETTERS.get(found["letter"], found[0]).encode()


def _options(words: Iterator[str]) -> Iterator[_Option]:
    for word in words:
        if word in ("--next", "-:"):  # another request
            yield _Option(word, "next")
            return
        if word.startswith("--"):
            name = word[2:]
            # Nothing after "=" is shown: curl takes no value there, and it may be a secret.
            value = next(words, "") if name in _WITH_VALUE else ""
            yield _Option(word.partition("=")[0], name, value)
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
    if data:
        return "", body, {"Content-Type": "application/x-www-form-urlencoded"}
    return "", body, {}


def _data(option: _Option) -> str:
    if option.name != "data-urlencode":
        return option.value
    name, sign, content = option.value.partition("=")
    quoted = quote_plus(content if sign else name, errors="surrogateescape")
    return f"{name.strip()}={quoted}" if sign and name else quoted


def _field(option: _Option) -> tuple[str, tuple[None, bytes, str | None]]:
    """Return a field of a form. After its value, which may be quoted, its type may follow."""
    name, _, value = option.value.partition("=")
    kind = None
    if option.name == "form":
        quoted = _QUOTED.match(value)
        after_quotes = quoted.end() if quoted else 0
        first, *rest = value[after_quotes:].split(";")
        about = [_ABOUT_FIELD.fullmatch(each) for each in rest]
        if all(about) and not (quoted and first):
            value = re.sub(r"\\(.)", r"\1", quoted[1], flags=re.DOTALL) if quoted else first
            types = [each[2] for each in about if each and each[1] == "type"]
            kind = types[0] if types else None
    return name.strip(), (None, value.encode(errors="surrogateescape"), kind)


def _unreadable() -> DirectMailLabError:
    return DirectMailLabError(
        "This curl command cannot be read.", "Copy it again as a command for bash."
    )
