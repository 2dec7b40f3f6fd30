"""The core of the client's retries: a table of what comes and what is done, and properties."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gateway_client.retries import (
    IDEMPOTENT,
    JITTER,
    LEAST_S,
    Answer,
    Done,
    Lost,
    Rules,
    Sent,
    Wait,
    decide,
    retry_after_s,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.reach import mostly, reached, reaches

GET = Sent("GET")
POST = Sent("POST")
KEYED = Sent("POST", has_idempotency_key=True)
STREAM = Sent("PUT", is_repeatable=False)
RULES = Rules()
PATIENT = Rules(patient=True)
NEVER = Rules(attempts=0)


def limited(reset_after: int | None = 61, retry_after: int | None = 61) -> Answer:
    headers = {}
    if reset_after is not None:
        headers["x-ratelimit-reset-after"] = str(reset_after)
    if retry_after is not None:
        headers["retry-after"] = str(retry_after)
    return Answer(429, headers)


def busy(status: int = 503, **headers: str) -> Answer:
    return Answer(status, {name.replace("_", "-"): value for name, value in headers.items()})


@pytest.mark.parametrize(
    ("sent", "came", "attempt", "rules", "expected"),
    [
        # -- what is no reason to send it again
        (GET, busy(200), 0, RULES, None),
        (GET, busy(304), 0, RULES, None),
        (GET, busy(401), 0, RULES, None),
        (GET, busy(500), 0, RULES, None),
        (GET, busy(501), 0, RULES, None),
        # -- 429: the lesser of 2^attempt seconds and the reset, as the service's description says
        (GET, limited(), 0, RULES, 1),
        (GET, limited(), 1, RULES, 2),
        (GET, limited(), 2, RULES, 4),
        (GET, limited(), 3, RULES, None),
        (GET, limited(reset_after=3), 2, RULES, 3),
        (GET, limited(reset_after=0), 2, RULES, LEAST_S),
        (GET, limited(0, 0), 0, PATIENT, LEAST_S),
        (POST, limited(), 0, RULES, 1),
        (STREAM, limited(), 0, RULES, None),
        (GET, limited(), 0, NEVER, None),
        (GET, busy(429), 0, RULES, 1),  # of a server that tells nothing
        (GET, limited(), 5, Rules(attempts=9), 10),  # the longest delay
        (GET, limited(), 0, Rules(delay_s=0.25), 0.25),
        # -- a patient client waits as long as it is told
        (GET, limited(), 0, PATIENT, 61),
        (GET, limited(), 2, PATIENT, 61),
        (GET, limited(), 3, PATIENT, None),
        (GET, busy(429, retry_after="7"), 0, PATIENT, 7),
        (GET, busy(429), 0, PATIENT, 1),
        # -- a daily quota is not waited for; nor is what costs more than its limit
        (GET, limited(40_000, 40_000), 0, RULES, None),
        (GET, limited(40_000, 40_000), 0, PATIENT, None),
        (GET, limited(61, None), 0, RULES, None),
        (GET, limited(61, None), 0, PATIENT, None),
        # -- unavailable: only what may run twice
        (GET, busy(502), 0, RULES, 1),
        (GET, busy(503), 1, RULES, 2),
        (GET, busy(504), 2, RULES, 4),
        (GET, busy(504), 3, RULES, None),
        (POST, busy(502), 0, RULES, None),
        (POST, busy(503, retry_after="1"), 0, RULES, None),
        (KEYED, busy(503), 0, RULES, 1),
        (Sent("DELETE"), busy(503), 0, RULES, 1),
        (Sent("PATCH"), busy(503), 0, RULES, None),
        (STREAM, busy(503), 0, RULES, None),
        (GET, busy(503, retry_after="30"), 0, RULES, 30),
        (GET, busy(503, retry_after="0"), 1, RULES, 2),
        (GET, busy(503, retry_after="121"), 0, RULES, None),
        (GET, busy(503, retry_after="soon"), 0, RULES, 1),
        # -- no answer
        (GET, Lost(was_sent=True), 0, RULES, 1),
        (POST, Lost(was_sent=True), 0, RULES, None),
        (KEYED, Lost(was_sent=True), 0, RULES, 1),
        (POST, Lost(was_sent=False), 0, RULES, 1),
        (STREAM, Lost(was_sent=False), 0, RULES, None),
        (GET, Lost(was_sent=False), 3, RULES, None),
    ],
)
def test_decisions(
    sent: Sent, came: Answer | Lost, attempt: int, rules: Rules, expected: float | None
) -> None:
    """Seconds until it is sent again; None: it is not."""
    found = decide(sent, came, attempt, rules, random=0.0)
    assert (found.seconds if isinstance(found, Wait) else None) == expected


@pytest.mark.parametrize(("random", "expected"), [(0.0, 8.0), (0.5, 9.0), (1.0, 10.0)])
@pytest.mark.parametrize(
    ("came", "rules"),
    [
        (busy(503, retry_after="8"), RULES),
        (limited(8, 8), PATIENT),
        (limited(8, 8), Rules(delay_s=9.0)),
        (Lost(was_sent=False), Rules(delay_s=8.0)),
    ],
)
def test_jitter(came: Answer | Lost, rules: Rules, random: float, expected: float) -> None:
    """Any wait is longer at random, by up to a quarter: clients do not come back together."""
    assert decide(GET, came, 0, rules, random=random) == Wait(expected)


@pytest.mark.parametrize(
    ("came", "why"),
    [
        (busy(200), ""),
        (busy(404), "404 is final"),
        (limited(61, None), "no wait helps: the answer has no Retry-After"),
        (limited(9999, 9999), "the wait would be 9999 s, longer than 120 s"),
    ],
)
def test_reasons(came: Answer, why: str) -> None:
    """Why it is not sent again, for the error and the log."""
    assert decide(GET, came, 0, RULES, random=0.0) == Done(why)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "61"}, 61),
        ({"retry-after": " 61 "}, 61),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "1.5"}, None),
        ({"retry-after": "٣"}, None),
        ({"retry-after": "9" * 400}, None),
        ({"retry-after": "Wed, 25 Nov 2026 10:00:30 GMT"}, None),
        (
            {
                "retry-after": "Wed, 25 Nov 2026 10:00:30 GMT",
                "date": "Wed, 25 Nov 2026 10:00:00 GMT",
            },
            30,
        ),
        (
            {
                "retry-after": "Wed, 25 Nov 2026 09:00:00 GMT",
                "date": "Wed, 25 Nov 2026 10:00:00 GMT",
            },
            0,
        ),
        (  # no date of HTTP is as long
            {
                "retry-after": "Wed, 25 Nov 2026 10:00:30 GMT" + " " * 100,
                "date": "Wed, 25 Nov 2026 10:00:00 GMT",
            },
            None,
        ),
        (  # UTC, as GMT is, but its zone is not known
            {
                "retry-after": "Wed, 25 Nov 2026 10:00:30 -0000",
                "date": "Wed, 25 Nov 2026 10:00:00 GMT",
            },
            30,
        ),
    ],
)
def test_retry_after(headers: dict[str, str], expected: float | None) -> None:
    """Seconds, or a date compared with the answer's own; what is neither is ignored."""
    assert retry_after_s(headers) == expected


