"""Names in Redis: each has one subject, and all are in the slot of the keys."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from gateway.stores import names
from tests.kit.reach import reached, reaches

#: Every function that makes a name, and its arguments.
MADE: list[tuple[Callable[..., str], tuple[object, ...]]] = [
    (names.key_name, ("a}b{c",)),
    (names.account_name, ("}{",)),
    (names.once_name, ("{x}",)),
    (names.reset_name, ("gw:limit:{acme}:key:a:plan:rate:60000000",)),
    (names.audit_head_name, (names.AUDIT,)),
    (names.foreign_audit_name, (1, "a")),
    (names.warned_name, (80, "a")),
    (names.policy_name, ("{a}b",)),
    (names.usage_name, ("key:{x}",)),
    (names.busiest_name, ("minute", 1)),
    (names.usage_writer_name, ("a",)),
    (names.open_journals_name, (1,)),
    (names.journal_name, (1, "60:a")),
]


@reaches(0.3)
@given(st.text(), st.text())
def test_a_name_is_of_one_subject(first: str, second: str) -> None:
    """Names of keys and accounts can be read back, and two subjects never share a name."""
    for name_of, prefix in (
        (names.key_name, names.KEY_PREFIX),
        (names.account_name, names.ACCOUNT_PREFIX),
    ):
        try:
            made = [name_of(text) for text in (first, second)]
        except UnicodeEncodeError:  # not encodable
            continue
        reached()
        assert names.subject_of(made[0].encode(), prefix) == first
        assert (made[0] == made[1]) == (first == second)


@pytest.mark.parametrize(("name_of", "arguments"), MADE)
def test_a_name_is_in_the_slot_of_the_keys(
    name_of: Callable[..., str], arguments: tuple[object, ...]
) -> None:
    """Names of any subject are in one slot, as scripts may only use names of one."""
    assert key_slot(name_of(*arguments).encode()) == names.KEYS_SLOT


def test_every_name_is_held_to_the_slot() -> None:
    """Constants as well; a new function that makes a name must be in the table above."""
    made = {name for name in vars(names) if name.endswith("_name")}
    assert made == {name_of.__name__ for name_of, _ in MADE}
    constants = [value for name, value in vars(names).items() if name.isupper()]
    assert {key_slot(text.encode()) for text in constants if isinstance(text, str)} == {
        names.KEYS_SLOT
    }
