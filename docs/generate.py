"""Makes parts of pages, between two marks: the reference in docs/policies.md, out of the policies'
schema, and the tables in docs/webhooks-kinds.md.

`python -m docs.generate` from the top of the checkout writes them; with `--check` it only reports
which pages are stale, and fails if one is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from docs import kinds
from gateway.domain import key_format, patterns
from gateway.policies import fields
from gateway.policies.schema import schema

FOLDER: Final = Path(__file__).parent
BEGIN: Final = "<!-- reference: begin (made by `python -m docs.generate`) -->"
END: Final = "<!-- reference: end -->"

#: What texts of one spelling are called.
_TYPES: Final = {
    f"^(?:{pattern})$": name
    for pattern, name in (
        (fields.RATE, "rate"),
        (fields.DURATION, "duration"),
        (fields.SIZE, "size"),
        (f"{fields.SERVER}|{fields.SRV}", "URL"),
        (fields.MATCH, "METHOD /path"),
        (fields.PERMISSION, "AREA:ACTION"),
        (fields.HEALTH_PATH, "path"),
        (fields.TRUSTED_ONLY, "header name"),
        (patterns.NAME, "name"),
        (patterns.SCOPE, "scope"),
        (key_format.ENVIRONMENT, "name"),
    )
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, or a group of them.

    path:     ("routes", "NAME", "limits", "[]", "quota")
    schema:   its part of the schema
    required: it has to be there where its group is
    """

    path: tuple[str, ...]
    schema: Mapping[str, Any]
    required: bool = False

    @property
    def is_group(self) -> bool:
        return self.schema.get("type") in ("object", ["object", "array"])

    @property
    def name(self) -> str:
        """As it is written: "routes.NAME.limits[].quota"."""
        return ".".join(self.path).replace(".[]", "[]")

    @property
    def default(self) -> object:
        return self.schema.get("default")

    @property
    def examples(self) -> list[Any]:
        """Values that it may have; for flags and choices another one than the default."""
        if "enum" in self.schema and "examples" not in self.schema:
            return [each for each in self.schema["enum"] if each != self.default][-1:]
        if self.schema.get("type") == "boolean":
            return [self.default is not True]
        return list(self.schema.get("examples", ()))


def settings(
    part: Mapping[str, Any], path: tuple[str, ...] = (), required: bool = False
) -> Iterator[Setting]:
    """All settings of a part of the schema, each group before what is in it."""
    if path:
        yield Setting(path, part, required)
    for name, child in part.get("properties", {}).items():
        yield from settings(child, (*path, name), name in part.get("required", ()))
    if isinstance(part.get("additionalProperties"), Mapping):
        yield from settings(part["additionalProperties"], (*path, "NAME"))
    if part.get("type") == "array" and part["items"].get("type") == "object":
        yield from settings(part["items"], (*path, "[]"))


def reference() -> str:
    """All settings as tables, one for each group."""
    top = [Setting((name,), part) for name, part in schema()["properties"].items()]
    plain = [each for each in top if not each.is_group]
    lines = ["### General", "", *_table(plain)]
    for group in top:
        if group.is_group:
            inner = [each for each in settings(group.schema, group.path) if not each.is_group]
            lines += ["", f"### {group.name}", "", group.schema["description"], "", *_table(inner)]
    return "\n".join(lines)


#: What is made of each page.
PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "policies.md": reference,
    "webhooks-kinds.md": kinds.tables,
}


def with_reference(name: str, page: str) -> str:
    """The page with the reference of now. Raises ValueError where the marks are missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{name} lacks the marks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{PAGES[name]()}\n\n{END}{after}"


def _table(rows: list[Setting]) -> Iterator[str]:
    yield "| setting | type | default | meaning | example |"
    yield "| --- | --- | --- | --- | --- |"
    for row in rows:
        meaning = row.schema.get("description", "")
        examples = "<br>".join(_code(_example(row, value)) for value in row.examples[:2])
        cells = (_code(row.name), _type(row.schema), _default(row), meaning, examples)
        yield f"| {' | '.join(map(_cell, cells))} |"


def _type(part: Mapping[str, Any]) -> str:
    if "enum" in part:
        return " or ".join(_code(_flow(each)) for each in part["enum"])
    if "anyOf" in part:
        return " or ".join(dict.fromkeys(map(_type, part["anyOf"])))
    if part["type"] == "boolean":
        return "`true` or `false`"
    if part["type"] == "array":
        return f"list of {_plural(_type(part['items']))}"
    if part["type"] == "integer":
        bounds = part.get("minimum", 0), part.get("maximum")
        return "integer" if bounds[1] is None else f"integer, {bounds[0]:,} to {bounds[1]:,}"
    if part["type"] == "object":
        return "mapping"
    return "file" if "minLength" in part else _TYPES.get(part.get("pattern", ""), "text")


def _plural(name: str) -> str:
    return name if name == "text" else f"{name}s"


def _default(row: Setting) -> str:
    if row.required:
        return f"{_code(_flow(row.default))} (required in its group)" if row.default else "required"
    return "" if row.default is None else _code(_flow(row.default))


def _example(row: Setting, value: object) -> str:
    return f"{row.path[-1]}: {_flow(value)}"


def _flow(value: object) -> str:
    """A value on one line of YAML."""
    text = yaml.safe_dump(value, default_flow_style=True, width=1_000, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")


def _code(text: str) -> str:
    return f"`{text}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main(arguments: list[str]) -> int:
    """The exit status: 1 where `--check` finds the page stale."""
    parser = argparse.ArgumentParser(description="Make the references in the pages of docs/.")
    parser.add_argument("--check", action="store_true", help="only report which pages are stale")
    check = parser.parse_args(arguments).check
    pages = {name: (FOLDER / name).read_text("utf-8") for name in PAGES}
    made = {name: with_reference(name, page) for name, page in pages.items()}
    stale = {name: wanted for name, wanted in made.items() if wanted != pages[name]}
    for name, wanted in stale.items():
        print("stale" if check else "made", FOLDER / name)
        if not check:
            (FOLDER / name).write_text(wanted, "utf-8")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
