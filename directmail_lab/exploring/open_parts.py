"""The parts that service.md leaves open ("not shown"), and what was seen of each.

Pure: answers and readings in, findings out. `directmail_lab.exploring` gathers them, from a session
or a cassette.
"""

from __future__ import annotations

from .parts import findings_of, frame_of_findings
from .seen import Answer, Credentials, Finding, HowSure, Seen, Told

__all__ = [
    "Answer",
    "Credentials",
    "Finding",
    "HowSure",
    "Seen",
    "Told",
    "findings_of",
    "frame_of_findings",
]
