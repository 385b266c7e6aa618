"""The public names; `directmail_lab` imports each from the module named here."""

from . import errors as errors
from .errors import DirectMailLabError as DirectMailLabError
from .notebook.browser import browse as browse
from .notebook.login import login as login
from .notebook.monitor import monitor as monitor
from .questions.chart import chart_rate_limits as chart_rate_limits
from .questions.contract_check import check_contract as check_contract
from .questions.drift import drift as drift
from .questions.findings import findings as findings
from .questions.interactions import interactions as interactions
from .questions.openapi import openapi as openapi
from .questions.sources import rate_limits as rate_limits
from .server.standin import stand_in as stand_in
from .sessions.current import (
    connect as connect,
    delete as delete,
    get as get,
    get_many as get_many,
    live as live,
    logout as logout,
    me as me,
    pages as pages,
    patch as patch,
    post as post,
    post_many as post_many,
    put as put,
    record as record,
    replay as replay,
    request as request,
    session as session,
)
from .sessions.frames import frame as frame
from .sessions.session import Session as Session

__version__: str
