"""Reads curl commands, such as those that a browser's network panel or `browse` copies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote_plus

from ..errors import DirectMailLabError
from ..exchange.httpx_values import httpx

_SHORT = {
    "F": "form",
    "G": "get",
    "H": "header",
    "I": "head",
    "X": "request",
    "d": "data",
}
"""The long names of the short options that are read. Others stand as letters in the lists below."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_DATA = _words("data data-ascii data-raw data-binary data-urlencode json")
_CREDENTIALS = _words(
    "user u proxy-user U cookie b oauth2-bearer cert E key pass aws-sigv4 proxy-pass proxy-header "
    "tlsuser tlspassword"
)
_READ = _DATA | {"", "url", "request", "header", "get", "head", "form"}
# Options that only change what curl shows, or that ask for what the session does anyway.
_WITHOUT_EFFECT = _words(
    "silent s show-error S verbose v include i globoff g path-as-is compressed fail f no-buffer N "
    "progress-bar # output o write-out w dump-header D http1.1 http2"
)
# All of curl 7.88 and later: the word after another option may be the address.
_WITH_VALUE = _words(
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
    "upload-file upload-flags url url-query user user-agent variable vlan-priority write-out "
    "A C D E K P Q T U Y b c e m o r t u w x y z"
)

_BARE = r"(?:[^\s'\"\\;|&<>$]|\$(?!['\"]))+"
_PART = re.compile(
    rf"""
      (?P<joined>\\(?:\r?\n|\Z))
    | (?P<space>[ \t]+|\s+(?=-))
    | '(?P<plain>[^']*)'
    | \$'(?P<ansi>(?:[^'\\]|\\.)*)'
    | \$?"(?P<double>(?:[^"\\]|\\.)*)"
    | \\(?P<escaped>.)
    | (?P<bare>{_BARE}(?:&{_BARE})*)
    | (?P<end>[\r\n;|&<>])
    | (?P<torn>.)
    """,
    re.DOTALL | re.VERBOSE,
)
"""The parts of a command for bash. A line that begins with an option belongs to the line before it,
although a backslash is missing there. A torn part is a quotation mark without its pair."""
_IN_DOUBLE_QUOTES = re.compile(r"\\(?:\r?\n|([$`\"\\]))")
# Escapes between $' and ', as web browsers write them: a character, bytes, or a letter.
_ANSI_ESCAPE = re.compile(r"\\u([\da-fA-F]{4})|((?:\\x[\da-fA-F]{2})+)|\\(.)", re.DOTALL)
_LETTERS = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"', "!": "!"}


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
        return self.name in _DATA | {"header"} and self.value.startswith("@")


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
    words, rest = _split(text)
    # A command for Windows has carets before its quotes, and carets or backticks at the ends of its
    # lines.
    is_for_windows = any(word.startswith(("^", "`")) for word in words)
    if words[:1] != ["curl"] or is_for_windows:
        raise DirectMailLabError(
            "This curl command cannot be read.", "Copy it again as a command for bash."
        )
    options = list(_options(iter(words[1:])))
    names = {option.name for option in options}
    sent = [option for option in options if not option.is_of_file]
    left_out = []
    for option in options:
        if option.is_of_file:
            left_out.append(f"{option.written} {option.value}")
        elif option.name not in _READ | _CREDENTIALS | _WITHOUT_EFFECT:
            left_out.append(option.written)
    if rest:
        left_out.append("the text after the command")
    addresses = [option.value for option in sent if option.name in ("", "url")]
    # Another word may be the value of an option that is newer than the list above.
    addresses.sort(key=lambda address: "://" not in address)
    if len(addresses) > 1:
        left_out.append("another address")
    lines = [option.value.partition(":") for option in sent if option.name == "header"]
    headers = [(name.strip(), value.strip()) for name, _, value in lines if value.strip()]
    if len(headers) < len(lines):
        left_out.append("a header without a value")
    query, body, types = _body(sent, names)
    given = {name.lower() for name, _ in headers}
    headers += [(name, value) for name, value in types.items() if name.lower() not in given]
    url = addresses[0] if addresses else ""
    if query:
        url += f"{'&' if '?' in url else '?'}{query}"
    return CurlCommand(
        method=_method(options, names),
        url=url,
        headers=headers,
        body=body,
        has_credentials=not names.isdisjoint(_CREDENTIALS),
        left_out=left_out,
    )


def _method(options: list[_Option], names: set[str]) -> str:
    """Return the method that is given last, or else the one that curl uses."""
    given = [option.value for option in options if option.name == "request"]
    if given:
        return given[-1].upper()
    if "head" in names:
        return "HEAD"
    has_data = not names.isdisjoint(_DATA | {"form"})
    return "POST" if has_data and "get" not in names else "GET"


def _split(text: str) -> tuple[list[str], str]:
    """Return the words of the first command, as bash reads them, and what follows the command."""
    words: list[list[str]] = []  # of their parts
    is_new = True
    last = None
    for part in _PART.finditer(text):
        kind = part.lastgroup
        # cmd of Windows doubles a quote in quotes.
        if kind == "torn" or kind == last == "double":
            return [], ""
        if kind == "end" and words:
            return ["".join(parts) for parts in words], text[part.end() :].strip()
        if kind in ("space", "end"):
            is_new = True
        elif kind != "joined":
            if is_new:
                words.append([])
            words[-1].append(_word(part))
            is_new = False
        last = kind
    return ["".join(parts) for parts in words], ""


def _word(part: re.Match[str]) -> str:
    if part["ansi"] is not None:
        text = _ANSI_ESCAPE.sub(_unescaped, part["ansi"])
        # Two escapes may be the halves of one character.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if part["double"] is not None:
        return _IN_DOUBLE_QUOTES.sub(lambda found: found[1] or "", part["double"])
    return str(part[part.lastgroup or 0])


def _unescaped(found: re.Match[str]) -> str:
    point, data, letter = found.groups()
    if point:
        return chr(int(point, 16))
    if data:
        return bytes.fromhex(data.replace("\\x", "")).decode(errors="replace")
    return _LETTERS.get(letter, found[0])


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


def _body(options: list[_Option], names: set[str]) -> tuple[str, bytes, dict[str, str]]:
    """Return what the data adds to the query, the body, and the headers that describe the body."""
    data = [_data(option) for option in options if option.name in _DATA]
    fields = [option.value.partition("=") for option in options if option.name == "form"]
    is_json = "json" in names
    joined = ("" if is_json else "&").join(data)
    if "get" in names:
        return joined, b"", {}
    if fields:
        files = [(name, (None, value)) for name, _, value in fields]
        form = httpx.Request("POST", "http://form", files=files)
        return "", form.read(), {"Content-Type": form.headers["Content-Type"]}
    types = {}
    if is_json:
        types = dict.fromkeys(["Content-Type", "Accept"], "application/json")
    elif data:
        types = {"Content-Type": "application/x-www-form-urlencoded"}
    return "", joined.encode(), types


def _data(option: _Option) -> str:
    if option.name != "data-urlencode":
        return option.value
    name, sign, content = option.value.partition("=")
    if not sign:
        return quote_plus(name)
    return f"{name}={quote_plus(content)}" if name else quote_plus(content)
