"""The witness of a key: it reports wrong answers, and nothing of a correct gateway."""

from __future__ import annotations

from dataclasses import dataclass, field
from email.utils import formatdate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.domain.limits import SECOND_US, UNITS_US, Check, Decision, Limit
from gateway.domain.shown import retry_after_s, whole_seconds
from gateway.domain.window import State, decide
from loadtests.traffic.answers import Answer
from loadtests.traffic.counts import Counts
from loadtests.traffic.figures import Met
from loadtests.traffic.truth import (
    ADMISSIONS,
    FORM,
    LIMIT,
    LONG_RUN,
    PACED,
    REFUSAL,
    REMAINING,
    RESET,
    RETRY,
    STEADY,
    Broken,
    Witness,
    unchecked,
)
from tests.kit.reach import reached, reaches
from tests.kit.rows import each_row

PLAIN = Limit("search", "rate", 6, UNITS_US["minute"])
BURST = Limit("plan", "rate", 6, UNITS_US["minute"], burst=10)
QUOTA = Limit("daily", "quota", 8, UNITS_US["minute"])
AT_ONCE = Limit("open", "concurrency", 2, 6 * SECOND_US)
#: The wall clock at 0 of the monotonic clock: an hour begins.
EPOCH_S = 1_800_000_000


def met(*limits: Limit, cost: int = 1) -> Met:
    return Met(limits, frozenset(limit.amount for limit in limits), cost=cost, waits=True)


def answer(
    status: int, sent_s: float, told_s: float, *, date_s: float | None = None, **fields: object
) -> Answer:
    """An answer whose Date is its end by default; limit_x=1 is a field."""
    told_unix_s = EPOCH_S + told_s
    date = formatdate(told_unix_s if date_s is None else date_s, usegmt=True)
    named = {name.replace("_", "-"): str(value) for name, value in fields.items()}
    return Answer(status, sent_s, told_s, told_unix_s, {"date": date, **named})


def rates(limit: int, remaining: int, at_s: float, reset_after: int = 30) -> dict[str, object]:
    """The four fields, of a decision at this moment."""
    return {
        "x_ratelimit_limit": limit,
        "x_ratelimit_remaining": remaining,
        "x_ratelimit_reset": int(EPOCH_S + at_s + reset_after),
        "x_ratelimit_reset_after": reset_after,
    }


def admitted(limit: Limit, remaining: int, at_s: float, **more: object) -> Answer:
    return answer(200, at_s, at_s + 0.01, **{**rates(limit.amount, remaining, at_s), **more})


def refused(limit: Limit, at_s: float, **more: object) -> Answer:
    fields = {**rates(limit.amount, 0, at_s), "retry_after": 30, **more}
    return answer(429, at_s, at_s + 0.01, **fields)


def truths(broken: list[Broken]) -> set[str]:
    return {each.truth for each in broken}


def one_client() -> Witness:
    """A witness of a key with one client."""
    found = Witness()
    found.join()
    return found


@pytest.fixture
def witness() -> Witness:
    return one_client()


# -- a correct gateway ----------------------------------------------------------------------------


