"""How a request carries the key: HTTP Basic, with the key as user name (service.md part 5).

The stand-in service alone knows the scheme, too. Messages, and the comment in copied code without a
key, name HTTP Basic.
"""

from __future__ import annotations

from base64 import b64encode

from .contract import PASSWORD
from .settings import API_KEY_VARIABLE

HEADER = "Authorization"
"""The header that carries the key."""

IN_CURL = f'--user "${API_KEY_VARIABLE}:{PASSWORD}"'
"""The option of curl that sends the key of the environment."""

IN_OPENAPI = {
    "basic": {"type": "http", "scheme": "basic", "description": "The key is the user name."}
}
"""The security scheme by its name."""


def header_value(api_key: str) -> str:
    """Return the value of the header for a key."""
    return f"Basic {b64encode(f'{api_key}:{PASSWORD}'.encode('ascii')).decode()}"
