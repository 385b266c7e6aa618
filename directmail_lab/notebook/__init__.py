"""The widgets: the sign-in form, the live monitor, the browser of interactions (also as a page)."""
