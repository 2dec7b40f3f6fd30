"""The window script for nginx decides like the gateway, so that the comparison is fair."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.domain.limits import Check, Limit
from gateway.domain.window import State, decide
from loadtests.compare.render import FOLDER
from tests.kit.redis_server import RedisServer

START_US = 1_767_225_600_000_000
WINDOW_US = 60_000_000


def script() -> str:
    """The script with the time as an argument, instead of the server's."""
    text = (FOLDER / "nginx_window.lua").read_text()
    asked = "redis.call('TIME')"
    assert text.count(asked) == 1
    return text.replace(asked, "{ARGV[4], ARGV[5]}")


def up(us: int) -> int:
    return -(-us // 1_000_000)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    amount=st.integers(1, 6),
    more=st.integers(0, 4),
    steps_us=st.lists(
        st.sampled_from([0, 1, 999_999, 1_000_000, 7_300_000, 20_000_000, 59_999_999, 61_000_000])
        | st.integers(0, 130_000_000),
        min_size=1,
        max_size=25,
    ),
)
def test_it_decides_as_the_gateway_does(
    redis_server: RedisServer, amount: int, more: int, steps_us: list[int]
) -> None:
    """Over any trace both admit the same requests, and return the same values."""
    limit = Limit("plan", "rate", amount, WINDOW_US, amount + more)
    check = Check((limit,), ("count",))
    states: tuple[State | None, ...] = (None,)
    now_us, text = START_US, script()
    with redis_server.client() as client:
        client.flushall()
        for step_us in steps_us:
            now_us += step_us
            decision, kept = decide(states, check, now_us)
            states = tuple(new or old for new, old in zip(kept, states, strict=True))
            moment = divmod(now_us, 1_000_000)
            allowed, remaining, reset_after, reset, retry = client.eval(
                text, 1, "count", amount, amount + more, WINDOW_US, *moment
            )
            assert allowed == decision.allowed
            assert remaining == decision.remaining
            assert reset_after == up(decision.reset_us)
            assert reset == up(now_us + decision.reset_us)
            if decision.retry_us is not None:
                assert retry == max(1, up(decision.retry_us))


@pytest.mark.parametrize("burst", [1, 5])
def test_its_state_expires(redis_server: RedisServer, burst: int) -> None:
    """Its state has a TTL a little longer than the window."""
    text = (FOLDER / "nginx_window.lua").read_text()
    with redis_server.client() as client:
        replies = [client.eval(text, 1, "count", 5, burst, WINDOW_US) for _ in range(burst + 1)]
        assert [reply[0] for reply in replies] == [1] * burst + [0]
        assert all(a[1] >= b[1] for a, b in pairwise(replies))
        assert 55_000 <= client.pttl("count") <= 75_000
