"""The JSON Schemas of what the gateway answers itself: `respond` and `maintenance`."""

from __future__ import annotations

from gateway.domain.maintenance import Maintenance
from gateway.policies import respond
from gateway.policies.schema_parts import (
    Schema,
    addresses,
    duration,
    integer,
    object_of,
    path,
    text,
)


def maintenance_of(description: str) -> Schema:
    default = Maintenance()
    settings = object_of(
        {
            "message": {
                "type": "string",
                "description": "The message in the body, in place of the gateway's.",
                "examples": ["Back at 14:00 UTC."],
            },
            "retry_after": duration(
                "The value of Retry-After, up to 1d.", default.retry_after_s, example="30m"
            ),
            "allow": addresses("Clients that are served: addresses and CIDR ranges.", []),
        }
    )
    return {
        "description": description,
        "anyOf": [settings, {"type": "boolean"}],
        "default": False,
        "examples": [{"message": "Back at 14:00 UTC.", "retry_after": "30m"}],
    }


def respond_with() -> Schema:
    return object_of(
        {
            "status": integer("The status.", 599, least=200, example=410),
            "body": {
                "type": "string",
                "description": "The body, up to 64 KiB.",
                "examples": ["Use /v2 instead.\n"],
            },
            "file": path(
                "A file of the policy folder with the body, up to 64 KiB, in place of `body`. It "
                "is read when policies are loaded.",
                "pages/gone.html",
            ),
            "content_type": text(
                respond.CONTENT_TYPE,
                "The type of the body. Default: by the file's name, else text/plain in UTF-8.",
                example="application/json",
            ),
        },
        "An answer of the gateway, in place of an upstream. Access and limits are as for others.",
        required=["status"],
    )
