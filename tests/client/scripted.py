"""A server that follows a script, over real sockets on loopback.

Each request is answered by the next step, in the order in which requests arrive. A step is a
function of a `Turn`. It waits for the test, never for a time. A request without a step, or a step
without a request, fails the test at the end of the server's `with`.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import BufferedReader
from types import TracebackType
from typing import Any

#: The longest single wait before a test fails; no test measures it.
TIMEOUT_S = 20.0
RATE = "X-RateLimit-"


@dataclass(frozen=True)
class Got:
    """One request. connection: 0 for the first one accepted, and so on"""

    method: str
    target: str
    headers: list[tuple[str, str]]
    connection: int
    body: bytes = b""
    raw: bytes = field(default=b"", repr=False)

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def json(self) -> Any:
        return json.loads(self.body)


class Gate:
    """A step that waits is told to go on by `open`; `reached`: it waits."""

    def __init__(self) -> None:
        self._opened = threading.Event()
        self._reached = threading.Event()

    @property
    def is_open(self) -> bool:
        return self._opened.is_set()

    def open(self) -> None:
        self._opened.set()

    def wait(self) -> None:
        """For the server's thread."""
        self._reached.set()
        assert self._opened.wait(TIMEOUT_S), "the test did not open the gate"

    def reached(self) -> None:
        """For the test: wait until a request is held here."""
        assert self._reached.wait(TIMEOUT_S), "no request has come to the gate"


class Turn:
    """What a step gets: the request, and the way to answer. is_over: the connection was closed"""

    def __init__(self, connection: socket.socket, got: Got | None) -> None:
        self._connection = connection
        self._got = got
        self.is_over = False

    @property
    def got(self) -> Got:
        assert self._got is not None, "nothing was read"
        return self._got

    def send(self, data: bytes) -> None:
        self._connection.sendall(data)

    def close(self) -> None:
        self.is_over = True

    def reset(self) -> None:
        """End the connection with a TCP reset."""
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()


Step = Callable[[Turn], None]


def response(
    status: int = 200,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    **named: str,
) -> bytes:
    """A whole response. named: more headers, retry_after for Retry-After"""
    fields = {
        **(headers or {}),
        **{name.replace("_", "-"): value for name, value in named.items()},
        "Content-Length": str(len(body)),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status} Scripted\r\n{head}\r\n".encode("latin-1") + body


def send(data: bytes) -> Step:
    """Send these bytes; the connection stays open."""
    return lambda turn: turn.send(data)


def answer(
    status: int = 200,
    body: object = None,
    headers: Mapping[str, str] | None = None,
    **named: str,
) -> Step:
    """A whole response. body: bytes, or what is sent as JSON; None: none"""
    content = (
        body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    )
    return send(response(status, content, headers, **named))


def limits(limit: int, remaining: int, reset_after: int) -> dict[str, str]:
    """The four headers of a limit."""
    values = {"Limit": limit, "Remaining": remaining, "Reset": 1_795_343_894}
    values["Reset-After"] = reset_after
    return {f"{RATE}{name}": str(value) for name, value in values.items()}


def limited(wait_s: int = 61, limit: int = 60) -> Step:
    """A 429 as the gateway sends it."""
    error = {
        "code": "rate_limit_exceeded",
        "message": "Rate limit exceeded.",
        "retry_after": wait_s,
    }
    headers = {**limits(limit, 0, wait_s), "Retry-After": str(wait_s), "X-Request-Id": "ca63-429"}
    return answer(429, {"error": error}, headers)


def too_costly(limit: int = 60, wait_s: int = 61) -> Step:
    """A 429 that no wait helps against: the request costs more than the limit admits."""
    error = {"code": "cost_exceeds_limit", "message": "It costs too much.", "retry_after": None}
    return answer(429, {"error": error}, limits(limit, 0, wait_s))


def refused(status: int, code: str, message: str = "No.", **more: Any) -> Step:
    """An error as the gateway sends it."""
    body = {"error": "an error", "code": code, "message": message, "request_id": "ca63-1", **more}
    return answer(status, body, {"X-Request-Id": "ca63-1"})


def half(data: bytes = response(200, b"a whole answer"), *, lacks: int = 5) -> Step:
    """Send all but the last bytes, then close."""

    def step(turn: Turn) -> None:
        turn.send(data[:-lacks])
        turn.close()

    return step


def slow(data: bytes) -> Step:
    """Send byte by byte."""

    def step(turn: Turn) -> None:
        for byte in data:
            turn.send(bytes([byte]))

    return step


def held(gate: Gate, then: Step) -> Step:
    """Silence until the gate is opened."""

    def step(turn: Turn) -> None:
        gate.wait()
        then(turn)

    return step


