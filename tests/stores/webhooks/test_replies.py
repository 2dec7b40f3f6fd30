"""Replies of the scripts as values; those of another form are errors."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.domain.webhooks.deliveries import (
    ALL,
    Attempt,
    Claim,
    Claimed,
    Delivery,
    Filter,
    KeptEvent,
)
from gateway.stores.webhooks.replies import bounds_of, read_claim, read_delivery, read_event
from tests.kit.rows import each_row

CLAIMED = [b"evt:w:0", b"{}", b"int", b"body", b"2", b"17", 1, 3, b"acme"]


def test_an_event() -> None:
    read = read_event([b"evt", b"int", b"a.b", b"body", b"17", b"2"])
    assert read == KeptEvent("evt", "int", "a.b", b"body", 17, 2)
    assert read_event([b"evt", b"int", None, None, None, None]).at_us == 0


def test_a_delivery() -> None:
    log = b'[1, 2, 200, "ok"]\n[3, 4, 0, "away"]'
    read = read_delivery([b"evt:w:0", b"dead", b"gone", b"17", b"18", log])
    attempts = (Attempt(1, 2, 200, "ok"), Attempt(3, 4, 0, "away"))
    assert read == Delivery("evt:w:0", "dead", "gone", 17, 18, attempts)
    # One that waits again has not ended.
    assert read_delivery([b"evt:w:0", b"waiting", b"", b"17", b"", None]).ended_us == 0


def test_a_claim() -> None:
    claimed = Claimed("evt:w:0", "token", b"{}", "int", b"body", 2, 17, True, 3, "acme")
    assert read_claim("token", [250_000, 1, [CLAIMED], [b"w: no"]]) == Claim(
        (claimed,), 0.25, 1, ("w: no",)
    )
    assert read_claim("token", [-1, 0, [], []]) == Claim((), None, 0)


@each_row(
    "reply",
    [
        None,
        b"OK",
        [],
        [0, 0],
        [0, 0, [[]], []],
        [0, 0, [[*CLAIMED[:4], b"x", *CLAIMED[5:]]], []],
        [0, 0, [[b"\xff", *CLAIMED[1:]]], []],
        [b"0", 0, [], []],
    ],
)
def test_claims_of_another_form(reply: Any) -> None:
    with pytest.raises((ValueError, TypeError, LookupError)):
        read_claim("token", reply)


@each_row(
    ("wanted", "before_us", "bounds"),
    [
        (ALL, 0, ("-inf", "+inf")),
        (ALL, 17, ("-inf", "(17")),
        (Filter(to_us=9), 17, ("-inf", "(9")),
        (Filter("a.b", 3, 20), 17, ("3", "(17")),
        (Filter(from_us=0, to_us=0), 0, ("0", "(0")),
        (Filter(from_us=-62_135_596_800_000_000), 0, ("-62135596800000000", "+inf")),
    ],
)
def test_bounds(wanted: Filter, before_us: int, bounds: tuple[str, str]) -> None:
    """A range includes its begin, not its end; of two ends the first one is meant."""
    assert bounds_of(wanted, before_us) == bounds
