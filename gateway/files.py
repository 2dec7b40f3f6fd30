"""Opening files safely in folders that other users may write to.

A path may name a pipe that blocks on opening, a device without an end, or a link to something else.
So the opened file is checked, not its path, and reads are bounded. Files that only the gateway may
write are in a folder that no other user can write to, except root, which can write anywhere.

Every refusal is an OSError whose `strerror` says what was found and what to do.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import ssl
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

#: The most characters of a kept text that are read.
_MOST_KEPT: Final = 4_096
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
}


class UnsafePath(OSError):
    """A path has an unexpected kind of file, or other users may change it."""

    def __init__(self, path: str | Path, words: str) -> None:
        super().__init__(errno.EPERM, words, str(path))


def read_regular(path: Path, most_bytes: int) -> bytes:
    """The content of a regular file; follows links. Raises OSError, also if it is longer."""
    # Checked first: a socket cannot be opened, and a tape rewinds when it is.
    check_regular(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        _check_regular(path, os.fstat(descriptor))
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise UnsafePath(path, f"it is longer than {most_bytes} bytes")
    return content


def check_regular(path: str | Path) -> None:
    """Raise OSError unless this is a regular file; for files that a library opens by name.

    A named pipe would block it, and a device has no end.
    """
    _check_regular(path, os.stat(path))


def load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load a certificate chain and its key, PEM files. Raises OSError, see `reason_of`."""
    for file in (certificate, key):
        check_regular(file)
    # An encrypted key fails with the empty password; without one, OpenSSL asks the terminal.
    context.load_cert_chain(certificate, key, password=lambda: "")


def reason_of(error: OSError) -> str:
    """Why files of TLS cannot be used: OpenSSL's reason, or the system's."""
    why = error.reason if isinstance(error, ssl.SSLError) else error.strerror
    return why or str(error)


def private_folder(path: Path) -> Path:
    """A folder that no other user can write to, created if absent. Raises OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_private_folder(path)
    return path


def check_private_folder(path: Path) -> None:
    """Raise OSError if another user can write to this folder, or it is absent."""
    found = path.stat()
    _check_owner(path, path.lstat())
    _check_owner(path, found)
    if _others_may_write(found):
        raise UnsafePath(path, "other users can write to it; restrict it: chmod go-w")


def open_private(path: Path, flags: int) -> int:
    """A descriptor of a regular file that no other user can read or write. Raises OSError.

    flags: of os.open; a link is never followed, and a new file gets mode 600
    """
    check_own(path)
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    with _closed_if_unsafe(descriptor):
        found = os.fstat(descriptor)
        _check_regular(path, found)
        _check_owner(path, found)
        if found.st_mode & 0o077:
            raise UnsafePath(path, "other users can read or change it; restrict it: chmod 600")
    return descriptor


def keep_private(path: Path, make: Callable[[], str]) -> tuple[str, bool]:
    """The text of a private file, made if it is absent; and whether it was. Raises OSError.

    Its folder is made as well. Of several processes that make it at once, all get one's text.
    """
    private_folder(path.parent)
    is_new = not os.path.lexists(path) and write_private(path, make(), is_new=True)
    return read_private(path), is_new


def read_private(path: Path) -> str:
    """The text of a private file, without the end of its line. Raises OSError."""
    with open(open_private(path, os.O_RDONLY), encoding="ascii", errors="replace") as file:
        return file.read(_MOST_KEPT).strip()


def write_private(path: Path, text: str, *, is_new: bool) -> bool:
    """Write a private file, whole or not at all. Raises OSError.

    is_new: do not replace an existing file; returns False if another process was faster
    """
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(descriptor)
        if not is_new:
            os.replace(draft, path)
            return True
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    return True


def open_chosen(path: str | Path, flags: int, mode: int) -> int:
    """A descriptor of a file, pipe or device that an option names. Raises OSError.

    Links are followed in a folder that no other user can write to. In one that others can write,
    such as /tmp, a link or file may be planted so that the gateway writes to another file of its
    user, or so that others read what it writes.
    """
    flags |= os.O_CLOEXEC
    if not _others_may_write(os.stat(os.path.dirname(path) or ".")):
        return os.open(path, flags, mode)
    check_own(path)  # before it is opened, as opening a pipe blocks
    descriptor = os.open(path, flags | os.O_NOFOLLOW, mode)
    with _closed_if_unsafe(descriptor):
        found = os.fstat(descriptor)
        _check_owner(path, found)
        if found.st_nlink > 1:
            raise UnsafePath(path, "it has a second hard link, in a folder that others can write")
    return descriptor


def check_own(path: str | Path) -> None:
    """Raise OSError if the path is a link, or belongs to another user. Absent is fine."""
    with contextlib.suppress(FileNotFoundError):
        found = os.lstat(path)
        if stat.S_ISLNK(found.st_mode):
            raise UnsafePath(path, f"{os.path.basename(path)} is a link, which is not followed")
        _check_owner(path, found)


@contextlib.contextmanager
def _closed_if_unsafe(descriptor: int) -> Iterator[None]:
    try:
        yield
    except UnsafePath:
        os.close(descriptor)
        raise


def _check_regular(path: str | Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise UnsafePath(path, f"it is {kind}, not a regular file")


def _check_owner(path: str | Path, found: os.stat_result) -> None:
    if found.st_uid not in (os.geteuid(), 0):
        name = os.path.basename(path)
        raise UnsafePath(path, f"{name} belongs to another user (number {found.st_uid})")


def _others_may_write(found: os.stat_result) -> bool:
    return bool(found.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
