"""The gate: match → identify → network → scope → limit, in this order, for every request.

Each step passes, says no, or waits for an answer that comes as a call. Saying no still asks how the
caller's limits stand, at no cost, because every answer tells them; a failed attempt to identify
itself costs the caller's address one.
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

#: Request lines remembered with their route. A flood of different ones only empties the memory.
MOST_LINES: Final = 8_192
MOST_LINE_BYTES: Final = 512


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

    def judge(self, request: Request) -> None:
        """Decide about a request; `request.decided` is called, now or later."""
        requested = request.requested
        if requested.refusal is not None:
            self._refuse(request, requested.refusal)
            return
        fields = request.fields
        # RFC 9112, 3.2.2: the authority of an absolute-form target replaces Host; two that differ
        # would have the upstream see another host than was judged.
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
        """The same as below, in a turn of its own: nobody else answers for what fails."""
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
        """The key is good; what remains is what it may do on this route, and how often.

        refusal: why it may not, whatever the route says
        """
        request.identity = identity
        policy, route = request.policy, request.route
        if identity.granted_under is not policy:
            identity.grants.clear()
            identity.granted_under = policy
        granted = identity.grants.get(route.name)
        if granted is None:
            granted = identity.grants[route.name] = grant(policy, route, identity)
        # Its body may have gone wrong before its key was known.
        request.refusal = refusal or granted.refusal or request.refusal
        self._limit(request, granted)

    def _limit(self, request: Request, granted: Grant) -> None:
        """Ask the limiter: to count the request, or, where it is refused, just how things stand."""
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
        """A failed attempt: it counts against the address."""
        self.metrics.auth_failed(refusal.reason)
        self._refuse(request, refusal, cost=1)

    def _refuse(self, request: Request, refusal: Refusal, cost: int = 0) -> None:
        request.refusal = refusal
        policy = request.policy
        failed = self._failed if policy is self.policy else failed_grant(policy)
        request.check = check = failed.check_for(request.subject, request.header, cost)
        self.limiter.decide(check, request.decided)
