"""The clients of a session, and the errors for their responses."""
