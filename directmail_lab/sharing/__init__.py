"""Sharing: an audit for what must not leave, and one zip that runs offline."""

from .share import PersonalDataWarning, UnresolvedCassetteWarning, share

__all__ = ["PersonalDataWarning", "UnresolvedCassetteWarning", "share"]
