"""Runs tests of policies: each request is decided as a worker of the gateway decides it.

The head of a request is written out, and read and decided by the proxy's own `Intake` and `Gate`,
with the limiter of one process and a clock that only the test moves. So routes, keys, access rules
and limits are those of the gateway. What needs a network is left out: upstreams, timeouts and
bounds on connections.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

from gateway.cli.case_fields import ADMITTED
from gateway.cli.cases import NONE, Case, Expected, Sender, Shared, Step
from gateway.domain.identity import Absent, Grant, Identity
from gateway.domain.keys import with_account
from gateway.domain.limits import SECOND_US, Check, Decision
from gateway.domain.mcp.sessions import Seals, Session
from gateway.domain.policy import Policy
from gateway.domain.routes import VERIFY
from gateway.domain.shown import reset_after_s
from gateway.errors import BODY_TOO_LARGE, INTERNAL, RATE_LIMITED, STORE_UNAVAILABLE, Refusal
from gateway.http1.head import Fields, received_credential
from gateway.limiting.memory import MemoryLimiter
from gateway.manage.forms import read_account, read_new_key
from gateway.manage.keys import mint_key
from gateway.observe.metrics import Metrics
from gateway.proxy.answers import retry_after
from gateway.proxy.client import Client
from gateway.proxy.connection_cache import ConnectionCache
from gateway.proxy.cross_origin import checked
from gateway.proxy.gate import Gate
from gateway.proxy.intake import Intake
from gateway.proxy.mcp_reading import Reading
from gateway.proxy.request import Request
from gateway.routing import Requested, refused
from gateway.stores.limits.leases import LeaseKeeper

#: Counters of one test: none is dropped, as a step has at most 100,000 requests.
_CAPACITY: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class Answer:
    """What the gateway would answer. refusal: None: it is admitted

    route: "" if none matched
    limit: the governing one, whose values follow; "", None: not known, as /v1/auth/verify reports
           the limits of its key; or none, as an address is denied before any is read
    """

    refusal: Refusal | None
    route: str
    limit: str
    remaining: int | None
    reset_after: int | None
    retry_after: int | None

    @property
    def is_admitted(self) -> bool:
        return self.refusal is None


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step led to. at_us: since the test's beginning; last: None: nothing was sent

    refused_at: the number of the first request that was not admitted; 0: all were
    """

    step: Step
    at_us: int
    admitted: int
    refused_at: int
    last: Answer | None


