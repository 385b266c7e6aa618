"""Checks of arguments, and the choices that several calls share.

A check raises `ValueError` or `TypeError`, with a message that says what is valid.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from difflib import get_close_matches
from numbers import Integral
from typing import Literal, NamedTuple, cast, get_args

from .tracebacks import with_brief_traceback

RecordMode = Literal["update", "none", "once", "new_episodes", "any", "all"]
"""Our own mode ``"update"`` and vcrpy's; `directmail_lab.record` says what each does."""


class ModeRules(NamedTuple):
    """What a record mode does.

    Attributes
    ----------
    sends
        Whether a request without a recorded response is sent, and its response recorded.
    extends
        Whether it also sends if the cassette is there already.
    replays
        Whether recorded responses are played.
    replaces
        Whether a new response replaces those of earlier runs to the same request.
    refuses_repeats
        Whether a write that an earlier run sent is refused.
    """

    sends: bool = True
    extends: bool = True
    replays: bool = False
    replaces: bool = False
    refuses_repeats: bool = True


RECORD_MODES: dict[RecordMode, ModeRules] = {
    "update": ModeRules(replaces=True),
    "none": ModeRules(sends=False, replays=True),
    "once": ModeRules(extends=False, replays=True),
    "new_episodes": ModeRules(replays=True),
    "any": ModeRules(replays=True),
    "all": ModeRules(replaces=True, refuses_repeats=False),
}

VCR_MODES: tuple[RecordMode, ...] = ("none", "once", "new_episodes", "any", "all")
"""vcrpy's record modes, which a test has."""

Repeat = Literal["last", "strict"]
"""What a replay does after the last recorded response to a request; see `directmail_lab.replay`."""

REPEATS: tuple[Repeat, ...] = get_args(Repeat)

IfSent = Literal["refuse", "send", "keep"]
"""What to do with a write that was sent before; `directmail_lab.request` says what each does."""


def argument_error(message: str) -> ValueError:
    """Return an error for an argument that is not valid."""
    return with_brief_traceback(ValueError(message))


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Raise ValueError if a value is not one of the choices."""
    choices = list(choices)
    if value not in choices:
        listed = ", ".join(f'"{choice}"' for choice in choices)
        raise argument_error(f"{name} must be one of {listed}.")


def rules_of(record_mode: RecordMode) -> ModeRules:
    """Return what a record mode does; raise ValueError if there is no such mode."""
    check_choice("record_mode", record_mode, RECORD_MODES)
    return RECORD_MODES[record_mode]


def check_number(name: str, value: object, *, least: float, kind: type = Integral) -> None:
    """Raise ValueError if a value is not a number, or is less than ``least``."""
    if not isinstance(value, kind) or not cast("float", value) >= least:  # also if it is NaN
        whole = " whole" if kind is Integral else ""
        raise argument_error(f"{name} must be a{whole} number, {least} or more.")


def parse_age(max_age: object) -> timedelta:
    """Return an age in words as a duration; raise ValueError for anything else."""
    found = re.fullmatch(r"(\d{1,5}) (minute|hour|day|week)s?", str(max_age))
    if found is None:
        raise argument_error(
            'max_age is a number and a unit, such as "90 days" or "12 hours": minutes, hours, days '
            "or weeks, in whole numbers."
        )
    return timedelta(**{f"{found[2]}s": int(found[1])})


def check_names(name: str, value: object) -> tuple[str, ...]:
    """Return one name or several as a tuple; raise ValueError for anything else."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        value = [value]
    names = tuple(value)
    if not all(isinstance(each, str) for each in names):
        raise argument_error(f'{name} must be a list of strings, such as {name}=["a", "b"].')
    return cast("tuple[str, ...]", names)


def check_options(call: str, options: Mapping[str, object], allowed: Collection[str]) -> None:
    """Raise TypeError if a call was given an option that it does not have."""
    unknown = sorted(set(options).difference(allowed))
    if not unknown:
        return
    name = unknown[0]
    value = options[name]
    shown = value if isinstance(value, int | float) else "…"  # a text may be the key
    hint = did_you_mean(name, allowed)
    if not hint and "params" in allowed:
        hint = f'A parameter of the query is given as params={{"{name}": {shown}}}. '
    message = f"dm.{call}() has no option {', '.join(unknown)}. {hint}See help(dm.{call})."
    error = with_brief_traceback(TypeError(message))
    error.add_note("If a newer directmail_lab made this notebook, install it: a shared zip has it.")
    raise error


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return ``"Did you mean …? "`` with the most similar name, or an empty string."""
    names = list(names)
    alike = get_close_matches(name, names, n=1) or [each for each in names if name in each]
    return f"Did you mean {alike[0]}? " if alike else ""
