"""What the access log writes of each request: its fields, its format, and how many lines.

A plain value, as policies have it; `observe.access_lines` writes the lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import Formatter
from typing import Final, Literal

#: The fields of a line without `fields`, in their order; those from `host` on came later.
DEFAULT_FIELDS: Final = (
    *("time", "request_id", "client_ip", "method", "path", "status", "route", "key_id", "account"),
    *("plan", "decision", "limit", "cost", "bytes_in", "bytes_out", "duration_ms", "upstream_ms"),
    *("upstream", "reason", "host", "protocol", "server", "remaining", "gate_ms", "limiter_ms"),
)
#: Fields that a line has only if they are named.
MORE_FIELDS: Final = (
    *("query", "user_agent", "referrer", "tls", "trace_id", "sample", "request", "time_local"),
    *("mcp_method", "mcp_tool", "mcp_version", "rpc_id"),
)
FIELDS: Final = (*DEFAULT_FIELDS, *MORE_FIELDS)
#: What a template is, for errors.
TEMPLATE: Final = "a template with fields in braces, such as {status}, and {{ or }} for a brace"
#: In a list of fields: all of DEFAULT_FIELDS.
DEFAULT: Final = "default"

QueryRule = Literal["keep", "names", "off"]
#: Parameters whose values are not logged, unless the policy has its own list; in lower case.
REDACTED: Final = (
    *("access_token", "api_key", "apikey", "auth", "code", "id_token", "key", "password"),
    *("refresh_token", "secret", "sig", "signature", "state", "token"),
)


@dataclass(frozen=True, slots=True)
class AccessLogFormat:
    """How a request is written to the access log.

    format: "json", "combined" (of Apache and nginx), or a template: "{time} {client_ip} {status}"
    fields: of "json", in their order
    query:  of the path and of the referrer: whole, the parameters' names, or nothing
    redact: parameters whose values are not logged, in lower case
    sample: the share of admitted requests that are written, above 0 and up to 1. Refusals, 5xx and
            requests that were cut off are always written
    """

    format: str = "json"
    fields: tuple[str, ...] = DEFAULT_FIELDS
    query: QueryRule = "off"
    redact: tuple[str, ...] = REDACTED
    sample: float = 1.0

    @property
    def is_timed(self) -> bool:
        """Does it have a phase that is measured only for the log?"""
        names = self.fields if self.format == "json" else _names(self.format)
        return "gate_ms" in names or "limiter_ms" in names


def _names(template: str) -> list[str]:
    return [] if template == "combined" else [name for _, name in read_template(template)]


def read_template(text: str) -> list[tuple[str, str]]:
    """The parts of a template: a literal text, and the field after it ("": none).

    Raises ValueError for text that is no template, and UnknownField for a name of no field.
    """
    parts: list[tuple[str, str]] = []
    before = ""
    for literal, name, form, conversion in Formatter().parse(text):
        if form or conversion:
            raise ValueError("a field has a format")
        if name is not None and name not in FIELDS:
            raise UnknownField(name)
        before += literal
        if name is not None:  # else the text goes on after a brace
            parts.append((before, name))
            before = ""
    if not parts:
        raise ValueError("there is no field")
    return [*parts, (before, "")] if before else parts


class UnknownField(ValueError):
    """A template names a field that does not exist. name: that name"""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name
