"""Questions about a recording, each in a module that imports no other question."""
