"""The parameters that several operations have."""

from __future__ import annotations

from typing import Final

from gateway.admin.api.operations import Parameter
from gateway.admin.context import ACTOR
from gateway.domain.key_format import ID_ALPHABET
from gateway.domain.patterns import NAME
from gateway.domain.usage import WINDOWS

#: How many entries a list gives at once: at least, at most, and where nobody says.
_COUNT: Final = {"type": "integer", "minimum": 1, "maximum": 200}
#: An id of a key: the part of it after the environment.
KEY_ID_PATTERN: Final = f"^[{ID_ALPHABET}]{{12}}$"
NAME_PATTERN: Final = f"^{NAME}$"

KEY_ID: Final = Parameter(
    "id",
    "path",
    {"type": "string", "pattern": KEY_ID_PATTERN, "example": "7h3k9m2p4q6r"},
    "A key's id: 12 small letters and digits.",
    required=True,
)
ACCOUNT_NAME: Final = Parameter(
    "name",
    "path",
    {"type": "string", "pattern": NAME_PATTERN, "example": "acme"},
    "An account's name.",
    required=True,
)
LIMIT_NAME: Final = Parameter(
    "name",
    "path",
    {"type": "string", "pattern": NAME_PATTERN, "example": "search"},
    "A limit's name, as the key's limits show it.",
    required=True,
)
COUNT: Final = Parameter("count", "query", {**_COUNT, "default": 50}, "How many, up to 200.")
BUSIEST_COUNT: Final = Parameter(
    "count", "query", {**_COUNT, "maximum": 100, "default": 10}, "How many, up to 100."
)
WINDOW: Final = Parameter(
    "window",
    "query",
    {"type": "string", "enum": list(WINDOWS), "default": "24h"},
    f"How far to look back: {', '.join(WINDOWS)}.",
)
IF_MATCH: Final = Parameter(
    "If-Match",
    "header",
    {"type": "string", "pattern": r'^(?:"[0-9a-f]{32}"|\*)$', "example": "*"},
    "The ETag of what is to be changed, as it was read; * for whatever it is by now.",
    required=True,
)
#: Where the change is such that it is most often asked for whatever else has changed.
MAYBE_IF_MATCH: Final = Parameter(
    "If-Match", "header", IF_MATCH.schema, "The ETag of the key, where it must not have changed."
)
IF_NONE_MATCH: Final = Parameter(
    "If-None-Match",
    "header",
    {"type": "string", "enum": ["*"]},
    "*: only where there is none yet.",
)
IDEMPOTENCY_KEY: Final = Parameter(
    "Idempotency-Key",
    "header",
    {"type": "string", "pattern": "^[!-~]{1,128}$", "example": "order-4711"},
    "A word of your own, up to 128 printable characters. Asked again with it within a day, no "
    "second key is made: the answer is 409 and names the first.",
)
#: Every operation has it; `context.actor_of` reads it.
ACTOR_NAME: Final = Parameter(
    ACTOR,
    "header",
    {
        "type": "string",
        "pattern": r"^[A-Za-z0-9_.@+'-](?:[A-Za-z0-9_ .@+'-]{0,62}[A-Za-z0-9_.@+'-])?$",
    },
    "Who asks, for the audit log; absent: token.",
)


def text(name: str, description: str, longest: int = 100) -> Parameter:
    """A text in the query that may be anything."""
    return Parameter(name, "query", {"type": "string", "maxLength": longest}, description)


def version_in(if_match: str | None) -> str | None:
    """The version that an If-Match names; None: any."""
    return None if if_match in {None, "*"} else str(if_match).strip('"')


def etag(version: str) -> dict[str, str]:
    """A version as the headers of an answer."""
    return {"ETag": f'"{version}"'}
