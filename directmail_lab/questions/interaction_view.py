"""One interaction in full, as a notebook, a terminal or a page shows it.

A recording may come from a stranger. So its texts are escaped for HTML and for terminals.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass

from ..cassettes import Recording
from ..display import printable_line
from ..exchange.bodies import MOST_SHOWN, body_text, shown_text
from ..exchange.values import Interaction
from .snippets import copy_as


def view_of(recording: Recording, number: int) -> InteractionView:
    """Return a view of an interaction; raise the errors of `Recording.interaction`."""
    interaction = recording.interaction(number)
    why_cut = recording.reading(number).why_cut
    return InteractionView(interaction, recording.has_bodies(number), why_cut)


@dataclass(frozen=True, slots=True)
class InteractionView:
    """One interaction in full, as a notebook or a terminal shows it, with indented JSON."""

    interaction: Interaction
    has_bodies: bool = True
    problem: str | None = None

    def as_curl(self) -> str:
        """Return a curl command that sends the request; the key is ``$DIRECTMAIL_API_KEY``."""
        return copy_as(self.interaction, "curl", has_bodies=self.has_bodies)

    def __repr__(self) -> str:
        parts = (f"{title}\n{headers}\n\n{body}" for title, headers, body in self.texts())
        return "\n".join(f"{part.rstrip()}\n" for part in parts)

    def _repr_html_(self) -> str:
        return "".join(
            f"<details open><summary><b>{html.escape(title)}</b></summary>"
            f"<pre>{html.escape(headers)}</pre><pre>{html.escape(body)}</pre></details>"
            for title, headers, body in self.texts()
        )

    def texts(self, characters: int = MOST_SHOWN) -> Iterator[tuple[str, str, str]]:
        """Yield the title, headers and body of the request, then of the response.

        A body has at most this many ``characters``.
        """
        request = self.interaction.request
        response = self.interaction.response
        if not response.status:
            status = f"{self.problem}: {response.error}".rstrip(": ")
        else:
            status = f"{response.status} {response.reason}".rstrip()
        if self.interaction.elapsed_s is not None:
            status += f" after {self.interaction.elapsed_s:.3f} s"
        if self.interaction.recorded_at is not None:
            status += f", {self.interaction.recorded_at:%Y-%m-%d %H:%M:%S} UTC"
        if self.problem and response.status:
            status += f"; {self.problem}"
        for title, message in ((f"{request.method} {request.uri}", request), (status, response)):
            headers = [printable_line(": ".join(pair)) for pair in message.headers]
            body = (
                body_text(message.body or b"", characters)
                if self.has_bodies
                else "(it was not kept)"
            )
            yield shown_text(printable_line(title)), shown_text("\n".join(headers)), body
