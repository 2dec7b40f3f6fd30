"""`Client`, and what `AsyncClient` has in common with it: answers, retries, and what is sent again.

Tests with `open_shell` run for both clients. The others are of threads.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from gateway_client import (
    ApiError,
    Client,
    ConnectionFailed,
    NotFound,
    RateLimited,
    ServerError,
    SettingsInvalid,
    UnexpectedAnswer,
)

from gateway.domain.limits import Check, Limit
from gateway.limiting.memory import MemoryLimiter
from tests.client.scripted import (
    TIMEOUT_S,
    Gate,
    Scripted,
    Step,
    Turn,
    answer,
    closed,
    half,
    held,
    limited,
    limits,
    lost,
    refused,
    reset_at_once,
    response,
    send,
    slow,
    told,
    too_costly,
)
from tests.client.shells import KEY, Clock, Open
from tests.kit.ports import free_port

OK = answer(200, {"done": True})
BUSY = refused(503, "UPSTREAM_BUSY")
ONCE = {"Idempotency-Key": "order-7"}
SECOND_US = 1_000_000


# -- what is sent, and what comes back -------------------------------------------------------------


def test_a_request(open_shell: Open) -> None:
    """The key, who asks, and what the arguments say; the whole answer is returned."""
    with Scripted(answer(201, {"id": 7}, x_request_id="ca63-1")) as server:
        shell = open_shell(server)
        found = shell.request(
            "post", "/v1/tickets?page=2", json={"a": "é"}, headers={"X-Team": "blue"}
        )
        (got,) = server.got
    assert (found.status_code, found.json()) == (201, {"id": 7})
    assert (got.method, got.target, got.json()) == ("POST", "/v1/tickets?page=2", {"a": "é"})
    assert got.all("authorization") == [f"Bearer {KEY}"]
    assert got.all("accept") == ["application/json"]
    assert got.all("user-agent") == ["rate-limiting-gateway-client/0.1.0"]
    assert got.all("content-type") == ["application/json"]
    assert got.all("x-team") == ["blue"]
    assert got.all("apikey") == []


def test_a_base_with_a_path(open_shell: Open) -> None:
    """The path of a request is joined to it, and `params` are its query."""
    with Scripted(OK) as server:
        open_shell(f"{server.url}/base/").request("GET", "/v1/tickets", params={"page": "2"})
        assert server.got[0].target == "/base/v1/tickets?page=2"


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("health", "/v1/health", {"status": "ok", "timestamp": "…", "version": "1"}),
        ("verify", "/v1/auth/verify", {"key": {"plan": "free"}}),
        ("connectors", "/v1/connectors", [{"id": "con_1"}]),
    ],
)
def test_named_requests(open_shell: Open, method: str, target: str, body: object) -> None:
    """A GET, whose JSON is returned."""
    with Scripted(answer(200, body)) as server:
        assert open_shell(server).call(method) == body
        assert (server.got[0].method, server.got[0].target) == ("GET", target)


@pytest.mark.parametrize("method", ["health", "verify", "connectors"])
@pytest.mark.parametrize(
    ("step", "words"),
    [
        (answer(200, b"<h1>Welcome</h1>"), "found a body that is not JSON"),
        (answer(204), "found a body that is not JSON"),
        (
            answer(200, b"[" * 100_000),
            "found 101 levels of arrays and objects at byte 101",
        ),
        (answer(302, location="/login"), "found 302, expected 2xx; redirects are not followed"),
    ],
)
def test_what_is_not_json(open_shell: Open, method: str, step: Step, words: str) -> None:
    """Another answer than was asked for is an error with its status."""
    with Scripted(step) as server, pytest.raises(UnexpectedAnswer, match=words) as raised:
        open_shell(server).call(method)
    assert raised.value.status in (200, 204, 302)


def test_a_list_is_no_object(open_shell: Open) -> None:
    """What has to be an object is one."""
    words = "is a list, not an object"
    step = answer(200, [], x_request_id="ca63-9")
    with Scripted(step) as server, pytest.raises(UnexpectedAnswer, match=words) as raised:
        open_shell(server).call("verify")
    assert raised.value.request_id == "ca63-9"


def test_slow_bytes(open_shell: Open) -> None:
    """An answer may come byte by byte."""
    body = b'{"status": "ok"}'
    with Scripted(slow(response(200, body, x_request_id="ca63-1"))) as server:
        assert open_shell(server).request("GET", "/v1/health").content == body


def test_connections_are_kept_and_closed(open_shell: Open) -> None:
    """Requests use one connection, which `close` ends."""
    with Scripted(OK, OK, OK) as server:
        shell = open_shell(server)
        for _ in range(3):
            shell.request("GET", "/v1/a")
        assert server.connections == 1
        shell.call("close")
        server.all_closed()


def test_a_connection_that_the_server_has_closed(open_shell: Open) -> None:
    """After an answer: the next request, also a POST, has a new one, and nothing is lost."""

    def ends(turn: Turn) -> None:
        OK(turn)
        turn.close()

    with Scripted(ends, OK) as server:
        shell = open_shell(server)
        shell.request("GET", "/v1/a")
        server.all_closed()
        shell.request("POST", "/v1/a")
        assert [got.connection for got in server.got] == [0, 1]


def test_two_clients(open_shell: Open) -> None:
    """Each has its own key and its own limits, at the same time."""
    gate = Gate()
    one = answer(200, {}, limits(60, 59, 61))
    two = answer(200, {}, limits(600, 599, 61))
    with Scripted(held(gate, one)) as first, Scripted(two) as second:
        shells = open_shell(first), open_shell(second, api_key="another-key")
        with ThreadPoolExecutor(1) as pool:
            waits = pool.submit(shells[0].request, "GET", "/v1/a")
            gate.reached()
            shells[1].request("GET", "/v1/a")
            gate.open()
            waits.result(TIMEOUT_S)
        keys = [server.got[0].all("authorization") for server in (first, second)]
    assert keys == [[f"Bearer {KEY}"], ["Bearer another-key"]]
    assert [shell.limits.limit for shell in shells if shell.limits] == [60, 600]


def test_a_key_of_another_environment(open_shell: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused before anything is sent."""
    monkeypatch.setenv("SERVICE_ENVIRONMENT", "development")
    with Scripted() as server, pytest.raises(SettingsInvalid, match="environment 'production'"):
        open_shell(server)
    assert server.connections == 0


