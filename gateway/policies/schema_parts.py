"""Parts of JSON Schemas: texts, numbers, lists, objects, with their descriptions and examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.domain import patterns
from gateway.policies import fields, upstreams

Schema = dict[str, Any]

_DAY_S = 86_400


def size(description: str, default_bytes: int | None, example: str) -> Schema:
    number = {"type": "integer", "minimum": 1}
    words = text(fields.SIZE, "A number and a unit: B, KB, KiB, MB, MiB, GB, GiB.")
    default = None if default_bytes is None else _size_text(default_bytes)
    either: Schema = {"description": description, "anyOf": [number, words]}
    return with_examples(either, default, example)


def _size_text(count: int) -> str:
    unit, name = next(each for each in ((2**20, "MiB"), (2**10, "KiB")) if count >= each[0])
    return f"{count // unit}{name}"


def integer(
    description: str,
    most: int,
    least: int = 1,
    default: int | None = None,
    example: int | None = None,
) -> Schema:
    number: Schema = {"type": "integer", "minimum": least, "maximum": most}
    number["description"] = description
    return with_examples(number, default, example)


def in_a_row(description: str, default: int, example: int) -> Schema:
    return integer(description, upstreams.MAX_IN_A_ROW, default=default, example=example)


def duration(
    description: str, default_s: float | None = None, example: str | None = None
) -> Schema:
    default = None if default_s is None else _duration_text(default_s)
    return text(fields.DURATION, description, default, example)


def _duration_text(seconds: float) -> str:
    if seconds >= _DAY_S:
        return f"{seconds / _DAY_S:g}d"
    return f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1000:g}ms"


def path(description: str, example: str) -> Schema:
    return with_examples(
        {"type": "string", "minLength": 1, "description": description}, None, example
    )


def flag(description: str, default: bool) -> Schema:
    return {"type": "boolean", "default": default, "description": description}


def choice(options: Sequence[str], description: str, default: str) -> Schema:
    return {"enum": list(options), "default": default, "description": description}


def text(
    pattern: str, description: str, default: str | None = None, example: str | None = None
) -> Schema:
    text: Schema = {"type": "string", "pattern": f"^(?:{pattern})$", "description": description}
    return with_examples(text, default, example)


def list_of(items: Schema, description: str, example: object = None) -> Schema:
    return with_examples(
        {"type": "array", "items": items, "description": description}, None, example
    )


def addresses(description: str, default: object = None) -> Schema:
    return with_examples(
        list_of({"type": "string"}, description), default, ["10.0.0.0/8", "192.0.2.1"]
    )


def with_examples(entry: Schema, default: object, example: object) -> Schema:
    """The same with a default and an example, if they are not None."""
    if default is not None:
        entry = {**entry, "default": default}
    return entry if example is None else {**entry, "examples": [example]}


def named(entry: Schema, description: str, pattern: str = patterns.NAME) -> Schema:
    return {
        "type": "object",
        "description": description,
        "propertyNames": {"pattern": f"^(?:{pattern})$"},
        "additionalProperties": entry,
    }


def object_of(
    properties: Mapping[str, Schema], description: str = "", required: Sequence[str] = ()
) -> Schema:
    result: Schema = {"type": "object", "additionalProperties": False}
    if description:
        result["description"] = description
    if required:
        result["required"] = list(required)
    return {**result, "properties": dict(properties)}
