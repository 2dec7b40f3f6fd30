"""The WSGI application: the server's rules, and the lengths and ends of bodies."""

from __future__ import annotations

import io
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest
from gateway_client.webhooks import Event
from gateway_client.webhooks.seen import BUSY, DONE
from gateway_client.webhooks.wsgi import Receiver
from hypothesis import given
from hypothesis import strategies as st

from tests.client.webhooks.samples import BODY, NOW, SECRET, AsyncStore, Handler, Store, signed

ID = json.loads(BODY)["id"]


def receiver(handle: Any = None, **more: Any) -> Receiver:
    return Receiver(SECRET, Handler() if handle is None else handle, clock=lambda: NOW, **more)


class Stream(io.BytesIO):
    """A body; each read gives this many bytes at most. taken: how many were read, -1: none"""

    def __init__(self, body: bytes, size: int = 1 << 20) -> None:
        super().__init__(body)
        self._size = size
        self.taken = -1

    def read(self, size: int | None = -1, /) -> bytes:
        assert size is not None
        assert size > 0, "what is read without a bound may never end"
        found = super().read(min(size, self._size))
        self.taken = self.tell()
        return found


def environ_of(body: bytes | Stream, headers: Any = None, **more: Any) -> dict[str, Any]:
    stream = body if isinstance(body, Stream) else Stream(body)
    found: dict[str, Any] = {"REQUEST_METHOD": "POST", "wsgi.input": stream, "QUERY_STRING": ""}
    setup_testing_defaults(found)
    for name, value in (signed() if headers is None else headers).items():
        found[f"HTTP_{name.upper().replace('-', '_')}"] = value
    found["CONTENT_LENGTH"] = str(len(stream.getvalue()))
    found.update(more)
    return {name: value for name, value in found.items() if value is not None}


class Answered:
    """What the application answers, by the rules that `wsgiref.validate` knows."""

    def __init__(self, app: Any, environ: dict[str, Any]) -> None:
        started: list[tuple[str, list[tuple[str, str]]]] = []

        def start_response(status: str, headers: Any, exc_info: Any = None) -> Callable[..., Any]:
            started.append((status, headers))
            return lambda _data: None

        parts = validator(app)(environ, start_response)
        try:
            self.body = b"".join(parts)
        finally:
            parts.close()  # type: ignore[attr-defined]
        ((self.line, headers),) = started
        self.headers = dict(headers)
        self.status = int(self.line[:3])

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_however_it_arrives(size: int) -> None:
    """Whole, in pieces, or byte by byte."""
    handle = Handler()
    answered = Answered(receiver(handle), environ_of(Stream(BODY, size)))
    assert (answered.line, answered.json) == ("200 OK", {"result": "handled"})
    assert answered.headers["Content-Length"] == str(len(answered.body))
    assert [event.body for event in handle.events] == [BODY]


@pytest.mark.parametrize(
    ("headers", "more", "expected"),
    [
        ({}, {}, 401),
        ({**signed(), "x-service-timestamp": "1"}, {}, 401),
        ({**signed(), "x-service-signature": "v1=0,v1=1"}, {}, 401),
        (None, {"REQUEST_METHOD": "GET"}, 405),
        (None, {"REQUEST_METHOD": "HEAD"}, 405),
        (None, {"CONTENT_LENGTH": "1048577"}, 413),
        (None, {"CONTENT_LENGTH": None, "HTTP_TRANSFER_ENCODING": "chunked"}, 411),
    ],
)
def test_a_body_that_cannot_help(headers: Any, more: dict[str, Any], expected: int) -> None:
    """What the head refuses is answered without reading anything."""
    stream = Stream(BODY)
    answered = Answered(receiver(), environ_of(stream, headers, **more))
    assert (answered.status, stream.taken) == (expected, -1)
    if expected == 405:
        assert answered.headers["Allow"] == "POST"
        assert bool(answered.body) is (more["REQUEST_METHOD"] != "HEAD")
    if expected == 401:
        assert answered.json["error"] == "unauthorized"
        assert answered.json["code"] == "INVALID_SIGNATURE"


def test_a_length_that_is_malformed() -> None:
    """400; the validator itself refuses such an environment."""
    started: list[str] = []
    for length in ("-1", "abc", "1_0", "1, 1"):
        environ = environ_of(BODY, CONTENT_LENGTH=length)
        receiver()(environ, lambda status, _headers: started.append(status))
    assert {line[:4] for line in started} == {"400 "}


def test_a_length_that_is_too_short() -> None:
    """What is beyond it belongs to the next request; the rest is not what was signed."""
    stream = Stream(BODY + b"GET / HTTP/1.1")
    app = receiver()
    assert Answered(app, environ_of(stream, CONTENT_LENGTH=str(len(BODY)))).status == 200
    assert stream.taken == len(BODY)
    assert Answered(app, environ_of(BODY, CONTENT_LENGTH="10")).status == 401


def test_a_body_that_ends_early() -> None:
    """400: its client is gone."""
    handle = Handler()
    answered = Answered(receiver(handle), environ_of(BODY, CONTENT_LENGTH=str(len(BODY) + 1)))
    assert (answered.status, handle.events) == (400, [])