# -- what is sent again, and when ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "waits"),
    [
        # -- 429: the lesser of 2^attempt seconds and the reset
        ([limited(), OK], [1]),
        ([limited(), limited(), limited(), OK], [1, 2, 4]),
        ([limited(wait_s=3), limited(wait_s=3), limited(wait_s=3), OK], [1, 2, 3]),
        ([limited(wait_s=0), OK], [0.1]),
        ([answer(429), OK], [1]),
        # -- unavailable
        ([BUSY, answer(502), answer(504), OK], [1, 2, 4]),
        ([answer(503, retry_after="7"), OK], [7]),
        ([answer(503, retry_after="0"), OK], [1]),
        # -- lost, before and after the request, and within the answer
        ([lost, OK], [1]),
        ([closed, OK], [1]),
        ([reset_at_once, OK], [1]),
        ([half(), OK], [1]),
        ([half(lacks=40), OK], [1]),
        ([send(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), OK], [1]),
        ([lost, BUSY, limited(), OK], [1, 2, 4]),
    ],
)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_it_is_sent_again(
    open_shell: Open, clock: Clock, method: str, steps: list[Step], waits: list[float]
) -> None:
    """What may run twice, and is answered in the end."""
    with Scripted(*steps) as server:
        assert open_shell(server).request(method, "/v1/a").json() == {"done": True}
    assert clock.waits == waits


@pytest.mark.parametrize(
    ("steps", "waits", "expected", "words"),
    [
        ([limited()] * 4, [1, 2, 4], RateLimited, "Rate limit exceeded. (sent 4 times)"),
        ([BUSY] * 4, [1, 2, 4], ServerError, "No. (sent 4 times)"),
        ([lost] * 4, [1, 2, 4], ConnectionFailed, "(sent 4 times)"),
        ([BUSY, lost, BUSY, refused(404, "NOT_FOUND")], [1, 2, 4], NotFound, "No."),
        ([refused(500, "INTERNAL_ERROR")], [], ServerError, "No."),
        # -- a daily quota, and what waiting does not help against
        ([limited(40_000)], [], RateLimited, "(the wait would be 40000 s, longer than 120 s)"),
        ([too_costly()], [], RateLimited, "(no wait helps: the answer has no Retry-After)"),
        ([answer(503, retry_after="121")], [], ServerError, "longer than 120 s"),
    ],
)
def test_it_fails(
    open_shell: Open,
    clock: Clock,
    steps: list[Step],
    waits: list[float],
    expected: type[Exception],
    words: str,
) -> None:
    """With the last answer's error, which says why it was not sent again."""
    with Scripted(*steps) as server, pytest.raises(expected) as raised:
        open_shell(server).request("GET", "/v1/a")
    assert words in str(raised.value)
    assert clock.waits == waits


