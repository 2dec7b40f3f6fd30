"""Routes request lines by Host, under a policy whose routes name hosts. The results are cached."""

from __future__ import annotations

from gateway.domain.hosts import HostTables
from gateway.domain.policy import Policy
from gateway.domain.routes import RouteTable
from gateway.routing import Requested, at_host


class HostLines:
    """The request lines of hosts that routes name; those of all others are `Gate.lines`.

    Clients choose hosts and lines, but not tables: all hosts of one table share its lines.

    most, most_bytes: how many lines are cached, and the longest one
    """

    __slots__ = ("_lines", "_most", "_most_bytes", "_policy", "_tables")

    def __init__(self, policy: Policy, tables: HostTables, most: int, most_bytes: int) -> None:
        self._policy = policy
        self._tables = tables
        self._most = most
        self._most_bytes = most_bytes
        self._lines: dict[tuple[RouteTable, bytes], Requested] = {}

    def routed(self, line: bytes, requested: Requested, host: bytes) -> Requested:
        """A request line as it is routed on a host. requested: as it is on hosts without routes"""
        table = self._tables.table(host)
        if table is self._tables.default:
            return requested
        known = self._lines.get((table, line))
        if known is None:
            known = at_host(requested, self._policy, table)
            if len(line) <= self._most_bytes:
                if len(self._lines) >= self._most:
                    self._lines.clear()
                self._lines[table, line] = known
        return known
