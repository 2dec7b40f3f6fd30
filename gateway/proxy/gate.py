"""The gate: match → identify → network → scope → limit, in this order, for every request.

Each step passes, says no, or waits for an answer that comes as a call. Saying no still asks how the
caller's limits stand, at no cost, because every answer tells them; a failed attempt to identify
itself costs the caller's address one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from hmac import compare_digest
from secrets import randbelow
from typing import TYPE_CHECKING, Final

from gateway.domain.admission import Grant, failed_grant, grant, open_grant
from gateway.domain.headers import HeaderRules
from gateway.domain.keylife import status_refusal
from gateway.domain.limits import MOST_LEASE
from gateway.domain.networks import is_within, parse_address
from gateway.domain.policy import Policy, Route
from gateway.domain.ports import Absent, Identity, KeyDirectory, LeaseLimiter
from gateway.domain.spelling import digest, parse
from gateway.errors import (
    BAD_HOST,
    IP_NOT_ALLOWED,
    KEY_MALFORMED,
    KEY_UNKNOWN,
    STORE_UNAVAILABLE,
    Refusal,
)
from gateway.http1.head import FieldParser, Fields
from gateway.http1.requested import Requested, read_request_line
from gateway.observe.metrics import Metrics

if TYPE_CHECKING:
    from gateway.proxy.exchange import Exchange

#: Request lines remembered with their route. A flood of different ones only empties the memory.
MOST_LINES: Final = 8_192
MOST_LINE_BYTES: Final = 512
#: Reading an address takes 2 us, which a connection that brings many keys would pay each time.
_address = lru_cache(maxsize=4_096)(parse_address)


@dataclass(slots=True, eq=False)
class Pass:
    """Who sent the last request of a connection, and so the next one with the same fields.

    fields, policy: what makes it so, the very same objects
    identity:       a key that was good, at an address from which it may be used
    epoch:          of the gate, when that was found out
    """

    fields: Fields
    policy: Policy
    identity: Identity
    epoch: int


class Gate:
    """Judges requests under the policy of the moment.

    heads: reads header blocks
    lines: request lines and what each asks for
    epoch: moves on a few times a second; what depends on the time is looked at anew then
    clock_us: the store's time, Unix microseconds, which keys expire by
    """

    def __init__(
        self,
        policy: Policy,
        limiter: LeaseLimiter,
        directory: KeyDirectory,
        metrics: Metrics,
        clock_us: Callable[[], int],
    ) -> None:
        self.limiter = limiter
        self.directory = directory
        self.metrics = metrics
        self.clock_us = clock_us
        self.epoch = 0
        self.use(policy)

    def use(self, policy: Policy) -> None:
        """Judge by this policy from now on; what was judged before stays as it was."""
        self.policy = policy
        rules = HeaderRules(policy.bounds.header_count, policy.trusted_only, policy.counted_headers)
        self.heads = FieldParser(rules)
        self.lines: dict[bytes, Requested | Refusal] = {}
        self._open_grants: dict[str, Grant] = {}
        self._failed = failed_grant(policy)

    def requested(self, line: bytes) -> Requested | Refusal:
        """What a request line asks for."""
        known = self.lines.get(line)
        if known is None:
            known = read_request_line(line, self.policy)
            if len(line) <= MOST_LINE_BYTES:
                if len(self.lines) >= MOST_LINES:
                    self.lines.clear()
                self.lines[line] = known
        return known

    def judge(self, exchange: Exchange) -> None:
        """Decide about a request; `exchange.decided` hears of it, now or later."""
        requested = exchange.requested
        if requested.refusal is not None:
            self._refuse(exchange, requested.refusal)
            return
        fields = exchange.fields
        # RFC 9112, 3.2.2: the authority of an absolute-form target replaces Host; two that differ
        # would have the upstream see another host than was judged.
        if requested.authority and fields.host.lower() not in requested.authority:
            self._refuse(exchange, BAD_HOST)
            return
        route = exchange.route
        conn = exchange.conn
        passed = conn.passed
        if (
            passed is not None
            and passed.fields is fields
            and passed.policy is exchange.policy
            and passed.epoch == self.epoch
            and passed.identity.current
            and route.auth == "key"
        ):
            self._admit(exchange, passed.identity)
            return
        if route.auth == "none":
            self._limit(exchange, self._open_grant(route))
            return
        credential = fields.credential
        if isinstance(credential, Refusal):
            self._unidentified(exchange, credential)
            return
        if conn.key_fields is not fields:
            parsed = parse(credential)
            conn.key_id = None if parsed is None else parsed.id
            conn.key_digest = digest(credential)
            conn.key_fields = fields
        if conn.key_id is None:
            self._unidentified(exchange, KEY_MALFORMED)
            return
        identity = self.directory.known(conn.key_id)
        if identity is None:
            self.directory.look_up(conn.key_id, partial(self._looked_up, exchange, conn.key_digest))
        else:
            self._identified(exchange, conn.key_digest, identity)

    def _looked_up(
        self, exchange: Exchange, key_digest: bytes, identity: Identity | Absent
    ) -> None:
        """The same as below, in a turn of its own: nobody else answers for what fails."""
        try:
            self._identified(exchange, key_digest, identity)
        except Exception:
            exchange.failed()

    def _identified(
        self, exchange: Exchange, key_digest: bytes, identity: Identity | Absent
    ) -> None:
        if exchange.is_over:
            return
        if isinstance(identity, Absent):
            if identity is Absent.UNKNOWN:
                self._unidentified(exchange, KEY_UNKNOWN)
            else:
                self._refuse(exchange, STORE_UNAVAILABLE)
            return
        record = identity.record
        if not compare_digest(record.digest, key_digest):
            self._unidentified(exchange, KEY_UNKNOWN)
            return
        policy = exchange.policy
        refusal = status_refusal(record, policy.environment, self.clock_us())
        if refusal is not None:
            exchange.identity = identity
            self._unidentified(exchange, refusal)
            return
        self.directory.touch(identity)
        if record.networks and not is_within(_address(exchange.client_ip), record.networks):
            self._admit(exchange, identity, IP_NOT_ALLOWED)
            return
        exchange.conn.passed = Pass(exchange.fields, policy, identity, self.epoch)
        self._admit(exchange, identity)

    def _admit(
        self, exchange: Exchange, identity: Identity, refusal: Refusal | None = None
    ) -> None:
        """The key is good; what remains is what it may do on this route, and how often.

        refusal: why it may not, whatever the route says
        """
        exchange.identity = identity
        granted = identity.grant
        if (
            granted is None
            or identity.route is not exchange.route
            or identity.granted_under is not exchange.policy
        ):
            granted = _granted(identity, exchange.policy, exchange.route)
        # Its body may have gone wrong before its key was known.
        exchange.verdict = refusal or granted.refusal or exchange.verdict
        self._limit(exchange, granted)

    def _limit(self, exchange: Exchange, granted: Grant) -> None:
        """Ask the limiter: to count the request, or, where it is refused, just how things stand."""
        exchange.grant = granted
        check = granted.check if exchange.verdict is None else granted.ask
        if check is None:
            cost = granted.cost if exchange.verdict is None else 0
            check = granted.check_for(exchange.subject, exchange.header, cost)
        if granted.leases and exchange.verdict is None:
            check = check.leased(randbelow(MOST_LEASE) + 1)
        exchange.check = check
        self.limiter.decide(check, exchange.decided)

    def _open_grant(self, route: Route) -> Grant:
        granted = self._open_grants.get(route.name)
        if granted is None:
            granted = self._open_grants[route.name] = open_grant(self.policy, route)
        return granted

    def _unidentified(self, exchange: Exchange, refusal: Refusal) -> None:
        """A failed attempt: it counts against the address."""
        self.metrics.auth_failed(refusal.reason)
        self._refuse(exchange, refusal, cost=1)

    def _refuse(self, exchange: Exchange, refusal: Refusal, cost: int = 0) -> None:
        exchange.verdict = refusal
        policy = exchange.policy
        failed = self._failed if policy is self.policy else failed_grant(policy)
        exchange.check = failed.check_for(exchange.subject, exchange.header, cost)
        self.limiter.decide(exchange.check, exchange.decided)


def _granted(identity: Identity, policy: Policy, route: Route) -> Grant:
    """What the key may do on a route, to be found at once where it asks for the same next."""
    if identity.granted_under is not policy:
        identity.grants.clear()
        identity.granted_under = policy
    granted = identity.grants.get(route.name)
    if granted is None:
        granted = identity.grants[route.name] = grant(policy, route, identity)
    identity.route, identity.grant = route, granted
    return granted
