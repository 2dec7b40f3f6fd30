"""The gate: match → identify → network → scope → cost → limit, in this order, for every request.

Each step passes, refuses, or waits for a callback. A refusal still reads the client's limits, at
cost 0, because every answer reports them. A failed authentication costs the client's address 1.

A request that is refused whoever sent it (`fault`: it has no route, or cannot be read) is
identified too, if a key was received with it: a valid key sees its own limits. A key that is looked
up and is not valid is a failed authentication, as in any other request: to try keys costs the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from hmac import compare_digest
from secrets import randbelow
from time import perf_counter
from typing import Final

from gateway.domain.admission import failed_grant, grant, open_grant
from gateway.domain.costs import (
    MEDIA_FIELDS,
    Costing,
    HeaderCost,
    Uncounted,
    body_cost,
    header_cost,
    is_json,
)
from gateway.domain.headers import HeaderRules
from gateway.domain.identity import Absent, Grant, Identity
from gateway.domain.judge import address_refusal, key_refusal
from gateway.domain.key_format import digest, id_of
from gateway.domain.limits import MOST_LEASE, SECOND_US, Check, Decision
from gateway.domain.mcp.discovery import is_discovery
from gateway.domain.policy import Policy
from gateway.domain.ports import KeyDirectory, LeaseLimiter
from gateway.domain.route import Route
from gateway.domain.webhooks.signatures import Unverified, Verification
from gateway.errors import (
    ADDRESS_DENIED,
    BAD_HOST,
    BODY_TOO_LARGE,
    COUNTED_BODY_TOO_LARGE,
    IP_NOT_ALLOWED,
    KEY_MALFORMED,
    KEY_MISSING,
    KEY_UNKNOWN,
    MAINTENANCE,
    NO_OAUTH,
    NOT_FOUND,
    NOT_JSON,
    SIGNATURE_INVALID,
    STORE_UNAVAILABLE,
    Refusal,
)
from gateway.http1.field_parser import FieldParser
from gateway.observe.metrics import Metrics
from gateway.proxy.host_lines import HostLines
from gateway.proxy.request import Request
from gateway.routing import Requested, read_request_line

#: Cached request lines, with their routes. A flood of different ones only empties the cache.
MOST_LINES: Final = 8_192
MOST_LINE_BYTES: Final = 512


class Gate:
    """Decides requests under the current policy.

    heads: parses header blocks
    lines: cached request lines, parsed
    hosts: the same by host; None: no route names one
    epoch: increases a few times a second; then, what depends on the time is checked again
    clock_us: the store's time, Unix microseconds, by which keys expire
    is_timed: the access log shows how long the limiter takes
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
        self.is_timed = False
        self.use(policy)

    def use(self, policy: Policy) -> None:
        """Decide by this policy from now on. Requests already begun keep theirs."""
        self.policy = policy
        rules = HeaderRules(
            policy.bounds.header_count,
            policy.trusted_only,
            policy.counted_headers,
            traced=policy.tracing is not None,
        )
        self.heads = FieldParser(rules)
        self.lines: dict[bytes, Requested | Refusal] = {}
        tables = policy.hosts
        self.hosts = (
            None if tables is None else HostLines(policy, tables, MOST_LINES, MOST_LINE_BYTES)
        )
        self._open_grants: dict[str, Grant] = {}
        self._failed = failed_grant(policy)
        self._has_mcp = policy.has_mcp
        #: Do addresses decide, by lists or because some are served during maintenance?
        self.has_address_rules = bool(policy.access_lists) or any(
            route.maintenance is not None for route in policy.routes.values()
        )

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

    def routed(self, line: bytes, host: bytes) -> Requested | Refusal:
        """Parse a request line, for a Host."""
        requested = self.requested(line)
        if self.hosts is None or isinstance(requested, Refusal):
            return requested
        return self.hosts.routed(line, requested, host)

    def judge(self, request: Request) -> None:
        """Decide about a request; `request.decided` is called, now or later."""
        requested, fields, route = request.requested, request.fields, request.route
        fault = requested.refusal
        if self.has_address_rules:
            if address_refusal(request.policy, route, request.client_ip):
                # Not even the limits are read: what these addresses send is to cost little.
                request.answer_refusal(ADDRESS_DENIED)
                return
            if fault is MAINTENANCE and _is_served(request):
                request.requested = requested = replace(requested, refusal=None)
                fault = None
        # RFC 9112, 3.2.2: the authority of an absolute-form target replaces Host; if they differ,
        # the upstream would get another host than was checked.
        if requested.authority and fields.host.lower() not in requested.authority:
            fault = fault or BAD_HOST
        if fault is None and route.auth == "none":
            self._limit(request, self._open_grant(request.policy, route))
            return
        cache, credential = request.cache, fields.credential
        cached = cache.identity
        if (
            cached is not None
            and cached.current
            and cache.epoch == self.epoch
            and cache.credential == credential
            and cache.client_ip == request.client_ip
            and cache.policy is request.policy
        ):
            self._admit(request, cached, fault)
            return
        self._identify(request, credential, fault)

    def _identify(
        self, request: Request, credential: bytes | Refusal, fault: Refusal | None
    ) -> None:
        """Find the identity of the key that was sent, or that a certificate stands for."""
        cache = request.cache
        if not isinstance(credential, Refusal):
            if cache.key_text != credential:
                known = self.directory.known(id_of(credential))
                if isinstance(known, Identity) and compare_digest(known.digest, digest(credential)):
                    # It is that key to the last character, so it need not be parsed.
                    self._identified(request, None, fault, known)
                    return
                cache.parse_key(credential)
            if cache.key_id is not None:
                self._look(request, cache.key_id, cache.key_digest, fault)
                return
            credential = KEY_MALFORMED
        elif credential is KEY_MISSING and request.client.tls is not None:
            # Asked for again each time it is judged: the certificate may expire.
            key_id = request.client.certified_key(self.clock_us() / SECOND_US)
            if key_id is not None:
                self._look(request, key_id, None, fault)
                return
        if fault is None and credential is KEY_MISSING and self._looks_for_oauth(request):
            fault = NO_OAUTH
        if fault is None:
            self._unidentified(request, credential)
        else:
            # It costs nothing: nothing can be learnt from what is no key.
            self._refuse(request, fault)

    def _look(
        self, request: Request, key_id: str, key_digest: bytes | None, fault: Refusal | None
    ) -> None:
        """key_digest: as in `judge.key_refusal`"""
        identity = self.directory.known(key_id)
        if identity is None:
            found = partial(self._looked_up, request, key_digest, fault)
            self.directory.look_up(key_id, found)
        else:
            self._identified(request, key_digest, fault, identity)

    def _looked_up(
        self,
        request: Request,
        key_digest: bytes | None,
        fault: Refusal | None,
        identity: Identity | Absent,
    ) -> None:
        """Call `_identified` from a callback, where no caller handles exceptions."""
        try:
            self._identified(request, key_digest, fault, identity)
        except Exception:
            request.failed()

    def _identified(
        self,
        request: Request,
        key_digest: bytes | None,
        fault: Refusal | None,
        identity: Identity | Absent,
    ) -> None:
        if request.is_over:
            return
        if isinstance(identity, Absent):
            if identity is Absent.UNKNOWN:
                self._unidentified(request, KEY_UNKNOWN, fault)
            else:
                self._refuse(request, fault or STORE_UNAVAILABLE)
            return
        policy, client_ip, now_us = request.policy, request.client_ip, self.clock_us()
        refusal = None
        if key_digest is not None or not identity.is_valid(policy, now_us, client_ip):
            refusal = key_refusal(
                identity.record, key_digest, policy.environment, now_us, client_ip
            )
            if refusal is None:
                identity.note_valid(policy, client_ip)
        if refusal is None:
            self.directory.touch(identity)
            cache = request.cache
            cache.identity, cache.epoch = identity, self.epoch
            cache.credential = request.fields.credential
            cache.client_ip, cache.policy = client_ip, policy
            self._admit(request, identity, fault)
        elif refusal is IP_NOT_ALLOWED:
            self.directory.touch(identity)
            self._admit(request, identity, fault or refusal)
        else:
            if refusal is not KEY_UNKNOWN and fault is None:
                request.identity = identity
            self._unidentified(request, refusal, fault)

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
        check = granted.check if request.refusal is None else granted.ask
        if check is None:
            check = self._found_check(request, granted)
            if check is None:
                return
        if granted.leases and request.refusal is None:
            check = check.leased(randbelow(MOST_LEASE) + 1, request.connection)
        request.check = check
        self.limiter.decide(check, self._timed(request) if self.is_timed else request.decided)

    def _found_check(self, request: Request, granted: Grant) -> Check | None:
        """The check for what the request says; None: its body is awaited, or it is refused."""
        verification = request.route.verification
        if (
            verification is not None
            and request.refusal is None
            and not self._is_verified(request, verification)
        ):
            return None
        if granted.reads:
            return request.message_check(granted)
        cost = self._cost(request, granted)
        return None if cost is None else granted.check_for(request.subject, request.header, cost)

    def _is_verified(self, request: Request, verification: Verification) -> bool:
        """Is a webhook's signature right? If it is not, or cannot be, the request is refused."""
        if request.is_taken_as_signed:
            return True
        try:
            claim = verification.read(request.header, self.clock_us() / SECOND_US)
            body = request.whole_body(verification.body_bytes, BODY_TOO_LARGE)
            if body is None:
                return False
            if isinstance(body, Refusal):
                request.refusal = body
            else:
                verification.check(claim, body)
        except Unverified as error:
            request.detail = str(error)
            self._unidentified(request, SIGNATURE_INVALID)
            return False
        return True

    def _cost(self, request: Request, granted: Grant) -> int | None:
        """The cost of the request: 0 if it is refused, also for its cost; None: body awaited."""
        if request.refusal is not None:
            return 0
        if granted.costing is None:
            return granted.cost
        found = _found_cost(request, granted.costing)
        if isinstance(found, Uncounted):
            request.refusal, request.detail = found.refusal, found.detail
            return 0
        # Where no limit applies, nothing counts it.
        return found if found is None or granted.cost else 0

    def _open_grant(self, policy: Policy, route: Route) -> Grant:
        if policy is not self.policy:  # it was replaced while the request's body arrived
            return open_grant(policy, route)
        granted = self._open_grants.get(route.name)
        if granted is None:
            granted = self._open_grants[route.name] = open_grant(policy, route)
        return granted

    def _unidentified(
        self, request: Request, refusal: Refusal, fault: Refusal | None = None
    ) -> None:
        """Refuse a failed authentication: it counts against the address.

        fault: the request's own, which is answered instead
        """
        self.metrics.auth_failed(refusal.reason)
        self._refuse(request, fault or refusal, cost=1)

    def _looks_for_oauth(self, request: Request) -> bool:
        requested = request.requested
        return self._has_mcp and is_discovery(requested.method, requested.path)

    def _refuse(self, request: Request, refusal: Refusal, cost: int = 0) -> None:
        if refusal is NOT_FOUND and self._looks_for_oauth(request):
            refusal = NO_OAUTH
        request.refusal = refusal
        policy = request.policy
        failed = self._failed if policy is self.policy else failed_grant(policy)
        request.check = check = failed.check_for(request.subject, request.header, cost)
        self.limiter.decide(check, self._timed(request) if self.is_timed else request.decided)

    def _timed(self, request: Request) -> Callable[[Decision | None], None]:
        """Note when the limiter is asked; what it calls notes when it has answered."""
        request.cache.asked_at = perf_counter()
        return request.decided_then


def _found_cost(request: Request, costing: Costing) -> int | Uncounted | None:
    """The cost that the request says; None: its body is awaited."""
    if isinstance(costing, HeaderCost):
        return header_cost(costing, request.header(costing.name))
    has_body = request.fields.chunked or request.fields.length
    if has_body and not is_json(*map(request.header, MEDIA_FIELDS)):
        return Uncounted(NOT_JSON, "")
    body = request.whole_body(costing.body_bytes, COUNTED_BODY_TOO_LARGE)
    if isinstance(body, Refusal):
        return Uncounted(body, "")
    return None if body is None else body_cost(costing, body)


def _is_served(request: Request) -> bool:
    """Is the client served during the maintenance of the route?"""
    maintenance = request.route.maintenance
    return maintenance is not None and maintenance.admits(request.client_ip)
