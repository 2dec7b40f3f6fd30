"""Which counters a worker warns about."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.domain.identity import Identity
from gateway.domain.keys import Account
from gateway.domain.limits import Decision, Limit, Standing
from gateway.domain.warnings import LimitWarning
from gateway.observe import limit_warnings as module
from gateway.observe.limit_warnings import LimitWarnings
from tests.suites.keys import NOW, plain_key

MINUTE = 60_000_000
HOUR = 60 * MINUTE
KEY = Identity(plain_key("a" * 12), Account("acme"))
PER_HOUR = Limit("search", "rate", 10, HOUR)
DECISION = Decision(True, 0, None, NOW, ())


@pytest.fixture
def warned():
    return LimitWarnings()


def note(warned, level=80, count="count", limit=PER_HOUR, reset_us=5, **others):
    decision = others.pop("decision", DECISION)
    identity = others.pop("identity", KEY)
    warned.note(level, count, limit, Standing(0, reset_us), decision, "free", identity)


def test_the_fields_of_a_warning(warned):
    """A warning has the counter, limit, plan, key and level, and is sent once a window."""
    note(warned)
    assert list(warned.waiting) == [
        LimitWarning(
            *("count", 80, "search", "free", "a" * 12, NOW, HOUR),
            account="acme",
            per="key",
            amount=10,
            used=10,
            window_us=HOUR,
            resets_us=NOW + 5,
            window=NOW // HOUR,
        )
    ]
    assert warned.near == {"count": NOW + HOUR}
    assert warned.reached == {}


def test_windows(warned):
    """A second warning is in another window; a quota's window is its period, whoever warns."""
    note(warned)
    note(warned, decision=replace(DECISION, now_us=NOW + HOUR))
    first, second = warned.waiting
    assert first.window != second.window
    warned.waiting.clear()
    daily = Limit("daily", "quota", 10, 24 * HOUR)
    note(warned, limit=daily, reset_us=HOUR)
    note(warned, limit=daily, reset_us=HOUR - 7, decision=replace(DECISION, now_us=NOW + 7))
    assert {warning.window for warning in warned.waiting} == {NOW + HOUR}


def test_levels_are_separate(warned):
    """A warning at 80 % does not suppress the one at 100 %."""
    note(warned)
    note(warned, level=100)
    assert [warning.level for warning in warned.waiting] == [80, 100]
    assert warned.reached == {"count": NOW + HOUR}


@pytest.mark.parametrize(
    ("limit", "reset_us", "for_us"),
    [
        (PER_HOUR, 5, HOUR),
        (replace(PER_HOUR, window_us=1_000_000), 5, MINUTE),
        (Limit("daily", "quota", 10, 24 * HOUR), 3 * HOUR, 3 * HOUR),
        (Limit("daily", "quota", 10, 24 * HOUR), 5, MINUTE),
        (replace(PER_HOUR, per="account"), 5, HOUR),
    ],
)
def test_once_a_window(warned, limit, reset_us, for_us):
    """A warning repeats after the window, or a quota's period, and after a minute at least."""
    note(warned, limit=limit, reset_us=reset_us)
    (warning,) = warned.waiting
    assert warning.for_us == for_us
    assert warned.near["count"] == NOW + for_us


@pytest.mark.parametrize(
    "others",
    [
        {"identity": None},
        {"decision": replace(DECISION, local=True)},
        {"limit": replace(PER_HOUR, shadow=True)},
        {"limit": replace(PER_HOUR, kind="concurrency")},
        {"limit": replace(PER_HOUR, per="ip")},
        {"limit": replace(PER_HOUR, per="header:x-team")},
    ],
    ids=lambda others: next(iter(others)),
)
def test_no_warning(warned, others):
    """No warning without a key, for a local decision, in shadow mode, or for limits of concurrency,
    per address or per header."""
    note(warned, **others)
    assert not warned.waiting
    assert warned.near == {}


def test_room_is_bounded(warned, monkeypatch):
    """Beyond the bound warnings are dropped and not cached; the cache is bounded, too."""
    monkeypatch.setattr(module, "MOST_WAITING", 3)
    monkeypatch.setattr(module, "MOST_COUNTERS", 2)
    for at in range(5):
        note(warned, count=str(at))
    assert [warning.counter for warning in warned.waiting] == ["0", "1", "2"]
    assert set(warned.near) == {"2"}
