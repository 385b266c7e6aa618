"""Redaction: removes the key in every form, and personal data on request, before data is written.

The threat model of this package:

- **The service is honest but careless.** It may repeat a key as libraries write it: each character
  as itself or in an escape of addresses, JSON or HTML, in any letter case; in hex digits; in base64
  of the key or of text that holds it, such as ``key:``, at any offset and wrapped. It does not
  hide the key on purpose: it knows the key anyway. So these forms are searched for, by one pattern
  for each key, in addresses, names and values of headers, reasons and bodies, and no others: no
  parts of a key, no base64 of base64, no UTF-16. What is written is searched once more, and refused
  if it holds one.
- **What cannot be searched is not stored.** A body with gzip, deflate, br or zstd is decompressed,
  at most twice and to at most 64 MB. In another coding or charset (such as UTF-16) it is stored as
  ``<not searched: N bytes>``, too large as ``<not recorded: N bytes>``, damaged as either.
  An archive or a PDF is stored as it is: what is inside is not searched.
- **A key shorter than eight characters** cannot be told from other text (a key ``200`` is in every
  response). It is removed only where credentials are expected.
- **Other credentials are known by their place.** ``Authorization`` and cookies are never written.
  Headers whose name says so, parameters and fields of exact names, and the user info of an address
  become ``<REDACTED>``, also where they are the key: so a replay with another key finds them. A
  credential that a request carries is removed where it is echoed, too.
- **A cassette, notebook or zip from a stranger** takes linear time here, whatever is in it.
- **The caller is trusted**, and all keys of the process are known (`credentials.known_keys`).
"""

from .key import (
    PLACEHOLDER as PLACEHOLDER,
    REDACTED as REDACTED,
    has_placeholder as has_placeholder,
)
from .redactor import Redactor as Redactor, redact_foreign as redact_foreign
