"""The sign-in form in a page, located by what users see and screen readers announce."""

from typing import Self

from playwright.sync_api import Page, expect


class Form:
    """The ``n``-th form in a page, from the top."""

    def __init__(self, page: Page, n: int = 0) -> None:
        self.page = page
        self.root = page.locator(".dml-login").nth(n)
        self.key = self.root.get_by_label("Key", exact=True)
        self.address = self.root.get_by_role("textbox", name="address")
        self.button = self.root.locator("button[type=submit]")
        self.problem = self.root.get_by_role("alert")
        self.account = self.root.get_by_role("region")

    def ready(self) -> Self:
        """Wait until the kernel has responded."""
        expect(self.button).to_be_enabled()
        return self

    def sign_in(self, key: str) -> None:
        self.key.click()
        self.page.keyboard.type(key)
        self.page.keyboard.press("Enter")

    def sign_out(self) -> None:
        self.root.get_by_role("button", name="Sign out").click()
        expect(self.account).to_be_hidden()
