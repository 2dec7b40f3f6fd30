"""The interfaces of stores, as Protocols. The adapters are in `stores` and `limiting`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from gateway.domain.audit import Entry, Event
from gateway.domain.identity import Absent, Identity
from gateway.domain.keys import Account, KeyRecord
from gateway.domain.limits import Check, Decision
from gateway.domain.patterns import printable
from gateway.domain.policy_files import Texts
from gateway.domain.policy_history import PolicyLoad
from gateway.domain.usage import Bucket, Counted, Grain, Measured, Measures
from gateway.domain.warnings import KeptWarning, LimitWarning

#: The most characters of the reason why the store is unavailable.
_MOST_REASON: Final = 300


class Limiter(Protocol):
    """Decides checks. Both stores, in process and Redis, make the same decisions."""

    def decide(self, check: Check, done: Callable[[Decision | None], None]) -> None:
        """Decide a check; `done` is called once, now or in a later turn of the loop.

        Decisions about one subject arrive in the order of the calls. Decisions about others may
        arrive earlier: in a cluster the nodes answer independently.

        None: the store is unavailable, and nothing was decided.
        """
        ...


#: Gets a check and its decision, None or a refusal, and returns the decision to use.
Review = Callable[[Check, Decision | None], Decision | None]


class ReviewedLimiter(Limiter, Protocol):
    """A limiter that lets its caller review all decisions except admissions.

    A wrapper of `done` would do the same, but would be created for each request and used by few.
    """

    def decide(
        self,
        check: Check,
        done: Callable[[Decision | None], None],
        review: Review | None = None,
    ) -> None: ...


class LeaseLimiter(Limiter, Protocol):
    """A limiter whose leases (see `Check.lease`) are held until they are released."""

    def release(self, check: Check) -> None:
        """The check's request has ended: release its leases. Idempotent."""
        ...


class KeyTaken(Exception):
    """A record could not be added: its id exists."""


#: How long the idempotency key of an added record is kept, in seconds.
ONCE_S: Final = 86_400


class MadeBefore(Exception):
    """A record was added before with this idempotency key. The text is that record's id."""


class KeyChanged(Exception):
    """A record could not be replaced: it has changed since it was read."""


class StoreDown(Exception):
    """The store could not be reached or did not answer in time.

    The reason may quote the server, and is written to logs, terminals and pages: so it is
    truncated, and control characters are replaced.
    """

    def __init__(self, reason: str = "") -> None:
        words = printable(reason[: _MOST_REASON + 1])
        super().__init__(words if len(words) <= _MOST_REASON else words[: _MOST_REASON - 1] + "…")


class BudgetSpent(Exception):
    """There is no room for an event until others are over."""


class ResentTooOften(Exception):
    """An event was sent again as often as one may be."""


class CorruptRecord(Exception):
    """The value that the store has under a name was not written by the gateway."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(
            f"the store's record of {kind} {name} cannot be read: something else wrote to it"
        )


class WrongType(CorruptRecord):
    """The store has a value of another type under one of the gateway's names.

    found, expected: types by their names in Redis: "string", "zset"
    """

    def __init__(self, name: str, found: str, expected: str) -> None:
        Exception.__init__(
            self,
            f"the store has a value of type {found} under {name}, expected {expected}: something "
            f"else wrote to it. Rename it (RENAME {name} {name}:foreign), and restore the value "
            "from a backup",
        )


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Which keys to list; None: any.

    text:   part of the id, the name or the account, in any letter case
    status: "valid", "suspended", "revoked", or "expired" for valid keys that have expired
    plans:  its own, or if it has none that of its account, is one of these; "": it has none
    other_plans: its own, or that of its account, is none of these
    now_us: the time at which "expired" is decided
    scope:  it has this scope
    expires_before_us: it expires, and before this time; expired ones too
    """

    text: str | None = None
    status: str | None = None
    plans: frozenset[str] | None = None
    other_plans: frozenset[str] | None = None
    account: str | None = None
    environment: str | None = None
    now_us: int = 0
    scope: str | None = None
    expires_before_us: int | None = None


