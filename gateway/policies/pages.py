"""Files that policies name, whose content is read with the policy.

Those that are sent to clients are within the policy folder, so that no policy can publish another
file of the machine by mistake.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from gateway.files import read_regular
from gateway.policies.values import Value

#: Larger ones belong to a web server.
MOST_BYTES: Final = 64 * 1024

#: By the ending of the file's name.
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".xml": "application/xml",
    ".yaml": "application/yaml",
}


def read_page(value: Value) -> bytes | None:
    """The content of a file that is sent to clients, by its path relative to the policy folder."""
    found = read_content(value, MOST_BYTES, is_sent=True)
    return None if found is None else found[1]


def read_content(
    value: Value, most_bytes: int, *, is_sent: bool = False
) -> tuple[Path, bytes] | None:
    """The path and the content of a file; a relative path is relative to the policy folder.

    The file is added to `value.used`, also if it cannot be read: it may be there later.
    is_sent: to clients
    """
    text = value.text("the path of a file")
    if text is None:
        return None
    folder = Path(value.file).parent
    try:
        path = folder / text
        if is_sent:
            # Links within the folder are followed: mounted ones consist of them.
            path = path.resolve()
            if not path.is_relative_to(folder.resolve()):
                value.add_fault("a file within the policy folder")
                return None
        value.used.append(str(path))
        return path, read_regular(path, most_bytes)
    except (OSError, ValueError) as exc:  # a path may have a NUL
        why = exc.strerror if isinstance(exc, OSError) else str(exc)
        value.add_fault("a file that can be read", f"{value.found} ({why})")
    return None


def type_of(path: str) -> str | None:
    """The content type of a file by its name; None: it is not known."""
    return _TYPES.get(Path(path).suffix.lower())
