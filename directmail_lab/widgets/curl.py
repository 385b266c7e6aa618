"""Reading a curl command, such as a browser's network panel copies or `dm.browse` does."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
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
    _words("user proxy-user cookie oauth2-bearer cert key pass aws-sigv4")
)
_READ: Final = _DATA | {"", *_words("url request header get head form form-string")}
# What changes how curl shows the response, or what the session does anyway.
_WITHOUT_EFFECT: Final = frozenset(
    _words(
        "silent show-error verbose include globoff path-as-is compressed fail no-buffer "
        "progress-bar output write-out dump-header http1.1 http2"
    )
)
_OTHERS_WITH_VALUE: Final = _words(
    "upload-file user-agent referer output max-time proxy write-out dump-header cookie-jar config "
    "connect-timeout retry retry-delay cacert resolve cert-type key-type"
)
_WITH_VALUE: Final = (_READ - {"get", "head"}) | _CREDENTIALS | {*_OTHERS_WITH_VALUE}
_ANSI_QUOTED: Final = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)


class _Option(NamedTuple):
    """An option as it was written, its long name (a URL has none) and its value."""

    written: str
    name: str
    value: str = ""

    @property
    def is_of_file(self) -> bool:
        """Whether curl takes what it sends from a file."""
        if self.name == "data-urlencode":
            return "@" in self.value.partition("=")[0]
        if self.name == "form":
            return self.value.partition("=")[2][:1] in ("@", "<")
        return self.name in _DATA - {"data-raw"} and self.value.startswith("@")


@dataclass(frozen=True, slots=True)
class CurlCommand:
    """The request of a curl command, without its credentials.

    Attributes
    ----------
    has_credentials
        Whether an option carried some, which are not kept.
    left_out
        The other options that are not in the request.
    """

    method: str
    url: str
    headers: list[tuple[str, str]]
    body: bytes
    has_credentials: bool
    left_out: list[str]


def read_curl(text: str) -> CurlCommand:
    """Read a command.

    Raises
    ------
    DirectMailLabError
        It is no curl command, or its quotes do not match.
    """
    text = _ANSI_QUOTED.sub(lambda found: shlex.quote(_unescape(found[1])), text)
    try:
        words = shlex.split(re.sub(r"\\\r?\n", " ", text))
    except ValueError:
        words = []
    if words[:1] != ["curl"]:
        raise DirectMailLabError(
            "This curl command cannot be read.", "Copy it again, as a command for bash."
        )
    options = list(_options(iter(words[1:])))
    sent = [option for option in options if not option.is_of_file]
    known = _READ | _CREDENTIALS | _WITHOUT_EFFECT
    left_out = [option.written for option in options if option.name not in known]
    left_out += [f"{option.written} {option.value}" for option in options if option.is_of_file]

    def values(*names: str) -> list[str]:
        return [value for _, name, value in sent if name in names]

    urls = values("", "url")
    url = next((each for each in urls if "/" in each), urls[0] if urls else "")
    headers = [_pair(value, ":") for value in values("header")]
    query, body, types = _body(sent)
    if query:
        url += f"{'&' if '?' in url else '?'}{query}"
    given = {name.lower() for name, _ in headers}
    headers += [(name, value) for name, value in types.items() if name.lower() not in given]
    is_post = any(name in _DATA or name.startswith("form") for _, name, _ in options)
    usual = "HEAD" if values("head") else "POST" if is_post and not values("get") else "GET"
    method = next(iter(values("request")), usual)
    has_credentials = any(option.name in _CREDENTIALS for option in options)
    return CurlCommand(method.upper(), url, headers, body, has_credentials, left_out)


def _options(words: Iterator[str]) -> Iterator[_Option]:
    for word in words:
        if word.startswith("--"):
            name = word[2:]
            yield _Option(word, name, next(words, "") if name in _WITH_VALUE else "")
        elif not word.startswith("-"):
            yield _Option("", "", word)
        else:
            for at, letter in enumerate(word[1:], 2):
                name = _SHORT.get(letter, letter)
                if name in _WITH_VALUE:
                    yield _Option(f"-{letter}", name, word[at:] or next(words, ""))
                    break
                yield _Option(f"-{letter}", name)


def _body(options: list[_Option]) -> tuple[str, bytes, dict[str, str]]:
    """Return what the data adds to the query, the body, and the headers that go with that."""
    data = [_data(option) for option in options if option.name in _DATA]
    fields = [_pair(value, "=") for _, name, value in options if name.startswith("form")]
    is_json = any(option.name == "json" for option in options)
    joined = ("" if is_json else "&").join(data)
    if any(option.name == "get" for option in options):
        return joined, b"", {}
    if fields:
        parts = [(name, (None, value.encode())) for name, value in fields]
        form = httpx.Request("POST", "http://form", files=parts)
        return "", form.read(), {"Content-Type": form.headers["Content-Type"]}
    if is_json:
        types = dict.fromkeys(["Content-Type", "Accept"], "application/json")
        return "", joined.encode(), types
    types = {"Content-Type": "application/x-www-form-urlencoded"} if data else {}
    return "", joined.encode(), types


def _data(option: _Option) -> str:
    if option.name != "data-urlencode":
        return option.value
    name, content = _pair(option.value, "=") if "=" in option.value else ("", option.value)
    return f"{name}={quote_plus(content)}" if name else quote_plus(content)


def _pair(text: str, sign: str) -> tuple[str, str]:
    name, _, value = text.partition(sign)
    return name.strip(), value.strip() if sign == ":" else value


def _unescape(text: str) -> str:
    """Return what bash makes of a text between $' and '."""
    return text.encode("latin-1", "backslashreplace").decode("unicode_escape")
