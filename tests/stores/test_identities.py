"""A worker's bounded memory of keys."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.keys import Account
from gateway.domain.ports import Absent, Identity
from gateway.stores.identities import Identities
from tests.suites.keys import plain_key


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def identity(key_id, account="acme"):
    return Identity(plain_key(key_id, account=account), Account(account))


def test_the_least_lately_used_goes_first():
    """At its bound the memory drops what nobody has asked for the longest."""
    memory = Identities(Clock(), capacity=2)
    first, second, third = identity("a"), identity("b"), identity("c")
    memory.keep(first)
    memory.keep(second)
    assert memory.find("a") is first
    memory.keep(third)
    assert memory.find("b") is None
    assert memory.find("a") is first
    assert memory.find("c") is third
    assert not second.current


def test_unknown_ids_are_forgotten_after_a_while():
    """An id that does not exist is remembered as such, for a bounded time, in bounded number."""
    clock = Clock()
    memory = Identities(clock, unknown_capacity=2, unknown_s=5.0)
    memory.keep_unknown("a")
    clock.now_s = 4.9
    assert memory.find("a") is Absent.UNKNOWN
    clock.now_s = 5.0
    assert memory.find("a") is None
    for key_id in "abc":
        memory.keep_unknown(key_id)
    assert [memory.find(key_id) for key_id in "abc"] == [None, Absent.UNKNOWN, Absent.UNKNOWN]
    memory.forget_key("b")
    assert memory.find("b") is None


def test_an_id_is_known_or_unknown():
    """What was unknown and now is known, or the other way round, is only what it was last."""
    memory = Identities(Clock())
    memory.keep_unknown("a")
    kept = identity("a")
    memory.keep(kept)
    assert memory.find("a") is kept
    memory.keep_unknown("a")
    assert memory.find("a") is Absent.UNKNOWN
    assert not kept.current
    memory.forget_all()
    assert memory.find("a") is None


steps = st.lists(
    st.tuples(
        st.sampled_from(["keep", "key", "account", "all"]),
        st.sampled_from("abcd"),
        st.sampled_from("xyz"),
    )
)


@given(steps)
def test_whatever_was_forgotten_is_not_current(steps):
    """After any changes the memory holds exactly what was kept and not changed since."""
    memory = Identities(Clock())
    kept: list[Identity] = []
    held: dict[str, Identity] = {}
    for step, key_id, account in steps:
        if step == "keep":
            held[key_id] = identity(key_id, account)
            kept.append(held[key_id])
            memory.keep(held[key_id])
        elif step == "key":
            held.pop(key_id, None)
            memory.forget_key(key_id)
        elif step == "account":
            held = {k: v for k, v in held.items() if v.account.name != account}
            memory.forget_account(account)
        else:
            held.clear()
            memory.forget_all()
        assert len(memory) == len(held)
        for each in "abcd":
            assert memory.find(each) is held.get(each)
        for entry in kept:
            assert entry.current == (held.get(entry.record.id) is entry)
