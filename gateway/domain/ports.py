"""What the core asks of the outside, as Protocols. Adapters are in `stores`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from gateway.domain.keys import Account, KeyRecord
from gateway.domain.limits import Check, Decision

if TYPE_CHECKING:
    from gateway.domain.admission import Grant
    from gateway.domain.policy import Policy


class Limiter(Protocol):
    """Decides checks. Both stores, in process and Redis, give the same answers."""

    def decide(self, check: Check, done: Callable[[Decision | None], None]) -> None:
        """Ask; `done` is called once, now or in a later turn of the loop.

        Answers about one subject come in order of asking. Others may overtake them: in a cluster
        each node answers for itself.

        None: the store could not be asked and nothing was decided.
        """
        ...


#: Is shown a check and what came of it, None or a refusal, and gives what is to be told.
Review = Callable[[Check, Decision | None], Decision | None]


class ReviewedLimiter(Limiter, Protocol):
    """A limiter that lets whoever stands in front of it see what is no admission.

    Whoever did so by a callback of their own around `done` would make one for each request, to be
    of use to a few.
    """

    def decide(
        self,
        check: Check,
        done: Callable[[Decision | None], None],
        review: Review | None = None,
    ) -> None: ...


class LeaseLimiter(Limiter, Protocol):
    """A limiter whose leases (see `Check.lease`) are held until they are given back."""

    def release(self, check: Check) -> None:
        """The check's request is over: give back whatever it holds. Harmless when repeated."""
        ...


class KeyTaken(Exception):
    """A record was to be added under an id that exists."""


class KeyChanged(Exception):
    """A record was to be replaced, and is no longer what it was when it was read."""


class StoreDown(Exception):
    """The store could not be reached or did not answer in time."""


class KeyStore(Protocol):
    """Where records live. Every method may raise StoreDown."""

    async def add(self, record: KeyRecord) -> None:
        """Keep a new record. Raises KeyTaken."""
        ...

    async def get(self, key_id: str) -> KeyRecord | None: ...

    async def replace(self, old: KeyRecord, new: KeyRecord) -> None:
        """Keep `new` where `old` is what is kept now. Raises KeyChanged."""
        ...

    async def records(self) -> list[KeyRecord]:
        """All of them, oldest first."""
        ...

    async def account(self, name: str) -> Account | None: ...

    async def put_account(self, account: Account) -> None: ...

    async def accounts(self) -> list[Account]:
        """All of them, by name."""
        ...


class Absent(Enum):
    """Why a look-up gave no identity."""

    UNKNOWN = "no key has this id"
    UNAVAILABLE = "the store could not be asked"


@dataclass(slots=True, eq=False)
class Identity:
    """A key and its account as a worker holds them; replaced whole when either changes.

    current: False once the store has said that the key or account changed; whoever holds on to an
             identity over a wait looks here before relying on it
    grants:  what `admission` made of it, by route name, under the policy `granted_under`
    """

    record: KeyRecord
    account: Account
    current: bool = True
    grants: dict[str, Grant] = field(default_factory=dict, repr=False)
    granted_under: Policy | None = field(default=None, repr=False)


class KeyDirectory(Protocol):
    """What a worker knows of keys: a bounded memory in front of a KeyStore, told of changes."""

    def known(self, key_id: str) -> Identity | Absent | None:
        """What is remembered: an identity, Absent.UNKNOWN, or None: look it up."""
        ...

    def look_up(self, key_id: str, done: Callable[[Identity | Absent], None]) -> None:
        """Ask the store; `done` is called once. Look-ups of one id at one time are one trip."""
        ...

    def touch(self, key_id: str) -> None:
        """Note that the key was used just now; the store hears of it in the background."""
        ...
