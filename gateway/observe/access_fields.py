"""The fields of the access log: the text of each, for a request that has ended.

A field that needs a header's value searches for it only when a line is written.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol
from urllib.parse import unquote_plus

from gateway.domain.access_log import AccessLogFormat
from gateway.domain.identity import Grant, Identity
from gateway.domain.key_format import looks_like_key
from gateway.domain.limits import Check, Decision
from gateway.domain.mcp.messages import Message
from gateway.domain.mcp.settings import CALL
from gateway.domain.route import Route
from gateway.errors import Refusal
from gateway.observe.logs import REDACTED, redact_path
from gateway.observe.usage_table import decision_of


class Target(Protocol):
    """What a request asks for."""

    @property
    def path(self) -> str: ...
    @property
    def forward_line(self) -> bytes: ...


class HeaderBlock(Protocol):
    """Its header fields; forward: the lines for the upstream, without keys."""

    @property
    def host(self) -> bytes: ...
    @property
    def forward(self) -> bytes: ...


class Peer(Protocol):
    """The other end of its connection."""

    @property
    def tls_version(self) -> str | None: ...


class Server(Protocol):
    """Where it was sent. name: of the upstream; label: the address"""

    @property
    def name(self) -> str: ...
    @property
    def label(self) -> str: ...


class Logged(Protocol):
    """The fields of `proxy.request.Request` that a line shows."""

    request_id: bytes
    client_ip: str
    method: str
    minor: int
    route: Route
    status: int
    identity: Identity | None
    grant: Grant | None
    check: Check | None
    decision: Decision | None
    refusal: Refusal | None
    bytes_in: int
    bytes_out: int
    upstream_s: float | None
    started: float

    @property
    def message(self) -> Message | None: ...
    @property
    def mcp_version(self) -> str: ...
    @property
    def trace_id(self) -> bytes: ...
    @property
    def sent_to(self) -> Server | None: ...
    @property
    def asked_at(self) -> float: ...
    @property
    def decided_at(self) -> float: ...
    @property
    def requested(self) -> Target: ...
    @property
    def fields(self) -> HeaderBlock: ...
    @property
    def client(self) -> Peer: ...


@dataclass(slots=True)
class Entry:
    """A request, and what else its line shows.

    status: as the line shows it; time_us: when it came, Unix microseconds; reason: why it was
    refused or ended early, None: neither; share: the share of such requests that are written
    """

    request: Logged
    status: int
    time_us: int
    duration_us: int
    reason: str | None
    share: float


#: The text of a field; None: it has no value.
Getter = Callable[[Entry], str | None]

#: Fields that are numbers in JSON.
NUMBERS: Final = frozenset(
    ("status", "cost", "remaining", "bytes_in", "bytes_out", "duration_ms", "upstream_ms")
    + ("gate_ms", "limiter_ms", "sample")
)
#: The longest text of a header that is written, and the most parameters of a query: a client sends
#: 30 KB of either for nothing, and a datagram for syslog has 64 KB.
MOST_TEXT: Final = 2_048
MOST_PARAMETERS: Final = 256
_MORE: Final = "..."
#: Some servers take a semicolon for an ampersand.
_SEPARATORS = re.compile("([&;])").split
_user_agent = re.compile(rb"\r\nuser-agent: ([^\r]*)", re.IGNORECASE).search
_referrer = re.compile(rb"\r\nreferer: ([^\r]*)", re.IGNORECASE).search
#: The longest name of a tool, prompt or resource.
MOST_NAME: Final = 128
#: W3C Trace Context, 3.2.2: version, trace-id, parent-id and flags; version ff is invalid, and so
#: are ids of zeros. Later versions may add further parts.
_traceparent = re.compile(
    rb"\r\ntraceparent: (?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}"
    rb"-[0-9a-f]{2}(-[^\r]*)?\r\n",
    re.IGNORECASE,
).search
_is_traceparent = re.compile(rb"\r\ntraceparent: ", re.IGNORECASE).findall


def getters(form: AccessLogFormat) -> Mapping[str, Getter]:
    """The fields whose values depend on the settings, and all others."""
    rule = QueryText(form)

    def request_line(entry: Entry) -> str | None:
        path = _path(entry)
        if not path:
            return None
        query = rule.of(entry)
        more = f"?{query}" if query else ""
        return f"{entry.request.method} {path}{more} HTTP/1.{entry.request.minor}"

    def referrer(entry: Entry) -> str | None:
        found = _referrer(b"\r\n" + entry.request.fields.forward)
        return None if found is None else _cut(rule.url(found[1].decode("latin-1")))

    return {**_PLAIN, "query": rule.of, "request": request_line, "referrer": referrer}


class QueryText:
    """What is logged of queries."""

    def __init__(self, form: AccessLogFormat) -> None:
        self._rule = form.query
        self._redacted = frozenset(form.redact)

    def of(self, entry: Entry) -> str | None:
        """Of a request's query; None: there is none, or none is logged."""
        if self._rule == "off":
            return None
        target = entry.request.requested.forward_line.split(b" ", 2)
        _, mark, query = (target[1] if len(target) == 3 else b"").partition(b"?")
        return self._shown(query.decode("latin-1")) if mark else None

    def url(self, url: str) -> str:
        """Of a URL: without its fragment and user, its query as that of a request."""
        url = url.partition("#")[0]
        scheme, mark, rest = url.partition("://")
        if mark:
            host, slash, path = rest.partition("/")
            url = scheme + mark + host.rpartition("@")[2] + slash + path
        path, mark, query = url.partition("?")
        path = redact_path(path)
        return path if not mark or self._rule == "off" else f"{path}?{self._shown(query)}"

    def _shown(self, query: str) -> str:
        # Parameters and what separates them, in turn.
        pieces = _SEPARATORS(query, MOST_PARAMETERS)
        pieces, rest = pieces[: 2 * MOST_PARAMETERS], pieces[2 * MOST_PARAMETERS :]
        pieces[::2] = map(self._parameter, pieces[::2])
        return "".join([*pieces, _MORE] if rest else pieces)

    def _parameter(self, text: str) -> str:
        name, equals, value = text.partition("=")
        name = REDACTED if looks_like_key(name) else name
        if self._rule == "names":
            return name
        if unquote_plus(name).strip().lower() in self._redacted:
            return f"{name}={REDACTED}" if equals else name
        if looks_like_key(value):
            value = REDACTED
        return name + equals + value


