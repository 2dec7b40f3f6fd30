"""The table of all error responses that the gateway itself sends.

A refusal is a value: the code that decides returns one of these constants, and nothing else chooses
a status. Clients get `message`; logs and metrics use `reason`. A message says what to do next, and
reveals nothing about other keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Blame = Literal["client", "gateway", "upstream"]


@dataclass(frozen=True, slots=True, eq=False)
class Refusal:
    """One error response. Each exists once, so refusals are compared by identity.

    reason:  unique snake_case name, a metric label and the access log's `reason`: "key_revoked"
    status:  HTTP status: 401
    error:   the body's `error`, snake_case: "unauthorized"
    code:    the body's `code`, UPPER_CASE: "INVALID_API_KEY"
    message: for the client: what is wrong and what to do next
    blame:   the cause: errors of clients count as `refused`, others as `failed`
    closes:  the connection closes, because the start of the next request is unknown
    names:   appended to the message; {} is replaced by what is required, or the largest size
    """

    reason: str
    status: int
    error: str
    code: str
    message: str
    blame: Blame = "client"
    closes: bool = False
    names: str = ""

    @property
    def anchor(self) -> str:
        """The fragment of its description in the page of `error_docs`: "invalid_api_key"."""
        return self.code.lower()


TABLE: Final[dict[str, Refusal]] = {}


def _add(
    reason: str,
    status: int,
    error: str,
    code: str,
    message: str,
    blame: Blame = "client",
    closes: bool = False,
    names: str = "",
) -> Refusal:
    assert reason not in TABLE, reason
    refusal = TABLE[reason] = Refusal(reason, status, error, code, message, blame, closes, names)
    return refusal


def _key(reason: str, message: str) -> Refusal:
    return _add(reason, 401, "unauthorized", "INVALID_API_KEY", message)


def _bad(reason: str, message: str) -> Refusal:
    return _add(reason, 400, "bad_request", "BAD_REQUEST", message, closes=True)


# -- authentication (401) -------------------------------------------------------------------------
KEY_MISSING = _key(
    "key_missing",
    "No API key was sent. Send it as 'Authorization: Bearer <API_KEY>' or as 'apiKey: <API_KEY>'.",
)
KEY_CONFLICTING = _key(
    "key_conflicting",
    "More than one API key was sent, and they differ. Send one key, once.",
)
KEY_MALFORMED = _key(
    "key_malformed",
    "This is not an API key of this service. Check that it was copied completely.",
)
KEY_IN_URL = _key(
    "key_in_url",
    "The URL contains an API key, which logs may record. Send it in a header, and replace it.",
)
KEY_UNKNOWN = _key("key_unknown", "This API key is not valid. Ask its issuer for a new one.")
KEY_EXPIRED = _key("key_expired", "This API key has expired. Ask its issuer for a new one.")
KEY_REVOKED = _key("key_revoked", "This API key was revoked. Ask its issuer for a new one.")
KEY_SUSPENDED = _key("key_suspended", "This API key is suspended. Ask its issuer to resume it.")
ACCOUNT_SUSPENDED = _key(
    "account_suspended",
    "The account of this API key is suspended. Ask the key's issuer to resume it.",
)
KEY_ENVIRONMENT = _key(
    "key_environment",
    "This API key belongs to another environment. Use a key of this environment.",
)

SIGNATURE_INVALID = _add(
    "signature_invalid",
    401,
    "unauthorized",
    "INVALID_SIGNATURE",
    "The signature of this webhook could not be verified. Check the secret and the clock of its "
    "sender.",
    names="Reason: {}.",
)

# -- access (403) ---------------------------------------------------------------------------------
IP_NOT_ALLOWED = _add(
    "ip_not_allowed",
    403,
    "forbidden",
    "IP_NOT_ALLOWED",
    "This API key may not be used from this address. Ask its issuer to allow the address.",
)
ADDRESS_DENIED = _add(
    "address_denied",
    403,
    "forbidden",
    "ADDRESS_DENIED",
    "Requests from this address are not accepted. Ask the service's operator to allow it.",
    closes=True,
)
INSUFFICIENT_SCOPE = _add(
    "insufficient_scope",
    403,
    "forbidden",
    "INSUFFICIENT_SCOPE",
    "This API key lacks a scope that this request needs. Use a key that has it.",
    names="Needed: {}.",
)
INSUFFICIENT_PERMISSION = _add(
    "insufficient_permission",
    403,
    "forbidden",
    "INSUFFICIENT_PERMISSION",
    "This API key lacks a permission that this request needs. Use a key that has it.",
    names="Needed: {}.",
)
SERVICE_NOT_ENABLED = _add(
    "service_not_enabled",
    403,
    "forbidden",
    "SERVICE_NOT_ENABLED",
    "This service is not enabled for the account. Ask the key's issuer to enable it.",
    names="The service: {}.",
)

ORIGIN_NOT_ALLOWED = _add(
    "origin_not_allowed",
    403,
    "forbidden",
    "ORIGIN_NOT_ALLOWED",
    "Pages of this origin may not use this path. Ask the service to allow the origin.",
)

# -- limits (429) ---------------------------------------------------------------------------------
RATE_LIMITED = _add(
    "rate_limited",
    429,
    "too_many_requests",
    "rate_limit_exceeded",
    "Rate limit exceeded. Wait until the time given in Retry-After, then try again.",
)
COST_EXCEEDS_LIMIT = _add(
    "cost_exceeds_limit",
    429,
    "too_many_requests",
    "cost_exceeds_limit",
    "A request of this cost is never admitted by a limit of this API key: waiting does not help. "
    "Send less in one request, or ask the key's issuer for a higher limit.",
    names="{}",
)

# -- a request that cannot be read or served ------------------------------------------------------
BAD_REQUEST_LINE = _bad(
    "bad_request_line", "The request line is malformed. Send it as 'METHOD /path HTTP/1.1'."
)
BAD_HEADER = _bad(
    "bad_header", "A header line is malformed. Send each as 'Name: value', on one line."
)
HEADER_REPEATED = _bad(
    "header_repeated", "A header that decides the answer was sent more than once. Send it once."
)
BAD_HOST = _bad(
    "bad_host",
    "The request needs exactly one valid Host header. Send one with the name of this service.",
)
BAD_FRAMING = _bad(
    "bad_framing",
    "The length of the request's body is invalid or ambiguous. Send either one Content-Length or "
    "'Transfer-Encoding: chunked'.",
)
BAD_CHUNK = _bad(
    "bad_chunk",
    "The chunked request body is malformed. Send it as RFC 9112, section 7.1 describes, or with a "
    "Content-Length.",
)
BAD_TARGET = _add(
    "bad_target",
    400,
    "bad_request",
    "BAD_PATH",
    "The path is ambiguous, or leads above the root. Send it in its plain "
    "form: no '..' above the root, no '#', encoded slashes, backslashes, semicolons, control "
    "characters or doubly encoded characters.",
    closes=True,
)
AMBIGUOUS_PATH = _add(
    "ambiguous_path",
    400,
    "bad_request",
    "BAD_PATH",
    "Some servers would read this path as a different one. Send it as documented: in the same "
    "letter case, without dots or spaces at the end of a segment, and without an encoded '?', "
    "'#' or '/'.",
)
NOT_FOUND = _add(
    "not_found",
    404,
    "not_found",
    "NOT_FOUND",
    "Nothing is served at this path. Check the path and the method in the service's documentation.",
)
#: An MCP client looks for it after a 401; some show this message in place of the 401's.
NO_OAUTH = _add(
    "no_oauth",
    404,
    "not_found",
    "NOT_FOUND",
    "This service has no OAuth. Send a valid API key as 'Authorization: Bearer <API_KEY>'.",
)
METHOD_NOT_ALLOWED = _add(
    "method_not_allowed",
    405,
    "method_not_allowed",
    "METHOD_NOT_ALLOWED",
    "This path does not support this method. See the Allow header.",
)
REQUEST_TIMEOUT = _add(
    "request_timeout",
    408,
    "request_timeout",
    "REQUEST_TIMEOUT",
    "The request did not arrive in time. Send it again.",
    closes=True,
)
BODY_TOO_LARGE = _add(
    "body_too_large",
    413,
    "content_too_large",
    "BODY_TOO_LARGE",
    "The request body is larger than this service accepts. Send less in one request.",
    closes=True,
    names="At most: {}.",
)
COUNTED_BODY_TOO_LARGE = _add(
    "counted_body_too_large",
    413,
    "content_too_large",
    "BODY_TOO_LARGE",
    "The request body is larger than this service accepts on this path. Split it.",
    names="At most: {}.",
)
COST_TOO_HIGH = _add(
    "cost_too_high",
    413,
    "content_too_large",
    "COST_TOO_HIGH",
    "The request counts more units than this service accepts in one request. Split it.",
    names="{}",
)
COST_UNREADABLE = _add(
    "cost_unreadable",
    400,
    "bad_request",
    "COST_UNREADABLE",
    "The request's limits count what is in it, and that cannot be read. Send it as documented.",
    names="{}",
)
NOT_JSON = _add(
    "not_json",
    415,
    "unsupported_media_type",
    "UNSUPPORTED_MEDIA_TYPE",
    "The body must be JSON in UTF-8. Send it with 'Content-Type: application/json', and without "
    "Content-Encoding.",
)
MESSAGE_INVALID = _add(
    "message_invalid",
    400,
    "bad_request",
    "INVALID_MESSAGE",
    "The request is not a valid MCP message. Send one message of JSON-RPC 2.0.",
    names="{}",
)
SESSION_UNKNOWN = _add(
    "session_unknown",
    404,
    "not_found",
    "SESSION_NOT_FOUND",
    "Session not found. Start a new one with initialize.",
)
TOOL_UNKNOWN = _add(
    "tool_unknown",
    404,
    "not_found",
    "UNKNOWN_TOOL",
    "This service has no such tool. Use one of those that tools/list names.",
    names="Unknown tool: {}.",
)
TOOL_NOT_PERMITTED = _add(
    "tool_not_permitted",
    403,
    "forbidden",
    "INSUFFICIENT_PERMISSION",
    "This API key lacks a permission that this tool needs. Ask its issuer for it.",
    names="Needed: {}.",
)
URL_TOO_LONG = _add(
    "url_too_long",
    414,
    "uri_too_long",
    "URL_TOO_LONG",
    "The URL is longer than this service accepts. Send a shorter one.",
    closes=True,
    names="At most: {}.",
)
TOO_MANY_SEGMENTS = _add(
    "too_many_segments",
    414,
    "uri_too_long",
    "URL_TOO_LONG",
    "The URL's path has more than 128 segments. Send a shorter one.",
    closes=True,
)
EXPECTATION_FAILED = _add(
    "expectation_failed",
    417,
    "expectation_failed",
    "EXPECTATION_FAILED",
    "The only supported expectation is 100-continue. Send the request without another Expect.",
    closes=True,
)
HEADERS_TOO_LARGE = _add(
    "headers_too_large",
    431,
    "request_header_fields_too_large",
    "HEADERS_TOO_LARGE",
    "The request has more or larger headers than this service accepts. Send fewer or shorter ones, "
    "such as fewer cookies.",
    closes=True,
    names="At most: {}.",
)
CODING_UNKNOWN = _add(
    "coding_unknown",
    501,
    "not_implemented",
    "TRANSFER_CODING_NOT_IMPLEMENTED",
    "The only supported transfer coding is chunked. Send the body without another coding.",
    closes=True,
)
LOOP_DETECTED = _add(
    "loop_detected",
    508,
    "loop_detected",
    "LOOP_DETECTED",
    "The request passed through too many proxies, or through this service too often. Ask the "
    "service's operator to check where requests are forwarded: see the Via header.",
    closes=True,
)
VERSION_UNKNOWN = _add(
    "version_unknown",
    505,
    "http_version_not_supported",
    "HTTP_VERSION_NOT_SUPPORTED",
    "This service supports HTTP/1.1 and HTTP/1.0. Use one of them.",
    closes=True,
)

UPGRADE_REQUIRED = _add(
    "upgrade_required",
    426,
    "upgrade_required",
    "WEBSOCKET_VERSION_NOT_SUPPORTED",
    "The only supported WebSocket version is 13. Send 'Sec-WebSocket-Version: 13'.",
    closes=True,
)
BAD_WEBSOCKET = _bad(
    "bad_websocket", "The WebSocket handshake is malformed. See RFC 6455, section 4.2.1."
)
BAD_PROXY_HEADER = _bad(
    "bad_proxy_header",
    "The connection does not begin with a valid PROXY protocol header. Use the service's public "
    "address, or enable the PROXY protocol in the proxy before it.",
)

# -- gateway and upstream (5xx) -------------------------------------------------------------------
STORE_UNAVAILABLE = _add(
    "store_unavailable",
    503,
    "service_unavailable",
    "SERVICE_UNAVAILABLE",
    "The request cannot be checked at the moment. Try again shortly.",
    "gateway",
)
PLAN_UNKNOWN = _add(
    "plan_unknown",
    503,
    "service_unavailable",
    "PLAN_NOT_CONFIGURED",
    "The plan of this API key is not configured here. Contact the service's support.",
    "gateway",
)
MAINTENANCE = _add(
    "maintenance",
    503,
    "service_unavailable",
    "MAINTENANCE",
    "The service is under maintenance. Wait for the time given in Retry-After, then try again.",
    "gateway",
    names="{}",  # the policy's own message replaces this one
)
TOO_MANY_CONNECTIONS = _add(
    "too_many_connections",
    503,
    "service_unavailable",
    "TOO_MANY_CONNECTIONS",
    "There are too many connections at the moment. Close idle ones and try again shortly.",
    "gateway",
    closes=True,
)
BUFFERS_FULL = _add(
    "buffers_full",
    503,
    "service_unavailable",
    "BUFFERS_FULL",
    "The service receives more than it can keep at the moment, and this request was not served. "
    "Try again shortly.",
    "gateway",
    closes=True,
)
UPSTREAM_BUSY = _add(
    "upstream_busy",
    503,
    "service_unavailable",
    "UPSTREAM_BUSY",
    "Upstream concurrency limit reached. Try again shortly.",
    "upstream",
)
UPSTREAM_UNHEALTHY = _add(
    "upstream_unhealthy",
    503,
    "service_unavailable",
    "UPSTREAM_UNHEALTHY",
    "No healthy upstream server. Try again shortly.",
    "upstream",
)
NO_COURIERS = _add(
    "no_couriers",
    503,
    "service_unavailable",
    "NO_COURIERS",
    "Webhooks are not enabled for this API. Contact its operator.",
    "gateway",
)
INTERNAL = _add(
    "internal",
    500,
    "internal_error",
    "INTERNAL_ERROR",
    "Internal error. Quote the request id when you report it.",
    "gateway",
    closes=True,
)
UPSTREAM_UNREACHABLE = _add(
    "upstream_unreachable",
    502,
    "bad_gateway",
    "UPSTREAM_UNREACHABLE",
    "The upstream service cannot be reached. Try again shortly.",
    "upstream",
)
UPSTREAM_CLOSED = _add(
    "upstream_closed",
    502,
    "bad_gateway",
    "UPSTREAM_CLOSED",
    "The upstream service closed the connection before it responded. Check whether the request "
    "took effect before you send it again.",
    "upstream",
)
UPSTREAM_INVALID = _add(
    "upstream_invalid",
    502,
    "bad_gateway",
    "UPSTREAM_INVALID_RESPONSE",
    "The upstream service sent a response that is not valid HTTP. Quote the request id when you "
    "report it.",
    "upstream",
)
UPSTREAM_TIMEOUT = _add(
    "upstream_timeout",
    504,
    "gateway_timeout",
    "UPSTREAM_TIMEOUT",
    "The upstream service did not respond in time. Check whether the request took effect before "
    "you send it again.",
    "upstream",
)
