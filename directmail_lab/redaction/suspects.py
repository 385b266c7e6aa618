"""Suspect credentials: what looks like one, by its form or by the name beside it.

The redactor removes credentials by their names and places. The audit also finds them in code and
prose, and knows the forms of some services' keys, as detect-secrets and bandit do; ``cassette
redact`` removes what it finds. Placeholders and the stand-in's public key do not count, since
people switch off an audit that raises false alarms.
"""

from __future__ import annotations

import html
import re
from base64 import b64decode
from collections.abc import Iterator
from contextlib import suppress

from ..exchange.bodies import table_in, unpacked
from ..exchange.values import Interaction
from .names import is_credential, is_placeholder, is_random, kind_of
from .places import credentials_in_fields, written_header

Part = tuple[str, str | bytes]
"""A place, and what to search there: a text, or the bytes of a body or a picture."""

# Separates two headers; no pattern below matches across it.
BETWEEN = "\0\n"

# What stands before a key: no part of a longer name, but maybe an escape in an address or in JSON.
_ALONE = r"(?:(?<![\w-])|(?<=%[0-9A-F]{2})|(?<=\\[nrt]))"
# The keys of services, as their documentation describes them: the service, what a text with one
# contains in lower case, and the form. (Postmark's is a UUID, which only its name shows.)
_SERVICES = (
    # SG.22 characters.43 characters
    ("SendGrid", "sg.", r"SG\.[\w-]{22}\.[\w-]{43}"),
    # key-32 letters or digits; later ones have 32-8-8 hexadecimal digits
    ("Mailgun", "key-", r"key-(?=[a-z]{0,31}\d)[0-9a-z]{32}"),
    ("Mailgun", "-", r"[0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8}"),
    # 32 hexadecimal digits-us6
    ("Mailchimp", "-us", r"[0-9a-f]{32}-us\d{1,2}"),
    # xkeysib-64 hexadecimal digits-16 characters
    ("Brevo", "sib-", r"x(?:key|smtp)sib-[0-9a-f]{64}-[A-Za-z0-9]{16}"),
    # SK and 32 hexadecimal digits; AC… is the id of an account
    ("Twilio", "sk", r"SK[0-9a-f]{32}"),
    # pk_34 hexadecimal digits; Stripe's public pk_live_ is none
    ("Klaviyo", "pk_", r"pk_(?:[A-Za-z0-9]{6}_)?[0-9a-f]{32,34}"),
    # pat-na1-UUID
    ("HubSpot", "pat-", r"pat-[a-z]{2,3}\d-[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"),
    # test_ or live_ and 35 hexadecimal digits; live_pub_ is in web pages, and yet a key
    ("Lob", "live_,test_", r"(?:live|test)_(?:pub_)?[0-9a-f]{24,}"),
    ("Stripe", "whsec_", r"whsec_[A-Za-z0-9+/]{32,}={0,2}"),
    # xoxb-number-number-24 characters
    ("Slack", "xox", r"xox[abceoprs](?:\.xox[bp])?-\d[\w-]{15,}"),
    ("Slack", "xapp-", r"xapp-\d-[\w-]{20,}"),
    (
        "Slack",
        "hooks.slack.com",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/\w+/\w+/\w{16,}",
    ),
    # AIza and 35 characters
    ("Google", "aiza", r"AIza[\w-]{35}"),
    ("Google", "gocspx-", r"GOCSPX-[\w-]{28}"),
    # ghp_36 characters
    ("GitHub", "gh", r"gh[pousr]_[A-Za-z0-9]{30,}"),
    ("GitHub", "github_pat_", r"github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}"),
    # glpat-20 characters, or more with a part that routes
    ("GitLab", "gl", r"gl(?:agent|cbt|dt|ft|imt|oas|pat|ptt|rt|soat)-[\w-]{20,}(?:\.[\w-]+)*"),
    ("npm", "npm_", r"npm_[A-Za-z0-9]{36}"),
    ("Hugging Face", "hf_", r"hf_[A-Za-z0-9]{34,}"),
    # AKIA and 16 capitals and digits; ASIA if temporary
    ("AWS", "akia,asia", r"(?:AKIA|ASIA)[0-9A-Z]{16}"),
)
# The group `secret` is the secret itself; `random` is one if it is random. Repetitions that may be
# tried twice are bounded, so that the patterns take linear time. No possessive quantifier is inside
# another one, since the `re` of Python 3.11.2 misreads that.
# A text of the form contains one of the hints, in lower case and separated by commas.
_FORMS = (
    (
        "a private key",
        "private key",
        r"(?P<secret>-----BEGIN (?:[A-Z]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:[^-\"'<>{}\\]|\\{1,4}[nrt/]|-(?!----)){0,16384}(?:-----END [A-Z ]{1,60}-----)?)",
    ),
    *(
        (f"a key of {service}", hints, rf"{_ALONE}(?P<secret>{form})(?![\w-])")
        for service, hints, form in _SERVICES
    ),
    # Stripe's sk_live_… and rk_test_…, Mollie's live_…, OpenAI's sk-….
    (
        "a service's key, by its prefix",
        "live_,prod_,secret_,test_,sk-,rk-",
        rf"{_ALONE}(?P<random>(?:(?!pk_)[a-z]{{2,4}}_)?(?:live|prod|secret|test)_(?:[a-z]{{2,3}}_)?"
        r"[A-Za-z0-9]{16,}|[sr]k-(?:[a-z]{1,20}-){0,2}[A-Za-z0-9_-]{20,})(?![\w-])",
    ),
    (
        "a signed token (JWT)",
        "eyj",
        r"(?<![\w-])(?P<secret>eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,})",
    ),
    ("a bearer token", "bearer", r"(?i)\bbearer\s{1,9}(?P<random>[\w.~+/-]{16,})"),
    (
        "credentials in an address",
        "@",
        r"://(?P<secret>[^\s/?#@:\"'<>\\]{0,256}:[^\s/?#@\"'<>\\]{0,256}"
        r"|(?=[^\s/@]{0,99}\d)[^\s/?#@:\"'<>\\]{16,256})@",
    ),
)
_ADDRESS = re.compile(r"://[^\s\"'<>\\]+")
_HEADER = re.compile(r"(?:\A|\0\n)([\w-]{1,99}): (?!(?i:basic) )([^\r\n\0]+)")
_BASIC = re.compile(r"(?i)\bbasic\s{1,9}([A-Za-z0-9+/_-]{8,})")
# The arguments of a call that takes a key.
_CALL = re.compile(
    r"(?:connect|login|Session|ApiKey|BasicAuth|Configuration|set_password|setenv)"
    r"\(((?:[^()]|\([^()]{0,400}\)){0,400})"
)
_CALL_HINTS = "connect(,login(,session(,apikey(,basicauth(,configuration(,set_password(,setenv("
_ARGUMENT = re.compile(r"[\"']([^\s\"'\\]{8,512})\\*[\"']")
# A name and its value: `key: str = f"x"`, `auth=("x", "")`, `{"key": "x"}`, `<key>x`,
# `environ["KEY"] = "x"`, `get("KEY", "x")`, `--key x`, `key is x`. The quotes may be escaped. The
# match begins within the name, at the word that says what it is: trying each name from its start
# takes four times as long. The lookahead halves the rest.
_OUTSIDE_NAMES = re.compile(r"[^\w-]")
_ASSIGNMENT = re.compile(
    r"(?P<name>(?=[kKtTsSpPaAcC])(?i:key|token|secret|pass|pwd|auth|credential)[\w-]{0,40})"
    r"(?:\\*[\"']?\]?(?:\s{0,9}:\s{0,9}[\w.|\[\]]{1,40}(?=\s{0,9}=))?(?:[ \t:=>]|\bis\b){1,40}"
    r"[(\[]?"
    r"|[\"'](?P<comma>\s{0,9},\s{0,9})(?=[\"']))"
    r"[bfruBFRU]{0,2}\\*(?P<quote>[\"']{0,3})(?P<secret>[^\s\"'\\<>(),;&]{8,512})"
)
_NAME_HINTS = "key,token,secret,pass,pwd,auth,credential"
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:T[\d:.]+(?:Z|[+-][\d:]+)?)?")


