"""What the service's document leaves open: what was seen of each part, and what would tell more."""

from .calls import explore as explore, findings as findings
