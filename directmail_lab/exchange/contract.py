"""The facts that the service's document (service.md) states, and the key of its stand-in."""

from __future__ import annotations

# service.md part 4: the one endpoint that is specified.
ME_PATH = "/v1/users/me"

# service.md part 8: on every response, each a string that contains an integer.
LIMIT_HEADER = "X-RateLimit-Limit"
REMAINING_HEADER = "X-RateLimit-Remaining"
RESET_HEADER = "X-RateLimit-Reset"
HEADERS = (LIMIT_HEADER, REMAINING_HEADER, RESET_HEADER)
MEANINGS = {
    LIMIT_HEADER: "The number of requests allowed in the window.",
    REMAINING_HEADER: "The number of requests still available in the current window.",
    RESET_HEADER: "When the allowance renews.",
}

# service.md part 8: most operations allow up to this many requests a minute.
TYPICAL_LIMIT = 300
TYPICAL_WINDOW_S = 60.0

# Not from service.md: public test data. Only a stand-in on this machine accepts this key.
STAND_IN_KEY = "DEMO_7Qm2Xr9LwT4bZk"
