"""Redaction: removes the key in every form, and personal data on request, before data is written.

The threat model of this package:

- **The service is honest but careless.** It may repeat a key as libraries write it: as it is; with
  JSON, percent or HTML escapes; in base64, of the key or of ``key:``, at any alignment; in hex
  digits; in a body with gzip, deflate, br or zstd as its headers say, or a file that starts as gzip
  or zstd. Whole, or cut to eight characters or more, in any letter case. It does not hide the key
  on purpose: it knows the key anyway. So these forms are searched for, in time linear in the size,
  and no others (not UTF-16, quoted-printable, or base64 of base64).
- **What cannot be opened is not stored.** A body in an unknown coding, damaged, or larger than the
  bounds in `unpack` is stored as ``<not searched: N bytes>``.
- **A key shorter than eight characters** cannot be told from other text (a key ``200`` is in every
  response). It is removed only where credentials are expected: headers, user info, ``api_key``.
- **A cassette, notebook or zip from a stranger is hostile**, also in what it costs to read: nothing
  here takes more than linear time or the bounds in `unpack`, whatever the input.
- **The caller is trusted**, and all keys of the process are known (`credentials.known_keys`).
"""

from .key import (
    PLACEHOLDER as PLACEHOLDER,
    REDACTED as REDACTED,
    has_placeholder as has_placeholder,
)
from .redactor import (
    Redactor as Redactor,
    redact_foreign as redact_foreign,
    secrets_in as secrets_in,
)
from .unpack import unpack as unpack
