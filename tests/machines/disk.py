"""Mount a folder as a disk with the rules of Windows or macOS, by FUSE.

``python tests/machines/disk.py windows|macos ROOT MOUNT`` shows the folder ROOT at MOUNT until
``fusermount3 -u MOUNT``. It needs Linux, fuse3 and mfusepy.

Both systems ignore the case of names. macOS also takes the forms of a letter (é as one character or
as two) for the same. On Windows, moreover, a file that is open can neither be renamed, replaced nor
removed; names have no ``? * < > | " :``, do not end in a dot or space, and are not those of
devices; a path has 260 characters; and there are no links and no permissions.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any
from unicodedata import normalize

import mfusepy

SYSTEM, ROOT, MOUNT = sys.argv[1:4]
IS_WINDOWS = SYSTEM == "windows"
DEVICES = re.compile(r"(?:CON|PRN|AUX|NUL|(?:COM|LPT)[1-9])(?:\..*)?", re.IGNORECASE)
REFUSED = re.compile(r'[<>:"|?*\\\x00-\x1f]|[. ]$')
LONGEST = 259 - len(r"C:\Users\someone")
STATUS = ("st_mode", "st_nlink", "st_size", "st_uid", "st_gid", "st_ino")


def folded(name: str) -> str:
    return normalize("NFC", normalize("NFC", name).casefold())


@lru_cache
def names_in(folder: str, changed_ns: int) -> dict[str, str]:
    """Return the names in a folder by their folded form."""
    return {folded(name): name for name in os.listdir(folder)}


class Disk(mfusepy.Operations):
    """Passes each call to ROOT, after the rules were applied."""

    use_ns = True

    def __init__(self) -> None:
        self.guard = threading.RLock()
        self.open_files: Counter[str] = Counter()
        self.paths: dict[int, str] = {}

    def real(self, path: str, *, is_new: bool = False) -> str:
        """Return the path below ROOT, whatever the case of the names in ``path``."""
        found = ROOT
        if IS_WINDOWS and is_new and len(path) > LONGEST:
            raise mfusepy.FuseOSError(errno.ENOENT)
        for name in PurePosixPath(path).parts[1:]:
            if IS_WINDOWS and DEVICES.fullmatch(name):
                raise mfusepy.FuseOSError(errno.EACCES)
            if IS_WINDOWS and REFUSED.search(name):
                raise mfusepy.FuseOSError(errno.EINVAL if is_new else errno.ENOENT)
            if not os.path.lexists(os.path.join(found, name)):
                with suppress(OSError):
                    name = names_in(found, os.stat(found).st_mtime_ns).get(folded(name), name)
            found = os.path.join(found, name)
        return found

    def refuse_open(self, real: str) -> None:
        """On Windows, refuse to touch a file that a program has open."""
        for _ in range(10):  # FUSE tells that a file was closed a little later
            with self.guard:
                if not any(each == real or each.startswith(f"{real}/") for each in self.open_files):
                    return
            time.sleep(0.005)
        raise mfusepy.FuseOSError(errno.EACCES)

    # -- files -----------------------------------------------------------------------------------

    def opened(self, real: str, flags: int, mode: int = 0o777) -> int:
        with self.guard:
            handle = os.open(
                real, flags & ~os.O_APPEND, mode
            )  # the kernel gives each write's place
            self.paths[handle] = real
            self.open_files[real] += 1
            return handle

    def create(self, path: str, mode: int, fi: object = None) -> int:
        return self.opened(self.real(path, is_new=True), os.O_RDWR | os.O_CREAT, mode)

    def open(self, path: str, flags: int) -> int:
        return self.opened(self.real(path), flags)

    def release(self, path: str, fh: int) -> int:
        with self.guard:
            os.close(fh)
            self.open_files -= Counter([self.paths.pop(fh)])
        return 0

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return os.pread(fh, size, offset)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        return os.pwrite(fh, data, offset)

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        os.fsync(fh)
        return 0

    def flush(self, path: str, fh: int) -> int:
        return 0

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        os.truncate(self.real(path) if fh is None else fh, length)
        return 0

    # -- names -----------------------------------------------------------------------------------

    def rename(self, old: str, new: str) -> int:
        source, target = self.real(old), self.real(new, is_new=True)
        if IS_WINDOWS:
            self.refuse_open(source)
            self.refuse_open(target)
        if source == target:  # only the case changes
            target = os.path.join(os.path.dirname(source), os.path.basename(new))
        os.rename(source, target)
        return 0

    def unlink(self, path: str) -> int:
        if IS_WINDOWS:
            self.refuse_open(self.real(path))
        os.unlink(self.real(path))
        return 0

    def mkdir(self, path: str, mode: int) -> int:
        os.mkdir(self.real(path, is_new=True), mode)
        return 0

    def rmdir(self, path: str) -> int:
        os.rmdir(self.real(path))
        return 0

    def link(self, target: str, source: str) -> int:
        return self.linked(os.link, self.real(source), target)

    def symlink(self, target: str, source: str) -> int:
        return self.linked(os.symlink, source, target)

    def linked(self, make: Any, source: str, target: str) -> int:
        if IS_WINDOWS:
            raise mfusepy.FuseOSError(errno.EPERM)
        make(source, self.real(target, is_new=True))
        return 0

    def readlink(self, path: str) -> str:
        return os.readlink(self.real(path))

    def readdir(self, path: str, fh: int) -> list[tuple[str, dict[str, int], int]]:
        real = self.real(path)
        status = {
            name: os.lstat(os.path.join(real, name)) for name in (".", "..", *os.listdir(real))
        }
        return [
            (name, {"st_mode": each.st_mode, "st_ino": each.st_ino}, 0)
            for name, each in status.items()
        ]

    # -- what is known of a file -----------------------------------------------------------------

    def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
        try:
            status = os.lstat(self.real(path))
        except NotADirectoryError:
            raise mfusepy.FuseOSError(errno.ENOENT) from None
        times = {
            f"st_{name}": getattr(status, f"st_{name}_ns") for name in ("atime", "mtime", "ctime")
        }
        return {name: getattr(status, name) for name in STATUS} | times

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        os.utime(self.real(path), ns=times)
        return 0

    def chmod(self, path: str, mode: int) -> int:
        if not IS_WINDOWS:
            os.chmod(self.real(path), mode)
        return 0

    def chown(self, path: str, uid: int, gid: int) -> int:
        if not IS_WINDOWS:
            os.chown(self.real(path), uid, gid)
        return 0

    def access(self, path: str, amode: int) -> int:
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        status = os.statvfs(ROOT)
        return {name: getattr(status, name) for name in dir(status) if name.startswith("f_")}


if __name__ == "__main__":
    # Without caches in the kernel, which tell names by their case.
    options: dict[str, Any] = dict.fromkeys(
        ("attr_timeout", "entry_timeout", "negative_timeout"), 0
    )
    mfusepy.FUSE(
        Disk(), MOUNT, foreground=True, allow_other=os.getuid() == 0, use_ino=True, **options
    )