def _cut(text: str) -> str:
    """A text of a header, up to the bound. Cut at last: a part of a key is not known as one."""
    return text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + _MORE


def _path(entry: Entry) -> str:
    return shown_path(entry.request.requested.path)


def shown_path(path: str) -> str:
    """A path without its query, which may contain secrets, and without keys and the like."""
    path = path.partition("?")[0]
    return redact_path(path)


def _decision(entry: Entry) -> str:
    request = entry.request
    is_admitted = request.refusal is None and request.status
    return "admitted" if is_admitted else decision_of(request.refusal)


def _limit(entry: Entry) -> str | None:
    check, decision = entry.request.check, entry.request.decision
    if check is None or decision is None:
        return None
    return check.limits[decision.governing].name


def _remaining(entry: Entry) -> str | None:
    check, decision = entry.request.check, entry.request.decision
    return None if check is None or decision is None else str(decision.remaining)


def _of_key(name: str) -> Getter:
    def get(entry: Entry) -> str | None:
        identity = entry.request.identity
        return None if identity is None else getattr(identity.record, name)

    return get


def _host(entry: Entry) -> str | None:
    return shown_host(entry.request.fields.host) or None


def shown_host(host: bytes) -> str:
    """A Host without keys."""
    text = host.decode("latin-1")
    return redact_path(text)


def _agent(entry: Entry) -> str | None:
    found = _user_agent(b"\r\n" + entry.request.fields.forward)
    if found is None:
        return None
    text = found[1].decode("latin-1")
    return _cut(redact_path(text))


