"""Looking up many keys at a time, with scripted replies and a clock that the test sets."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import hiredis
import pytest

from gateway.domain.identity import Absent, Identity
from gateway.domain.keys import Account
from gateway.domain.ports import StoreDown
from gateway.stores.keys import lookups
from gateway.stores.keys.cache import IdentityCache
from gateway.stores.keys.lookups import LookUps
from gateway.stores.keys.records import value_range, write_account, write_record
from gateway.stores.names import account_name, key_name
from gateway.stores.redis.connection import command
from tests.suites.keys import nth_id, plain_key

TIMEOUT_S = 0.05
#: Ids of keys.
A, B, C, D = (letter * 12 for letter in "abcd")


class Clock:
    """The part of an event loop that look-ups use. The test sets its time."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.reports: list[dict[str, object]] = []
        self._timers: list[Clock.Timer] = []

    class Timer:
        def __init__(self, at_s: float, call: Callable[[], None]) -> None:
            self.at_s, self.call, self.cancelled = at_s, call, False

        def cancel(self) -> None:
            self.cancelled = True

    def time(self) -> float:
        return self.now_s

    def call_at(self, at_s: float, call: Callable[[], None]) -> Timer:
        self._timers.append(Clock.Timer(at_s, call))
        return self._timers[-1]

    def call_exception_handler(self, report: dict[str, object]) -> None:
        self.reports.append(report)

    def pause(self, seconds: float) -> None:
        """Let time pass without running timers, as if the process were suspended."""
        self.now_s += seconds

    def run(self, seconds: float) -> None:
        """Let time pass, and run the timers that are due."""
        end_s = self.now_s + seconds
        while due := [timer for timer in self.pending if timer.at_s <= end_s]:
            first = min(due, key=lambda timer: timer.at_s)
            self._timers.remove(first)
            self.now_s = max(self.now_s, first.at_s)
            first.call()
        self.now_s = max(self.now_s, end_s)

    @property
    def pending(self) -> list[Timer]:
        return [timer for timer in self._timers if not timer.cancelled]


