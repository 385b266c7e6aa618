"""Drift: a recording held against what the service answers now, field by field."""

from .asking import OldCassetteWarning as OldCassetteWarning, drift as drift
