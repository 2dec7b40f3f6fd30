"""What the sync and the async client share: requests from arguments, and errors from answers.

Paths are joined with the base URL. A whole URL is refused: the key would go to another server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final

import httpx

from gateway_client.errors import (
    ApiError,
    ConnectionFailed,
    RateLimited,
    ServerError,
    UnexpectedAnswer,
    class_of,
)
from gateway_client.limits import read_limits
from gateway_client.retries import Done, Lost, Sent, retry_after_s
from gateway_client.settings import Settings
from gateway_client.webhooks.json_text import TooDeep, read_json

USER_AGENT: Final = "rate-limiting-gateway-client/0.1.0"
#: The most ids of one request of `batch`, unless told otherwise.
BATCH: Final = 50
#: Errors that say that a request costs more than it may: with fewer ids it would not.
_TOO_COSTLY: Final = frozenset({"COST_TOO_HIGH", "cost_exceeds_limit"})

#: RFC 9110, 5.6.2 and 5.5.
_is_name = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_has_control = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]").search
_is_request_id = re.compile(r"[!-~]{1,128}").fullmatch
_is_key_in = re.compile(r"gwk_[a-z][a-z0-9-]{0,31}_[0-9a-z]{12}_[0-9A-Za-z]+")
#: Headers that say where a request ends, and where it goes: the client's own.
_OWN: Final = frozenset({"transfer-encoding", "host", "connection"})

HEALTH: Final = "/v1/health"
VERIFY: Final = "/v1/auth/verify"
CONNECTORS: Final = "/v1/connectors"


def http_options(settings: Settings, further: Mapping[str, Any] | None) -> dict[str, Any]:
    """The arguments of httpx's clients.

    No redirects: the key would go along. No proxy to this machine: it would see the key in http.
    No cookies: nothing of one answer is sent with the next request.
    further: take precedence, but for the key. Raises ValueError where they would replace it
    """
    given = dict(further or {})
    if given.get("auth") is not None:
        raise ValueError("http: found auth, expected none: the client sends its own key")
    headers = httpx.Headers({"Accept": "application/json", "User-Agent": USER_AGENT})
    more = httpx.Headers(given.pop("headers", None))
    check_headers(more)
    headers.update(more)
    headers["Authorization"] = f"Bearer {settings.api_key}"
    return {
        "trust_env": not settings.is_local,
        "follow_redirects": False,
        "timeout": settings.timeout_s,
        "cookies": CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        **given,
        "headers": headers,
    }


def request_of(
    http: httpx.Client | httpx.AsyncClient,
    settings: Settings,
    method: str,
    path: str,
    headers: Mapping[str, str] | None,
    body_and_params: Mapping[str, Any],
) -> httpx.Request:
    """Raises ValueError where the method or the path is none."""
    if not _is_name(method):
        raise ValueError(f"method: found {method!r}, expected one such as GET")
    url = url_of(settings, path)
    try:
        return http.build_request(method.upper(), url, headers=headers, **body_and_params)
    except httpx.InvalidURL as error:
        raise ValueError(f"path: found {path[:200]!r}: {error}") from None


def url_of(settings: Settings, path: str) -> str:
    """Raises ValueError where the path is none."""
    if not path.startswith("/") or path.startswith("//") or "\\" in path:
        raise ValueError(f"path: found {path!r}, expected a path such as {CONNECTORS}")
    return settings.base_url + path


def watches_path(integration: str) -> str:
    """Raises ValueError where the id could be more than one segment."""
    return f"/api/v1/integrations/{_segment(integration)}/watches"


def _segment(text: str) -> str:
    if not text or not all(each.isalnum() or each in "-_" for each in text) or not text.isascii():
        raise ValueError(f"integration: found {text!r}, expected an id such as int_5f1c8a60d3b2")
    return text


def watch_body(url: str, events: Sequence[str]) -> dict[str, Any]:
    """Raises TypeError where the events are one text: it would be a list of letters."""
    if isinstance(events, str):
        raise TypeError("events: found a text, expected a list such as ['pull_request.*']")
    return {"url": url, "events": list(events)}


def both_key_headers(settings: Settings) -> dict[str, str]:
    """The registration of watches takes the key in `apiKey`, in its description's example."""
    return {"apiKey": settings.api_key}


def check_headers(headers: Mapping[str, str] | None) -> None:
    """Raise ValueError where a header would replace the key, or is none; never with its value."""
    for name, value in (headers or {}).items():
        if name.lower() in ("authorization", "apikey"):
            raise ValueError(f"headers: found {name}, expected none: the client sends its own key")
        if name.lower() in _OWN:
            raise ValueError(f"headers: found {name}, expected none: it follows from the request")
        if not _is_name(name):
            raise ValueError(f"headers: found the name {name!r}, expected one such as X-Team")
        if _has_control(value) or value != value.strip(" \t"):
            raise ValueError(f"headers: {name} has a control character, or spaces at an end")