class Site:
    """Look-ups, the commands that they sent, and their answers."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, Callable[[object], None]]] = []
        self.failures: list[object] = []
        self.identities = IdentityCache(lambda: 0.0)
        self.look_ups = LookUps(
            lambda encoded, came: self.sent.append((encoded, came)),
            self.identities,
            timeout_s=lambda: TIMEOUT_S,
            failed=self.failures.append,
        )
        self.answers: dict[str, list[Identity | Absent]] = {}

    def ask(self, *ids: str) -> None:
        for key_id in ids:
            self.look_ups.ask(key_id, self.answers.setdefault(key_id, []).append)

    def reply(self, expected: bytes, value: object) -> None:
        """Answer the oldest command, which is the expected one."""
        encoded, came = self.sent.pop(0)
        assert encoded == expected
        came(value)

    def reply_key(self, key_id: str, account: str = "acme") -> None:
        self.reply(get_key(key_id), write_record(plain_key(key_id, account=account)))


def get_key(key_id: str) -> bytes:
    return command(*value_range(key_name(key_id)))


def get_account(name: str = "acme") -> bytes:
    return command(*value_range(account_name(name)))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(lookups, "asyncio", SimpleNamespace(get_running_loop=lambda: clock))
    return clock


@pytest.fixture
def site(clock: Clock) -> Site:
    return Site()


def test_a_thousand_at_once(site: Site) -> None:
    """Each look-up gets its own record, and each account is read once."""
    ids = [nth_id(number) for number in range(1000)]
    accounts = {key_id: f"account-{number % 10}" for number, key_id in enumerate(ids)}
    site.ask(*ids, *ids)
    for key_id in ids:
        site.reply_key(key_id, accounts[key_id])
    assert len(site.sent) == 10
    for name in dict.fromkeys(accounts.values()):
        site.reply(get_account(name), write_account(Account(name, (name,))))
    assert not site.sent
    for key_id in ids:
        first, second = site.answers[key_id]
        assert first is second is site.identities.find(key_id)
        assert (first.record.id, first.record.account) == (key_id, accounts[key_id])
        assert first.account == Account(accounts[key_id], (accounts[key_id],))


def test_a_cached_account_is_not_read_again(site: Site) -> None:
    """The second key of an account needs one round trip; after a change of the account, two."""
    site.ask(A)
    site.reply_key(A)
    site.reply(get_account(), write_account(Account("acme", ("edr",))))
    site.ask(B)
    site.reply_key(B)
    assert site.answers[B][0].account is site.answers[A][0].account
    site.identities.invalidate_account("acme")
    site.look_ups.account_changed("acme")
    site.ask(C)
    site.reply_key(C)
    site.reply(get_account(), b"")
    assert site.answers[C][0].account == Account("acme")


def test_a_malformed_record_affects_no_other(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """The look-up of a malformed record is unavailable; the others get their keys."""
    site.ask(A, B, C, D)
    with caplog.at_level(logging.ERROR):
        site.reply_key(A)
        site.reply(get_key(B), b"hunter2")
        # Another key's record is malformed, too.
        site.reply(get_key(C), write_record(plain_key(D)))
        site.reply_key(D)
        site.reply(get_account(), b"")
    assert site.answers[B] == site.answers[C] == [Absent.UNAVAILABLE]
    assert [site.answers[key_id][0].record.id for key_id in (A, D)] == [A, D]
    assert len(caplog.records) == 1
    assert "hunter2" not in caplog.text


def test_a_malformed_account_affects_only_its_keys(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """All its look-ups get that error, one line is logged, and other accounts are not affected."""
    site.ask(A, B, C)
    site.reply_key(A)
    site.reply_key(B)
    site.reply_key(C, "other")
    with caplog.at_level(logging.ERROR):
        site.reply(get_account(), b"hunter2")
    site.reply(get_account("other"), b"")
    assert site.answers[A] == site.answers[B] == [Absent.UNAVAILABLE]
    assert site.answers[C][0].account == Account("other")
    assert [record.getMessage() for record in caplog.records] == [
        "the store's record of account acme cannot be read: something else wrote to it"
    ]


def test_a_change_in_the_middle(site: Site) -> None:
    """Of many look-ups in progress only that of the changed key restarts."""
    site.ask(A, B, C)
    site.reply_key(A)
    site.reply_key(B)
    site.reply_key(C)
    site.look_ups.key_changed(B)
    site.reply(get_account(), b"")
    assert [len(site.answers[key_id]) for key_id in (A, B, C)] == [1, 0, 1]
    revoked = replace(plain_key(B, account="acme"), status="revoked")
    site.reply(get_key(B), write_record(revoked))
    assert site.answers[B][0].record == revoked
    assert not site.sent


def test_a_change_of_an_account_that_many_wait_for(site: Site) -> None:
    """All of them restart; later ones do not share the request from before the change."""
    site.ask(A, B, C)
    site.reply_key(A)
    site.reply_key(B)
    came_before = site.sent.pop(1)
    assert came_before[0] == get_account()
    site.look_ups.account_changed("acme")
    site.reply_key(C)
    assert site.sent.pop(0)[0] == get_account()
    came_before[1](write_account(Account("acme", ("old",))))
    assert not any(site.answers.values())
    assert [encoded for encoded, _ in site.sent] == [get_key(A), get_key(B)]


def test_everything_changes(site: Site) -> None:
    """After a message that anything may have changed, each look-up restarts, at either step."""
    site.ask(A, B)
    site.reply_key(A)
    site.look_ups.all_changed()
    site.reply_key(B)
    site.reply(get_account(), b"")
    assert not any(site.answers.values())
    site.reply_key(B)
    site.reply_key(A)
    site.reply(get_account(), b"")
    assert [len(site.answers[key_id]) for key_id in (A, B)] == [1, 1]


@pytest.mark.parametrize("error", [StoreDown("lost"), hiredis.ReplyError("LOADING")])
def test_an_error_ends_all_waiting_look_ups(site: Site, error: Exception) -> None:
    """An error about an account ends the look-ups of its keys, and is reported once."""
    site.ask(A, B)
    site.reply_key(A)
    site.reply_key(B)
    site.reply(get_account(), error)
    assert site.answers == {A: [Absent.UNAVAILABLE], B: [Absent.UNAVAILABLE]}
    assert site.failures == [error]


def test_a_callback_that_raises(site: Site, clock: Clock) -> None:
    """A callback that raises does not affect the others, and is reported."""
    error = RuntimeError("mine")

    def fail(_: object) -> None:
        raise error

    site.look_ups.ask(A, fail)
    site.ask(A, B)
    site.reply_key(A)
    site.reply_key(B)
    site.reply(get_account(), b"")
    assert [len(site.answers[key_id]) for key_id in (A, B)] == [1, 1]
    assert [report["exception"] for report in clock.reports] == [error]


def test_a_look_up_has_the_timeout_of_a_decision(site: Site, clock: Clock) -> None:
    """After the timeout the look-ups are answered, and the request continues without them."""
    site.ask(A)
    clock.run(TIMEOUT_S - 0.01)
    site.ask(B)
    clock.run(0.02)
    assert (site.answers[A], site.answers[B]) == ([Absent.UNAVAILABLE], [])
    site.ask(A)
    assert site.answers[A] == [Absent.UNAVAILABLE] * 2
    clock.run(TIMEOUT_S)
    assert site.answers[B] == [Absent.UNAVAILABLE]
    site.reply_key(A)
    site.reply_key(B)
    site.reply(get_account(), b"")
    assert isinstance(site.identities.find(A), Identity)
    assert len(site.answers[A]) == 2


@pytest.mark.parametrize("paused_s", [0.001, 0.02, 0.049, 0.051, 0.5])
@pytest.mark.parametrize("step", ["key", "account"])
def test_a_pause_of_this_process_is_not_the_stores(
    site: Site, clock: Clock, paused_s: float, step: str
) -> None:
    """If this process was suspended in one step, a store that answers is still available."""
    site.ask(A)
    if step == "key":
        clock.pause(paused_s)
        clock.run(0)  # timers may run before the reply is read
        site.reply_key(A)
        clock.run(0.01)
    else:
        clock.run(0.01)
        site.reply_key(A)
        clock.pause(paused_s)
        clock.run(0)
    assert not site.answers[A]
    site.reply(get_account(), b"")
    assert isinstance(site.answers[A][0], Identity)


def test_a_store_that_is_slow_at_both_steps(site: Site, clock: Clock) -> None:
    """The second step prolongs the wait by half of the timeout at most."""
    site.ask(A)
    clock.run(TIMEOUT_S - 0.001)
    site.reply_key(A)
    clock.run(TIMEOUT_S / 2 - 0.002)
    assert not site.answers[A]
    clock.run(0.005)
    assert site.answers[A] == [Absent.UNAVAILABLE]


def test_a_late_first_answer(site: Site, clock: Clock) -> None:
    """If the first answer is too late, the account's answer is not waited for."""
    site.ask(A)
    clock.run(2 * TIMEOUT_S)
    site.reply_key(A)
    site.ask(A)
    assert site.answers[A] == [Absent.UNAVAILABLE] * 2


def test_no_timer_is_left(site: Site, clock: Clock) -> None:
    """Without look-ups in progress, or after closing, no timer is left."""
    site.ask(A)
    site.reply(get_key(A), b"")
    assert site.answers[A] == [Absent.UNKNOWN]
    clock.run(TIMEOUT_S)
    assert not clock.pending
    site.ask(B)
    site.look_ups.close()
    site.look_ups.close()
    assert not clock.pending


def test_a_key_has_its_accounts_plan(site):
    """A key without a plan has its account's in its identity."""
    site.ask(A)
    site.reply(get_key(A), write_record(plain_key(A, plan="")))
    site.reply(get_account(), write_account(Account("acme", plan="pro")))
    (identity,) = site.answers[A]
    assert identity.record == plain_key(A, plan="pro")
    site.ask(B)
    site.reply(get_key(B), write_record(plain_key(B, plan="free")))
    assert site.answers[B][0].record.plan == "free"
