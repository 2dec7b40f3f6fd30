"""What the core asks of the outside, as Protocols. Adapters are in `stores`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from gateway.domain.audit import Entry, Event
from gateway.domain.keys import Account, KeyRecord
from gateway.domain.limits import Check, Decision
from gateway.domain.patterns import printable
from gateway.domain.usage import Bucket, Counted, Grain
from gateway.domain.warnings import KeptWarning, LimitWarning

if TYPE_CHECKING:
    from gateway.domain.admission import Grant
    from gateway.domain.policy import Policy, Route


#: The most characters of why the store could not be asked.
_MOST_REASON: Final = 300


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


#: How long a word is known under which a record was added, in seconds.
ONCE_S: Final = 86_400


class MadeBefore(Exception):
    """A record was to be added under a word that one was added under. Its text: that one's id."""


class KeyChanged(Exception):
    """A record was to be replaced, and is no longer what it was when it was read."""


class StoreDown(Exception):
    """The store could not be reached or did not answer in time.

    The reason may be in the server's own words, and goes to logs, terminals and pages: of what it
    sends to say so, this much is shown, and none of it as a command to a terminal.
    """

    def __init__(self, reason: str = "") -> None:
        words = printable(reason[: _MOST_REASON + 1])
        super().__init__(words if len(words) <= _MOST_REASON else words[: _MOST_REASON - 1] + "…")


class CorruptRecord(Exception):
    """What the store holds under a name is not what was written there."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(
            f"the store's record of {kind} {name} cannot be read: something else wrote to it"
        )


class WrongType(CorruptRecord):
    """Under one of the gateway's names the store holds a value of another type.

    found, expected: as Redis calls them: "string", "zset"
    """

    def __init__(self, name: str, found: str, expected: str) -> None:
        Exception.__init__(
            self,
            f"the store has a value of type {found} under {name}, expected {expected}: something "
            f"else wrote to it. Move it aside (RENAME {name} {name}:foreign), and bring back what "
            "was there from a backup",
        )


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Which keys are wanted; None: any.

    text:   is part of the id, the name or the account, in whatever case
    status: "valid", "suspended", "revoked", or "expired": valid but for its expiry
    plan:   its own, or where it has none that of its account
    now_us: what "expired" is told by
    """

    text: str | None = None
    status: str | None = None
    plan: str | None = None
    account: str | None = None
    environment: str | None = None
    now_us: int = 0


class KeyStore(Protocol):
    """Where records live. Every method may raise StoreDown."""

    async def add(self, record: KeyRecord, once: str | None = None) -> None:
        """Keep a new record. Raises KeyTaken, and MadeBefore.

        once: a word under which one record is added within ONCE_S
        """
        ...

    async def get(self, key_id: str) -> KeyRecord | None: ...

    async def replace(self, old: KeyRecord, new: KeyRecord) -> None:
        """Keep `new` where `old` is what is kept now. Raises KeyChanged."""
        ...

    async def records(self) -> list[KeyRecord]:
        """All of them, oldest first."""
        ...

    async def page(
        self, wanted: KeyFilter, *, after: str | None = None, count: int = 50
    ) -> list[KeyRecord]:
        """Those that are wanted, newest first, up to `count`; from the one after this id."""
        ...

    async def last_used(self, key_ids: Sequence[str]) -> Mapping[str, int]:
        """When each was last used, Unix microseconds; one never used is left out."""
        ...

    async def account(self, name: str) -> Account | None: ...

    async def put_account(self, account: Account) -> None: ...

    async def replace_account(self, old: Account | None, new: Account) -> None:
        """Keep `new` where `old` is what is kept now. Raises KeyChanged."""
        ...

    async def accounts(self) -> list[Account]:
        """All of them, by name."""
        ...

    async def accounts_named(self, names: Sequence[str]) -> list[Account]:
        """Those of these that are there and can be read, in the order of the names."""
        ...

    async def account_names(self) -> list[str]:
        """The names of all of them, in order. One of them may have gone since."""
        ...


@dataclass(frozen=True, slots=True)
class UsageBatch:
    """What one worker has counted since its last batch.

    writer:   the worker, by a random id of its own; number: of the batch, counted from 1. A batch
              that comes twice, because its answer was lost, counts once
    minute_s: Unix time of the minute that it counts for
    counts:   requests
    """

    writer: str
    number: int
    minute_s: int
    counts: Mapping[Counted, int]


