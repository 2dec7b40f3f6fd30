"""Renders configuration files from templates.

    @if key all      the lines up to @end are for these variants only
    @end
    @name@           is replaced by a value; an unknown name is an error

Dollars and braces have a meaning for nginx, HAProxy, YAML or Lua; "@name@" has none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "conf"

_VALUE = re.compile(r"@([a-z_]+)@")


def render(template: str, variant: str, values: Mapping[str, object]) -> str:
    """A template's text for a variant. Raises ValueError and KeyError on a faulty template."""
    kept: list[str] = []
    wanted: bool | None = None
    for line in template.splitlines():
        if line.startswith("@if "):
            if wanted is not None:
                raise ValueError("@if within @if")
            wanted = variant in line.split()[1:]
        elif line == "@end":
            if wanted is None:
                raise ValueError("@end without @if")
            wanted = None
        elif wanted is not False:
            kept.append(_VALUE.sub(lambda found: str(values[found[1]]), line))
    if wanted is not None:
        raise ValueError("@if without @end")
    return "\n".join(kept) + "\n"


def render_file(name: str, variant: str, values: Mapping[str, object], to: Path) -> Path:
    """Write a file of `conf` for a variant into the folder `to`, under its own name."""
    text = render((FOLDER / name).read_text(encoding="utf-8"), variant, values)
    (to / name).write_text(text, encoding="utf-8")
    return to / name
