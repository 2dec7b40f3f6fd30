"""Which server is chosen, when one is ejected, and when it is used again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.balance import Health, answer, check, choose, fail, less_busy, probe
from gateway.domain.policy import Ejection, HealthCheck

EJECTION = Ejection(failures=3, for_s=10.0)
RULE = HealthCheck("/health", rise=2, fall=3)


def picks(*numbers: int) -> Callable[[int], int]:
    """A random number generator that returns these numbers, one after the other."""
    sequence = iter(numbers)
    return lambda below: next(sequence) % below


def never(below: int) -> int:
    raise AssertionError(f"nothing random is to be asked for, and was, below {below}")


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


def test_only_one_that_is_in_good_health_is_chosen() -> None:
    """The only healthy server is chosen."""
    down = Health(passes=False)
    assert choose([down, Health(), ejected()], [0, 9, 0], 1.0, never) == 1


def test_a_server_that_is_due_gets_one_probe() -> None:
    """Once its ejection is over, it gets the next request, and the others get the following one."""
    out = ejected()
    servers = [Health(), out]
    assert choose(servers, [0, 0], 9.9, never) == 0
    assert choose(servers, [0, 0], 10.0, never) == 1
    probe(out, EJECTION, 10.0)
    assert choose(servers, [0, 0], 10.0, never) == 0


def test_the_least_bad() -> None:
    """Without a healthy one, the first to return is chosen; none that fails its health checks."""
    servers = [ejected(5.0), ejected(3.0), ejected(4.0)]
    assert choose(servers, [0, 0, 0], 6.0, never) == 1
    servers[1].passes = False
    assert choose(servers, [0, 0, 0], 6.0, never) == 2
    for health in servers:
        health.passes = False
    assert choose(servers, [0, 0, 0], 6.0, never) is None


@pytest.mark.parametrize(
    ("busy", "numbers", "chosen"),
    [
        ([3], (), 0),
        ([3, 1], (0, 0), 1),
        ([1, 3], (1, 0), 0),
        ([2, 2], (1, 0), 1),  # a tie: the first picked
        ([5, 4, 0], (0, 0), 1),  # 0 and 1 are picked: 2 is not looked at
        ([5, 4, 0], (2, 1), 2),
        ([0, 4, 5], (2, 0), 0),
    ],
)
def test_the_less_busy_of_two(busy: list[int], numbers: tuple[int, ...], chosen: int) -> None:
    """Two different ones are picked, and the less busy of them is chosen."""
    assert less_busy(busy, picks(*numbers)) == chosen


@given(
    st.lists(
        st.builds(
            Health,
            out_until=st.sampled_from([0.0, 1.0, 5.0, 9.0]),
            passes=st.booleans(),
        ),
        min_size=1,
        max_size=6,
    ),
    st.randoms(use_true_random=False),
)
def test_what_is_chosen(servers: list[Health], random: object) -> None:
    """Never one that fails its health checks; one due for a probe, else healthy, else least bad."""
    below = random.randrange  # type: ignore[attr-defined]
    chosen = choose(servers, [below(5) for _ in servers], 5.0, below)
    open_to_all = [health for health in servers if health.passes]
    if chosen is None:
        assert not open_to_all
        return
    health = servers[chosen]
    assert health.passes
    if any(0 < other.out_until <= 5.0 for other in open_to_all):
        assert 0 < health.out_until <= 5.0
    elif any(other.is_healthy for other in open_to_all):
        assert health.is_healthy
    else:
        assert health.out_until == min(other.out_until for other in open_to_all)


@given(st.lists(st.integers(0, 9), min_size=2, max_size=8), st.randoms(use_true_random=False))
def test_the_busiest_is_never_chosen(busy: list[int], random: object) -> None:
    """A server that is busier than all others loses to any other one."""
    chosen = less_busy(busy, random.randrange)  # type: ignore[attr-defined]
    assert busy.count(max(busy)) > 1 or busy[chosen] < max(busy)
