"""A pytest plugin that replaces httpx with its fork httpx2: ``-p httpx2_in_place``."""

from __future__ import annotations

import sys

import httpx2

for name, module in list(sys.modules.items()):
    if name.partition(".")[0] == "httpx2":
        sys.modules["httpx" + name.removeprefix("httpx2")] = module

sys.modules["httpx"] = httpx2


def pytest_report_header() -> str:
    """Show in the header of the test run which library the package imports as httpx."""
    from directmail_lab.http import httpx

    return f"directmail_lab imports {httpx.__name__} {httpx.__version__}"
