"""Find a key in files, in any form in which a program might have written it."""

import json
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path
from urllib.parse import quote, quote_plus


def forms_of(key: str) -> set[bytes]:
    """Return the forms of the key in a file, alone and as the user name of HTTP Basic."""
    raw = key.encode()
    texts = {key, quote(key, safe=""), quote_plus(key), json.dumps(key)[1:-1]}
    texts |= {raw.hex(), raw.hex().upper()}
    for encode in (b64encode, urlsafe_b64encode):
        # In a longer text, base64 of the key has three forms. Its ends depend on the neighbours.
        texts |= {encode(b"x" * shift + raw)[4:-4].decode() for shift in range(3)}
    return {text.encode(code) for text in texts for code in ("utf-8", "utf-16-le")}


def leaks(folder: Path, *keys: str) -> list[str]:
    """Return each file in the folder that contains one of the keys."""
    wanted = [form for key in keys for form in forms_of(key)]
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    contents = {str(path): path.read_bytes() for path in files}
    return [path for path, content in contents.items() if any(map(content.__contains__, wanted))]
