"""When a server is ejected, and when it is used again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.balance import Health, answer, check, due, fail, probe
from gateway.domain.upstreams import Ejection, HealthCheck

EJECTION = Ejection(failures=3, for_s=10.0)
RULE = HealthCheck("/health", rise=2, fall=3)


def ejected(now: float = 0.0) -> Health:
    health = Health()
    for _ in range(EJECTION.failures):
        fail(health, EJECTION, now, is_last=False)
    return health


def test_failures_in_a_row_eject_a_server() -> None:
    """The last failure of a row ejects it; a response in between restarts the count."""
    health = Health()
    for _ in range(2):
        fail(health, EJECTION, 5.0, is_last=False)
        fail(health, EJECTION, 5.0, is_last=False)
        assert health.is_healthy
        assert health.is_doubted
        answer(health)
        assert health == Health()
    for _ in range(3):
        fail(health, EJECTION, 5.0, is_last=False)
    assert not health.is_healthy
    assert health.out_until == 15.0


def test_the_last_server_stays() -> None:
    """The last healthy one is never ejected; once another is healthy, one failure ejects it."""
    health = Health()
    for _ in range(100):
        fail(health, EJECTION, 5.0, is_last=True)
    assert health.is_healthy
    fail(health, EJECTION, 5.0, is_last=False)
    assert not health.is_healthy


def test_a_probe_returns_a_server() -> None:
    """A response to a request from before the ejection does not return it; that to a probe does."""
    health = ejected()
    answer(health)
    assert not health.is_healthy
    probe(health, EJECTION, 10.0)
    assert health.out_until == 20.0
    assert health.is_doubted
    answer(health)
    assert health == Health()


def test_a_failed_probe_ejects_it_again() -> None:
    """For the same time again; a response to an older request does not return it."""
    health = ejected()
    probe(health, EJECTION, 10.0)
    fail(health, EJECTION, 12.0, is_last=True)
    assert (health.out_until, health.probing) == (22.0, False)
    answer(health)
    assert not health.is_healthy


@pytest.mark.parametrize(
    ("results", "passes"),
    [
        ("", True),
        ("--", True),
        ("--+--", True),
        ("---", False),
        ("---+", False),
        ("---+-+", False),
        ("---++", True),
        ("---++--", True),
        ("---++---", False),
    ],
)
def test_health_checks(results: str, passes: bool) -> None:
    """Only a number of equal results in a row changes its health."""
    health = Health()
    for result in results:
        check(health, RULE, result == "+")
    assert health.passes is health.is_healthy is passes


def test_a_recovered_server_has_no_failures() -> None:
    """A server that passes its health checks is healthy again, whatever its failures before."""
    health = ejected()
    for result in (False, False, False, True, True):
        check(health, RULE, result)
    assert health == Health()


def test_a_server_that_is_due_gets_one_probe() -> None:
    """Once its ejection is over, it gets the next request, and the others get the following one."""
    servers = [Health(passes=False), ejected()]
    assert due(servers, 9.9, is_only=False) is None
    assert due(servers, 10.0, is_only=False) == 1
    probe(servers[1], EJECTION, 10.0)
    assert due(servers, 10.0, is_only=False) is None


def test_the_least_bad() -> None:
    """Without a healthy one, the first to return is chosen; none that fails its health checks."""
    servers = [ejected(5.0), ejected(3.0), ejected(4.0)]
    assert due(servers, 6.0, is_only=True) == 1
    servers[1].passes = False
    assert due(servers, 6.0, is_only=True) == 2
    for health in servers:
        health.passes = False
    assert due(servers, 6.0, is_only=True) is None
    assert due([], 6.0, is_only=True) is None


@given(
    st.lists(
        st.builds(Health, out_until=st.sampled_from([0.0, 1.0, 5.0, 9.0]), passes=st.booleans()),
        max_size=6,
    ),
    st.booleans(),
)
def test_what_is_due(servers: list[Health], is_only: bool) -> None:
    """Never one that fails its health checks; one due for a probe, else the least bad, if any."""
    at = due(servers, 5.0, is_only=is_only)
    out = [health.out_until for health in servers if health.passes and health.out_until]
    if at is None:
        assert not out or not (is_only or min(out) <= 5.0)
    else:
        assert servers[at].passes
        assert servers[at].out_until == min(out)
