"""What a client remembers: limits, their warnings, the pace; and what it logs.

Tests with `open_shell` run for both clients.
"""

from __future__ import annotations

import contextlib
import logging
import random
from typing import Any

import httpx
import pytest
from gateway_client import ApiError, ConnectionFailed, Limits, NotFound, RateLimited
from gateway_client.pacing import ASK_S, Pause, Ticket
from gateway_client.retries import Done, Wait
from gateway_client.session import Session
from gateway_client.settings import read_settings

from tests.client.scripted import (
    Scripted,
    Step,
    answer,
    limited,
    limits,
    lost,
    refused,
    too_costly,
)
from tests.client.shells import KEY, KEY_ID, SECRET, Clock, Open, Replaced

RESET = 1_795_343_894
GET = httpx.Request("GET", "https://api.example.com/v1/a?token=t")


def ok(remaining: int, limit: int = 60, reset_after: int = 61) -> Step:
    return answer(200, {}, limits(limit, remaining, reset_after))


def make_session(*, pace: bool = False, **settings: Any) -> Session:
    given = {"api_key": KEY, "base_url": "https://api.example.com", **settings}
    return Session(read_settings({}, **given), pace=pace, on_low=None)


def came(status: int = 200, headers: dict[str, str] | None = None) -> httpx.Response:
    return httpx.Response(status, headers=headers)


# -- limits ----------------------------------------------------------------------------------------


def test_limits(open_shell: Open) -> None:
    """Those of the last answer that had any, whatever its status."""
    steps = [ok(59), answer(204), refused(404, "NOT_FOUND"), limited(40_000, limit=30)]
    with Scripted(*steps) as server:
        shell = open_shell(server)
        found: list[Limits | None] = [shell.limits]
        for _ in steps:
            with contextlib.suppress(NotFound, RateLimited):
                shell.request("GET", "/v1/a")
            found.append(shell.limits)
    assert found == [None, *[Limits(60, 59, RESET, 61)] * 3, Limits(30, 0, RESET, 40_000)]


def test_limits_during_retries(open_shell: Open, clock: Clock) -> None:
    """Each attempt tells them."""
    with Scripted(limited(), ok(58)) as server:
        shell = open_shell(server)
        seen: list[Limits | None] = []
        clock.on_wait = lambda: seen.append(shell.limits)
        shell.request("GET", "/v1/a")
    assert seen == [Limits(60, 0, RESET, 61)]
    assert shell.limits == Limits(60, 58, RESET, 61)


