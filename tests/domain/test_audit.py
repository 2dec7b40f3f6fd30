"""The chain of the audit log's entries."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.domain.audit import NOTHING_BEFORE, Event, chained

EVENT = Event(1_800_000_000_000_000, "anna (cli)", "key.edit", "key:a", {"a": 1, "b": 2}, None)


def test_an_entry_has_the_hash_that_it_always_had():
    """A log written by an earlier release is still whole: the form that is hashed never changes."""
    entry = chained(EVENT, 1, NOTHING_BEFORE)
    assert entry.hash == "2e78cd19dcca6f6913ddac7f1a78c4e8f9be140918ee4d7745b8822ef07c96c4"


def test_the_order_of_fields_is_no_matter():
    """What is read back with its fields in another order is the same."""
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
def test_whatever_differs_shows(changed, number, previous):
    """Another event, place or predecessor is another hash."""
    entry = chained(replace(EVENT, **changed), number, previous)
    assert entry.hash != chained(EVENT, 1, NOTHING_BEFORE).hash
