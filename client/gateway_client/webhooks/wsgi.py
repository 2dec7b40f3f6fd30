"""A WSGI application that receives webhooks: `Receiver`."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from gateway_client.webhooks import answers
from gateway_client.webhooks.answers import Answer
from gateway_client.webhooks.endpoint import MOST_BODY, Endpoint
from gateway_client.webhooks.events import Event
from gateway_client.webhooks.handling import Handle, is_async, run
from gateway_client.webhooks.seen import SeenStore
from gateway_client.webhooks.signatures import Form
from gateway_client.webhooks.verification import DEFAULT_BRAND, DEFAULT_FORMS, TOLERANCE_S

Environ = dict[str, Any]
StartResponse = Callable[..., Any]

_READ_BYTES: Final = 64 * 1024


class Receiver:
    """Answers 200 once an event is handled, and has the sender send it again if it is not.

    secrets, tolerance, forms, brand: as of `verify`
    handle:   called with each event. Be quick: the sender waits 15 s
    seen:     drops events that were handled before; None: the handler does that itself
    max_body: bytes; more is answered 413
    clock:    Unix seconds

    A header that is there twice reaches a WSGI application as one, joined by the server: as a list
    of signatures, of which one has to fit, or as a timestamp that is none.
    """

    def __init__(
        self,
        secrets: str | Sequence[str],
        handle: Handle,
        *,
        seen: SeenStore | None = None,
        tolerance: float = TOLERANCE_S,
        forms: Sequence[Form] = DEFAULT_FORMS,
        brand: str = DEFAULT_BRAND,
        max_body: int = MOST_BODY,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._endpoint = Endpoint.of(
            secrets, _blocking(handle), seen, tolerance, forms, brand, max_body, clock
        )
        if seen is not None and is_async(seen.add):
            raise TypeError("seen: found async methods, expected a SeenStore")

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        answer = self._answer(environ)
        start_response(answer.status_line, list(answer.headers))
        return [answer.body]

    def _answer(self, environ: Environ) -> Answer:
        claim = self._endpoint.opened(environ["REQUEST_METHOD"], _headers_of(environ))
        if isinstance(claim, Answer):
            return claim
        try:
            body = self._body(environ)
        except OSError:  # the client is gone
            return answers.BAD_LENGTH
        if isinstance(body, Answer):
            return body
        event = self._endpoint.read(claim, body)
        return event if isinstance(event, Answer) else run(self._endpoint.handled(event))

    def _body(self, environ: Environ) -> bytes | Answer:
        """The whole body. Nothing more is read beyond the bound. Raises OSError."""
        stream, given = environ["wsgi.input"], environ.get("CONTENT_LENGTH")
        if given:
            length = self._endpoint.bounded(given)
            if isinstance(length, Answer):
                return length
            body = _read(stream, length)
            return body if len(body) == length else answers.BAD_LENGTH
        # PEP 3333: without a length there is no end of the stream, unless the server says so.
        if not environ.get("wsgi.input_terminated"):
            return answers.NO_LENGTH if environ.get("HTTP_TRANSFER_ENCODING") else b""
        body = _read(stream, self._endpoint.most_body + 1)
        return body if len(body) <= self._endpoint.most_body else self._endpoint.too_large


def _headers_of(environ: Environ) -> Iterable[tuple[str, str]]:
    return (
        (name[5:].replace("_", "-"), value)
        for name, value in environ.items()
        if name.startswith("HTTP_")
    )


def _read(stream: Any, most: int) -> bytes:
    """Up to so many bytes; fewer: it ended before."""
    found = bytearray()
    while len(found) < most:
        part = stream.read(min(_READ_BYTES, most - len(found)))
        if not part:
            break
        found += part
    return bytes(found)


def _blocking(handle: Handle) -> Handle:
    """The same handler; a TypeError, now or when it is called, if it would have to be awaited."""
    if is_async(handle):
        raise TypeError("handle: found an async function; expected another, or asgi.Receiver")

    def handled(event: Event) -> None:
        result = handle(event)
        if inspect.iscoroutine(result):
            result.close()
            raise TypeError("handle: it returned a coroutine, which nothing awaits in WSGI")

    return handled