class UsageStore(Protocol):
    """Where use is counted. Every method may raise StoreDown."""

    async def add(self, batch: UsageBatch) -> None:
        """Count a batch in all of its buckets. Batches of one writer come one after the other."""
        ...

    async def settle(self, writer: str, now_s: int) -> None:
        """Finish what `add` has left to do later; to be called about once a minute.

        That is what is left of this writer's batches, and of those of writers that have gone.
        What is read is the same before and after, and whenever this breaks off.
        """
        ...

    async def read(self, subject: str, grain: Grain, start_s: int, end_s: int) -> list[Bucket]:
        """The buckets of a subject that begin from `start_s` on and before `end_s`, by time.

        Buckets in which nothing was counted are left out.
        """
        ...

    async def plans(self) -> list[str]:
        """The plans that anything was counted for, by name; "" for requests without a known key."""
        ...

    async def busiest(
        self, grain: Grain, start_s: int, end_s: int, count: int
    ) -> list[tuple[str, int]]:
        """The ids of the keys that were noted most in these buckets, and how much; most first.

        Noted are the busiest of each batch, and a bounded number of keys a bucket is kept. So this
        says whose use is worth a look; how large that is, `read` says.
        """
        ...


class WarningStore(Protocol):
    """Where warnings of limits are: the newest of them. Every method may raise StoreDown."""

    async def warn(self, warning: LimitWarning) -> bool:
        """Keep a warning, where there are not too many; False: somebody has given it before.

        Of all who warn of one count at one level within `for_us`, one is told True.
        """
        ...

    async def newest(self, *, before: str | None = None, count: int = 100) -> list[KeptWarning]:
        """The newest first, up to `count`, of those before an id."""
        ...


class AuditStore(Protocol):
    """Where the audit log is: it grows at its end, and is cut at its beginning.

    Every method may raise StoreDown.
    """

    async def append(self, event: Event, *, drop_to: int = 0) -> Entry:
        """Put an event at the end, and in the same step drop all entries up to this number."""
        ...

    async def entries(self, *, before: int | None = None, count: int = 100) -> list[Entry]:
        """The newest first, up to `count`, of numbers below `before`."""
        ...

    async def oldest(self, *, after: int = 0, count: int = 100) -> list[Entry]:
        """The oldest first, up to `count`, of numbers above `after`."""
        ...

    async def head(self) -> tuple[int, str]:
        """Number and hash of the last entry; (0, NOTHING_BEFORE) where there is none."""
        ...


@dataclass(frozen=True, slots=True)
class TokenMark:
    """Where a gateway on this store keeps the admin token that it has generated.

    digest: of the token; with 256 random bits the token cannot be guessed from it
    host, path: of the file; not to be trusted, as anybody who can write to the store can set them
    """

    digest: str
    host: str
    path: str


class AdminStore(Protocol):
    """What the admin sides of several gateways share. Every method may raise StoreDown.

    Nothing here may grant access: a writer of the store must not be able to become admin.
    """

    async def end_session(self, name: str, for_s: int) -> None:
        """Note that a session was ended. for_s: how long the note is needed"""
        ...

    async def has_ended(self, name: str) -> bool:
        """Was the session ended?"""
        ...

    async def mark_token(self, mark: TokenMark, for_s: int) -> TokenMark:
        """Set the mark if there is none, or renew one with the same digest; the current mark."""
        ...


class Counts(Protocol):
    """The limits' counts, for whoever manages them. Every method may raise StoreDown."""

    async def judge(self, check: Check) -> Decision:
        """What would be decided; a check that is not `dry` and costs something is counted."""
        ...

    async def reset(self, names: Sequence[str]) -> None:
        """Forget these counts, here and in every worker of every gateway."""
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
    route:   the one that was asked for last under that policy, whose grant is `grant`
    lately:  it was asked for since the worker last looked for one to forget
    quiet_until: when its use is noted again, in the directory's own time
    """

    record: KeyRecord
    account: Account
    current: bool = True
    grants: dict[str, Grant] = field(default_factory=dict, repr=False)
    granted_under: Policy | None = field(default=None, repr=False)
    route: Route | None = field(default=None, repr=False)
    grant: Grant | None = field(default=None, repr=False)
    lately: bool = field(default=False, repr=False)
    quiet_until: int = field(default=0, repr=False)


class KeyDirectory(Protocol):
    """What a worker knows of keys: a bounded memory in front of a KeyStore, told of changes."""

    def known(self, key_id: str) -> Identity | Absent | None:
        """What is remembered: an identity, why there is none, or None: look it up."""
        ...

    def look_up(self, key_id: str, done: Callable[[Identity | Absent], None]) -> None:
        """Ask the store; `done` is called once. Look-ups of one id at one time are one trip."""
        ...

    def touch(self, identity: Identity) -> None:
        """Note that the key was used just now; the store hears of it about once a minute."""
        ...
