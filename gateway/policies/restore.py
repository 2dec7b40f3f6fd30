"""Reads the files of a policy folder as they are, and replaces all of them.

All new files are written beside the old ones first, under hidden names, which the gateway does not
read; then they are renamed. A running gateway that reads in between reads again, as the files
change meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from gateway.domain.policy_files import Texts, hash_of, is_file_name
from gateway.files import read_regular
from gateway.policies.documents import MAX_BYTES, policy_files


def contents(folder: Path) -> Mapping[str, bytes]:
    """The content of each policy file, by name. Raises OSError, if one cannot be read."""
    return {path.name: read_regular(path, MAX_BYTES) for path in policy_files(folder)}


def keep_copy(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Copy policy files into a new hidden folder within theirs; returns it. Raises OSError."""
    copy = Path(tempfile.mkdtemp(prefix=f".before-{hash_of(files)}-", dir=folder))
    for name, content in files.items():
        (copy / name).write_bytes(content)
    return copy


def replace_files(folder: Path, texts: Texts) -> None:
    """Give a folder these policy files, and no others. Raises OSError.

    Before the first file is replaced, all are written. A file that is equal is not replaced; a new
    one gets mode and owner of the one before, or else those of the folder without execution.
    """
    if not all(map(is_file_name, texts)):
        raise ValueError("not the names of policy files")
    there = {path.name: path for path in policy_files(folder)}
    written: list[tuple[str, Path]] = []
    try:
        for name, text in texts.items():
            content = text.encode()
            if name not in there or _differs(there[name], content):
                written.append((_write(folder, there.get(name), content), folder / name))
        while written:
            temporary, path = written[0]
            os.replace(temporary, path)
            written.pop(0)
    finally:
        for temporary, _ in written:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
    for name, path in there.items():
        if name not in texts:
            path.unlink()
    _sync(folder)


def _differs(path: Path, content: bytes) -> bool:
    try:
        return read_regular(path, MAX_BYTES) != content
    except OSError:
        return True


def _write(folder: Path, before: Path | None, content: bytes) -> str:
    """A temporary file with this content; its path."""
    descriptor, name = tempfile.mkstemp(prefix=".policy-", dir=folder)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            like = (before or folder).stat()
            mode = stat.S_IMODE(like.st_mode) & 0o666
            os.fchmod(descriptor, mode)
            if os.geteuid() == 0:
                os.fchown(descriptor, like.st_uid, like.st_gid)
            file.flush()
            os.fsync(descriptor)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    return name


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
