from . import errors as errors
from .current import (
    burst as burst,
    chart_rate_limits as chart_rate_limits,
    check_contract as check_contract,
    connect as connect,
    get as get,
    get_many as get_many,
    interactions as interactions,
    live as live,
    logout as logout,
    me as me,
    me_async as me_async,
    pages as pages,
    post as post,
    rate_limits as rate_limits,
    record as record,
    replay as replay,
    request as request,
    session as session,
)
from .errors import (
    CassetteError as CassetteError,
    CassetteFormatError as CassetteFormatError,
    CassetteInUseError as CassetteInUseError,
    CredentialError as CredentialError,
    DirectMailLabError as DirectMailLabError,
    InsecureAddressError as InsecureAddressError,
    NotConnectedError as NotConnectedError,
    NotJSONError as NotJSONError,
    NotRecordedError as NotRecordedError,
    OutcomeUnknownError as OutcomeUnknownError,
    QuotaExhaustedError as QuotaExhaustedError,
    ServiceError as ServiceError,
    UnauthorizedError as UnauthorizedError,
    WriteRefusedError as WriteRefusedError,
)
from .frames import frame as frame
from .questions.drift import drift as drift
from .questions.findings import explore as explore, findings as findings
from .questions.interactions import read_interactions as read_interactions
from .questions.openapi import openapi as openapi
from .readings.log import read_readings as read_readings
from .sessions import Session as Session
from .standin import stand_in as stand_in
from .widgets.browser import browse as browse
from .widgets.login import login as login
from .widgets.monitor import monitor as monitor

__version__: str
