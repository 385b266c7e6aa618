from ..current import recordings_of
from ..readings.frame import frame_of


def rate_limits(source=None):
    r = next(iter(recordings_of(source)))
    return frame_of(r.readings(), unit=r.evidence.unit)