def test_a_patient_client(open_shell: Open, clock: Clock) -> None:
    """It waits as long as a 429 says, and no longer than its patience."""
    with Scripted(limited(61), limited(59), OK) as server:
        open_shell(server, patient=True).request("POST", "/v1/a")
    with Scripted(limited(61)) as server, pytest.raises(RateLimited):
        open_shell(server, patient=True, patience_s=60).request("GET", "/v1/a")
    assert clock.waits == [61, 59]


def test_settings_of_retries(open_shell: Open, clock: Clock) -> None:
    """How often, the first wait, and the longest."""
    with Scripted(*[BUSY] * 5, OK) as server:
        shell = open_shell(server, retries=5, retry_delay_ms=1, max_retry_delay_ms=3)
        shell.request("GET", "/v1/a")
    with Scripted(BUSY) as server, pytest.raises(ServerError):
        open_shell(server, retries=0).request("GET", "/v1/a")
    assert clock.waits == [0.001, 0.002, 0.003, 0.003, 0.003]


@pytest.mark.parametrize("method", ["POST", "PATCH"])
@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (lost, ConnectionFailed),
        (closed, ConnectionFailed),
        (half(), ConnectionFailed),
        (BUSY, ServerError),
        (answer(502), ServerError),
        (answer(504, retry_after="1"), ServerError),
    ],
)
def test_what_may_not_run_twice(
    open_shell: Open, clock: Clock, method: str, step: Step, expected: type[Exception]
) -> None:
    """It is sent once where the server may have executed it; with Idempotency-Key again."""
    with Scripted(step) as server, pytest.raises(expected, match="may have been executed"):
        open_shell(server).request(method, "/v1/a", json={})
    assert clock.waits == []
    with Scripted(step, OK) as server:
        open_shell(server).request(method, "/v1/a", json={}, headers=ONCE)
        assert {tuple(got.all("idempotency-key")) for got in server.got} == {("order-7",)}
    assert clock.waits == [1]


def test_a_connection_that_is_reset_at_once(open_shell: Open, clock: Clock) -> None:
    """Whether it was made before the reset depends on the moment; a POST arrives once at most."""
    with Scripted(reset_at_once, always=OK) as server:
        was_lost = False
        try:
            open_shell(server).request("POST", "/v1/a", json={})
        except ConnectionFailed:
            was_lost = True
        assert len(server.got) == (0 if was_lost else 1)
        assert len(clock.waits) == len(server.got)


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH"])
def test_nobody_listens(open_shell: Open, clock: Clock, method: str) -> None:
    """A connection that is refused is tried again for any method, as nothing was executed."""
    port = free_port()
    with pytest.raises(ConnectionFailed, match="ConnectError") as raised:
        open_shell(f"http://127.0.0.1:{port}").request(method, "/v1/a", json={})
    assert "(sent 4 times)" in str(raised.value)
    assert clock.waits == [1, 2, 4]


def test_the_server_is_started_meanwhile(open_shell: Open, clock: Clock) -> None:
    """A request that finds nobody is answered once there is somebody."""
    server = Scripted(OK, port=free_port())

    def start() -> None:
        if len(clock.waits) == 2:
            server.__enter__()

    clock.on_wait = start
    open_shell(server).request("POST", "/v1/a", json={"n": 1})
    server.__exit__(None, None, None)
    assert (clock.waits, server.got[0].json()) == ([1, 2], {"n": 1})


