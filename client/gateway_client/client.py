"""`Client`: requests with a key, over httpx, with retries, limits and pacing. For threads."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from types import TracebackType
from typing import Any

import httpx

from gateway_client import calls
from gateway_client.bodies import Body
from gateway_client.errors import ApiError
from gateway_client.limits import Limits
from gateway_client.pacing import Pause, Ticket
from gateway_client.retries import Wait
from gateway_client.session import Came, Session
from gateway_client.settings import read_settings


class Client:
    """A client of the API behind the gateway. Threads may share it, and then share its pace.

    pace:     spread the requests so that no 429 comes (`pacing`)
    on_low:   called with the limits, once a window, when less than a tenth of a limit remains
    http:     further arguments of httpx.Client, such as `transport`, `verify` or `proxy`
    settings: arguments of `read_settings`, such as `api_key`, `base_url` and `patient`. Those that
              are not given are read from the environment

    Calls raise what `errors` has.
    """

    def __init__(
        self,
        *,
        pace: bool = False,
        on_low: Callable[[Limits], object] | None = None,
        http: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self._settings = read_settings(**settings)
        self._session = Session(self._settings, pace=pace, on_low=on_low)
        self._options = calls.http_options(self._settings, http)
        self._open()

    def _open(self) -> None:
        self._http = httpx.Client(**self._options)
        #: Guards the session; notified when a request has ended.
        self._changed = threading.Condition()
        #: Connections are of one process: after a fork, both would read the answers of both.
        self._process = os.getpid()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    @property
    def limits(self) -> Limits | None:
        """The limits that the last answer reported; None: none has so far."""
        return self._session.limits

    def request(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        **body_and_params: Any,
    ) -> httpx.Response:
        """Send a request, and again as `retries` says; return the answer, with its whole body.

        path:            such as "/v1/tickets"; whole URLs are refused
        body_and_params: `params`, `json`, `content`, `data`, `files` as of httpx. A `content` that
                         is an iterator, and `files`, are sent once

        Raises ApiError for 400 to 599, ConnectionFailed without an answer.
        """
        calls.check_headers(headers)
        return self._send(method, path, headers, body_and_params)

    def health(self) -> dict[str, Any]:
        """The gateway's `status`, `timestamp` and `version`."""
        return calls.object_of(self.request("GET", calls.HEALTH))

    def verify(self) -> dict[str, Any]:
        """What the key is, what it may do, and what remains of each of its limits."""
        return calls.object_of(self.request("GET", calls.VERIFY))

    def connectors(self) -> Any:
        """The connectors of the account. Needs the scope `connectors:read`."""
        return calls.json_of(self.request("GET", calls.CONNECTORS))

    def watch(self, integration: str, url: str, events: Sequence[str]) -> dict[str, Any]:
        """Register an endpoint for events of an integration; return the watch.

        url:    https
        events: types, such as `pull_request.merged`, or `pull_request.*`

        Its `secret` is shown this once: `webhooks.verify` needs it. It is sent once, as sent twice
        there would be two watches.
        """
        body = calls.watch_body(url, events)
        both = calls.both_key_headers(self._settings)
        return calls.object_of(
            self._send("POST", calls.watches_path(integration), both, {"json": body})
        )

    def batch(self, path: str, ids: Sequence[str], *, size: int = calls.BATCH) -> Iterator[Any]:
        """Post `{"ids": […]}` as often as needed; yield the JSON of each answer, in order.

        size: the most ids of a request. If the gateway says that this costs too much, half as many
              are sent. Nothing is sent before the first answer is asked for.
        """
        batches = calls.Batches(ids, size)
        while batches.next:
            try:
                answer = self.request("POST", path, json={"ids": batches.next})
            except ApiError as error:
                batches.refused(error)
            else:
                batches.sent()
                yield calls.json_of(answer)

    def _send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None,
        body_and_params: Mapping[str, Any],
    ) -> httpx.Response:
        if self._process != os.getpid():
            self._open()
        request = calls.request_of(
            self._http, self._settings, method, path, headers, body_and_params
        )
        for attempt in count():
            came = self._attempt(request)
            todo = self._session.decide(request, came, attempt)
            if not isinstance(todo, Wait):
                return calls.result_of(request, came, todo)
            time.sleep(todo.seconds)
        raise AssertionError("not reached")

    def _attempt(self, request: httpx.Request) -> Came:
        ticket = self._wait_for_pace(request)
        came: Came | None = None
        ends_s = time.monotonic() + self._settings.timeout_s
        try:
            came = self._received(self._http.send(request, stream=True), ends_s)
        except httpx.RequestError as error:
            came = error
        finally:
            with self._changed:
                low = self._session.ended(ticket, came, time.monotonic())
                self._changed.notify_all()
        if low is not None:
            self._session.warn(low)
        return came

    def _received(self, response: httpx.Response, ends_s: float) -> httpx.Response:
        """With its body. Raises httpx.RequestError and UnexpectedAnswer."""
        body = Body(response, self._settings.max_answer_bytes, ends_s)
        try:
            for part in response.iter_bytes():
                if not body.is_wanted(part, time.monotonic()):
                    break
        finally:
            response.close()
        body.keep()
        return response

    def _wait_for_pace(self, request: httpx.Request) -> Ticket | None:
        with self._changed:
            while isinstance(found := self._session.ask(request, time.monotonic()), Pause):
                self._changed.wait(found.seconds)
            return found
