"""Redaction: the key in none of its forms, personal data on request, before a byte is written."""

from .named_secrets import secrets_in
from .redactor import PLACEHOLDER, Redactor
from .unpack import unpack

__all__ = ["PLACEHOLDER", "Redactor", "secrets_in", "unpack"]
