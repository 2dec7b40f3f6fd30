"""When failed deliveries are tried again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.webhooks.schedule import (
    EXPIRY_S,
    JITTER,
    MOST_PROBE_S,
    MOST_WAIT_S,
    SILENT_ATTEMPTS,
    SILENT_S,
    STEPS_S,
    GivenUp,
    Retry,
    after_failure,
    is_success,
    is_to_be_disabled,
    probe_after_s,
)

HOUR_S = 3600


def test_the_steps() -> None:
    """0, 5 s, 5 min, 30 min, 2, 5, 10, 14, 20 and 24 h; then it is exhausted."""
    waits = [after_failure(attempt, 0, 0.5) for attempt in range(1, len(STEPS_S))]
    assert waits == [
        *(Retry(5), Retry(300), Retry(1800), Retry(2 * HOUR_S), Retry(5 * HOUR_S)),
        *(Retry(10 * HOUR_S), Retry(14 * HOUR_S), Retry(20 * HOUR_S), Retry(24 * HOUR_S)),
    ]
    assert after_failure(len(STEPS_S), 0, 0.5) == GivenUp("exhausted")


@given(st.integers(1, len(STEPS_S) - 1), st.floats(0, 1), st.floats(0, 10 * MOST_WAIT_S))
def test_waits(attempt: int, dice: float, asked_s: float) -> None:
    """Within the jitter; Retry-After makes it longer, to a day, and never shorter."""
    plain = after_failure(attempt, 0, dice)
    assert isinstance(plain, Retry)
    step = STEPS_S[attempt]
    assert step * (1 - JITTER) <= plain.wait_s <= step * (1 + JITTER) + 1e-6
    longer = after_failure(attempt, 0, dice, retry_after_s=asked_s)
    assert isinstance(longer, Retry)
    assert longer.wait_s == max(plain.wait_s, min(asked_s, MOST_WAIT_S))


def test_expiry() -> None:
    """What could only be tried after its expiry is given up now."""
    last_s = EXPIRY_S - 5
    assert after_failure(1, last_s, 0.5) == Retry(5)
    assert after_failure(1, last_s + 1, 0.5) == GivenUp("expired")
    assert after_failure(1, last_s, 0.5, retry_after_s=6) == GivenUp("expired")


def test_gone() -> None:
    """410 ends it at once."""
    assert after_failure(1, 0, 0.5, status=410) == GivenUp("gone")
    assert after_failure(1, 0, 0.5, status=404) == Retry(5)


def test_success() -> None:
    """2xx alone: a redirect is not followed."""
    assert [status for status in (199, 200, 204, 299, 302) if is_success(status)] == [200, 204, 299]


def test_probes() -> None:
    """5 s, doubling to ten minutes, however many there were."""
    waits = [probe_after_s(openings, 0.5) for openings in (0, 1, 2, 6, 7, 10_000)]
    assert waits == [5, 10, 20, 320, MOST_PROBE_S, MOST_PROBE_S]
    assert probe_after_s(0, 0) == 4


def test_disabled() -> None:
    """Only after both: five days and ten attempts."""
    assert is_to_be_disabled(SILENT_ATTEMPTS, SILENT_S)
    assert not is_to_be_disabled(SILENT_ATTEMPTS - 1, 10 * SILENT_S)
    assert not is_to_be_disabled(1_000, SILENT_S - 1)