@pytest.mark.parametrize(
    "body",
    [
        {"json": {"ids": ["a", "é"], "n": 1.5}},
        {"content": b"\x00\xff" * 1000},
        {"content": "text"},
        {"data": {"name": "a&b"}},
        {},
    ],
)
def test_the_same_is_sent_again(open_shell: Open, clock: Clock, body: dict[str, Any]) -> None:
    """Every attempt has the same bytes: the head and the body."""
    with Scripted(limited(), lost, BUSY, OK) as server:
        open_shell(server).request("PUT", "/v1/a", headers={"X-Team": "blue"}, **body)
        raws = {(got.raw, got.body) for got in server.got}
    assert len(server.got) == 4
    assert len(raws) == 1


@pytest.mark.parametrize("step", [limited(), BUSY, lost])
@pytest.mark.parametrize("kind", ["stream", "files"])
def test_a_body_that_can_be_read_once(
    open_shell: Open, clock: Clock, step: Step, kind: str
) -> None:
    """It is never sent twice, and the error says so."""
    with Scripted(step) as server:
        shell = open_shell(server)
        body: dict[str, Any] = {"content": shell.stream([b"one ", b"two"])}
        if kind == "files":
            body = {"files": {"file": b"one two"}}
        with pytest.raises((ApiError, ConnectionFailed), match="its body cannot be sent again"):
            shell.request("PUT", "/v1/a", **body)
        assert b"one two" in server.got[0].body
    assert clock.waits == []


def test_a_body_that_can_be_read_once_is_answered(open_shell: Open) -> None:
    """Where there is no reason to send it again."""
    with Scripted(OK) as server:
        shell = open_shell(server)
        shell.request("POST", "/v1/a", content=shell.stream([b"one ", b"two"]))
        assert server.got[0].body == b"one two"


@pytest.mark.parametrize(("method", "attempts"), [("GET", 2), ("POST", 1)])
def test_silence(open_shell: Open, clock: Clock, method: str, attempts: int) -> None:
    """An answer that does not come in time is a lost one."""
    gate = Gate()
    with Scripted(*[held(gate, OK)] * attempts) as server:
        shell = open_shell(server, retries=1, http={"timeout": httpx.Timeout(TIMEOUT_S, read=0.05)})
        with pytest.raises(ConnectionFailed, match="ReadTimeout"):
            shell.request(method, "/v1/a")
        server.received(attempts)
        gate.open()
    assert len(server.got) == attempts


def test_what_is_no_method(open_shell: Open, clock: Clock) -> None:
    """It is said before anything is sent."""
    with Scripted() as server, pytest.raises(ValueError, match="found 'GE T', expected one such"):
        open_shell(server).request("GE T", "/v1/a")
    assert clock.waits == []


def test_a_body_that_fails(open_shell: Open) -> None:
    """What its source raises is raised, as is a wrong length; other requests go on."""
    headers = {"Content-Length": "9"}
    with Scripted(always=OK) as server:
        shell = open_shell(server, pace=True)
        for body, words in (([b"a", ZeroDivisionError("bad")], "bad"), ([b"a"], "Too little data")):
            with pytest.raises(Exception, match=words):
                shell.request("PUT", "/v1/a", headers=headers, content=shell.stream(body))
            assert shell.request("GET", "/v1/b").status_code == 200


# -- threads ---------------------------------------------------------------------------------------


def open_client(server: Scripted, **arguments: Any) -> Client:
    return Client(api_key=KEY, base_url=server.url, **arguments)


