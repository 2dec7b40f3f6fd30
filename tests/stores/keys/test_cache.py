"""A worker's bounded cache of keys."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.identity import Absent, Identity
from gateway.domain.keys import Account
from gateway.stores.keys.cache import IdentityCache
from tests.kit.reach import reached, reaches
from tests.suites.keys import plain_key


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def identity(key_id, account="acme"):
    return Identity(plain_key(key_id, account=account), Account(account))


def test_the_least_recently_used_is_evicted():
    """At its bound the cache evicts the least recently used identity."""
    memory = IdentityCache(Clock(), capacity=2)
    first, second, third = identity("a"), identity("b"), identity("c")
    memory.keep(first)
    memory.keep(second)
    assert memory.find("a") is first
    memory.keep(third)
    assert memory.find("b") is None
    assert memory.find("a") is first
    assert memory.find("c") is third
    assert not second.current


def test_recently_used_identities_stay():
    """Identities used once do not evict those in use, however old these are."""
    memory = IdentityCache(Clock(), capacity=10)
    steady = [identity(f"steady{at}") for at in range(5)]
    for one in steady:
        memory.keep(one)
    for at in range(100):
        for one in steady:
            assert memory.find(one.record.id) is one
        memory.keep(identity(f"passing{at}"))
        assert len(memory) <= 10


def test_what_was_spared_once_must_be_used_again():
    """An identity that was in use is evicted after it has not been used for a round."""
    memory = IdentityCache(Clock(), capacity=3)
    once = identity("once")
    memory.keep(once)
    assert memory.find("once") is once
    seen = []
    for at in range(10):
        memory.keep(identity(f"passing{at}"))
        seen.append(once.current)
    # Spared at the first eviction, where it is the oldest; then it is the oldest again.
    assert seen == [True] * 5 + [False] * 5


def test_one_is_evicted_if_all_are_in_use():
    """The bound applies, and an eviction does not check every identity."""
    memory = IdentityCache(Clock(), capacity=300)
    for at in range(300):
        memory.keep(identity(str(at)))
        memory.find(str(at))
    memory.keep(identity("new"))
    assert len(memory) == 300
    assert memory.find("new") is not None
    assert [at for at in range(300) if memory.find(str(at)) is None] == [100]


def test_unknown_ids_expire():
    """An unknown id is cached for a bounded time, in bounded number."""
    clock = Clock()
    memory = IdentityCache(clock, unknown_capacity=2, unknown_s=5.0)
    memory.keep_unknown("a")
    clock.now_s = 4.9
    assert memory.find("a") is Absent.UNKNOWN
    clock.now_s = 5.0
    assert memory.find("a") is None
    for key_id in "abc":
        memory.keep_unknown(key_id)
    assert [memory.find(key_id) for key_id in "abc"] == [None, Absent.UNKNOWN, Absent.UNKNOWN]
    memory.invalidate_key("b")
    assert memory.find("b") is None


def test_unreadable_records_are_cached_for_a_second():
    """An unreadable record is cached for a second, unless it is changed."""
    clock = Clock()
    memory = IdentityCache(clock, unknown_capacity=2)
    kept = identity("a")
    memory.keep(kept)
    memory.keep_unreadable("a")
    assert not kept.current
    clock.now_s = 0.9
    assert memory.find("a") is Absent.UNAVAILABLE
    clock.now_s = 1.0
    assert memory.find("a") is None
    for key_id in "abc":
        memory.keep_unreadable(key_id)
    assert [memory.find(key_id) for key_id in "ab"] == [None, Absent.UNAVAILABLE]
    memory.invalidate_key("b")
    assert memory.find("b") is None
    memory.mark_stale(2.0)
    assert memory.find("c") is None


def test_an_id_is_known_or_unknown():
    """An id is known or unknown: the last result replaces the other."""
    memory = IdentityCache(Clock())
    memory.keep_unknown("a")
    kept = identity("a")
    memory.keep(kept)
    assert memory.find("a") is kept
    memory.keep_unknown("a")
    assert memory.find("a") is Absent.UNKNOWN
    assert not kept.current
    memory.clear()
    assert memory.find("a") is None


steps = st.lists(
    st.tuples(
        st.sampled_from(["keep", "key", "account", "all"]),
        st.sampled_from("abcd"),
        st.sampled_from("xyz"),
    )
)


@reaches(0.3)
@given(steps)
def test_invalidated_identities_are_not_current(steps):
    """After any changes the cache holds exactly what was added and not invalidated since."""
    memory = IdentityCache(Clock())
    kept: list[Identity] = []
    held: dict[str, Identity] = {}
    for step, key_id, account in steps:
        if step == "keep":
            held[key_id] = identity(key_id, account)
            kept.append(held[key_id])
            memory.keep(held[key_id])
        elif step == "key":
            held.pop(key_id, None)
            memory.invalidate_key(key_id)
        elif step == "account":
            held = {k: v for k, v in held.items() if v.account.name != account}
            memory.invalidate_account(account)
        else:
            held.clear()
            memory.clear()
        reached()
        assert len(memory) == len(held)
        for each in "abcd":
            assert memory.find(each) is held.get(each)
        for entry in kept:
            assert entry.current == (held.get(entry.record.id) is entry)


def test_stale_identities():
    """A stale identity is not found, but can be used until it is read again or expires."""
    clock = Clock()
    memory = IdentityCache(clock)
    first, second, third = identity("a"), identity("b"), identity("c")
    for one in (first, second, third):
        memory.keep(one)
    memory.keep_unknown("d")
    memory.mark_stale(until=10.0)
    assert [memory.find(key_id) for key_id in "abcd"] == [None] * 4
    assert not first.current
    assert [memory.stale_identity(key_id) for key_id in "abcd"] == [first, second, third, None]
    again = identity("a")
    memory.keep(again)
    assert (memory.find("a"), memory.stale_identity("a")) == (again, None)
    memory.keep_unknown("b")
    assert memory.stale_identity("b") is None
    memory.mark_stale(until=20.0)
    clock.now_s = 10.0
    assert [memory.stale_identity(key_id) for key_id in "abc"] == [again, None, None]
    memory.evict_stale()
    assert memory.stale_identity("a") is None
    assert not memory._ids_of


def test_stale_identities_are_bounded_and_evicted():
    """Stale identities have the same bound, and a change of their account evicts them."""
    memory = IdentityCache(Clock(), capacity=2)
    for key_id in "abc":
        memory.keep(identity(key_id, account=key_id))
        memory.mark_stale(until=10.0)
    assert [memory.stale_identity(key_id) is not None for key_id in "abc"] == [False, True, True]
    memory.invalidate_account("b")
    assert memory.stale_identity("b") is None
    memory.clear()
    assert memory.stale_identity("c") is None


def test_accounts_are_cached_by_their_keys():
    """An account is cached until it changes or none of its keys is cached."""
    memory = IdentityCache(Clock(), capacity=2)
    first, second = identity("a", "x"), identity("b", "x")
    memory.keep(first)
    memory.keep(second)
    assert memory.account("x") == first.account
    memory.invalidate_key("a")
    assert memory.account("x") == first.account
    memory.invalidate_key("b")
    assert memory.account("x") is None
    for forget in (
        lambda: memory.invalidate_account("x"),
        lambda: memory.mark_stale(until=10.0),
        memory.clear,
        lambda: [memory.keep(identity(key_id, "y")) for key_id in "cd"],
    ):
        memory.keep(identity("a", "x"))
        forget()
        assert memory.account("x") is None
    assert memory.account("y") is not None