def test_low(open_shell: Open, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """One warning a window, to the log and to the hook, when less than a tenth remains."""
    told: list[int] = []
    with Scripted(ok(6), ok(5), ok(4), ok(3), ok(2, limit=30), ok(2)) as server:
        shell = open_shell(server, on_low=lambda found: told.append(found.remaining))
        for _ in range(3):
            shell.request("GET", "/v1/a")
        assert told == [5]
        clock.now_s += 60.9
        shell.request("GET", "/v1/a")
        assert told == [5]
        shell.request("GET", "/v1/a")  # of another limit
        assert told == [5, 2]
        clock.now_s += 0.2
        shell.request("GET", "/v1/a")
        assert told == [5, 2, 2]
    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert warnings == [
        "5 of 60 requests remain; all of them are available again in 61 s",
        "2 of 30 requests remain; all of them are available again in 61 s",
        "2 of 60 requests remain; all of them are available again in 61 s",
    ]


def test_a_hook_that_fails(open_shell: Open, caplog: pytest.LogCaptureFixture) -> None:
    """The answer is not lost, nor the pace; its error is logged."""

    def fail(_limits: Limits) -> None:
        raise RuntimeError("no such pager")

    with Scripted(ok(1), ok(1)) as server:
        shell = open_shell(server, on_low=fail)
        assert [shell.request("GET", "/v1/a").status_code for _ in range(2)] == [200, 200]
    assert "on_low failed" in caplog.text
    assert "no such pager" in caplog.text


def test_a_hook_that_asks(open_shell: Open) -> None:
    """It may use the client's limits."""
    seen: list[Limits | None] = []
    with Scripted(ok(1)) as server:
        shell = open_shell(server, pace=True, on_low=lambda _: seen.append(shell.limits))
        shell.request("GET", "/v1/a")
    assert seen == [Limits(60, 1, RESET, 61)]


def test_a_429_that_no_wait_helps_against_is_not_low(
    open_shell: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """It says that 0 remain, whatever remains for requests that cost less."""
    with Scripted(too_costly()) as server, pytest.raises(RateLimited):
        open_shell(server, on_low=pytest.fail).request("GET", "/v1/a")
    assert caplog.records == []


# -- the pace --------------------------------------------------------------------------------------


def test_a_pace_that_is_too_slow(open_shell: Open, clock: Clock) -> None:
    """A wait beyond the client's patience is an error, and nothing is sent."""
    with Scripted(ok(0, reset_after=3600)) as server:
        shell = open_shell(server, pace=True)
        shell.request("GET", "/v1/a")
        with pytest.raises(RateLimited, match="not sent: the limit is used up for 300 s") as raised:
            shell.request("GET", "/v1/a")
        assert len(server.got) == 1
    error = raised.value
    assert (error.status, error.retry_after, error.limit) == (0, 300.0, 60)


def test_no_pace_by_default(open_shell: Open, clock: Clock) -> None:
    """Then the gateway decides."""
    with Scripted(ok(0, reset_after=3600), ok(59)) as server:
        shell = open_shell(server)
        for _ in range(2):
            shell.request("GET", "/v1/a")
    assert clock.waits == []


@pytest.mark.parametrize("step", [lost, answer(204), refused(404, "NOT_FOUND"), too_costly()])
def test_the_pace_goes_on(open_shell: Open, clock: Clock, step: Step) -> None:
    """Whatever comes for the first request, the next ones are sent."""
    with Scripted(step, ok(59), ok(58)) as server:
        shell = open_shell(server, pace=True, retries=0)
        with contextlib.suppress(ApiError, ConnectionFailed):
            shell.request("POST", "/v1/a")
        assert [shell.request("POST", "/v1/a").status_code for _ in range(2)] == [200, 200]


def test_without_a_pace_there_is_no_ticket() -> None:
    """And nothing to wait for."""
    assert make_session().ask(GET, 0.0) is None


def test_a_429_pauses() -> None:
    """For as long as it says."""
    session = make_session(pace=True)
    ticket = session.ask(GET, 0.0)
    assert isinstance(ticket, Ticket)
    headers = {**limits(60, 0, 40), "Retry-After": "30"}
    session.ended(ticket, came(429, headers), 1.0)
    assert session.ask(GET, 1.0) == Pause(30.0)


def test_costs_that_are_too_high_do_not_pause() -> None:
    """Requests that cost less are sent."""
    session = make_session(pace=True)
    for _ in range(2):
        ticket = session.ask(GET, 0.0)
        assert isinstance(ticket, Ticket)
        session.ended(ticket, came(429, limits(60, 0, 61)), 1.0)
    assert session.limits == Limits(60, 0, RESET, 61)


def test_a_request_that_was_cancelled() -> None:
    """Another one is sent, and there are no limits."""
    session = make_session(pace=True)
    ticket = session.ask(GET, 0.0)
    assert isinstance(ticket, Ticket)
    assert session.ask(GET, 0.0) == Pause(ASK_S)
    assert session.ended(ticket, None, 1.0) is None
    assert isinstance(session.ask(GET, 1.0), Ticket)
    assert session.limits is None


# -- decisions, and the log ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "expected", "line"),
    [
        (came(200, {"X-Request-Id": "ca63-1"}), Done(""), "GET /v1/a: 200, request ca63-1"),
        (came(404), Done("404 is final"), "GET /v1/a: 404, request unknown; 404 is final"),
        (came(503), Wait(1.0), "GET /v1/a: 503, request unknown; again in 1.0 s"),
        (httpx.ReadError("reset"), Wait(1.0), "GET /v1/a: ReadError; again in 1.0 s"),
        (
            httpx.LocalProtocolError(f"Illegal header value b'{SECRET}'"),
            Done("it is not valid HTTP, and would not be the next time"),
            "GET /v1/a: LocalProtocolError; it is not valid HTTP, and would not be the next time",
        ),
    ],
)
def test_decisions(
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
    found: httpx.Response | httpx.RequestError,
    expected: Done | Wait,
    line: str,
) -> None:
    """What is done, and a line of it at the level debug, without the query."""
    session = make_session(log_level="debug")
    assert session.decide(GET, found, 0) == expected
    assert [each.getMessage() for each in caplog.records] == [line]


def test_waits_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wait has a jitter of its own, drawn when it is decided."""
    drawn = iter((0.0, 1.0, 0.5))
    monkeypatch.setattr(
        "gateway_client.session.random", Replaced(random, random=lambda: next(drawn))
    )
    session = make_session()
    waits = [session.decide(GET, came(503), 1) for _ in range(3)]
    assert waits == [Wait(2.0), Wait(2.5), Wait(2.25)]


@pytest.mark.parametrize(
    ("key", "line"),
    [
        (KEY, f"authenticates with the key {KEY_ID} of the environment production"),
        ("another-key", "authenticates with a key of 11 characters"),
    ],
)
def test_which_key(caplog: pytest.LogCaptureFixture, key: str, line: str) -> None:
    """With `log_auth` its id is told, of a key of the gateway; else nothing is."""
    make_session(api_key=key, log_level="debug")
    assert caplog.records == []
    make_session(api_key=key, log_level="debug", log_auth=True)
    assert [each.getMessage() for each in caplog.records] == [line]


def test_the_log_does_not_have_the_key(
    open_shell: Open,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """At the level debug of all libraries, with all that can go wrong."""
    caplog.set_level(logging.DEBUG)
    steps = [
        *(ok(1), limited(), ok(0), lost, ok(0), refused(401, "INVALID_API_KEY")),
        *(answer(201, {"secret": "whsec"}), limited(40_000)),
    ]
    with Scripted(*steps) as server:
        shell = open_shell(server, log_level="debug", log_auth=True, on_low=lambda _: 1 / 0)
        for path in ("/v1/a", "/v1/b", f"/v1/c?n={1}"):
            shell.request("GET", path)
        with pytest.raises(ApiError):
            shell.request("GET", "/v1/d")
        shell.call("watch", "int_1", "https://a.example/h", ["ticket.*"])
        with pytest.raises(ApiError):
            shell.request("POST", "/v1/e", json={})
        with pytest.raises(ValueError, match="its own key"):
            shell.request("GET", "/v1/f", headers={"apiKey": KEY})
        with pytest.raises(ValueError, match="a control character"):
            shell.request("GET", "/v1/g", headers={"X-Copy": f"{KEY}\n"})
    logged = caplog.text + "".join(repr(vars(each)) for each in caplog.records)
    captured = capfd.readouterr()
    assert KEY_ID in caplog.text
    assert "httpcore" in logged
    for text in (logged, captured.out, captured.err):
        assert SECRET not in text
        assert KEY not in text