def sent_of(request: httpx.Request) -> Sent:
    return Sent(
        request.method,
        has_idempotency_key=bool(request.headers.get("idempotency-key")),
        is_repeatable=isinstance(request.stream, httpx.ByteStream),
    )


def path_of(request: httpx.Request) -> str:
    """For logs and errors: without the query, which may have secrets."""
    return request.url.raw_path.partition(b"?")[0].decode("ascii", "replace")


def lost_of(error: httpx.RequestError) -> Lost:
    never_sent = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
    return Lost(was_sent=not isinstance(error, never_sent))


def request_id_of(response: httpx.Response) -> str:
    """For logs and errors; "": there is none that can be printed."""
    found: str = response.headers.get("x-request-id", "")
    return found if _is_request_id(found) else ""


def result_of(
    request: httpx.Request, came: httpx.Response | httpx.RequestError, done: Done
) -> httpx.Response:
    """The answer, or its error. Raises ApiError and ConnectionFailed."""
    if isinstance(came, httpx.Response):
        if came.status_code < 400:
            return came
        # Of others it is clear that they are not sent again.
        raise error_of(came, done.why if came.status_code in (429, 502, 503, 504) else "")
    # The text of this one may have a header's value.
    text = "" if isinstance(came, httpx.LocalProtocolError) else f": {came}"
    raise ConnectionFailed(
        f"{request.method} {path_of(request)}: {type(came).__name__}{text} ({done.why})"
    ) from (came if text else None)


def error_of(response: httpx.Response, why: str = "") -> ApiError:
    """The error of an answer with a status of 400 and above. why: there is no retry"""
    status = response.status_code
    found = _members(response)
    message = _text(found, "message") or printable(f"{status} {response.reason_phrase}")
    if why:
        message = f"{message} ({why})"
    fields: dict[str, Any] = {
        "status": status,
        "request_id": request_id_of(response) or _text(found, "request_id"),
        "code": _text(found, "code"),
        "doc": _text(found, "doc"),
        "faults": _faults(found),
    }
    wait_s = retry_after_s(response.headers)
    if status == 429:
        limits = read_limits(response.headers)
        return RateLimited(
            message,
            retry_after=wait_s,
            limit=limits.limit if limits else None,
            remaining=limits.remaining if limits else None,
            reset=limits.reset if limits else None,
            **fields,
        )
    kind = class_of(status)
    if kind is ServerError:
        return ServerError(message, retry_after=wait_s, **fields)
    return kind(message, **fields)


def _members(response: httpx.Response) -> Mapping[str, Any]:
    """The members of an error's body: the outer ones, of `error`, and of its `data` in JSON-RPC."""
    try:
        found = read_json(response.content)
    except ValueError:
        return {}
    members: dict[str, Any] = {}
    while isinstance(found, dict) and len(members) < 64:
        members.update(found)
        found = found.get("error") if isinstance(found.get("error"), dict) else found.get("data")
    return members


def _text(members: Mapping[str, Any], name: str) -> str:
    found = members.get(name)
    return printable(found[:1000]) if isinstance(found, str) else ""


def printable(text: str) -> str:
    """What could control a terminal is shown as an escape, and a key, which it may repeat, not."""
    text = "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
    return _is_key_in.sub("[key]", text)


def _faults(members: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    found = members.get("faults")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def json_of(response: httpx.Response) -> Any:
    """The body of an answer that has to be JSON. Raises UnexpectedAnswer."""
    if not response.is_success:
        status = response.status_code
        raise _unexpected(response, f"found {status}, expected 2xx; redirects are not followed")
    try:
        return read_json(response.content)
    except TooDeep as error:
        raise _unexpected(response, str(error)) from None
    except ValueError:
        raise _unexpected(response, "found a body that is not JSON") from None


def object_of(response: httpx.Response) -> dict[str, Any]:
    """The body of an answer that has to be a JSON object. Raises UnexpectedAnswer."""
    found = json_of(response)
    if not isinstance(found, dict):
        raise _unexpected(response, f"found JSON that is a {type(found).__name__}, not an object")
    return found


def _unexpected(response: httpx.Response, problem: str) -> UnexpectedAnswer:
    return UnexpectedAnswer(
        f"{response.request.method} {path_of(response.request)}: {problem}",
        status=response.status_code,
        request_id=request_id_of(response),
    )


class Batches:
    """Splits ids into requests: `next` has those of the next one."""

    def __init__(self, ids: Sequence[str], size: int) -> None:
        if isinstance(ids, (str, bytes)):
            raise TypeError("ids: found a text, expected a list of ids")
        if size < 1:
            raise ValueError(f"size: found {size}, expected 1 or more")
        self._ids = list(ids)
        self._size = size

    @property
    def next(self) -> list[str]:
        """Empty: all were sent."""
        return self._ids[: self._size]

    def sent(self) -> None:
        """Those of `next` were accepted."""
        del self._ids[: self._size]

    def refused(self, error: ApiError) -> None:
        """Try half as many, if they were too many; else raise the error."""
        count = len(self.next)
        if error.code not in _TOO_COSTLY or count < 2:
            raise error
        self._size = count // 2
