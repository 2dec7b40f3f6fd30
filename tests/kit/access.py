"""Requests for the access log, from the values that a line of it shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from gateway.errors import Refusal
from gateway.observe.access import AccessLog, open_access_log

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
    "host": "api.example.com",
    "minor": 1,
    "server": "10.0.0.5:9000",
    "remaining": 59,
    "gate_us": 35,
    "limiter_us": 250,
    "forward": "",
    "trace_id": b"",
    "query": "",
    "tls": None,
}


@dataclass(slots=True)
class LoggedRequest:
    """What the access log reads of a request."""

    request_id: bytes
    client_ip: str
    method: str
    minor: int
    fields: Any
    client: Any
    route: Any
    requested: Any
    status: int
    identity: Any
    grant: Any
    check: Any
    decision: Any
    refusal: Refusal | None
    bytes_in: int
    bytes_out: int
    sent_to: Any
    upstream_s: float | None
    started: float
    asked_at: float
    decided_at: float
    trace_id: bytes
    message: Any = None
    mcp_version: str = ""


def logged(**changes: Any) -> LoggedRequest:
    """The request of LINE, with these changes."""
    line = {**LINE, **changes}
    record = SimpleNamespace(id=line["key_id"], account=line["account"], plan=line["plan"])
    limits = (SimpleNamespace(name=line["limit"]),)
    return LoggedRequest(
        request_id=line["request_id"].encode("ascii"),
        client_ip=line["client_ip"],
        method=line["method"],
        minor=line["minor"],
        fields=SimpleNamespace(
            host=line["host"].encode("latin-1"), forward=line["forward"].encode("latin-1")
        ),
        client=SimpleNamespace(tls_version=line["tls"]),
        route=SimpleNamespace(name=line["route"] or ""),
        requested=SimpleNamespace(
            path=line["path"],
            forward_line=f"GET {line['path']}{line['query']} HTTP/1.1\r\n".encode(
                "utf-8", "surrogatepass"
            ),
        ),
        status=line["status"],
        grant=object(),
        identity=None if line["key_id"] is None else SimpleNamespace(record=record),
        check=SimpleNamespace(limits=limits, cost=line["cost"]),
        decision=None
        if line["limit"] is None
        else SimpleNamespace(governing=0, remaining=line["remaining"]),
        refusal=line["refusal"],
        bytes_in=line["bytes_in"],
        bytes_out=line["bytes_out"],
        sent_to=None
        if line["upstream"] is None
        else SimpleNamespace(name=line["upstream"], label=line["server"]),
        upstream_s=None if line["upstream_us"] is None else line["upstream_us"] / 1e6,
        started=0.001,
        asked_at=0.0 if line["gate_us"] is None else 0.001 + line["gate_us"] / 1e6 + 1e-9,
        decided_at=0.0
        if line["limiter_us"] is None
        else 0.001 + ((line["gate_us"] or 0) + line["limiter_us"]) / 1e6 + 2e-9,
        trace_id=line["trace_id"],
    )


def write_line(log: AccessLog, **changes: Any) -> None:
    """Write LINE with these changes."""
    line = {**LINE, **changes}
    log.write(
        logged(**changes),
        *(line["status"], line["time_us"], line["duration_us"], line["reason"]),
    )


@contextmanager
def opened(path: Path) -> Iterator[AccessLog]:
    """An open log of this file."""
    log = open_access_log(str(path))
    assert log is not None
    yield log
    log.close()


def lines(path: Path) -> list[dict[str, Any]]:
    """The objects in a file of JSON lines."""
    return [json.loads(line) for line in path.read_bytes().splitlines()]