@dataclass(frozen=True, slots=True)
class KeyCount:
    """How many keys have an account.

    keys:   those that are not revoked
    is_own: it is the account that these keys have because none was given, and not a named one
    """

    keys: int = 0
    revoked: int = 0
    is_own: bool = True

    def with_key(self, is_revoked: bool, is_own: bool) -> KeyCount:
        """The count with one more key."""
        return KeyCount(
            self.keys + (not is_revoked), self.revoked + is_revoked, self.is_own and is_own
        )


class KeyStore(Protocol):
    """Stores key and account records. Every method may raise StoreDown."""

    async def add(self, record: KeyRecord, once: str | None = None) -> None:
        """Store a new record. Raises KeyTaken, and MadeBefore.

        once: an idempotency key: only one record is added with it within ONCE_S
        """
        ...

    async def get(self, key_id: str) -> KeyRecord | None: ...

    async def replace(self, old: KeyRecord, new: KeyRecord) -> None:
        """Store `new` if `old` is stored now. Raises KeyChanged."""
        ...

    async def records(self) -> list[KeyRecord]:
        """All of them, oldest first."""
        ...

    async def page(
        self, wanted: KeyFilter, *, after: str | None = None, count: int = 50
    ) -> list[KeyRecord]:
        """Keys that match, newest first, up to `count`; from the one after this id."""
        ...

    async def last_used(self, key_ids: Sequence[str]) -> Mapping[str, int]:
        """When each key was last used, Unix microseconds; unused keys are omitted."""
        ...

    async def account(self, name: str) -> Account | None: ...

    async def put_account(self, account: Account) -> None: ...

    async def replace_account(self, old: Account | None, new: Account) -> None:
        """Store `new` if `old` is stored now. Raises KeyChanged."""
        ...

    async def accounts(self) -> list[Account]:
        """All of them, by name."""
        ...

    async def accounts_named(self, names: Sequence[str]) -> list[Account]:
        """The accounts of these names that exist and can be read, in the order of the names."""
        ...

    async def account_names(self) -> list[str]:
        """The names of all of them, in order."""
        ...

    async def remove_account(self, account: Account) -> None:
        """Delete an account, if it is stored so now, or not at all. Raises KeyChanged."""
        ...

    async def key_counts(self) -> Mapping[str, KeyCount]:
        """How many keys each account has, by its name; also accounts that have no record."""
        ...


@dataclass(frozen=True, slots=True)
class UsageBatch:
    """What one worker has counted since its last batch.

    writer:   a random id of the worker; number: that of the batch, from 1. A batch that is sent
              twice, because its answer was lost, counts once
    minute_s: Unix time of the minute of its requests
    counts:   the number of requests; measures: of those that were answered
    """

    writer: str
    number: int
    minute_s: int
    counts: Mapping[Counted, int]
    measures: Mapping[Measured, Measures] = field(default_factory=dict)


class UsageStore(Protocol):
    """Stores usage. Every method may raise StoreDown."""

    async def add(self, batch: UsageBatch) -> None:
        """Count a batch in all of its buckets. A writer adds its batches one after the other."""
        ...

    async def merge(self, writer: str, now_s: int) -> None:
        """Complete the work that `add` has deferred; called about once a minute.

        For the batches of this writer, and of writers that have ended. `read` returns the same
        before, after, and when this is interrupted.
        """
        ...

    async def read(self, subject: str, grain: Grain, start_s: int, end_s: int) -> list[Bucket]:
        """The buckets of a subject that begin from `start_s` on and before `end_s`, by time.

        Empty buckets are omitted.
        """
        ...

    async def plans(self) -> list[str]:
        """The plans with any usage, by name; "" for requests without a known key."""
        ...

    async def mcp_routes(self) -> list[str]:
        """The routes with calls of tools, by name."""
        ...

    async def busiest(
        self, grain: Grain, start_s: int, end_s: int, count: int
    ) -> list[tuple[str, int]]:
        """The ids of the busiest keys of these buckets and their noted requests; most first.

        Only the busiest keys of each batch are noted, and a bounded number in each bucket. So the
        keys are right; `read` returns their exact numbers.
        """
        ...


class ConnectionStore(Protocol):
    """Which keys have MCP connections open, as workers report it. Methods may raise StoreDown."""

    async def report(self, worker: str, connected: Mapping[str, int]) -> None:
        """How many connections keys have open at a worker, by id. It holds for some seconds."""
        ...

    async def connected(self) -> Mapping[str, int]:
        """The same, of all live workers added up."""
        ...


