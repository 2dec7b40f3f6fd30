"""The parameters that several operations have."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from gateway.admin.api.operations import Call, Parameter
from gateway.admin.context import ACTOR
from gateway.domain.key_format import ID_ALPHABET
from gateway.domain.patterns import LIMIT, NAME
from gateway.domain.usage import WINDOWS

#: How many entries a page of a list has.
_COUNT: Final = {"type": "integer", "minimum": 1, "maximum": 200}
#: An id of a key: the part of it after the environment.
KEY_ID_PATTERN: Final = f"^[{ID_ALPHABET}]{{12}}$"
NAME_PATTERN: Final = f"^{NAME}$"
LIMIT_PATTERN: Final = f"^{LIMIT}$"
HASH_PATTERN: Final = "^[0-9a-f]{16}$"


def _in_path(name: str, pattern: str, example: str, description: str) -> Parameter:
    schema = {"type": "string", "pattern": pattern, "example": example}
    return Parameter(name, "path", schema, description, required=True)


KEY_ID: Final = _in_path(
    "id", KEY_ID_PATTERN, "7h3k9m2p4q6r", "A key's id: 12 lower-case letters and digits."
)
ACCOUNT_NAME: Final = _in_path("name", NAME_PATTERN, "acme", "An account's name.")
POLICY_HASH: Final = _in_path(
    "hash", HASH_PATTERN, "0123456789abcdef", "The hash of a policy, as in the history."
)
LIMIT_NAME: Final = _in_path(
    "name",
    LIMIT_PATTERN,
    "search",
    "A limit's name, as in the key's limits: search, or mcp%2Fsearch_code of a tool.",
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
_DATE: Final = {
    "type": "string",
    "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
    "example": "2026-07-01",
}
#: A span of time, which `usage_reports.read_span` reads.
WINDOW_OR_DATES: Final = (
    Parameter(
        "window",
        "query",
        {"type": "string", "enum": list(WINDOWS)},
        f"How far to look back: {', '.join(WINDOWS)}. Default: 24h, if there is no `from`.",
    ),
    Parameter(
        "from",
        "query",
        _DATE,
        "In place of a window: the first day in UTC, such as 2026-07-01; steps are days.",
    ),
    Parameter(
        "to",
        "query",
        _DATE,
        "The day after the last one in UTC, such as 2026-08-01. Default: tomorrow.",
    ),
)
#: The parameters of usage, which `usage_operations` reads.
SPAN: Final = (
    *WINDOW_OR_DATES,
    Parameter(
        "format",
        "query",
        {"type": "string", "enum": ["json", "csv"], "default": "json"},
        "json, or csv: a row for each step and route with requests.",
    ),
)
IF_MATCH: Final = Parameter(
    "If-Match",
    "header",
    {"type": "string", "pattern": r'^(?:"[0-9a-f]{32}"|\*)$', "example": "*"},
    "The ETag as it was read; the change fails with 412 if it is another now. *: any.",
    required=True,
)
#: For changes that are usually made regardless of other changes.
MAYBE_IF_MATCH: Final = replace(
    IF_MATCH, description="The ETag as it was read, if it must not have changed.", required=False
)
IF_NONE_MATCH: Final = Parameter(
    "If-None-Match",
    "header",
    {"type": "string", "enum": ["*"]},
    "*: fails if the account exists.",
)
IDEMPOTENCY_KEY: Final = Parameter(
    "Idempotency-Key",
    "header",
    {"type": "string", "pattern": "^[!-~]{1,128}$", "example": "order-4711"},
    "A text that you choose, up to 128 printable characters. A second request with it within a "
    "day creates no key: the answer is 409 and names the first key.",
)
#: Every operation has it; `context.actor_of` reads it.
ACTOR_NAME: Final = Parameter(
    ACTOR,
    "header",
    {
        "type": "string",
        "pattern": r"^[A-Za-z0-9_.@+'-](?:[A-Za-z0-9_ .@+'-]{0,62}[A-Za-z0-9_.@+'-])?$",
    },
    "The actor's name for the audit log; default: token.",
)


def text(name: str, description: str, longest: int = 100) -> Parameter:
    """A parameter of the query with any text."""
    return Parameter(name, "query", {"type": "string", "maxLength": longest}, description)


def version_in(if_match: str | None) -> str | None:
    """The version in an If-Match; None: any."""
    return None if if_match in {None, "*"} else str(if_match).strip('"')


def version_of(call: Call) -> str | None:
    """The version in the If-Match of a call; None: any."""
    return version_in(call.headers["If-Match"])


def etag(version: str) -> dict[str, str]:
    """A version as the headers of an answer."""
    return {"ETag": f'"{version}"'}