class Limiter:
    """The gateway's own limiter, as a step. refused: how many requests got a 429"""

    def __init__(self, amount: int) -> None:
        self._limits = (Limit("plan", "rate", amount, SECOND_US),)
        self._limiter = MemoryLimiter(lambda: time.monotonic_ns() // 1000)
        self._lock = threading.Lock()
        self.admitted = 0
        self.refused = 0

    def __call__(self, turn: Turn) -> None:
        with self._lock:
            found = self._limiter.decide_now(Check(self._limits, ("plan",)))
            self.admitted += found.allowed
            self.refused += not found.allowed
        after_s = math.ceil(found.reset_us / SECOND_US)
        told = limits(self._limits[0].amount, found.remaining, after_s)
        (answer(200, {}, told) if found.allowed else answer(429, {}, told, retry_after="1"))(turn)


def test_threads_share_a_pace() -> None:
    """Four threads on one client send more than its limit, and nothing is refused."""
    limiter = Limiter(20)
    with (
        Scripted(always=limiter) as server,
        open_client(server, pace=True) as client,
        ThreadPoolExecutor(4) as pool,
    ):
        found = pool.map(lambda n: client.request("GET", f"/v1/{n % 2}/x"), range(30))
        assert {each.status_code for each in found} == {200}
    assert (limiter.admitted, limiter.refused) == (30, 0)


def test_threads_share_a_client_without_a_pace() -> None:
    """Each gets its own answer."""

    def echo(turn: Turn) -> None:
        answer(200, turn.got.target)(turn)

    paths = [f"/v1/{number}" for number in range(40)]
    with (
        Scripted(always=echo) as server,
        open_client(server) as client,
        ThreadPoolExecutor(4) as pool,
    ):
        found = [pool.submit(client.request, "GET", path) for path in paths]
        assert [each.result(TIMEOUT_S).json() for each in found] == paths


def test_others_wait_for_the_first_answer() -> None:
    """Nothing is known of the limit before, so a second thread sends when it is there."""
    gate = Gate()
    was_open: list[bool] = []
    first, second = (answer(200, {}, limits(60, left, 61)) for left in (59, 58))
    second = told(lambda: was_open.append(gate.is_open), second)
    with (
        Scripted(held(gate, first), second) as server,
        open_client(server, pace=True) as client,
        ThreadPoolExecutor(2) as pool,
    ):
        one = pool.submit(client.request, "GET", "/v1/a")
        gate.reached()
        two = pool.submit(client.request, "GET", "/v1/b")
        gate.open()
        assert [each.result(TIMEOUT_S).status_code for each in (one, two)] == [200, 200]
    assert was_open == [True]


class Interrupted(httpx.HTTPTransport):
    """Ctrl-C, once the request was sent."""

    interrupts = True

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        found = super().handle_request(request)
        if self.interrupts:
            self.interrupts = False
            found.read()
            found.close()
            raise KeyboardInterrupt
        return found


def test_an_interrupt_leaves_the_client_usable() -> None:
    """Ctrl-C in the middle of a request: the pace goes on, for this and for other threads."""
    step = answer(200, {}, limits(60, 59, 61))
    with (
        Scripted(step, step, step) as server,
        open_client(server, pace=True, http={"transport": Interrupted()}) as client,
    ):
        with pytest.raises(KeyboardInterrupt):
            client.request("GET", "/v1/a")
        assert client.limits is None
        client.request("GET", "/v1/a")
        with ThreadPoolExecutor(1) as pool:
            pool.submit(client.request, "GET", "/v1/a").result(TIMEOUT_S)


def test_an_interrupt_of_a_wait(clock: Clock) -> None:
    """Ctrl-C while it waits to send again: it ends, and the next request is sent."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    clock.on_wait = interrupt
    with Scripted(BUSY, OK) as server, open_client(server, pace=True) as client:
        with pytest.raises(KeyboardInterrupt):
            client.request("GET", "/v1/a")
        client.request("GET", "/v1/a")


def test_cookies_are_not_kept(open_shell: Open) -> None:
    """Nothing of one answer is sent with the next request."""
    cookie = answer(200, {}, {"Set-Cookie": "a=1; Path=/"})
    with Scripted(cookie, cookie) as server:
        shell = open_shell(server)
        for _ in range(2):
            shell.request("GET", "/v1/a")
        assert server.got[1].all("cookie") == []


def test_after_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process has connections of its own: else it would read the answers of this one."""
    with Scripted(OK, OK, OK) as server, open_client(server) as client:
        for _ in range(2):
            client.request("GET", "/v1/a")
        with contextlib.closing(client._http), monkeypatch.context() as patched:
            patched.setattr(os, "getpid", lambda: -1)
            client.request("GET", "/v1/a")
        assert [each.connection for each in server.got] == [0, 0, 1]


def test_an_answer_that_is_too_long(open_shell: Open) -> None:
    """It is not read to its end, and the client goes on."""
    with Scripted(answer(200, b"x" * 1001), OK) as server:
        shell = open_shell(server, max_answer_bytes=1000)
        with pytest.raises(UnexpectedAnswer, match="more than 1000 bytes"):
            shell.request("GET", "/v1/a")
        assert shell.request("GET", "/v1/a").status_code == 200