Suspect = tuple[str, str]
"""What looks like a credential: a description, which does not quote it, and itself."""


def credentials_in(text: str, *, is_body: bool = False) -> Iterator[str]:
    """Yield a description of each kind of credential in a text, and never the credential."""
    yield from dict.fromkeys(what for what, _ in _suspects_in(text, is_body=is_body))


def secrets_of(interaction: Interaction) -> Iterator[str]:
    """Yield what looks like a credential in an interaction."""
    for text in texts_of(interaction):
        yield from (secret for _, secret in _suspects_in(text))


def _suspects_in(text: str, *, is_body: bool = False) -> Iterator[Suspect]:
    with suppress(ValueError):  # Python refuses to parse a number of 5,000 digits
        text = html.unescape(text)
    lower = text.lower()
    yield from _by_form(text, lower)
    yield from _in_headers(text, lower)
    beside_names = [*_beside_names(text, lower)] or [*_in_fields(text, is_body=is_body)]
    yield from beside_names or _as_arguments(text, lower)


def _has_any(lower: str, hints: str) -> bool:
    return any(map(lower.__contains__, hints.split(",")))


def _by_form(text: str, lower: str) -> Iterator[Suspect]:
    for what, hints, form in _FORMS:
        if not _has_any(lower, hints):
            continue
        for match in re.finditer(form, text):
            secret = match[match.lastgroup or 0]
            if not is_placeholder(secret) and (match.lastgroup == "secret" or is_random(secret)):
                yield what, secret