def _of_message(read: Callable[[Message], str]) -> Getter:
    """A text of an MCP message, without keys."""

    def get(entry: Entry) -> str | None:
        message = entry.request.message
        return None if message is None else _word(read(message))

    return get


def _word(text: str) -> str | None:
    """A short text of a client, without keys."""
    return redact_path(text)[:MOST_NAME] or None


def _trace(entry: Entry) -> str | None:
    if trace_id := entry.request.trace_id:
        return trace_id.decode("ascii")
    lines = b"\r\n" + entry.request.fields.forward
    found = _traceparent(lines)
    # W3C Trace Context, 3.2: one field. In version 00 nothing follows the flags.
    if found is None or len(_is_traceparent(lines)) > 1 or (found[1] == b"00" and found[3]):
        return None
    return found[2].decode("ascii").lower()


def _gate(entry: Entry) -> str | None:
    request = entry.request
    return in_ms(int((request.asked_at - request.started) * 1e6)) if request.asked_at else None


def _limiter(entry: Entry) -> str | None:
    request = entry.request
    return in_ms(limiter_us(request, entry.duration_us)) if request.asked_at else None


def limiter_us(request: Logged, duration_us: int) -> int:
    """How long the limiter took; until the request's end, if that came first."""
    if request.decided_at:
        return int((request.decided_at - request.asked_at) * 1e6)
    return max(duration_us - int((request.asked_at - request.started) * 1e6), 0)


def _upstream(entry: Entry) -> str | None:
    upstream_s = entry.request.upstream_s
    return None if upstream_s is None else in_ms(int(upstream_s * 1e6))


def _time(entry: Entry) -> str:
    second, micros = divmod(entry.time_us, 1_000_000)
    return f"{whole_second(second)}.{micros:06d}Z"


#: nginx's $time_local, in UTC. Months' names do not depend on the locale.
_MONTHS: Final = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)


def _time_local(entry: Entry) -> str:
    at = time.gmtime(entry.time_us // 1_000_000)
    return time.strftime(f"%d/{_MONTHS[at.tm_mon - 1]}/%Y:%H:%M:%S +0000", at)


_PLAIN: Final[Mapping[str, Getter]] = {
    "time": _time,
    "time_local": _time_local,
    "request_id": lambda entry: entry.request.request_id.decode("ascii"),
    "client_ip": lambda entry: entry.request.client_ip,
    "method": lambda entry: entry.request.method,
    "path": _path,
    "status": lambda entry: str(entry.status),
    "route": lambda entry: entry.request.route.name or None,
    "key_id": _of_key("id"),
    "account": _of_key("account"),
    "plan": _of_key("plan"),
    "decision": _decision,
    "limit": _limit,
    "cost": lambda entry: str(0 if entry.request.check is None else entry.request.check.cost),
    "remaining": _remaining,
    "bytes_in": lambda entry: str(entry.request.bytes_in),
    "bytes_out": lambda entry: str(entry.request.bytes_out),
    "duration_ms": lambda entry: in_ms(entry.duration_us),
    "upstream_ms": _upstream,
    "gate_ms": _gate,
    "limiter_ms": _limiter,
    "upstream": lambda entry: getattr(entry.request.sent_to, "name", None),
    "server": lambda entry: getattr(entry.request.sent_to, "label", None),
    "reason": lambda entry: entry.reason,
    "host": _host,
    "protocol": lambda entry: f"HTTP/1.{entry.request.minor}",
    "user_agent": _agent,
    "tls": lambda entry: entry.request.client.tls_version,
    "trace_id": _trace,
    "mcp_method": _of_message(lambda message: message.method),
    "mcp_tool": _of_message(lambda message: message.name if message.method == CALL else ""),
    "mcp_version": lambda entry: _word(entry.request.mcp_version),
    "rpc_id": _of_message(lambda message: message.id.decode("utf-8")),
    "sample": lambda entry: f"{entry.share:g}",
}


def in_ms(us: int) -> str:
    """Microseconds as milliseconds."""
    return f"{us // 1000}.{us % 1000:03d}"


@lru_cache(maxsize=16)
def whole_second(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
