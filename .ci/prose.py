"""Check the prose: spelling with codespell, style with proselint and a short list of our own.

It reads Markdown files, the Markdown cells of notebooks, and Python's docstrings and comments.
It is a help, not a cage: where a finding is wrong, change the list below or `[tool.codespell]`.
"""

import ast
import io
import json
import re
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator
from pathlib import Path

START = r"(?:^|(?<=[.:!?] ))"
AVOIDED = {
    START + r"(?:Of|In place of|That of|None of|Whose|Held)\b": "begin with the actor",
    START + r"Where\b(?=[^.?]*,)": "say if or when, or begin with the actor",
    r"\b(?:hold|holds|held|holding)\b": "say has, contains, keeps or locks",
    r"\b(?:an|its|each|every|no|last|first|recorded|old|new|other) answers?\b": "say response",
    r"\b(?:is|are|was) told\b": "say who reports what",
    r"\bas it came\b": "say unchanged",
    r"\bfor good\b": "say permanently",
    r"\bwill (?:not )?do\b": "say is (not) valid",
}
PROSELINT_OFF = (
    "lexical_illusions",  # takes the code in a heading and below it for a word written twice
    "typography",  # straight quotes are what code has
)


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the number of a first line and its text, for each piece of prose in a file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield 1, text
    elif path.suffix == ".ipynb":
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
        yield 1, "\n\n".join("".join(cell["source"]) for cell in cells)
    else:
        documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, documented) and (found := ast.get_docstring(node, clean=False)):
                yield node.body[0].lineno, found
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string.lstrip("#! ")


def prose_lines(path: Path) -> list[str]:
    """Return the prose of a file by its lines; a line without prose is empty."""
    lines = [""] * (path.read_text(encoding="utf-8").count("\n") + 2)
    for first, text in prose(path):
        for number, line in enumerate(without_code(text).splitlines(), first - 1):
            lines[number] += line.strip()
    return lines


def without_code(text: str) -> str:
    """Return the text with its code emptied, line by line."""
    text = re.sub(r"(?ms)^```.*?^```", lambda block: "\n" * block[0].count("\n"), text)
    return re.sub(r"``.+?``|`[^`\n]+`|<[^>\n]+>|\]\([^)\n]+\)", "code", text)


def main() -> int:
    """Print what was found, and return how many of the three checks found something."""
    patterns = ("*.md", "*.ipynb", "*.py", "*.ts", "*.toml")
    listed = subprocess.run(["git", "ls-files", *patterns], capture_output=True, text=True)
    names = listed.stdout.split()
    own = list[str]()
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            source = Path(name)
            lines = prose_lines(source) if source.suffix in (".md", ".ipynb", ".py") else []
            for number, line in enumerate(lines, 1):
                for pattern, advice in AVOIDED.items():
                    hits = re.findall(pattern, line)
                    own += [f"{name}:{number}: {hit!r}: {advice}\n" for hit in hits]
            copy = Path(folder, f"{name}.txt")
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text("\n".join(lines), encoding="utf-8")
        config = Path(folder, "proselint.json")
        config.write_text(json.dumps({"checks": dict.fromkeys(PROSELINT_OFF, False)}))
        style = subprocess.run(["proselint", "check", "--config", str(config), folder])
        spelled = [name for name in names if not name.endswith(".ipynb")]
        spelling = subprocess.run(["codespell", folder, *spelled])
    sys.stdout.writelines(own)
    return bool(own) + bool(style.returncode) + bool(spelling.returncode)


if __name__ == "__main__":
    sys.exit(main())
