"""Whether a session is another user than the one that a cassette was recorded as.

Nothing is stored for this, since a value that is made from the key could confirm a guess of it. The
records of ``GET /v1/users/me`` say it, if they have a field that identifies the user.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..contract import ME_PATH
from ..exchange.bodies import path_of_records, read_json, unwrap
from ..exchange.values import Interaction
from ..redaction import Redactor
from .files import FileRecording

User = Mapping[str, object]
"""The fields of a record that identify its user."""

# The contract does not say which fields a record has.
_IDENTIFYING = ("id", "uuid", "user_id", "account_id", "email", "username")


def shows_user(interaction: Interaction) -> bool:
    """Return whether a response should have the record of the session's user."""
    path = interaction.request.uri.partition("?")[0]
    return path.endswith(ME_PATH) and interaction.response.status == 200


def user_in(body: bytes) -> User:
    """Return the user that a redacted body shows."""
    value, _ = read_json(body)
    record, _ = unwrap(value, path_of_records(value))
    if not isinstance(record, dict):
        return {}
    return {name: record[name] for name in _IDENTIFYING if isinstance(record.get(name), int | str)}


def recorded_user(recording: FileRecording, redactor: Redactor) -> User:
    """Return the user whose record a cassette has."""
    numbers = [
        number
        for number, each in enumerate(recording.interactions, 1)
        if each.request.uri.partition("?")[0].endswith(ME_PATH)
    ]
    for number in reversed(numbers):
        interaction = recording.decoded(number)
        if shows_user(interaction):
            user = user_in(redactor.interaction(interaction).response.body)
            if user:
                return user
    return {}


def differing(one: User, other: User) -> str:
    """Return the first common field of two users if it differs, else an empty string."""
    common = [name for name in _IDENTIFYING if name in one and name in other]
    return common[0] if common and one[common[0]] != other[common[0]] else ""
