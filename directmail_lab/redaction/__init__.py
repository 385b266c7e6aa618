"""Redaction: remove the key in every form, and personal data on request, before data is written.

- `redactor` removes what the other modules find: keys (`key`), credentials in places (`places`)
  with certain names (`names`), and personal data (`personal`).
- `logs` redacts what is logged while a session has a key.
- `suspects` finds what only looks like a credential, for the audit.

The threat model of this package:

- **The service is honest but careless.** It may repeat a key the way libraries write it, but it
  does not hide the key on purpose, since it knows the key anyway. These forms are found in
  addresses, names and values of headers, reason phrases and bodies, with one pattern for each key:
  each character as itself or in an escape of URLs, JSON or HTML, in any letter case; the hex digits
  of the key; and base64 of the key or of a text that contains it, such as ``key:``, at any offset
  and wrapped. No other form is found: no part of a key, no base64 of base64. Before an
  interaction is written, it is searched once more. If a key is still in it, the write is refused.
- **A body that cannot be searched is not stored.** A body with gzip, deflate, br or zstd is
  decompressed, at most twice and to at most 64 MB. A body in another coding, in a charset that
  Python does not have, or in UTF-16 that nothing declares and that has the key, is stored as
  ``<not searched: N bytes>``, one that is too large as
  ``<not recorded: N bytes>``, and a damaged one as either. An archive or a PDF is stored unchanged:
  its contents are not searched.
- **A key shorter than eight characters** cannot be told from other text: a key ``200`` is in every
  response. It is removed only where credentials are expected.
- **Other credentials are recognised by their names**, from one table (`names`). ``Authorization``
  and the values of cookies are never written. ``<REDACTED>`` replaces the value of a header, a
  parameter, a field or an element with such a name, and the user info of an address; of a JWT, the
  claims go. It also replaces the key there, so that a replay with another key finds the request.
  The same value is removed where it is repeated. Words and user names are no secret. What is
  replaced never decides whether a replay finds a request: it equals any value.
- **A cassette, notebook or zip from a stranger** takes linear time here, whatever its contents.
- **The caller is trusted**, and all keys of the process are known (`credentials.known_keys`).
"""

from .key import (
    PLACEHOLDER as PLACEHOLDER,
    REDACTED as REDACTED,
    has_placeholder as has_placeholder,
)
from .redactor import Redactor as Redactor
