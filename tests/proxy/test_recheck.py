"""The recheck of long exchanges by the key's current identity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.domain.identity import Absent, Identity
from gateway.domain.keys import Account, KeyRecord
from gateway.domain.networks import parse_network
from gateway.domain.policy import Plan, Policy
from gateway.domain.route import Route
from gateway.domain.routes import RouteTable
from gateway.policies.fields import parse_rate
from gateway.proxy.gate import Gate
from gateway.proxy.recheck import recheck
from tests.suites.keys import NOW, plain_key

ROUTE = Route("api", "*", (), True, "api", scopes=("a:read",))
POLICY = Policy(
    "production", {"free": Plan("free", parse_rate("5/minute"))}, {}, RouteTable(()), {}
)
RECORD = plain_key(scopes=("a:read",), expires_us=NOW + 1_000)


class Directory:
    """Has the test's identities, or answers a look-up when the test says so."""

    def __init__(self) -> None:
        self.now_known: Identity | Absent | None = None
        self.asked: list[Callable[[Identity | Absent], None]] = []

    def known(self, _key_id: str) -> Identity | Absent | None:
        return self.now_known

    def look_up(self, _key_id: str, done: Callable[[Identity | Absent], None]) -> None:
        self.asked.append(done)


class Stream:
    """A long exchange. ended: why it was abandoned"""

    def __init__(self, record: KeyRecord = RECORD) -> None:
        self.directory = Directory()
        self.now_us = NOW
        self.gate = SimpleNamespace(
            directory=self.directory, clock_us=lambda: self.now_us, has_address_rules=False
        )
        self.ended: list[str] = []
        self.identity = Identity(record, Account("acme"))
        self.exchange = cast(
            "Any",
            SimpleNamespace(
                identity=self.identity,
                policy=POLICY,
                route=ROUTE,
                client_ip="192.0.2.7",
                is_over=False,
                abandon=self.ended.append,
            ),
        )

    def look(self) -> None:
        recheck(self.exchange, cast("Gate", self.gate))

    def change(self, **fields: Any) -> Identity:
        """Replace the key's identity."""
        self.identity.current = False
        return Identity(replace(RECORD, **fields), Account("acme"))


def test_an_unchanged_key() -> None:
    """One check, and the exchange goes on; without a key nothing is checked."""
    stream = Stream()
    stream.look()
    stream.exchange.identity = None
    stream.look()
    assert (stream.ended, stream.directory.asked) == ([], [])


def test_a_key_expires_by_the_stores_time() -> None:
    """It is valid up to the moment of its expiry, by the clock of the gate."""
    stream = Stream()
    stream.now_us = NOW + 999
    stream.look()
    assert stream.ended == []
    stream.now_us = NOW + 1_000
    stream.look()
    assert stream.ended == ["key_expired"]


@pytest.mark.parametrize(
    ("fields", "ended"),
    [
        ({"name": "another"}, []),
        ({"expires_us": None}, []),
        ({"expires_us": NOW}, ["key_expired"]),
        ({"status": "revoked"}, ["key_revoked"]),
        ({"status": "suspended"}, ["key_suspended"]),
        ({"account_status": "suspended"}, ["account_suspended"]),
        ({"environment": "staging"}, ["key_environment"]),
        ({"digest": bytes(32)}, ["key_unknown"]),
        ({"networks": (parse_network("10.0.0.0/8"),)}, ["ip_not_allowed"]),
        ({"networks": (parse_network("192.0.2.0/24"),)}, []),
        ({"scopes": ()}, ["insufficient_scope"]),
        ({"plan": "gone"}, ["plan_unknown"]),
    ],
)
@pytest.mark.parametrize("is_known", [True, False], ids=["known", "looked up"])
def test_a_key_that_was_changed(fields: dict[str, Any], ended: list[str], is_known: bool) -> None:
    """The new identity is checked, and the exchange keeps it."""
    stream = Stream()
    changed = stream.change(**fields)
    if is_known:
        stream.directory.now_known = changed
        stream.look()
    else:
        stream.look()
        (answer,) = stream.directory.asked
        answer(changed)
    assert stream.ended == ended
    assert (stream.exchange.identity is changed) == (not ended)


def test_a_removed_key() -> None:
    """A removed key is unknown."""
    stream = Stream()
    stream.change()
    stream.directory.now_known = Absent.UNKNOWN
    stream.look()
    assert stream.ended == ["key_unknown"]


@pytest.mark.parametrize("is_known", [True, False], ids=["remembered", "looked up"])
def test_a_key_that_cannot_be_looked_up(is_known: bool) -> None:
    """The cached identity holds while the store is unavailable, up to the key's expiry."""
    stream = Stream()
    stream.change()

    def look() -> None:
        stream.look()
        while stream.directory.asked:
            stream.directory.asked.pop()(Absent.UNAVAILABLE)

    stream.directory.now_known = Absent.UNAVAILABLE if is_known else None
    look()
    assert stream.ended == []
    stream.now_us = NOW + 1_000
    look()
    assert stream.ended == ["key_expired"]


def test_an_answer_that_comes_after_the_end() -> None:
    """It has no effect."""
    stream = Stream()
    stream.change()
    stream.look()
    stream.exchange.is_over = True
    for answer in stream.directory.asked:
        answer(Absent.UNKNOWN)
    assert stream.ended == []
