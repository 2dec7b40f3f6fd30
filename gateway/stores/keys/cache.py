"""A worker's cache of keys: bounded, and invalidated by each change of a key or account.

When it is full, an identity is evicted that was not used recently (second chance). LRU order would
touch the memory of three identities for each request.

No I/O: `directory` fills the cache and invalidates it. For ids without an identity the reason is
cached for a short time: no key has this id, or its record cannot be read.

After a lost connection, changes may have been missed, and all identities are stale: they have to be
read again. If the store does not answer in time, a stale identity is used until a given time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from gateway.domain.identity import Absent, Identity
from gateway.domain.keys import Account

#: An identity with a few grants takes 2 to 4 KB.
CAPACITY: Final = 100_000
#: If this many in a row were used recently, the next one is evicted anyway.
_MOST_SPARED: Final = 100
UNKNOWN_CAPACITY: Final = 10_000
#: The store notifies of new ids; this only bounds the effect of a lost notification.
UNKNOWN_S: Final = 5.0
#: How long a record that cannot be read is not read again, as parsing it may take a thousand times
#: as long as a request. The cause may be the account's record, whose changes invalidate nothing
#: here.
UNREADABLE_S: Final = 1.0


class IdentityCache:
    """Identities by key id, and ids that have none.

    clock: seconds since any fixed moment; all times here are by this clock
    """

    def __init__(
        self,
        clock: Callable[[], float],
        capacity: int = CAPACITY,
        unknown_capacity: int = UNKNOWN_CAPACITY,
        unknown_s: float = UNKNOWN_S,
    ) -> None:
        self._clock = clock
        self._capacity = capacity
        self._unknown_capacity = unknown_capacity
        self._unknown_s = unknown_s
        self._known: OrderedDict[str, Identity] = OrderedDict()
        self._stale: dict[str, tuple[Identity, float]] = {}
        #: Why an id has no identity, and when that expires.
        self._absent: OrderedDict[str, tuple[Absent, float]] = OrderedDict()
        self._ids_of: dict[str, set[str]] = {}
        self._accounts: dict[str, Account] = {}

    def __len__(self) -> int:
        return len(self._known)

    def find(self, key_id: str) -> Identity | Absent | None:
        """The cached identity of an id, or why it has none; None: neither is cached."""
        identity = self._known.get(key_id)
        if identity is not None:
            identity.referenced = True
            return identity
        absent = self._absent.get(key_id)
        if absent is None:
            return None
        why, until = absent
        if self._clock() < until:
            return why
        del self._absent[key_id]
        return None

    def account(self, name: str) -> Account | None:
        """An account that is cached with one of its keys; None: it has to be read."""
        return self._accounts.get(name)

    def stale_identity(self, key_id: str) -> Identity | None:
        """The stale identity of an id that may still be used; None: there is none."""
        identity, until = self._stale.get(key_id, (None, 0.0))
        return identity if self._clock() < until else None

    def keep(self, identity: Identity) -> None:
        """Cache an identity, replacing any entry of its id."""
        key_id = identity.record.id
        self.invalidate_key(key_id)
        self._known[key_id] = identity
        name = identity.account.name
        self._ids_of.setdefault(name, set()).add(key_id)
        self._accounts[name] = identity.account
        if len(self._known) > self._capacity:
            self.invalidate_key(self._next_evicted())

    def _next_evicted(self) -> str:
        """The id to evict: the oldest that was not used since it was last spared."""
        for _ in range(_MOST_SPARED):
            key_id, identity = next(iter(self._known.items()))
            if not identity.referenced:
                break
            identity.referenced = False
            self._known.move_to_end(key_id)
        return next(iter(self._known))

    def keep_unknown(self, key_id: str) -> None:
        """Cache for UNKNOWN_S that no key has this id."""
        self._keep_absent(key_id, Absent.UNKNOWN, self._unknown_s)

    def keep_unreadable(self, key_id: str) -> None:
        """Cache for UNREADABLE_S that the key's record, or its account's, cannot be read."""
        self._keep_absent(key_id, Absent.UNAVAILABLE, UNREADABLE_S)

    def _keep_absent(self, key_id: str, why: Absent, for_s: float) -> None:
        self.invalidate_key(key_id)
        self._absent[key_id] = why, self._clock() + for_s
        if len(self._absent) > self._unknown_capacity:
            self._absent.popitem(last=False)

    def invalidate_key(self, key_id: str) -> None:
        """The key was created, changed or removed."""
        self._absent.pop(key_id, None)
        identity = self._known.pop(key_id, None)
        if identity is None:
            identity, _ = self._stale.pop(key_id, (None, 0.0))
        if identity is None:
            return
        identity.current = False
        name = identity.account.name
        ids = self._ids_of[name]
        ids.discard(key_id)
        if not ids:
            del self._ids_of[name]
            self._accounts.pop(name, None)

    def invalidate_account(self, name: str) -> None:
        """The account was changed or removed: its keys are invalid as well."""
        self._accounts.pop(name, None)
        for key_id in tuple(self._ids_of.get(name, ())):
            self.invalidate_key(key_id)

    def mark_stale(self, until: float) -> None:
        """Changes may have been missed; stale identities may be used until then."""
        for key_id, identity in self._known.items():
            identity.current = False
            self._stale[key_id] = identity, until
        self._known.clear()
        self._absent.clear()
        self._accounts.clear()
        for key_id in list(self._stale)[: -self._capacity]:
            self.invalidate_key(key_id)

    def evict_stale(self) -> None:
        """Drop the identities that have not been read again."""
        for key_id in tuple(self._stale):
            self.invalidate_key(key_id)

    def clear(self) -> None:
        """Drop everything."""
        for identity in self._known.values():
            identity.current = False
        self._known.clear()
        self._stale.clear()
        self._absent.clear()
        self._ids_of.clear()
        self._accounts.clear()
