"""Makes values.schema.json from values.yaml: helm refuses values that it does not describe.

Maps whose keys the chart defines accept no others, so that a misspelled key is refused. Open
are those that Kubernetes describes (`object`), and `global`, which a parent chart may fill.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from helm.scripts.values import Value

Schema = dict[str, Any]

_QUANTITY: Final = {
    "type": ["string", "integer"],
    "pattern": r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$",
}
_QUANTITIES: Final = {
    "type": "object",
    "additionalProperties": {"type": ["string", "number"]},
}
_SECONDS: Final = {"type": "integer", "minimum": 1}

#: What a line "@schema: NAME" may name.
DEFINITIONS: Final[dict[str, Schema]] = {
    "name": {"type": "string", "pattern": r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$"},
    "port": {"type": "integer", "minimum": 1, "maximum": 65535},
    "quantity": _QUANTITY,
    "duration": {"type": "string", "pattern": r"^([0-9]+(ms|s|m|h))*$"},
    "count": {
        "anyOf": [
            {"type": "integer", "minimum": 0},
            {"type": "string", "pattern": r"^([0-9]+%?)?$"},
        ]
    },
    "strings": {"type": "object", "additionalProperties": {"type": "string"}},
    "texts": {"type": "array", "items": {"type": "string"}},
    "object": {"type": "object", "additionalProperties": True},
    "objects": {"type": "array", "items": {"$ref": "#/definitions/object"}},
    "resources": {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "requests": _QUANTITIES,
            "limits": _QUANTITIES,
            "claims": {"$ref": "#/definitions/objects"},
        },
    },
    "probe": {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "initialDelaySeconds": {"type": "integer", "minimum": 0},
            "periodSeconds": _SECONDS,
            "timeoutSeconds": _SECONDS,
            "failureThreshold": _SECONDS,
            "successThreshold": _SECONDS,
            "terminationGracePeriodSeconds": _SECONDS,
        },
    },
}

_TYPES: Final = {bool: "boolean", int: "integer", str: "string"}


def build_schema(values: Sequence[Value]) -> Schema:
    """The schema of the chart's values. Raises KeyError if a value's kind is unknown."""
    properties = {value.path[-1]: _of(value) for value in values}
    # A parent chart also passes its global values, and the switch that its Chart.yaml may name as
    # the condition.
    properties["global"] = {"$ref": "#/definitions/object"}
    properties["enabled"] = {"type": "boolean"}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart rate-limiting-gateway",
        "definitions": DEFINITIONS,
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }


def _of(value: Value) -> Schema:
    told = {"description": value.description} if value.description else {}
    if isinstance(value.kind, str):
        DEFINITIONS[value.kind]
        return {"$ref": f"#/definitions/{value.kind}", **told}
    if value.children:
        inner = {child.path[-1]: _of(child) for child in value.children}
        return {"type": "object", "additionalProperties": False, "properties": inner, **told}
    kind = value.kind or {}
    if "type" in kind or "enum" in kind:
        return {**kind, **told}
    return {"type": _TYPES[type(value.default)], **kind, **told}
