"""The names of credentials: one table for headers, parameters, forms, JSON, XML and cookies.

A name counts in any letter case, with any marks and as a camel: ``X-Api-Key``, ``apiKey``. So does
a longer name that ends with one of the table: ``stripe_api_key``, ``newPassword``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

from ..exchange.contract import STAND_IN_KEY

# Their values are always credentials.
_CREDENTIALS = """
    api_key app_key application_key access_key account_key auth_key consumer_key encryption_key
    functions_key license_key master_key private_key secret_key shared_key signature_key
    signing_key subscription_key
    access_token api_token app_token auth_token bearer_token id_token id_token_hint oauth_token
    private_token refresh_token reset_token secret_token security_token session_token
    authorization x_auth jwt client_assertion
    password passwd passwort pwd user_pass db_pass passcode passphrase password_hash secret
    otp totp
    session_id sess_id
    amz_signature goog_signature oauth_signature connection_string
"""
# Their values are credentials if they are long and random: "token": "color" is none. A longer name
# that ends with "key" is often public: idempotency_key, sort_key.
_IF_RANDOM = """
    token bearer auth authentication session sig access_sign signature assertion credential
    device_code code_verifier oauth_code x_key insert_key query_key honeycomb_team
"""
# What a token or signature is for, if it is no credential: next_page_token, X-CSRF-Token.
_OTHER_TOKENS = """
    csrf xsrf authenticity request_verification
    page paging pagination next prev previous forward backward start last cursor scroll skip
    continuation resume sync delta change trace correlation thought
"""

# Those of a session. A load balancer's cookie is new in each response, and would slow each search.
_SESSION_COOKIE = re.compile(r"(?i)sid$|sess|[cx]srf|auth|token|login|remember|aspnet")
_WORD = re.compile("[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# newPassword2, password_confirmation
_REPEATED = re.compile(r"_(?:confirmation|confirm|again|repeat)$")
_SHORT = 6

# Placeholders, and words such as "my_api_key".
_PLACEHOLDER = re.compile(
    r"[<$%{\[].*|.*(?:[<…]|\.\.\.|\*\*\*|xxxx|your|example|placeholder|dummy|redact|fake).*"
    r"|(?-i:[A-Z]{1,12}(?:[_-][A-Z]{1,12})*)|(.)\1*"
    r"|(?:(?:api|my|the|some|this|test|user(?:name)?|pass(?:word)?|key|token|secret)[\W_]?)*",
    re.DOTALL | re.IGNORECASE,
)
_LONGEST_PLACEHOLDER = 512
_FILE_PATH = re.compile(r"[\w.=-]+(?:/[\w.=-]+)+\.[a-z]\w{0,4}")
_LONG_ENOUGH = 16
_LONG_PART = re.compile(r"[A-Za-z0-9]{8,}")
# Neither a UUID nor the name of an object has this: services call the id of a record its key.
_PART_OF_KEY = re.compile(r"[A-Za-z0-9]{16}")
_UUID = re.compile(r"(?i:[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12})")
_CHANGE = re.compile(r"[A-Za-z](?=\d)|\d(?=[A-Za-z])|[a-z](?=[A-Z])")


def _ending_with(names: Iterable[str]) -> str:
    """Return a pattern; a short word must stand alone: ``spwd`` is not ``pwd``."""
    patterns = []
    for name in names:
        is_short = len(name) < _SHORT
        patterns.append(("(?:.*_)?" if is_short else ".*") + name.replace("_", "_?"))
    return "|".join(patterns)


_CERTAIN = re.compile(_ending_with(_CREDENTIALS.split()))
_RANDOM = re.compile(rf"(?:.*_)?(?:{'|'.join(_IF_RANDOM.split())})")
_OTHER = re.compile(rf"(?:.*_)?(?:{'|'.join(_OTHER_TOKENS.split())})_(?:token|signature)")


def _hints() -> tuple[str, ...]:
    found = ["pass", "key"]
    for name in sorted(f"{_CREDENTIALS} {_IF_RANDOM}".split(), key=len):
        # Each word of a longer name may be in many texts: "connection" is a header.
        if not any(hint in name for hint in found):
            found += [name.replace("_", mark) for mark in ("", "_", "-")]
    return tuple(dict.fromkeys(found))


HINTS = _hints()
"""Each text with such a name contains one of these, in any letter case."""


@lru_cache(4000)  # without it, the same few names take a fifth of the time of a recording
def kind_of(name: str) -> Literal["certain", "random", "key", "other"]:
    """Return whether a name is always that of a credential, or only of a random value.

    ``"key"`` is the name that may also be that of a record's id.
    """
    words = _WORD.findall(name)
    snake = _REPEATED.sub("", "_".join(words).lower())
    if _OTHER.fullmatch(snake):
        return "other"
    if _CERTAIN.fullmatch(snake):
        return "certain"
    if snake == "key":
        return "key"
    return "random" if _RANDOM.fullmatch(snake) else "other"


def is_credential(name: str, value: str, *, may_be_id: bool = False) -> bool:
    """Return whether the value of a name is a credential.

    A record's id ``may_be`` in a field of JSON or XML: then 32 hexadecimal digits are one.
    """
    kind = kind_of(name)
    if kind == "key":
        is_id = may_be_id and _UUID.fullmatch(value) is not None
        return bool(_PART_OF_KEY.search(value)) and is_random(value) and not is_id
    if kind == "random":  # a signature in base64 may begin with a slash
        return len(value) >= _LONG_ENOUGH and is_random(value.lstrip("/"))
    # <hasPassword>true</hasPassword>
    return kind == "certain" and value.lower() not in ("", "true", "false")


def is_session_cookie(name: str, value: str) -> bool:
    """Return whether the value of a cookie is a credential: ``connect.sid``, ``csrftoken``."""
    is_session = _SESSION_COOKIE.search(name) and len(value) >= _LONG_ENOUGH and is_random(value)
    return bool(is_session) or is_credential(name, value)


def is_placeholder(secret: str) -> bool:
    """Return whether a text in the place of a credential is a placeholder, or public."""
    return secret == STAND_IN_KEY or bool(_PLACEHOLDER.fullmatch(secret[:_LONGEST_PLACEHOLDER]))


def is_random(text: str) -> bool:
    """Return whether a text looks random, because letters, digits and case alternate often.

    ``hk_8fK2xQ9zLr7T`` and UUIDs do; ``recordings-2026-11-21`` and ``utf8`` do not.
    """
    if "://" in text or text[:1] in ("", "/", ".") or _FILE_PATH.fullmatch(text):
        return False
    if is_placeholder(text):
        return False
    parts = _LONG_PART.findall(text)
    return bool(_UUID.fullmatch(text)) or any(
        len(_CHANGE.findall(part)) > max(3, len(part) * 0.2) for part in parts
    )
