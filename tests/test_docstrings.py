"""What the docstrings and the messages say to a person who types."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import directmail_lab as dm

PACKAGE = Path(str(dm.__file__)).parent


def test_no_message_says_how_the_package_was_imported() -> None:
    """A message names a call without `dm.`; only code that is copied whole has it."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(tree := ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Expr):  # a docstring
                node.value = ast.Constant(None)
        texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
        if re.search(r"\bdm\.\w", " ".join(text for text in texts if isinstance(text, str))):
            found.add(path.stem)

    assert found == {"programs", "snippets", "tutorials"}