@dataclass(frozen=True, slots=True)
class Difference:
    """A field that is not as expected. found: "none" if the answer has no such field"""

    line: int
    field: str
    expected: str
    found: str


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What a test led to. steps: up to the first with a difference"""

    case: Case
    steps: tuple[StepResult, ...]
    differences: tuple[Difference, ...]

    @property
    def has_passed(self) -> bool:
        return not self.differences


def run_case(policy: Policy, case: Case) -> CaseResult:
    """Run a test, until a step has another result than was expected."""
    trial = _Trial(policy, case.at_us)
    results: list[StepResult] = []
    for step in case.steps:
        result = trial.run(step)
        results.append(result)
        differences = tuple(_differences(result))
        if differences:
            return CaseResult(case, tuple(results), differences)
    return CaseResult(case, tuple(results), ())


def _differences(result: StepResult) -> list[Difference]:
    found: Mapping[str, object] = {} if result.last is None else _found(result, result.last)
    return [
        Difference(expected.line, name, str(expected.value), _shown(found.get(name)))
        for name, expected in result.step.expected.items()
        if not _is_met(expected, found.get(name))
    ]


def _is_met(expected: Expected, found: object) -> bool:
    return _shown(found) == str(expected.value)


def _shown(value: object) -> str:
    return NONE if value is None or value == "" else str(value)


def _found(result: StepResult, last: Answer) -> dict[str, object]:
    """The fields that a test can expect: of the last request, but for `admitted`."""
    refusal = last.refusal
    return {
        "status": ADMITTED if refusal is None else refusal.status,
        "admitted": result.admitted,
        "route": last.route,
        "code": None if refusal is None else refusal.code,
        "reason": None if refusal is None else refusal.reason,
        "limit": last.limit,
        "remaining": last.remaining,
        "reset_after": last.reset_after,
        "retry_after": last.retry_after,
    }


class _Trial:
    """A gateway for one test, whose time is a number."""

    def __init__(self, policy: Policy, begin_us: int) -> None:
        self._policy = policy
        self._begin_us = self._now_us = begin_us
        memory = MemoryLimiter(lambda: self._now_us, capacity=_CAPACITY)
        self._limiter = LeaseKeeper(memory, (memory,), lambda: self._now_us / SECOND_US)
        self._directory = _Directory()
        self._gate = Gate(policy, self._limiter, self._directory, Metrics(""), lambda: self._now_us)
        self._keys: dict[Sender, str] = {}
        self._numbers = count()
        #: When requests in progress end, their numbers, and the checks whose leases they hold.
        self._ends: list[tuple[int, int, Check]] = []

    def run(self, step: Step) -> StepResult:
        self._now_us += step.wait_us
        begin_us = self._now_us
        admitted = refused_at = 0
        last = None
        if step.send:
            head = self._head(step)
            content = b"" if step.body is None else step.body.content
            for number in range(step.times):
                self._move_to(begin_us + number * step.over_us // step.times)
                last = self._send(head, content, step.shared, step.lasts_us)
                if last.is_admitted:
                    admitted += 1
                elif not refused_at:
                    refused_at = number + 1
        self._now_us = begin_us + step.over_us
        return StepResult(step, begin_us - self._begin_us, admitted, refused_at, last)

    def _move_to(self, now_us: int) -> None:
        """Let the time pass, in which requests end and others keep their leases."""
        while self._ends and self._ends[0][0] <= now_us:
            self._now_us, _, check = heapq.heappop(self._ends)
            self._limiter.release(check)
        self._now_us = now_us
        self._limiter.renew_due()

    def _send(self, head: bytes, content: bytes, shared: Shared, lasts_us: int) -> Answer:
        gate, policy = self._gate, self._policy
        client = Client(str(shared.client), "http", policy)
        read = Intake(gate).read(head, 0)
        if isinstance(read, Refusal):
            requested = Requested("", 1, "", refusal=read)
            fields = Fields(close=True, credential=received_credential(head))
        else:
            assert read is not None, "the head is complete"
            requested, fields, _ = read
            requested = checked(requested, fields, client, gate)
            refusal = _body_refusal(requested, fields, policy)
            if refusal is not None:
                requested = refused(requested, refusal)
        request = _Sent(requested, fields, content, client, policy)
        gate.judge(request)
        check = request.check
        if request.answered is None and check is not None and check.lease:
            heapq.heappush(self._ends, (self._now_us + lasts_us, next(self._numbers), check))
            self._move_to(self._now_us)
        return request.result()

    def _head(self, step: Step) -> bytes:
        """The head of the step's requests."""
        shared, body = step.shared, step.body
        own = {"Host": shared.host}
        if body is not None:
            own["Content-Length"] = str(len(body.content))
            if body.media_type:
                own["Content-Type"] = body.media_type
        given = {name.lower() for name, _ in shared.headers}
        lines = [f"{step.send} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in own.items() if name.lower() not in given]
        if shared.sender is not None:
            lines.append(f"Authorization: Bearer {self._key(shared.sender)}")
        lines += [f"{name}: {value}" for name, value in shared.headers]
        return "".join(f"{line}\r\n" for line in (*lines, "")).encode()

    def _key(self, sender: Sender) -> str:
        """The text of a key, which is created at its first use."""
        text = self._keys.get(sender)
        if text is None:
            text, identity = make_identity(sender, self._policy, self._begin_us)
            self._keys[sender] = text
            self._directory.identities[identity.record.id] = identity
        return text


def _body_refusal(requested: Requested, fields: Fields, policy: Policy) -> Refusal | None:
    """Why the proxy refuses a request of this route by its head: see `ClientConnection`."""
    if fields.fault is not None:
        return fields.fault
    if isinstance(fields.websocket, Refusal) and requested.method == "GET":
        return fields.websocket
    most = requested.route.body_bytes or policy.bounds.body_bytes
    if fields.length is not None and fields.length > most:
        return BODY_TOO_LARGE
    return None


def make_identity(sender: Sender, policy: Policy, begin_us: int) -> tuple[str, Identity]:
    """A key as `keys create` makes it, and its text."""
    record, text = mint_key(read_new_key(sender.fields, policy, begin_us), begin_us)
    record = replace(record, status=sender.status)
    account = read_account(record.account, sender.account, policy)
    return text, Identity(with_account(record, account), account)


class _Unsealed(Seals):
    """A test has no answers from which a session could come: every id is a session of its key."""

    def open(self, sealed: str, lineage: str, route: str) -> Session | None:
        """With the key in place of a server, for which sessions are different ones, too."""
        return Session(sealed, lineage) if sealed.isascii() else None


_SEALS: Final = _Unsealed((bytes(32),))


class _Directory:
    """Implements `domain.ports.KeyDirectory` for the keys of one test."""

    def __init__(self) -> None:
        self.identities: dict[str, Identity] = {}

    def known(self, key_id: str) -> Identity | Absent:
        return self.identities.get(key_id, Absent.UNKNOWN)

    def look_up(self, key_id: str, done: Callable[[Identity | Absent], None]) -> None:
        done(self.known(key_id))

    def touch(self, identity: Identity) -> None: ...


class _Sent(Request):
    """A request that ends with its decision.

    content:  of its body
    answered: why it is refused
    """

    __slots__ = ("answered", "content", "reading")

    def __init__(
        self,
        requested: Requested,
        fields: Fields,
        content: bytes,
        client: Client,
        policy: Policy,
    ) -> None:
        self.policy = policy
        self.requested = requested
        self.route = requested.route
        self.method = requested.method
        self.minor = requested.minor
        self.fields = fields
        self.content = content
        self.client = client
        self.cache = ConnectionCache()
        self.client_ip, self.subject = (
            client.origin(fields) if client.is_trusted else (client.ip, client.subject)
        )
        self.identity = None
        self.grant = None
        self.check = None
        self.decision = None
        self.refusal = None
        self.answered: Refusal | None = None
        self.reading = Reading()

    @property
    def is_taken_as_signed(self) -> bool:
        return True

    @property
    def connection(self) -> int:
        return self.reading.session_tag

    def whole_body(self, most: int, too_large: Refusal) -> bytes | Refusal | None:
        return too_large if len(self.content) > most else self.content

    def puts_off(self) -> bool:
        return False

    def message_check(self, granted: Grant) -> Check | None:
        return self.reading.check(self, granted, _SEALS)

    def result(self) -> Answer:
        """The answer, once it is decided."""
        check, decision, refusal = self.check, self.decision, self.answered
        if check is None or decision is None:
            # Of an address that is denied no limit is read.
            assert refusal is not None, "what is not refused is decided"
            return Answer(refusal, self.route.name, "", None, None, None)
        governing = decision.governing
        if refusal is None and self.route.name == VERIFY.name:
            return Answer(None, self.route.name, "", None, None, None)
        return Answer(
            refusal,
            self.route.name,
            check.limits[governing].name,
            decision.remaining,
            reset_after_s(decision.standings[governing]),
            None if refusal is None else retry_after(refusal, self.route, decision),
        )

    @property
    def is_over(self) -> bool:
        return False

    def decided(self, decision: Decision | None) -> None:
        """As `Exchange.decided`."""
        self.decision = decision
        check = self.check
        if decision is None or check is None:
            self.answer_refusal(self.refusal or STORE_UNAVAILABLE)
        elif check.cost and not decision.allowed:
            self.answer_refusal(RATE_LIMITED)
        elif self.refusal is not None:
            self.answer_refusal(self.refusal)

    def answer(self, status: int, body: bytes, content_type: str = "") -> None: ...

    def answer_refusal(self, refusal: Refusal) -> None:
        self.answered = refusal

    def abandon(self, reason: str) -> None: ...

    def failed(self) -> None:
        self.answer_refusal(INTERNAL)
