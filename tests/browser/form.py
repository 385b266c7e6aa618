"""The sign-in form in a page, located by what users see and screen readers announce."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page


@dataclass(frozen=True, slots=True)
class Form:
    """The ``n``-th form in a page, from the top."""

    page: Page
    n: int = 0

    @property
    def root(self) -> Locator:
        """The whole widget."""
        return self.page.locator(".dml-login").nth(self.n)

    @property
    def key(self) -> Locator:
        """The field for the key."""
        return self.root.get_by_label("API key")

    @property
    def address(self) -> Locator:
        """The field for the address."""
        return self.root.get_by_role("textbox", name="address")

    @property
    def button(self) -> Locator:
        """The button that signs in."""
        return self.root.locator("button[type=submit]")

    @property
    def problem(self) -> Locator:
        """The error message."""
        return self.root.get_by_role("alert")

    @property
    def account(self) -> Locator:
        """The panel that shows who is signed in."""
        return self.root.get_by_role("region")

    def ready(self) -> Form:
        """Wait until the kernel has responded."""
        expect(self.button).to_be_enabled()
        return self

    def sign_in(self, key: str) -> None:
        """Type a key as a user does, and press Enter."""
        self.key.click()
        self.page.keyboard.type(key)
        self.page.keyboard.press("Enter")

    def sign_out(self) -> None:
        """Sign out."""
        self.root.get_by_role("button", name="Sign out").click()
        expect(self.account).to_be_hidden()