dates = st.builds(
    "Wed, 25 Nov 2026 10:{:02}:00 {}".format,
    st.integers(0, 59),
    st.sampled_from(["GMT", "-0000", "+0100"]),
)
headers = st.dictionaries(
    st.sampled_from(["retry-after", "x-ratelimit-reset-after", "date"]),
    st.one_of(
        *(st.integers(0, 300).map(str), st.integers(0, 10_000).map(str)),
        *(dates, st.text(max_size=40)),
    ),
)
rules = st.builds(
    Rules,
    attempts=st.integers(0, 8),
    delay_s=st.floats(0, 100),
    max_delay_s=st.floats(0, 1000),
    patient=st.booleans(),
    patience_s=st.floats(0.1, 1000),
)
requests = st.builds(
    Sent,
    method=st.sampled_from([*sorted(IDEMPOTENT), "POST", "PATCH"]),
    has_idempotency_key=st.booleans(),
    is_repeatable=st.booleans(),
)
lost = st.builds(Lost, was_sent=st.booleans())
came = st.one_of(st.builds(Answer, st.integers(100, 599), headers), lost)
#: Requests of which most may be sent again, what is a reason for it, and rules that allow it.
SAFE = st.builds(
    Sent,
    st.sampled_from(sorted(IDEMPOTENT)),
    is_repeatable=st.sampled_from([True, True, True, False]),
)
REASONS = st.builds(Answer, st.sampled_from([429, 502, 503, 504]), headers) | lost
LENIENT = st.builds(
    Rules, st.integers(3, 8), st.floats(0, 100), st.floats(0, 60), patient=st.booleans()
)


@reaches(0.04)
@given(
    mostly(
        st.tuples(SAFE, REASONS, st.integers(0, 2), LENIENT),
        st.tuples(requests, came, st.integers(0, 20), rules),
    ),
    st.floats(0, 1),
)
def test_properties(case: tuple[Sent, Answer | Lost, int, Rules], random: float) -> None:
    """Never more than the attempts, a longer wait than may be, or a body twice that may not be."""
    sent, came, attempt, rules = case
    found = decide(sent, came, attempt, rules, random=random)
    if isinstance(found, Done):
        return
    reached()
    assert attempt < rules.attempts
    assert sent.is_repeatable
    was_executed = came.was_sent if isinstance(came, Lost) else came.status != 429
    assert sent.may_run_twice or not was_executed
    assert min(LEAST_S, rules.delay_s) <= found.seconds
    assert found.seconds <= max(LEAST_S, rules.patience_s) * (1 + JITTER)


@reaches(0.1)
@given(
    st.sampled_from([429, 502, 503, 504]),
    st.integers(0, 300),
    rules.map(lambda one: replace(one, attempts=3, patience_s=300)),
    st.integers(0, 2) | st.integers(0, 4),
    st.floats(0, 1),
)
def test_no_wait_is_shorter_than_asked(
    status: int, asked_s: int, rules: Rules, attempt: int, random: float
) -> None:
    """Retry-After is waited for; after a 429 by a patient client only."""
    rules = replace(rules, patient=status == 429 or rules.patient)
    found = decide(GET, busy(status, retry_after=str(asked_s)), attempt, rules, random=random)
    if isinstance(found, Wait):
        reached()
        assert found.seconds >= asked_s


@reaches(0.05)
@given(mostly(SAFE, requests), st.lists(REASONS, min_size=10, max_size=10), mostly(LENIENT, rules))
def test_it_ends(sent: Sent, answers: list[Answer | Lost], rules: Rules) -> None:
    """Whatever comes, a request is sent at most once more than there are attempts."""
    sends = 0
    for attempt, each in enumerate(answers):
        sends += 1
        if isinstance(decide(sent, each, attempt, rules, random=0.5), Done):
            break
    if sends > 1:
        reached()
    assert sends <= rules.attempts + 1
