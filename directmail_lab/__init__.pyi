"""The public names; `directmail_lab` imports each from the module named here."""

from . import errors as errors
from .current import (
    burst as burst,
    connect as connect,
    get as get,
    live as live,
    logout as logout,
    me as me,
    post as post,
    record as record,
    replay as replay,
    request as request,
    session as session,
)
from .errors import DirectMailLabError as DirectMailLabError
from .frames import frame as frame
from .paging import get_many as get_many, pages as pages
from .questions.chart import chart_rate_limits as chart_rate_limits
from .questions.contract_check import check_contract as check_contract
from .questions.drift import drift as drift
from .questions.findings import findings as findings
from .questions.interactions import interactions as interactions
from .questions.openapi import openapi as openapi
from .sessions import Session as Session
from .sources import rate_limits as rate_limits
from .standin import stand_in as stand_in
from .widgets.browser import browse as browse
from .widgets.login import login as login
from .widgets.monitor import monitor as monitor

__version__: str
