"""The gate: match → identify → network → scope → limit, in this order, for every request.

Each step passes, refuses, or waits for a callback. A refusal still reads the client's limits, at
cost 0, because every answer reports them. A failed authentication costs the client's address 1.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from secrets import randbelow
from typing import Final

from gateway.domain.admission import failed_grant, grant, open_grant
from gateway.domain.headers import HeaderRules
from gateway.domain.identity import Absent, Grant, Identity
from gateway.domain.judge import key_refusal
from gateway.domain.key_format import digest, parse
from gateway.domain.limits import MOST_LEASE
from gateway.domain.policy import Policy
from gateway.domain.ports import KeyDirectory, LeaseLimiter
from gateway.domain.route import Route
from gateway.errors import (
    BAD_HOST,
    IP_NOT_ALLOWED,
    KEY_MALFORMED,
    KEY_UNKNOWN,
    STORE_UNAVAILABLE,
    Refusal,
)
from gateway.http1.head import FieldParser
from gateway.observe.metrics import Metrics
from gateway.proxy.connection_cache import CachedIdentity
from gateway.proxy.request import Request
from gateway.routing import Requested, read_request_line

#: Cached request lines, with their routes. A flood of different ones only empties the cache.
MOST_LINES: Final = 8_192
MOST_LINE_BYTES: Final = 512


class Gate:
    """Decides requests under the current policy.

    heads: parses header blocks
    lines: cached request lines, parsed
    epoch: increases a few times a second; then, what depends on the time is checked again
    clock_us: the store's time, Unix microseconds, by which keys expire
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
        """Decide by this policy from now on. Requests already begun keep theirs."""
        self.policy = policy
        rules = HeaderRules(policy.bounds.header_count, policy.trusted_only, policy.counted_headers)
        self.heads = FieldParser(rules)
        self.lines: dict[bytes, Requested | Refusal] = {}
        self._open_grants: dict[str, Grant] = {}
        self._failed = failed_grant(policy)

    def requested(self, line: bytes) -> Requested | Refusal:
        """Parse a request line."""
        known = self.lines.get(line)
        if known is None:
            known = read_request_line(line, self.policy)
            if len(line) <= MOST_LINE_BYTES:
                if len(self.lines) >= MOST_LINES:
                    self.lines.clear()
                self.lines[line] = known
        return known

    def judge(self, request: Request) -> None:
        """Decide about a request; `request.decided` is called, now or later."""
        requested = request.requested
        if requested.refusal is not None:
            self._refuse(request, requested.refusal)
            return
        fields = request.fields
        # RFC 9112, 3.2.2: the authority of an absolute-form target replaces Host; if they differ,
        # the upstream would get another host than was checked.
        if requested.authority and fields.host.lower() not in requested.authority:
            self._refuse(request, BAD_HOST)
            return
        route = request.route
        cache = request.cache
        cached = cache.identity
        if (
            cached is not None
            and cached.fields is fields
            and cached.epoch == self.epoch
            and cached.identity.current
            and route.auth == "key"
        ):
            self._admit(request, cached.identity)
            return
        if route.auth == "none":
            self._limit(request, self._open_grant(route))
            return
        credential = fields.credential
        if isinstance(credential, Refusal):
            self._unidentified(request, credential)
            return
        if cache.key_fields is not fields:
            parsed = parse(credential)
            cache.key_id = None if parsed is None else parsed.id
            cache.key_digest = digest(credential)
            cache.key_fields = fields
        if cache.key_id is None:
            self._unidentified(request, KEY_MALFORMED)
            return
        identity = self.directory.known(cache.key_id)
        if identity is None:
            found = partial(self._looked_up, request, cache.key_digest)
            self.directory.look_up(cache.key_id, found)
        else:
            self._identified(request, cache.key_digest, identity)

    def _looked_up(self, request: Request, key_digest: bytes, identity: Identity | Absent) -> None:
        """Call `_identified` from a callback, where no caller handles exceptions."""
        try:
            self._identified(request, key_digest, identity)
        except Exception:
            request.failed()

    def _identified(self, request: Request, key_digest: bytes, identity: Identity | Absent) -> None:
        if request.is_over:
            return
        if isinstance(identity, Absent):
            if identity is Absent.UNKNOWN:
                self._unidentified(request, KEY_UNKNOWN)
            else:
                self._refuse(request, STORE_UNAVAILABLE)
            return
        policy = request.policy
        refusal = key_refusal(
            identity.record, key_digest, policy.environment, self.clock_us(), request.client_ip
        )
        if refusal is None:
            self.directory.touch(identity)
            request.cache.identity = CachedIdentity(request.fields, identity, self.epoch)
            self._admit(request, identity)
        elif refusal is IP_NOT_ALLOWED:
            self.directory.touch(identity)
            self._admit(request, identity, refusal)
        else:
            if refusal is not KEY_UNKNOWN:
                request.identity = identity
            self._unidentified(request, refusal)

    def _admit(self, request: Request, identity: Identity, refusal: Refusal | None = None) -> None:
        """Check a valid key's access to the route, and its limits.

        refusal: refuse for this, whatever the route allows
        """
        request.identity = identity
        policy, route = request.policy, request.route
        if identity.granted_under is not policy:
            identity.grants.clear()
            identity.granted_under = policy
        granted = identity.grants.get(route.name)
        if granted is None:
            granted = identity.grants[route.name] = grant(policy, route, identity)
        # The body may have had a fault before the key was known.
        request.refusal = refusal or granted.refusal or request.refusal
        self._limit(request, granted)

    def _limit(self, request: Request, granted: Grant) -> None:
        """Have the limiter count the request or, if it is refused, only read the limits."""
        request.grant = granted
        is_refused = request.refusal is not None
        check = granted.ask if is_refused else granted.check
        if check is None:
            cost = 0 if is_refused else granted.cost
            check = granted.check_for(request.subject, request.header, cost)
        if granted.leases and not is_refused:
            check = check.leased(randbelow(MOST_LEASE) + 1)
        request.check = check
        self.limiter.decide(check, request.decided)

    def _open_grant(self, route: Route) -> Grant:
        granted = self._open_grants.get(route.name)
        if granted is None:
            granted = self._open_grants[route.name] = open_grant(self.policy, route)
        return granted

    def _unidentified(self, request: Request, refusal: Refusal) -> None:
        """Refuse a failed authentication: it counts against the address."""
        self.metrics.auth_failed(refusal.reason)
        self._refuse(request, refusal, cost=1)

    def _refuse(self, request: Request, refusal: Refusal, cost: int = 0) -> None:
        request.refusal = refusal
        policy = request.policy
        failed = self._failed if policy is self.policy else failed_grant(policy)
        request.check = check = failed.check_for(request.subject, request.header, cost)
        self.limiter.decide(check, request.decided)
