"""Where an API key comes from, and a holder for it that shows it nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, final

from .errors import CredentialError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ApiKey"]


@final
class ApiKey:
    """An API key that no repr, pickle, copy or ``vars()`` shows.

    Parameters
    ----------
    text
        The key as typed; space around it is dropped.

    Raises
    ------
    CredentialError
        Where HTTP Basic cannot carry it as a user name: empty, a colon (RFC 7617 section 2), a
        control character or line break, or anything but ASCII. The message never repeats it.
    """

    __slots__ = ("__reveal",)

    def __init__(self, text: str) -> None:
        key = text.strip()
        _refuse_what_basic_cannot_carry(key)
        # Held in a closure, so that inspecting the object's slots shows a function and no text.
        self.__reveal: Callable[[], str] = lambda: key

    def reveal(self) -> str:
        """Return the key itself. Call it only where it is sent or removed."""
        return self.__reveal()

    def __repr__(self) -> str:
        return "ApiKey(<hidden>)"

    def __reduce__(self) -> NoReturn:
        raise CredentialError("An API key is never pickled or copied. Sign in again where it runs.")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ApiKey) and self.reveal() == other.reveal()

    def __hash__(self) -> int:
        return hash(self.reveal())


def _refuse_what_basic_cannot_carry(key: str) -> None:
    problem = (
        "is empty"
        if not key
        else "holds a colon, which HTTP Basic keeps for itself"
        if ":" in key
        else "holds a character that is not plain ASCII text, or a line break"
        if not (key.isascii() and key.isprintable() and " " not in key)
        else ""
    )
    if problem:
        raise CredentialError(f"The API key {problem}. Copy it again, whole and alone.")