def told(tell: Callable[[], object], then: Step) -> Step:
    """Call this when the request is there, then go on."""

    def step(turn: Turn) -> None:
        tell()
        then(turn)

    return step


def lost(turn: Turn) -> None:
    """Read the request, then reset the connection."""
    turn.reset()


def closed(turn: Turn) -> None:
    """Read the request, then close the connection without an answer."""
    turn.close()


def reset_at_once(turn: Turn) -> None:
    """Reset a new connection before anything is read from it."""
    turn.reset()


class Scripted:
    """Listens within its `with`.

    always: the step of each request, in place of a list
    tls:    of a server; the client needs its authority
    got:    the requests that were read, in order; connections: how many were accepted
    """

    def __init__(
        self,
        *steps: Step,
        always: Step | None = None,
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.got: list[Got] = []
        self.connections = 0
        self.port = port
        self._always = always
        self._steps = deque(steps)
        self._tls = tls
        self._changed = threading.Condition()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._failures: list[BaseException] = []

    @property
    def url(self) -> str:
        return f"{'http' if self._tls is None else 'https'}://127.0.0.1:{self.port}"

    def add(self, *steps: Step) -> None:
        with self._changed:
            self._steps.extend(steps)

    def received(self, count: int) -> list[Got]:
        """Wait until this many requests have arrived; return them."""
        with self._changed:
            arrived = self._changed.wait_for(lambda: len(self.got) >= count, TIMEOUT_S)
            assert arrived, f"{len(self.got)} of {count} requests have arrived"
            return self.got[:count]

    def all_closed(self) -> None:
        """Wait until no connection is open."""
        with self._changed:
            assert self._changed.wait_for(lambda: not self._open, TIMEOUT_S), "one is still open"

    def __enter__(self) -> Scripted:
        self._listening = socket.create_server(("127.0.0.1", self.port), backlog=64)
        self.port = self._listening.getsockname()[1]
        self._start(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()
        if kind is None:
            assert not self._failures, self._failures
            assert not self._steps, f"{len(self._steps)} steps were not taken"

    def _stop(self) -> None:
        with contextlib.suppress(OSError):  # wakes `accept`
            self._listening.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(TIMEOUT_S)
        self._listening.close()
        with self._changed:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(TIMEOUT_S)
            assert not thread.is_alive(), "a step does not end"

    def _start(self, run: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._changed:
                self._open.add(connection)
                number, self.connections = self.connections, self.connections + 1
            self._start(self._run, connection, number)

    def _run(self, connection: socket.socket, number: int) -> None:
        wrapped = connection
        try:
            if self._tls is not None:
                wrapped = self._tls.wrap_socket(connection, server_side=True)
                self._replace(connection, wrapped)
            with wrapped.makefile("rb") as reader:
                self._serve(wrapped, reader, number)
        except OSError:
            pass  # the client has left, or the test is over
        except BaseException as error:
            self._failures.append(error)
        finally:
            wrapped.close()
            self._replace(wrapped, None)

    def _replace(self, old: socket.socket, new: socket.socket | None) -> None:
        with self._changed:
            self._open.discard(old)
            if new is not None:
                self._open.add(new)
            self._changed.notify_all()

    def _serve(self, connection: socket.socket, reader: BufferedReader, number: int) -> None:
        turn = Turn(connection, None)
        if self._is_next(reset_at_once):
            reset_at_once(turn)
        while not turn.is_over:
            got = read_request(reader, number)
            if got is None:
                return
            with self._changed:
                self.got.append(got)
                step = self._always or (self._steps.popleft() if self._steps else None)
                self._changed.notify_all()
            assert step is not None, f"no step for {got}"
            turn = Turn(connection, got)
            step(turn)

    def _is_next(self, step: Step) -> bool:
        """Take this step, if it is the next one."""
        with self._changed:
            if not self._steps or self._steps[0] is not step:
                return False
            self._steps.popleft()
            return True


def read_request(reader: BufferedReader, connection: int) -> Got | None:
    """The next request; None: the connection ends."""
    raw = b""
    while not raw.endswith(b"\r\n\r\n"):
        line = reader.readline()
        if not line:
            return None
        raw += line
    first, *lines = raw[:-4].decode("latin-1").split("\r\n")
    method, target, version = first.split(" ")
    assert version == "HTTP/1.1", first
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    head = Got(method, target, headers, connection)
    return Got(method, target, headers, connection, _read_body(reader, head), raw)


def _read_body(reader: BufferedReader, head: Got) -> bytes:
    if not head.all("transfer-encoding"):
        (length,) = head.all("content-length") or ["0"]
        return reader.read(int(length))
    body = b""
    while size := int(reader.readline() or b"0", 16):
        body += reader.read(size)
        reader.readline()
    reader.readline()
    return body