class WarningStore(Protocol):
    """Stores the newest warnings of limits. Every method may raise StoreDown."""

    async def warn(self, warning: LimitWarning) -> bool:
        """Store a warning, unless there are too many. False: it was stored before.

        Of all workers that warn about one counter at one level within `for_us`, one gets True.
        """
        ...

    async def newest(self, *, before: str | None = None, count: int = 100) -> list[KeptWarning]:
        """The newest first, up to `count`, of those before an id."""
        ...


class PolicyStore(Protocol):
    """Stores the policies that gateways have loaded: the newest entries, and their texts.

    Every method may raise StoreDown.
    """

    async def add(self, load: PolicyLoad, texts: Texts | None) -> PolicyLoad | None:
        """Store an entry, and the texts of its policy; None: they are too large to be kept.

        Returns the entry as it is stored: with the cause "rollback" if one was noted for its
        policy. None: there is an entry for this load already, see `policy_history.is_known`.
        """
        ...

    async def loads(self) -> list[PolicyLoad]:
        """The entries, newest first. Those that cannot be read are left out."""
        ...

    async def texts(self, policy: str) -> Texts | None:
        """The texts of the policy with this hash, which is that of the texts. None: not stored.

        Raises CorruptRecord.
        """
        ...

    async def note_rollback(self, policy: str, actor: str) -> None:
        """Note that someone has restored the files of the policy with this hash.

        The next entry of this policy has it as its cause.
        """
        ...


class AuditWriter(Protocol):
    """What can append to the audit log. It may raise StoreDown."""

    async def append(self, event: Event) -> Entry | None:
        """None: it is beyond a bound, and is not written."""
        ...


class AuditStore(Protocol):
    """The audit log: entries are appended at its end, and dropped at its beginning.

    Every method may raise StoreDown.
    """

    async def append(self, event: Event, *, drop_to: int = 0) -> Entry:
        """Append an event, and in the same step drop all entries up to this number."""
        ...

    async def entries(self, *, before: int | None = None, count: int = 100) -> list[Entry]:
        """The newest first, up to `count`, of numbers below `before`."""
        ...

    async def oldest(self, *, after: int = 0, count: int = 100) -> list[Entry]:
        """The oldest first, up to `count`, of numbers above `after`."""
        ...

    async def head(self) -> tuple[int, str]:
        """Number and hash of the last entry; (0, NOTHING_BEFORE) if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class TokenMark:
    """Where a gateway on this store keeps the admin token that it has generated.

    digest: that of the token; a token of 256 random bits cannot be guessed from it
    host, path: those of the file; untrusted, as anyone who can write to the store can set them
    """

    digest: str
    host: str
    path: str


class AdminStore(Protocol):
    """State shared by the admin listeners of several gateways. Every method may raise StoreDown.

    Nothing here may grant access: write access to the store must not give admin access.
    """

    async def end_session(self, name: str, for_s: int) -> None:
        """Mark a session as ended. for_s: how long the mark is kept"""
        ...

    async def has_ended(self, name: str) -> bool:
        """Was the session ended?"""
        ...

    async def mark_token(self, mark: TokenMark, for_s: int) -> TokenMark:
        """Set the mark if there is none, or renew one with the same digest; the current mark."""
        ...


class Counters(Protocol):
    """The counters, for the admin API, console and CLI. Every method may raise StoreDown."""

    async def decide(self, check: Check) -> Decision:
        """Decide a check; it is counted unless it is `dry` or costs nothing."""
        ...

    async def reset(self, names: Sequence[str]) -> None:
        """Reset these counters, here and in every worker of every gateway."""
        ...


class KeyDirectory(Protocol):
    """A worker's bounded cache of keys in front of a KeyStore, invalidated when keys change."""

    def known(self, key_id: str) -> Identity | Absent | None:
        """The cached identity, or why there is none; None: not cached, look it up."""
        ...

    def look_up(self, key_id: str, done: Callable[[Identity | Absent], None]) -> None:
        """Read from the store; `done` is called once. Concurrent look-ups of one id are merged."""
        ...

    def touch(self, identity: Identity) -> None:
        """The key was used now; this is written to the store about once a minute."""
        ...
