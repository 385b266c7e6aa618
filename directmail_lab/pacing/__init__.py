import time

from .pacer import Pace as Pace, Pacer
from .stores import Share as _Share
from .transport import PacingTransport as PacingTransport


class _I:
    def __init__(self, f):
        self._f = f

    @property
    def unit(self):
        return self._f()

    @property
    def candidates(self):
        return ()


class Allowances(Pacer):
    def __init__(self, *, pace, max_wait_s, reset_unit, shared):
        super().__init__(_I(reset_unit), pace=pace, max_wait_s=max_wait_s, shared=shared)


class Share(_Share):
    def open(self, k, b):
        return super().open(k, b, time.time)
