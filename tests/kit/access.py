"""Requests for the access log, from the values that a line of it shows."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

from gateway.errors import Refusal
from gateway.observe.access import AccessLog

#: What an admitted request writes.
LINE: Final[dict[str, Any]] = {
    "time_us": 1_700_000_000_000_042,
    "request_id": "req-1",
    "client_ip": "203.0.113.7",
    "method": "GET",
    "path": "/api/search/users",
    "status": 200,
    "route": "search",
    "key_id": "7h3k9m2p4q6r",
    "account": "acme",
    "plan": "free",
    "refusal": None,
    "limit": "search",
    "cost": 1,
    "bytes_in": 0,
    "bytes_out": 512,
    "duration_us": 12_345,
    "upstream_us": 12_001,
    "upstream": "api",
    "reason": None,
}


@dataclass(slots=True)
class LoggedRequest:
    """What the access log reads of a request."""

    request_id: bytes
    client_ip: str
    method: str
    route: Any
    requested: Any
    status: int
    identity: Any
    check: Any
    decision: Any
    refusal: Refusal | None
    bytes_in: int
    bytes_out: int
    upstream_name: str | None
    upstream_s: float | None


def logged(**changes: Any) -> LoggedRequest:
    """The request of LINE, with these changes."""
    line = {**LINE, **changes}
    record = SimpleNamespace(id=line["key_id"], account=line["account"], plan=line["plan"])
    limits = (SimpleNamespace(name=line["limit"]),)
    return LoggedRequest(
        request_id=line["request_id"].encode("ascii"),
        client_ip=line["client_ip"],
        method=line["method"],
        route=SimpleNamespace(name=line["route"] or ""),
        requested=SimpleNamespace(path=line["path"]),
        status=line["status"],
        identity=None if line["key_id"] is None else SimpleNamespace(record=record),
        check=SimpleNamespace(limits=limits, cost=line["cost"]),
        decision=None if line["limit"] is None else SimpleNamespace(governing=0),
        refusal=line["refusal"],
        bytes_in=line["bytes_in"],
        bytes_out=line["bytes_out"],
        upstream_name=line["upstream"],
        upstream_s=None if line["upstream_us"] is None else line["upstream_us"] / 1e6,
    )


def write_line(log: AccessLog, **changes: Any) -> None:
    """Write LINE with these changes."""
    line = {**LINE, **changes}
    log.write(
        logged(**changes), line["status"], line["time_us"], line["duration_us"], line["reason"]
    )