@dataclass
class Honest:
    """A gateway with the reference arithmetic, at times that the test sets."""

    limits: tuple[Limit, ...]
    cost: int = 1
    states: tuple[State | None, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.states = (None,) * len(self.limits)

    def ask(self, sent_us: int, decided_us: int, told_us: int) -> Answer:
        now_us = EPOCH_S * SECOND_US + decided_us
        check = Check(self.limits, tuple(limit.name for limit in self.limits), self.cost)
        decision, kept = decide(self.states, check, now_us)
        self.states = tuple(new or old for new, old in zip(kept, self.states, strict=True))
        limit = self.limits[decision.governing]
        fields = {
            "x_ratelimit_limit": limit.amount,
            "x_ratelimit_remaining": decision.remaining,
            "x_ratelimit_reset": whole_seconds(now_us + decision.reset_us),
            "x_ratelimit_reset_after": whole_seconds(decision.reset_us),
            **({} if decision.allowed else {"retry_after": _retry_s(decision)}),
        }
        status = 200 if decision.allowed else 429
        return answer(status, sent_us / SECOND_US, told_us / SECOND_US, **fields)


def _retry_s(decision: Decision) -> int:
    found = retry_after_s(decision)
    assert found is not None
    return found


steps = st.lists(
    st.tuples(st.integers(0, 9_000_000), st.integers(0, 3_000_000), st.integers(0, 3_000_000)),
    min_size=1,
    max_size=80,
)


@pytest.mark.parametrize(
    "limits",
    [(PLAIN,), (BURST,), (QUOTA,), (BURST, PLAIN), (PLAIN, QUOTA, BURST)],
    ids=lambda limits: "+".join(limit.name for limit in limits),
)
@reaches(0.3)
@given(steps=steps, cost=st.integers(1, 2), waits=st.booleans())
def test_no_violation_of_a_correct_gateway(
    limits: tuple[Limit, ...], steps: list[tuple[int, int, int]], cost: int, waits: bool
) -> None:
    """For any time of decision between sending and arrival, and any duration of answers.

    With waits, the client waits Retry-After after each refusal, and is then admitted.
    """
    gateway = Honest(limits, cost)
    witness = Witness()
    witness.join()
    meets = met(*limits, cost=cost)
    now_us = 0
    for pause_us, there_us, back_us in steps:
        sent_us = now_us + pause_us
        now_us = sent_us + there_us + back_us
        heard = gateway.ask(sent_us, sent_us + there_us, now_us)
        reached()
        assert witness.hear(meets, heard) == []
        if waits and heard.retry_after_s is not None:
            turn = witness.turn
            now_us += heard.retry_after_s * SECOND_US
            again = gateway.ask(now_us, now_us, now_us)
            assert witness.hear(meets, again) == []
            assert witness.hear_after_wait(again, heard.retry_after_s, turn) == []


@reaches(0.3)
@example(steps=[(0, 0, 1), (0, 0, 0)])  # the second answer comes as the first request is sent
@given(steps=steps)
def test_no_violations_for_clients_that_share_a_key(
    steps: list[tuple[int, int, int]],
) -> None:
    """Their answers overlap: each is checked in the order in which it arrives."""
    gateway, witness = Honest((BURST, PLAIN)), Witness()
    witness.join()
    witness.join()
    at_us, answers = 0, []
    for pause_us, there_us, back_us in steps:
        # Decided in this order, but sent and answered in any.
        at_us += pause_us // 8
        answers.append(gateway.ask(max(0, at_us - there_us), at_us, at_us + back_us))
    for each in sorted(answers, key=lambda heard: heard.told_s):
        reached()
        assert witness.hear(met(BURST, PLAIN), each) == []


@given(
    spans=st.lists(st.tuples(st.floats(0, 50), st.floats(0, 5)), max_size=40),
    from_s=st.floats(0, 60),
    length_s=st.floats(0, 59),
)
def test_what_is_counted_was_certainly_then(
    spans: list[tuple[float, float]], from_s: float, length_s: float
) -> None:
    """At most those sent and answered within the time; all, if none was answered later."""
    counts = Counts(Limit("x", "rate", 100, UNITS_US["hour"]))
    told = sorted((sent_s + took_s, sent_s) for sent_s, took_s in spans)
    for told_s, sent_s in told:
        counts.add(sent_s, told_s, EPOCH_S + told_s, 1)
    until_s = from_s + length_s
    inside = sum(sent_s >= from_s and told_s <= until_s for told_s, sent_s in told)
    found = counts.within(from_s, until_s)
    assert found <= inside
    if all(told_s <= until_s for told_s, _ in told):
        assert found == inside


def test_old_admissions_are_removed() -> None:
    """A run of hours keeps a window's admissions, not all of them."""
    counts = Counts(Limit("x", "rate", 100, SECOND_US))
    for number in range(5000):
        counts.add(number / 100, number / 100, EPOCH_S, 1)
    assert counts.in_last_window(49.99) == 100
    assert len(counts._sent_s) < 1000
    assert len(counts._told_s) < 1000


# -- a faulty gateway -----------------------------------------------------------------------------


def test_an_admission_too_many_is_seen(witness: Witness) -> None:
    """Whatever the headers report, seven in a minute are more than six."""
    heard = [witness.hear(met(PLAIN), admitted(PLAIN, 0, at_s)) for at_s in range(7)]
    assert [truths(broken) for broken in heard[:6]] == [set()] * 6
    assert heard[6] == [Broken(ADMISSIONS, "search: 7 admitted, at most 6 may be")]


def test_a_window_may_begin_anywhere(witness: Witness) -> None:
    """Three at the end of a minute and four at the next one's beginning are seven in a window."""
    for at_s in (0, 57, 58, 59):
        assert witness.hear(met(PLAIN), admitted(PLAIN, 0, at_s)) == []
    assert witness.hear(met(PLAIN), admitted(PLAIN, 0, 61)) == []
    assert witness.hear(met(PLAIN), admitted(PLAIN, 0, 62)) == []
    assert witness.hear(met(PLAIN), admitted(PLAIN, 0, 63)) == []
    assert truths(witness.hear(met(PLAIN), admitted(PLAIN, 0, 64))) == {ADMISSIONS}


def test_a_reserve_that_never_empties_is_seen(witness: Witness) -> None:
    """Ten in every minute are within a window's burst, but above the rate of six a minute."""
    heard: set[str] = set()
    for number in range(40):
        heard |= truths(witness.hear(met(BURST), admitted(BURST, 0, number * 6.2)))
    assert heard == {LONG_RUN}


def test_a_quota_is_counted_by_its_period(witness: Witness) -> None:
    """Eight in each of two periods are allowed; one near the change of periods is not counted."""
    for at_s in (*range(40, 48), 59, *range(70, 78)):
        assert witness.hear(met(QUOTA), admitted(QUOTA, 0, at_s)) == []
    assert truths(witness.hear(met(QUOTA), admitted(QUOTA, 0, 80))) == {ADMISSIONS}


@each_row(
    ("status", "fields", "truth"),
    [
        (200, {"x_ratelimit_limit": "six"}, FORM),
        (200, {"x_ratelimit_remaining": -1}, FORM),
        (200, {"x_ratelimit_reset": "1e9"}, FORM),
        (404, {"x_ratelimit_reset_after": ""}, FORM),  # an upstream's answer has them as well
        (200, {"x_ratelimit_limit": 7}, LIMIT),
        (200, {"x_ratelimit_remaining": 7}, REMAINING),
        (200, {"x_ratelimit_remaining": 6}, REMAINING),  # this request counts, too
        (200, {"x_ratelimit_reset": EPOCH_S + 35}, RESET),
        (200, {"x_ratelimit_reset_after": 62, "x_ratelimit_reset": EPOCH_S + 62}, RESET),
        (429, {"x_ratelimit_remaining": 1}, REFUSAL),
        (429, {"retry_after": 0}, REFUSAL),
        (429, {"retry_after": "Sat, 21 Nov 2026 12:31:19 GMT"}, REFUSAL),
    ],
)
def test_fields_that_are_not_true(status: int, fields: dict[str, object], truth: str) -> None:
    """Each is found in one answer, under its own name."""
    told = {**rates(6, 0 if status == 429 else 5, 0), "retry_after": 30, **fields}
    heard = answer(status, 0, 0.01, **told)
    assert truth in truths(one_client().hear(met(PLAIN), heard))


def test_remaining_is_checked_against_admissions(witness: Witness) -> None:
    """A gateway that reports 5 each time is wrong the second time."""
    assert witness.hear(met(PLAIN), admitted(PLAIN, 5, 0)) == []
    broken = witness.hear(met(PLAIN), admitted(PLAIN, 5, 1))
    assert broken == [Broken(REMAINING, "Remaining 5 where at most 4 is left")]


def test_remaining_falls_by_admissions_only(witness: Witness) -> None:
    """If it falls by two for one request, with one client on the key, that is a violation."""
    assert witness.hear(met(PLAIN), admitted(PLAIN, 5, 0)) == []
    assert truths(witness.hear(met(PLAIN), admitted(PLAIN, 3, 1))) == {STEADY}
    assert witness.hear(met(PLAIN), admitted(PLAIN, 2, 2)) == []


def test_uncertain_admissions_are_allowed_for(witness: Witness) -> None:
    """A broken connection, and a 404 that may be the upstream's, may have been admitted."""
    lost = Answer(0, 1, 2, EPOCH_S + 2, {})
    assert witness.hear(met(PLAIN), admitted(PLAIN, 5, 0)) == []
    assert witness.hear(met(PLAIN), lost) == []
    assert witness.hear(met(PLAIN), answer(404, 3, 3.1, **rates(6, 4, 3))) == []
    assert witness.hear(met(PLAIN), admitted(PLAIN, 2, 4)) == []


def test_a_refusal_with_some_left_is_seen(witness: Witness) -> None:
    """A refusal after Remaining 3 is a violation."""
    assert witness.hear(met(PLAIN), admitted(PLAIN, 3, 0)) == []
    assert truths(witness.hear(met(PLAIN), refused(PLAIN, 1))) == {STEADY}


def test_a_refusal_may_be_repeated_until_its_time_is_over(witness: Witness) -> None:
    """Another worker may not have received yet that the limit admits again."""
    assert witness.hear(met(PLAIN), refused(PLAIN, 0, retry_after=10)) == []
    assert witness.hear(met(PLAIN), admitted(PLAIN, 2, 10.5)) == []
    assert witness.hear(met(PLAIN), refused(PLAIN, 10.6)) == []


def test_a_wait_that_is_not_enough_is_seen(witness: Witness) -> None:
    """A refusal after waiting Retry-After is a violation."""
    witness.hear(met(PLAIN), refused(PLAIN, 0, retry_after=3))
    again = refused(PLAIN, 3.1)
    witness.hear(met(PLAIN), again)
    assert truths(witness.hear_after_wait(again, 3.1, witness.turn)) == {RETRY}
    assert witness.checks[RETRY] == 1


def test_no_wait_is_checked_on_a_shared_key(witness: Witness) -> None:
    """If another client came, or came and left, meanwhile, or for a 500, nothing is reported."""
    again, turn = refused(PLAIN, 3.1), witness.turn
    witness.join()
    assert witness.hear_after_wait(again, 3.1, turn) == []
    witness.leave()
    assert witness.hear_after_wait(again, 3.1, turn) == []
    assert witness.hear_after_wait(answer(500, 3, 4), 3.1, witness.turn) == []
    assert witness.checks[RETRY] == 0
    elsewhere = Witness(exclusive=False)
    elsewhere.join()
    assert not elsewhere.is_alone


@each_row(("how", "most"), [("local", 12), ("open", None)])
def test_without_its_store_a_gateway_may_admit_twice(how: str, most: int | None) -> None:
    """Its answers report the fallback. With "open", admissions are not checked."""
    witness = one_client()
    found: set[str] = set()
    for number in range(13):
        heard = admitted(PLAIN, 5, number, x_ratelimit_fallback=how)
        broken = truths(witness.hear(met(PLAIN), heard))
        assert broken == ({ADMISSIONS} if number == most else set())
        found |= broken
    assert bool(found) is (most is not None)


def test_strict_checks_resume_a_window_after_an_outage(witness: Witness) -> None:
    """Until then earlier answers are not used."""
    witness.hear(met(PLAIN), admitted(PLAIN, 5, 0, x_ratelimit_fallback="local"))
    assert witness.hear(met(PLAIN), admitted(PLAIN, 6, 1)) == []
    again = refused(PLAIN, 30)
    assert witness.hear_after_wait(again, 31, witness.turn) == []
    assert truths(witness.hear(met(PLAIN), admitted(PLAIN, 6, 62))) == {REMAINING}


def test_limits_with_equal_amounts_are_indistinguishable(witness: Witness) -> None:
    """Remaining is wrong only if it is wrong for each of them."""
    other = Limit("other", "rate", 6, UNITS_US["minute"])
    for at_s in range(3):
        witness.hear(met(PLAIN), admitted(PLAIN, 5 - at_s, at_s))
    assert witness.hear(met(PLAIN, other), admitted(PLAIN, 5, 3)) == []
    assert truths(witness.hear(met(PLAIN, other), admitted(PLAIN, 5, 4))) == {REMAINING}


def test_shared_amounts_are_not_checked(witness: Witness) -> None:
    """A limit per address may have the same amount, and others use it up."""
    shared = Met((PLAIN,), frozenset({6}), frozenset({6}))
    assert witness.hear(shared, admitted(PLAIN, 5, 0)) == []
    assert witness.hear(shared, admitted(PLAIN, 2, 1)) == []


def test_one_counter_with_other_values_elsewhere(witness: Witness) -> None:
    """Routes may set other values for one counter; how Remaining falls is then not checked."""
    wide = Limit("search", "rate", 60, UNITS_US["minute"])
    assert witness.hear(met(PLAIN), admitted(PLAIN, 5, 0)) == []
    assert witness.hear(met(wide), admitted(wide, 58, 1)) == []
    assert witness.hear(met(wide), admitted(wide, 50, 2)) == []
    assert truths(witness.hear(met(wide), admitted(wide, 59, 3))) == {REMAINING}


def test_concurrency_limits_are_not_counted(witness: Witness) -> None:
    """A concurrency limit reports requests in progress, which only the gateway knows."""
    for at_s in range(9):
        assert (
            witness.hear(
                met(AT_ONCE),
                admitted(
                    AT_ONCE,
                    1,
                    at_s,
                    x_ratelimit_reset_after=6,
                    x_ratelimit_reset=EPOCH_S + at_s + 6,
                ),
            )
            == []
        )
    assert witness.checks[ADMISSIONS] == 0


def test_a_refusal_for_other_reasons_is_no_violation(witness: Witness) -> None:
    """401 and 403 report an address's limit, or none; only the form of their fields is checked."""
    told = rates(60, 59, 0)
    assert witness.hear(met(PLAIN), answer(403, 0, 0.1, **told)) == []
    assert truths(witness.hear(met(PLAIN), answer(401, 0, 0.1))) == {FORM}


def test_without_a_date_reset_is_not_checked(witness: Witness) -> None:
    """Reset is then not checked."""
    told = {name.replace("_", "-"): str(value) for name, value in rates(6, 5, 400).items()}
    assert witness.hear(met(PLAIN), Answer(200, 0, 0.1, EPOCH_S, told)) == []
    assert witness.checks[RESET] == 0


def test_what_no_answer_has_checked_yet() -> None:
    """The first answers of any client check most; the rest needs a key of the client's own."""
    alone, shared, paced = one_client(), one_client(), one_client()
    shared.join()
    by_all = {ADMISSIONS, FORM, LIMIT, REMAINING, RESET}
    assert unchecked((), [], None) == by_all
    assert unchecked((), [shared], None) == by_all
    assert unchecked((), [alone, shared], None) == by_all | {STEADY}
    assert unchecked((), [shared, paced], paced) == by_all | {STEADY, PACED}
    shared.hear(met(PLAIN), admitted(PLAIN, 5, 0))
    assert unchecked(shared.checks, [shared, paced], paced) == {STEADY, PACED}
    for remaining in (5, 4):
        paced.hear(met(PLAIN), admitted(PLAIN, remaining, 5 - remaining))
    assert unchecked(paced.checks, [shared, paced], paced) == {PACED}
    assert unchecked({*paced.checks, PACED}, [shared, paced], paced) == set()
