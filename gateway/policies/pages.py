"""Files of a policy folder that are sent to clients: what is in them is read with the policy.

They are within the folder, so that no policy can publish another file of the machine by mistake.
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
    """The content of a file, by its path relative to the policy folder."""
    text = value.text("the path of a file")
    if text is None:
        return None
    folder = Path(value.file).parent
    try:
        path = (folder / text).resolve()
        # Links within the folder are followed: mounted ones consist of them.
        if not path.is_relative_to(folder.resolve()):
            value.add_fault("a file within the policy folder")
            return None
        value.used.append(str(path))
        return read_regular(path, MOST_BYTES)
    except (OSError, ValueError) as exc:  # a path may have a NUL
        why = exc.strerror if isinstance(exc, OSError) else str(exc)
        value.add_fault("a file that can be read", f"{value.found} ({why})")
    return None


def type_of(path: str) -> str | None:
    """The content type of a file by its name; None: it is not known."""
    return _TYPES.get(Path(path).suffix.lower())
