"""The chain of the audit log's entries."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.domain.audit import (
    NOTHING_BEFORE,
    Cut,
    Event,
    Trim,
    chained,
    cut_of,
    read_trim,
    write_trim,
)

EVENT = Event(1_800_000_000_000_000, "anna (cli)", "key.edit", "key:a", {"a": 1, "b": 2}, None)


def test_an_entry_has_the_hash_that_it_always_had():
    """A log of an earlier release still verifies: the hashed form never changes."""
    entry = chained(EVENT, 1, NOTHING_BEFORE)
    assert entry.hash == "2e78cd19dcca6f6913ddac7f1a78c4e8f9be140918ee4d7745b8822ef07c96c4"


def test_the_order_of_fields_is_no_matter():
    """An entry that is read back with its fields in another order has the same hash."""
    other = replace(EVENT, before={"b": 2, "a": 1})
    assert chained(other, 1, NOTHING_BEFORE).hash == chained(EVENT, 1, NOTHING_BEFORE).hash


@pytest.mark.parametrize(
    ("changed", "number", "previous"),
    [
        ({"at_us": EVENT.at_us + 1}, 1, NOTHING_BEFORE),
        ({"actor": "bob (cli)"}, 1, NOTHING_BEFORE),
        ({"action": "key.edi"}, 1, NOTHING_BEFORE),
        ({"subject": "key:b"}, 1, NOTHING_BEFORE),
        ({"before": {"a": 1}}, 1, NOTHING_BEFORE),
        ({"before": {"a": "1", "b": 2}}, 1, NOTHING_BEFORE),
        ({"before": None}, 1, NOTHING_BEFORE),
        ({"after": {}}, 1, NOTHING_BEFORE),
        ({"before": None, "after": EVENT.before}, 1, NOTHING_BEFORE),
        ({}, 2, NOTHING_BEFORE),
        ({}, 1, "1" * 64),
    ],
)
def test_any_difference_changes_the_hash(changed, number, previous):
    """Another event, number or predecessor gives another hash."""
    entry = chained(replace(EVENT, **changed), number, previous)
    assert entry.hash != chained(EVENT, 1, NOTHING_BEFORE).hash


# -- entries dropped for their age -----------------------------------------------------------------

DAY_US = 86_400_000_000


def entry_of(number, age_d=0.0):
    return chained(replace(EVENT, at_us=EVENT.at_us - int(age_d * DAY_US)), number, NOTHING_BEFORE)


@pytest.mark.parametrize(
    ("age_d", "first", "last", "number"),
    [
        (0, 1, 1, None),
        (10.9, 1, 1, None),
        (11.1, 1, 1, 0),
        (0, 1, 100, None),
        (0, 1, 101, 11),
        (0, 1, 1_000, 910),
        (0, 501, 600, None),
        (30, 501, 601, 511),
    ],
)
def test_when_a_cut_is_due(age_d, first, last, number):
    """Of 100 entries kept for 10 days: a cut at a tenth too many, or if some are a day too old."""
    cut = cut_of(entry_of(first, age_d), last, 10 * DAY_US, 100, EVENT.at_us)
    assert cut == (None if number is None else Cut(number, EVENT.at_us - 10 * DAY_US))


def test_what_a_cut_drops():
    """Entries up to its number, or older than its time."""
    cut = Cut(5, EVENT.at_us - 10 * DAY_US)
    assert cut.drops(entry_of(5))
    assert not cut.drops(entry_of(6, 10))
    assert cut.drops(entry_of(6, 10.1))


def test_a_trim_is_read_back():
    """A trim is read back from the event that records it."""
    for is_whole in (True, False):
        trim = Trim(7, "a" * 64, is_whole)
        assert read_trim(write_trim(trim, 5)) == trim


@pytest.mark.parametrize(
    "changed",
    [
        {"actor": "anna (cli)"},
        {"action": "key.edit"},
        {"after": None},
        {"after": {}},
        {"after": {"last": "7", "hash": "a" * 64, "whole": True}},
        {"after": {"last": 7, "hash": 7, "whole": True}},
    ],
)
def test_events_that_are_no_trim(changed):
    """Only events of the gateway with all values are read as a trim."""
    event = write_trim(Trim(7, "a" * 64, True), 5)
    assert read_trim(replace(event, **changed)) is None