def test_a_connection_that_breaks() -> None:
    """The server raises OSError while the body is read: it ends without an error of its own."""

    class Broken(Stream):
        def read(self, size: int | None = -1, /) -> bytes:
            raise ConnectionResetError

    assert Answered(receiver(), environ_of(Broken(BODY))).status == 400


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_a_body_in_chunks(size: int) -> None:
    """Without a length, up to the end of the stream, where the server says that it has one."""
    more = {"CONTENT_LENGTH": None, "wsgi.input_terminated": True}
    assert Answered(receiver(), environ_of(Stream(BODY, size), **more)).status == 200
    chunked = {**more, "HTTP_TRANSFER_ENCODING": "chunked"}
    assert Answered(receiver(), environ_of(Stream(BODY, size), **chunked)).status == 200
    # Of an empty length as well: the CGI form of none.
    environ = environ_of(Stream(BODY, size), **{**chunked, "CONTENT_LENGTH": ""})
    assert Answered(receiver(), environ).status == 200


def test_chunks_without_end() -> None:
    """413 at the bound; one byte more is read, no further one."""
    stream = Stream(b"x" * 5000, 100)
    more = {"CONTENT_LENGTH": None, "wsgi.input_terminated": True}
    assert Answered(receiver(max_body=1000), environ_of(stream, **more)).status == 413
    assert stream.taken == 1001


def test_no_body() -> None:
    """Without a length and a terminated stream there is none, and nothing is read."""
    stream = Stream(BODY)
    answered = Answered(receiver(), environ_of(stream, signed(b""), CONTENT_LENGTH=None))
    assert (answered.status, answered.json["code"]) == (400, "INVALID_EVENT")
    assert stream.taken == -1


@pytest.mark.parametrize("terminated", [False, True])
def test_the_largest_body(terminated: bool) -> None:
    """As many bytes as the bound are read."""
    more = {"CONTENT_LENGTH": None, "wsgi.input_terminated": True} if terminated else {}
    for most, expected in ((len(BODY), 200), (len(BODY) - 1, 413)):
        assert Answered(receiver(max_body=most), environ_of(BODY, **more)).status == expected


def test_headers_that_the_server_joined() -> None:
    """A list of signatures, of which one has to fit; a timestamp that is none."""
    right = signed()
    joined = {
        **right,
        "x-service-signature": "v1=" + "0" * 64 + ", " + right["x-service-signature"],
    }
    assert Answered(receiver(), environ_of(BODY, joined)).status == 200
    twice = {**right, "x-service-timestamp": f"{NOW}, {NOW}"}
    assert Answered(receiver(), environ_of(BODY, twice)).status == 401


def test_an_event_that_was_seen() -> None:
    """It is handled once; while another handles it, it is asked to come again."""
    store, handle = Store(), Handler()
    app = receiver(handle, seen=store)
    results = [Answered(app, environ_of(BODY)).json["result"] for _ in range(2)]
    assert (results, len(handle.events)) == (["handled", "seen"], 1)
    assert store.kept == {ID: DONE}
    store.kept[ID] = BUSY
    answered = Answered(app, environ_of(BODY))
    assert (answered.status, answered.headers["Retry-After"]) == (503, "60")


def test_a_handler_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    """500, and the log has the event's id, but no secret; sent again, it is handled."""
    handle = Handler(raises=[ValueError("no room")])
    app = receiver(handle, seen=Store())
    answered = Answered(app, environ_of(BODY))
    assert (answered.status, answered.json["code"]) == (500, "EVENT_NOT_HANDLED")
    assert f"event {ID} not handled: the handler failed" in caplog.text
    assert SECRET not in caplog.text
    assert Answered(app, environ_of(BODY)).status == 200


def test_what_would_have_to_be_awaited() -> None:
    """An async handler or store is a mistake that is found at the start, or fails."""
    with pytest.raises(TypeError, match=r"handle: found an async function; .* asgi.Receiver"):
        receiver(Handler().awaited)
    with pytest.raises(TypeError, match="seen: found async methods, expected a SeenStore"):
        receiver(seen=AsyncStore(Store()))
    # What is async within is found when it is called.
    assert (
        Answered(receiver(lambda event: Handler().awaited(event)), environ_of(BODY)).status == 500
    )


@given(
    st.sampled_from([None, "", "0", "5", "99999999"]),
    st.booleans(),
    st.dictionaries(st.sampled_from([*signed()]), st.text(st.characters(max_codepoint=255))),
    st.binary(max_size=80),
)
def test_whatever_is_sent(
    length: str | None, terminated: bool, headers: dict[str, str], body: bytes
) -> None:
    """An answer of the table; nothing is raised."""
    more = {"wsgi.input_terminated": terminated, "CONTENT_LENGTH": length}
    environ = environ_of(body, {**signed(body), **headers}, **more)
    assert Answered(receiver(max_body=50), environ).status in {400, 401, 413}


class Quiet(WSGIRequestHandler):
    def log_message(self, *_arguments: object) -> None: ...


@pytest.fixture
def served() -> Iterator[tuple[int, list[Event]]]:
    """The port of a real server, and the events that were handled."""
    handle = Handler()
    app = receiver(handle)
    with make_server("127.0.0.1", 0, validator(app), handler_class=Quiet) as server:  # type: ignore[arg-type]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port, handle.events
        finally:
            server.shutdown()
            thread.join()


def test_over_a_socket(served: tuple[int, list[Event]]) -> None:
    """The server of the standard library, byte by byte."""
    port, events = served
    head = "".join(f"{name}: {value}\r\n" for name, value in signed().items())
    request = f"POST / HTTP/1.0\r\nContent-Length: {len(BODY)}\r\n{head}\r\n".encode() + BODY
    with socket.create_connection(("127.0.0.1", port), timeout=60) as wire:
        for at in range(len(request)):
            wire.sendall(request[at : at + 1])
        answer = b"".join(iter(lambda: wire.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.0 200 OK\r\n")
    assert answer.endswith(b'{"result": "handled"}')
    assert [event.body for event in events] == [BODY]
