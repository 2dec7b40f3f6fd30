"""What the client raises. All of it is a `GatewayError`. `request_id` is that of the answer, if
there was one: give it to whoever operates the gateway.

| raised | when |
| --- | --- |
| `Unauthorized` | 401: the key is wrong, expired, revoked, suspended, or of another environment |
| `Forbidden` | 403: the key lacks a scope or permission, or its address is not allowed |
| `NotFound` | 404 |
| `RateLimited` | 429, and the retries are used up or of no use; or a pace that is too slow |
| `InvalidRequest` | any other 4xx |
| `ServerError` | 5xx |
| `UnexpectedAnswer` | a status that is no error where JSON was expected, such as a redirect |
| `ConnectionFailed` | no answer: no connection, it was lost, or a timeout |
| `SettingsInvalid` | an argument or variable is wrong; nothing was sent |

`webhooks` has `SignatureInvalid`, which is none of these: nothing was called.

An error of the gateway has `code`, such as `INSUFFICIENT_SCOPE`: its documents have a page of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class GatewayError(Exception):
    """Anything that went wrong with a request.

    request_id: of the answer, "": there was none
    """

    def __init__(self, message: str, *, request_id: str = "") -> None:
        super().__init__(f"{message} (request {request_id})" if request_id else message)
        self.message = message
        self.request_id = request_id

    def __reduce__(self) -> tuple[Any, ...]:
        # As it is sent from one process to another: not by the arguments of `__init__`.
        return _made_again, (type(self), self.args, self.__dict__)


class SettingsInvalid(GatewayError, ValueError):
    """An argument or a variable: what was found and what was expected, never a key."""


class ConnectionFailed(GatewayError):
    """There was no answer."""


class ApiError(GatewayError):
    """An answer with an error status.

    status: 400 to 599
    code:   of the error's body; "": the body is not that of the gateway
    doc:    the URL of the error's documentation, where the gateway has one; else ""
    faults: what is wrong with each field, where the answer tells: `path`, `found`, `expected`
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        request_id: str = "",
        code: str = "",
        doc: str = "",
        faults: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(message, request_id=request_id)
        self.status = status
        self.code = code
        self.doc = doc
        self.faults = tuple(faults)


class Unauthorized(ApiError):
    """401: the key is not valid here."""


class Forbidden(ApiError):
    """403: `code` says what the key lacks, `message` names it."""


class NotFound(ApiError):
    """404."""


class InvalidRequest(ApiError):
    """Any other 4xx. `faults` has what is wrong with each field, where the answer tells."""


class ServerError(ApiError):
    """5xx.

    retry_after: seconds that the answer asks to wait; None: it does not say
    """

    def __init__(self, message: str, *, retry_after: float | None = None, **fields: Any) -> None:
        super().__init__(message, **fields)
        self.retry_after = retry_after


class UnexpectedAnswer(ApiError):
    """Neither an error nor what was asked for, such as a redirect, or a body that is not JSON."""


class RateLimited(ApiError):
    """429, or, with pacing, a wait that is too long; then nothing was sent and `status` is 0.

    retry_after: seconds until the request may succeed; None: never, as it costs more than the limit
    limit, remaining, reset: of the answer's `X-RateLimit-*`; None: it had none
    """

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = None,
        limit: int | None = None,
        remaining: int | None = None,
        reset: int | None = None,
        **fields: Any,
    ) -> None:
        super().__init__(message, **fields)
        self.retry_after = retry_after
        self.limit = limit
        self.remaining = remaining
        self.reset = reset


def _made_again(
    kind: type[GatewayError], arguments: tuple[Any, ...], fields: Mapping[str, Any]
) -> GatewayError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(fields)
    return error


_BY_STATUS: Mapping[int, type[ApiError]] = {401: Unauthorized, 403: Forbidden, 404: NotFound}


def class_of(status: int) -> type[ApiError]:
    """The class of errors with this status, 400 to 599; not that of 429."""
    if status >= 500:
        return ServerError
    return _BY_STATUS.get(status, InvalidRequest)
