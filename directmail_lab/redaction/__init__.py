"""Redaction: the key in none of its forms, personal data on request, before a byte is written."""

from .redactor import PLACEHOLDER, Redactor

__all__ = ["PLACEHOLDER", "Redactor"]
