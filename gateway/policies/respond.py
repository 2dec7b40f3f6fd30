"""`respond` of a route: the answer that the gateway gives itself, as it is written."""

from __future__ import annotations

from typing import Final

from gateway.domain.static_answer import BODILESS, StaticAnswer
from gateway.policies.pages import MOST_BYTES, read_page, type_of
from gateway.policies.values import Fields, Value, setting

RESPOND: Final = ("status", "body", "file", "content_type")
#: RFC 9110, 8.3.1: a media type with its parameters.
CONTENT_TYPE: Final = (
    r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}/[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}(?: ?; ?[ -~]{1,64})?"
)


def read_respond(value: Value) -> StaticAnswer | None:
    given = value.fields(RESPOND, required=("status",))
    if given is None:
        return None
    if "body" in given and "file" in given:
        given["file"].add_fault("a body or a file, not both")
    status = setting(given, "status", _read_status, 200)
    body = _read_body(given)
    if body and status in BODILESS:
        key = "body" if "body" in given else "file"
        given[key].add_fault(f"none, as answers with {status} have no body", "a body")
    known = type_of(str(given["file"].node.value)) if "file" in given else None
    default = known or StaticAnswer(status).content_type
    return StaticAnswer(status, body, setting(given, "content_type", _read_type, default))


def _read_status(value: Value) -> int | None:
    return value.integer(200, 599)


def _read_body(given: Fields) -> bytes:
    if "file" in given:
        return read_page(given["file"]) or b""
    text = given["body"].text("text") if "body" in given else None
    body = (text or "").encode("utf-8", "surrogatepass")
    if len(body) > MOST_BYTES:
        given["body"].add_fault(f"at most {MOST_BYTES} bytes", f"{len(body)} bytes")
    return body


def _read_type(value: Value) -> str | None:
    return value.matching(CONTENT_TYPE, 'a media type such as "text/html; charset=utf-8"')
