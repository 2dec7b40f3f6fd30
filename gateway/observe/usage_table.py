"""The usage that this worker has counted and not written yet: one addition per request.

Requests are counted by key, plan, route and outcome; calls of tools of MCP servers also by tool. A
table is closed when its minute is over, and waits until it is taken, in chunks, to be written to
the store. In an outage the tables of several minutes wait; beyond a bounded number of entries new
ones are dropped, and a metric counts the requests. No I/O and no clock: the caller says when a
minute is over.

Answered requests, which are most, have a tally in their grant: finding it takes an eighth of the
time of a dictionary with four words as its key. All others are counted in a dictionary.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gateway.domain.usage import Counted, Measured, Measures, Tally, outcome_of
from gateway.observe.metrics import Metrics

if TYPE_CHECKING:
    from gateway.errors import Refusal

#: The most entries that wait, some 60 MB. In an outage, a tally that has many different latencies
#: is an entry for each LATENCIES of them.
MOST_ENTRIES: Final = 100_000
LATENCIES: Final = 5
#: Entries in a chunk, which the store counts in one step. They are up to twice as many counts.
CHUNK: Final = 500

#: (id of the key or "", plan or "", route or "", the refusal that was sent, the limit or reason).
#: Only for requests that were not admitted; refusal None: the client disconnected before it.
Entry = tuple[str, str, str, "Refusal | None", str | None]


@dataclass(slots=True, eq=False)
class Table:
    """The requests of a minute or a part of it.

    minute_s: Unix time; size: the number of entries that it counts as, once it is closed
    calls:    of tools
    """

    minute_s: int
    counts: dict[Entry, int] = field(default_factory=dict)
    tallies: list[Tally] = field(default_factory=list)
    calls: dict[Counted, int] = field(default_factory=dict)
    size: int = 0

    def __len__(self) -> int:
        return len(self.counts) + len(self.tallies) + len(self.calls)


class UsageTable:
    """The usage of one worker.

    minute_s: the current minute, Unix time
    open:     the table for new requests
    """

    def __init__(self, metrics: Metrics, minute_s: int, most: int = MOST_ENTRIES) -> None:
        self._metrics = metrics
        self._most = most
        self.open = Table(minute_s)
        #: Oldest first; none is empty.
        self._closed: deque[Table] = deque()
        #: The number of entries in closed tables.
        self._waiting = 0

    def __len__(self) -> int:
        """The number of entries that wait."""
        return self._waiting + len(self.open)

    # -- at each request ---------------------------------------------------------------------------

    def tally(self, key_id: str, plan: str, route: str) -> Tally:
        """The tally for an answered request, and for later ones while its table is open."""
        if len(self) >= self._most:
            self._metrics.usage_dropped += 1
            return Tally(None, key_id, plan, route)
        tally = Tally(self.open, key_id, plan, route)
        self.open.tallies.append(tally)
        return tally

    def begin(self, entry: Entry) -> None:
        """Count a request that was not admitted, the first with this entry in the open table."""
        if len(self) >= self._most:
            self._metrics.usage_dropped += 1
        else:
            self.open.counts[entry] = 1

    def called(self, route: str, tool: str, outcome: str) -> None:
        """Count a call of a tool. Few differ, as only the policy names tools."""
        calls, counted = self.open.calls, (f"mcp:{route}", tool, outcome)
        if counted in calls or len(self) < self._most:
            calls[counted] = calls.get(counted, 0) + 1

    # -- each second -------------------------------------------------------------------------------

    def start_minute(self, minute_s: int) -> None:
        """Count from now on in this minute."""
        if minute_s != self.open.minute_s:
            self._close(minute_s)

    def close(self, minute_s: int) -> None:
        """The same; also close the open table, so that it is written, if no other table waits.

        Otherwise the minute's table stays open: in an outage, there is one table a minute.
        """
        self.start_minute(minute_s)
        if not self._closed:
            self._close(minute_s)
        else:
            for tally in self.open.tallies:
                if tally.ended:
                    tally.add_up()

    def take(
        self, most: int = CHUNK
    ) -> tuple[int, dict[Counted, int], dict[Measured, Measures]] | None:
        """The next counts to write, of `most` entries at most, and their minute; None: no more.

        Removes them from the closed tables.
        """
        if not self._closed:
            return None
        table = self._closed[0]
        counts: dict[Counted, int] = {}
        measures: dict[Measured, Measures] = {}
        before = len(table)
        for _ in range(min(most, before)):
            if table.tallies:
                tally = table.tallies.pop()
                outcomes, measured = tally.add_up()
                route = tally.route or "none"
                for subject in _subjects(tally.key_id, tally.plan):
                    for outcome, requests in outcomes.items():
                        counted = subject, route, outcome
                        counts[counted] = counts.get(counted, 0) + requests
                    known = measures.get((subject, route))
                    if known is None:
                        measures[subject, route] = measured.copy()
                    else:
                        known.add(measured)
            elif table.calls:
                counted, requests = table.calls.popitem()
                counts[counted] = counts.get(counted, 0) + requests
            else:
                (key_id, plan, route, refusal, detail), requests = table.counts.popitem()
                outcome = outcome_of(decision_of(refusal), detail)
                for subject in _subjects(key_id, plan):
                    counted = subject, route or "none", outcome
                    counts[counted] = counts.get(counted, 0) + requests
        left = table.size * len(table) // before
        self._waiting -= table.size - left
        table.size = left
        if not table:
            self._closed.popleft()
        return table.minute_s, counts, measures

    def _close(self, minute_s: int) -> None:
        if self.open:
            self.open.size = len(self.open.counts) + len(self.open.calls)
            self.open.size += sum(map(_size, self.open.tallies))
            self._closed.append(self.open)
            self._waiting += self.open.size
        self.open = Table(minute_s)


def decision_of(refusal: Refusal | None) -> str:
    """The decision, in the access log and the usage, on a request that got no upstream's response.

    refusal: the response that was sent; None: the client disconnected before it
    """
    if refusal is None:
        return "failed"
    if refusal.status == 429:
        return "limited"
    return "refused" if refusal.blame == "client" else "failed"


def _subjects(key_id: str, plan: str) -> tuple[str, ...]:
    """What a request is counted for: its key, if it is known, and its plan."""
    return (f"key:{key_id}", f"plan:{plan}") if key_id else (f"plan:{plan}",)


def _size(tally: Tally) -> int:
    return 1 if tally.measures is None else 1 + len(tally.measures.latencies) // LATENCIES
