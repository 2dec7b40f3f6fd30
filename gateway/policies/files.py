"""Files that policies name: certificates, keys, authorities."""

from __future__ import annotations

from pathlib import Path

from gateway.policies.values import Value


def read_path(value: Value) -> str | None:
    """A path to a file that can be read; a relative one starts at the policy folder.

    What is in the file is left to whoever uses it.
    """
    text = value.text("the path of a file")
    if text is None:
        return None
    path = Path(value.file).parent / text
    try:
        # Not opened before it is known to be a file: a pipe would keep the reader waiting.
        why = None if path.is_file() else "no file"
        if why is None:
            path.open("rb").close()
    except OSError as exc:
        why = exc.strerror
    if why is None:
        return str(path)
    value.complain("a file that can be read", f"{value.found} ({why} at {path})")
    return None
