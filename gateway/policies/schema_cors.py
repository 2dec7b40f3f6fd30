"""The JSON Schema of `cors`."""

from __future__ import annotations

from gateway.domain.cors import DEFAULT_HEADERS, EXPOSED
from gateway.domain.patterns import HEADER_NAME
from gateway.policies import cors
from gateway.policies.schema_parts import Schema, duration, flag, list_of, object_of, text


def of_a_route() -> Schema:
    return {
        "description": "Replaces the policy's cors for this route; false: pages of other origins "
        "may not use it.",
        "anyOf": [cors_of(""), {"enum": [False]}],
        "examples": [{"origins": ["https://app.example.com"]}],
    }


def cors_of(description: str) -> Schema:
    origins = list_of(
        text(cors.ORIGIN, "An origin, a pattern of origins, or *."),
        'The origins of pages that may read answers; "https://*.example.com" is all subdomains, '
        '"http://localhost:*" any port, "*" any origin.',
        example=["https://app.example.com", "https://*.example.com"],
    )
    names = text(HEADER_NAME, "A header's name.")
    return object_of(
        {
            "origins": {**origins, "minItems": 1},
            "methods": {
                **list_of(
                    text(cors.METHOD, "A method."),
                    "The methods that a preflight allows. Default: those of the route.",
                    example=["GET", "POST"],
                ),
                "minItems": 1,
            },
            "headers": {
                **list_of(
                    names,
                    "The request headers that a preflight allows, in place of the default; "
                    '["*"]: all that it asks for.',
                    example=["Authorization", "Content-Type", "X-Tenant"],
                ),
                "default": list(DEFAULT_HEADERS),
            },
            "expose": {
                **list_of(
                    names,
                    "Response headers that scripts may read, beside those that they always may: "
                    f'{", ".join(EXPOSED)}. ["*"]: all.',
                    example=["X-Total-Count"],
                ),
                "default": [],
            },
            "credentials": flag("Whether browsers send cookies and show the answer.", False),
            "max_age": duration(
                "How long browsers cache a preflight, up to 1d. Without it they do for 5s.",
                example="10m",
            ),
        },
        description,
        required=["origins"],
    )
