"""What is logged while a session has a key shows none of it, to any handler."""

from __future__ import annotations

import base64
import logging
from typing import TYPE_CHECKING

import pytest
from key_search import traces

from directmail_lab.redaction import PLACEHOLDER, Redactor
from directmail_lab.redaction.log_guard import GUARDED_LOGGERS, guard_logs

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = "dm_live_8fK2xQ9zLr7TtVb3nWm5YcHs1pAe"
OTHER = "dm_test_Zq4Rw8sDk2Lm6Np0Vx3Bt7Gh5Jc1"
CREDENTIAL = base64.b64encode(f"{KEY}:".encode())


@pytest.fixture
def logger(caplog: pytest.LogCaptureFixture) -> Iterator[logging.Logger]:
    """Return the logger that shows request headers at DEBUG."""
    caplog.set_level(logging.DEBUG)
    with caplog.at_level(logging.DEBUG, "httpcore.http11"):
        yield logging.getLogger("httpcore.http11")


@pytest.mark.parametrize("name", [*GUARDED_LOGGERS, "directmail_lab.sessions"])
def test_each_logger_is_guarded(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Ours, httpx's and each of httpcore's."""
    logging.getLogger(name)
    end = guard_logs(Redactor([KEY]))
    with caplog.at_level(logging.DEBUG, name):
        logging.getLogger(name).debug("with %s", KEY)
    end()

    assert caplog.messages == [f"with {PLACEHOLDER}"]


def test_arguments_of_any_type_are_redacted(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    """httpcore logs the request's headers as bytes inside a list."""
    end = guard_logs(Redactor([KEY]))
    logger.debug("headers=%r", [(b"Authorization", b"Basic " + CREDENTIAL)])
    logger.debug("100%% of %(key)s", {"key": KEY})
    logger.debug("100% sure")
    end()

    assert traces(repr([vars(record) for record in caplog.records]).encode(), KEY) == []
    assert caplog.messages[1:] == [f"100% of {PLACEHOLDER}", "100% sure"]


def test_cookies_and_credentials_are_removed_by_their_name(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    """Also those that no one told the guard of."""
    end = guard_logs(Redactor())
    logger.debug(
        "%r", [(b"Set-Cookie", b"s=1; Path=/"), (b"Authorization", b"Bearer x"), (b"A", b"b")]
    )
    end()

    assert caplog.messages == [
        "[(b'Set-Cookie', b'<API_KEY>'), (b'Authorization', b'<API_KEY>'), (b'A', b'b')]"
    ]


def test_a_traceback_that_is_logged_is_redacted(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    """The message of an exception may quote what was sent."""
    end = guard_logs(Redactor([KEY]))
    try:
        raise ValueError(KEY)
    except ValueError:
        logger.exception("It failed")
    end()

    assert f"ValueError: {PLACEHOLDER}" in caplog.text
    assert traces(caplog.text.encode(), KEY) == []


def test_a_traceback_is_redacted_by_every_session_that_is_open(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    """The first guard leaves it as text, which has the second one's key in it as well."""
    ends = guard_logs(Redactor([OTHER])), guard_logs(Redactor([KEY]))
    try:
        raise ValueError(f"{KEY} {OTHER}")
    except ValueError:
        logger.exception("It failed")
    for end in ends:
        end()

    assert f"ValueError: {PLACEHOLDER} {PLACEHOLDER}" in caplog.text
    assert [traces(caplog.text.encode(), key) for key in (KEY, OTHER)] == [[], []]


def test_the_stack_that_is_logged_is_redacted(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    """It quotes the source, where a key may be written."""
    end = guard_logs(Redactor(["the-key-of-the-source"]))
    logger.debug("Here", stack_info=bool("the-key-of-the-source"))
    end()

    assert f'stack_info=bool("{PLACEHOLDER}")' in caplog.text
    assert "the-key-of-the-source" not in caplog.text


def test_a_message_that_does_not_fit_its_arguments_is_still_redacted(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    """logging itself would print the arguments to stderr."""
    end = guard_logs(Redactor([KEY]))
    logger.debug("%d", KEY)
    end()

    assert traces(caplog.text.encode(), KEY) == []


def test_sessions_may_overlap_and_each_takes_back_only_its_own_guard(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    """The first that ends leaves the second guarded; the last leaves nothing behind."""
    before = list(logger.filters)
    end_first, end_second = guard_logs(Redactor([KEY])), guard_logs(Redactor([OTHER]))
    logger.debug("%s %s", KEY, OTHER)
    end_first()
    logger.debug("%s", OTHER)
    end_second()
    end_second()

    assert caplog.messages == [f"{PLACEHOLDER} {PLACEHOLDER}", PLACEHOLDER]
    assert logger.filters == before


def test_the_guard_shows_no_key() -> None:
    """A logger's filters are printed by those who debug logging."""
    end = guard_logs(Redactor([KEY]))
    shown = repr([logging.getLogger(name).filters for name in GUARDED_LOGGERS])
    shown += repr([vars(guard) for guard in logging.getLogger("httpx").filters])
    end()

    assert traces(shown.encode(), KEY) == []