def _in_headers(text: str, lower: str) -> Iterator[Suspect]:
    # The same headers that a recording is written without.
    for name, value in _HEADER.findall(text):
        if written_header(name, value) != value and not is_placeholder(value):
            yield "a credential in a header", value
    if "basic" in lower:
        for digits in _BASIC.findall(text):
            if _is_basic(digits):
                yield "credentials of HTTP Basic", digits


def _in_fields(text: str, *, is_body: bool) -> Iterator[Suspect]:
    # The same fields that a recording is written without. In code, a name may have any value.
    for part in [text] if is_body else _ADDRESS.findall(text):
        for secret in credentials_in_fields(part):
            if not is_placeholder(secret):
                yield "a credential in a field", secret


def _beside_names(text: str, lower: str) -> Iterator[Suspect]:
    if not _has_any(lower, _NAME_HINTS):
        return
    for match in _ASSIGNMENT.finditer(text):
        if _is_key_beside_name(match):
            name = _name(match)
            # The name itself may be a credential.
            shown = "a field" if is_random(name) else name
            yield f"a key or password in {shown}", match["secret"]


def _as_arguments(text: str, lower: str) -> Iterator[Suspect]:
    if not _has_any(lower, _CALL_HINTS):
        return
    for argument in _ARGUMENT.findall(" ".join(_CALL.findall(text))):
        if is_random(argument):
            yield "a key as an argument", argument


def _name(match: re.Match[str]) -> str:
    before = match.string[max(0, match.start() - 40) : match.start()]
    return f"{_OUTSIDE_NAMES.split(before)[-1]}{match['name']}"


def _is_basic(digits: str) -> bool:
    """Return whether base64 is ``user:password``, and not a word that follows "basic"."""
    try:
        pair = b64decode(digits + "=" * (-len(digits) % 4), altchars=b"-_").decode()
    except ValueError:
        return False
    user, colon, password = pair.partition(":")
    if not colon or not pair.isprintable():
        return False
    return not (is_placeholder(user) and is_placeholder(password))


def _is_key_beside_name(match: re.Match[str]) -> bool:
    secret = match["secret"]
    name = _name(match)
    if _DATE.fullmatch(secret):
        return False
    if kind_of(name) == "certain" and match["quote"] and not match["comma"] and "://" not in secret:
        return bool(re.search(r"\d|.{20}", secret)) and not is_placeholder(secret)
    between = match.string[match.start() : match.start("secret")]
    may_be_id = ":" in between and "=" not in between  # as in JSON
    return is_credential(name, secret, may_be_id=may_be_id) and is_random(secret)


def texts_of(interaction: Interaction) -> Iterator[str]:
    """Yield each part of an interaction as text."""
    for _, content in parts_of(interaction, ""):
        yield text_of(content)


def text_of(content: str | bytes) -> str:
    """Return a part as text."""
    return content if isinstance(content, str) else content.decode("utf-8", "surrogateescape")


def parts_of(interaction: Interaction, where: str) -> Iterator[Part]:
    """Yield each part of an interaction."""
    request = interaction.request
    response = interaction.response
    yield f"{where}, address", f"{request.method} {request.uri}"
    yield f"{where}, status", response.reason
    for side, message in (("request", request), ("response", response)):
        yield f"{where}, {side} headers", BETWEEN.join(map(": ".join, message.headers))
        body = message.body or b""
        with suppress(ValueError):  # a body that cannot be opened is never shared
            body = unpacked(message)
        yield f"{where}, {side} body", body
        table = table_in(message.headers, request.uri, body)
        if table:
            yield f"{where}, {side} body", table.json.encode()
