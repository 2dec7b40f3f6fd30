"""The JSON Schema of `request_headers` and `response_headers`."""

from __future__ import annotations

from gateway.domain.header_edits import VARIABLES
from gateway.policies import header_edits
from gateway.policies.schema_parts import Schema, list_of, object_of, text, with_examples


def edits_of(whose: str, name: str, value: str) -> Schema:
    """whose: "the upstream's request"; name, value: of the example"""
    variables = ", ".join(f"{{{each}}}" for each in VARIABLES)
    pairs: Schema = {
        "type": "object",
        "propertyNames": {"pattern": f"^(?:{header_edits.NAME})$"},
        "patternProperties": {
            "": text(header_edits.VALUE, "A value."),
        },
    }
    return object_of(
        {
            "set": with_examples(
                {
                    **pairs,
                    "description": f"What replaces headers of the same name. Values may have "
                    f"{variables}.",
                },
                None,
                {name: value},
            ),
            "add": with_examples(
                {**pairs, "description": "Headers beside those of the same name."},
                None,
                {name: value},
            ),
            "remove": list_of(
                text(header_edits.NAME, "A header's name."),
                "Headers that are removed.",
                example=["X-Internal"],
            ),
        },
        f"How {whose} is changed.",
    )
