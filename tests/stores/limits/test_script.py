"""The format of the script's arguments and replies."""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.domain.limits import MOST_LIMITS, PERIODS_US, Check, Decision, Limit, Standing
from gateway.stores.limits.script import UnreadableReply, build_command, is_sendable, read_reply
from tests.kit.reach import mostly, reached, reaches

LIMIT = Limit("plan", "rate", 5, 60_000_000)
NOW = 1_800_000_000_000_000


def check_of(limits: int) -> Check:
    return Check((LIMIT,) * limits, ("gw:limit:{a}:x",) * limits)


def answer(limits: int, governing: int = 0, retry_us: int = -1) -> bytes:
    """An answer whose numbers count up from 100."""
    figures = range(100, 100 + 2 * limits)
    return struct.pack(f"<BBIq{2 * limits}q", retry_us < 0, governing, 5, retry_us, *figures)


def reply(*answers: bytes) -> bytes:
    return struct.pack("<qq", NOW, 7) + b"".join(answers)


@pytest.mark.parametrize("limits", [1, 2, 3, MOST_LIMITS])
def test_decisions_are_read(limits: int) -> None:
    """Each check has its numbers, in order, whatever precedes and follows it."""
    last = limits - 1
    replied = reply(answer(1), answer(limits, last, 9), answer(0), answer(limits))
    checks = [check_of(1), check_of(limits), check_of(0), check_of(limits)]
    standings = tuple(Standing(100 + 2 * at, 101 + 2 * at) for at in range(limits))
    assert read_reply(replied, checks) == (
        [
            Decision(True, 0, None, NOW, standings[:1], 5),
            Decision(False, last, 9, NOW, standings, 5),
            Decision(True, 0, None, NOW, (), 5),
            Decision(True, 0, None, NOW, standings, 5),
        ],
        7,
    )


SIZES = st.lists(st.integers(0, 3), min_size=1, max_size=9)
ANSWERS = SIZES.map(lambda sizes: (reply(*map(answer, sizes)), sizes))
#: Of other sizes, and of any governing limit.
ODD_ANSWERS = st.tuples(
    st.lists(st.builds(answer, st.integers(0, 3), st.integers(0, 4)), max_size=9).map(
        lambda answers: reply(*answers)
    ),
    SIZES,
)


@reaches(0.1)
@given(mostly(ANSWERS, st.tuples(st.binary(max_size=200), SIZES), ODD_ANSWERS))
@example((reply(answer(1)), [1, 1]))
@example((reply(answer(2)), [1]))
@example((reply(answer(2, governing=2)), [2]))
def test_any_bytes_are_an_answer_or_none(told: tuple[bytes, list[int]]) -> None:
    """A reply has a decision for each check, each about one of its limits, or cannot be read."""
    replied, sizes = told
    checks = [check_of(limits) for limits in sizes]
    try:
        decisions, _ = read_reply(replied, checks)
    except UnreadableReply:
        return
    for check, decision in zip(checks, decisions, strict=True):
        reached()
        assert len(decision.standings) == len(check.limits)
        assert not check.limits or 0 <= decision.governing < len(check.limits)


def test_what_can_be_sent() -> None:
    """A check has at most as many limits as an answer can distinguish."""
    assert is_sendable(check_of(0))
    assert is_sendable(check_of(MOST_LIMITS))
    assert not is_sendable(check_of(MOST_LIMITS + 1))


def test_costs_and_leases_are_encoded() -> None:
    """Between a check's first values and its limits are its lease and its costs, if it has them."""
    names = ("gw:limit:{a}:x", "gw:limit:{a}:y")
    plain = Check((LIMIT, LIMIT), names, 3)
    costly = Check((LIMIT, LIMIT), names, 3, costs=(3, 0))
    limits = struct.pack("<BBddddd", 0, 0, 5, 5, 1_000_000, 12_000_000, 1_000_000) * 2
    connected = costly.leased(7, 11)
    connected.holder = 13
    for check, head in [
        (plain.leased(7, 11), struct.pack("<dBddd", 3, 2 + 128, -7, 11, 0)),
        (connected, struct.pack("<dBdddII", 3, 2 + 64 + 128, -7, 11, 13, 3, 0)),
        (Check((LIMIT, LIMIT), names, 3, dry=True, lease=7), struct.pack("<dBd", -3, 130, 7)),
        (plain, struct.pack("<dB", 3, 2)),
        (plain.leased(7), struct.pack("<dBd", 3, 2 + 128, 7)),
        (costly, struct.pack("<dBII", 3, 2 + 64, 3, 0)),
        (costly.leased(7), struct.pack("<dBdII", 3, 2 + 64 + 128, 7, 3, 0)),
        (Check((LIMIT, LIMIT), names, 3, dry=True), struct.pack("<dB", -3, 2)),
    ]:
        packed = head + limits
        for _ in range(2):  # the second time from what was cached
            encoded = build_command([check], 0)
            assert encoded.endswith(b"$%d\r\n%s\r\n" % (len(packed), packed))


@pytest.mark.parametrize("costs", [(1, -1), (1, 2**32), (1,), (1, 1, 1)])
def test_costs_that_cannot_be_sent(costs: tuple[int, ...]) -> None:
    """A check has one cost for each limit, of 32 bits."""
    check = Check((LIMIT, LIMIT), ("gw:limit:{a}:x", "gw:limit:{a}:y"), 1, costs=costs)
    assert not is_sendable(check)


def test_a_quota_with_a_calendar_is_encoded_for_its_period() -> None:
    """The bounds of its periods are encoded once a period; other checks once."""
    month = Limit("m", "quota", 5, PERIODS_US["month"])
    check = Check((LIMIT, month), ("gw:limit:{a}:x", "gw:limit:{a}:m"))
    assert month.calendar is not None
    end_us = month.calendar.bounds(NOW).end
    first = build_command([check], 0, lambda: NOW)
    again = build_command([check], 0, lambda: end_us - 1)
    after = build_command([check], 0, lambda: end_us)
    assert first == again != after
    assert struct.pack("<4d", *month.calendar.bounds(end_us)) in after
    assert build_command([check], end_us, lambda: NOW).endswith(after[-60:])

    def unused() -> int:
        raise AssertionError

    assert build_command([check_of(2)], 0, unused)
