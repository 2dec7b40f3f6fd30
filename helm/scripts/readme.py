"""Makes the table of values in README.md, between its two marks, from values.yaml."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from helm.scripts.values import Value, all_values

BEGIN: Final = "<!-- values: begin (made by `python -m helm.scripts.generate`) -->"
END: Final = "<!-- values: end -->"


def with_table(readme: str, values: Sequence[Value]) -> str:
    """The README with the table of these values. Raises ValueError if the marks are missing."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the README lacks the marks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{table(values)}\n\n{END}{after}"


def table(values: Sequence[Value]) -> str:
    """A row for each value; a group of values shows no default."""
    rows = [_row(value) for value in all_values(values)]
    return "\n".join(["| value | default | |", "| --- | --- | --- |", *rows])


def _row(value: Value) -> str:
    default = "" if value.children else f"`{json.dumps(value.default, ensure_ascii=False)}`"
    return f"| `{value.name}` | {_cell(default)} | {_cell(value.description)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
