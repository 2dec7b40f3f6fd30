"""What this worker has counted of use and not written yet: an addition a request.

Requests are counted by key, plan, route and what came of them. A table is closed when its minute is
over and waits until it is taken, a chunk at a time, to be written to the store. While the store is
away, the tables of several minutes wait; beyond a bounded number of entries what is new is dropped,
and a metric says how much. Plain bookkeeping: when a minute is over is said from outside.

What is admitted, which is most, has a tally that its grant keeps: to find it takes two looks, a
dictionary by four words eight times as long. All else is found in a dictionary.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gateway.domain.usage import Counted, Tally, outcome_of
from gateway.observe.metrics import Metrics

if TYPE_CHECKING:
    from gateway.errors import Refusal

#: The most entries that wait, some 30 MB of them.
MOST_ENTRIES: Final = 100_000
#: Entries in a chunk, which the store takes in at once. They make up to twice as many counts.
CHUNK: Final = 500

#: (id of the key or "", plan or "", route or "", what was answered in place of the upstream, the
#: limit or reason). The last two are None where the request was admitted.
Entry = tuple[str, str, str, "Refusal | None", str | None]


@dataclass(slots=True, eq=False)
class Table:
    """What was counted in a minute or a part of it. minute_s: Unix time"""

    minute_s: int
    counts: dict[Entry, int] = field(default_factory=dict)
    tallies: list[Tally] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.counts) + len(self.tallies)


class UsageTable:
    """Counts of one worker.

    minute_s: the minute that it is now, Unix time
    open:     the table that is counted in
    """

    def __init__(self, metrics: Metrics, minute_s: int, most: int = MOST_ENTRIES) -> None:
        self._metrics = metrics
        self._most = most
        self.open = Table(minute_s)
        #: Oldest first; none is empty.
        self._closed: deque[Table] = deque()
        #: Entries of what is closed.
        self._waiting = 0

    def __len__(self) -> int:
        """How many entries wait."""
        return self._waiting + len(self.open)

    # -- at each request ---------------------------------------------------------------------------

    def tally(self, key_id: str, plan: str, route: str) -> Tally:
        """A request was admitted. The next may be counted in its tally, while its table is open."""
        if len(self) >= self._most:
            self._metrics.usage_dropped += 1
            return Tally(None, key_id, plan, route, 0)
        tally = Tally(self.open, key_id, plan, route, 1)
        self.open.tallies.append(tally)
        return tally

    def begin(self, entry: Entry) -> None:
        """A request was not admitted, the first of its kind in the open table."""
        if len(self) >= self._most:
            self._metrics.usage_dropped += 1
        else:
            self.open.counts[entry] = 1

    # -- now and then ------------------------------------------------------------------------------

    def start_minute(self, minute_s: int) -> None:
        """What is counted from now on belongs to this minute."""
        if minute_s != self.open.minute_s:
            self._close(minute_s)

    def close(self, minute_s: int) -> None:
        """The same, and what was counted until now is to be written, if nothing else waits.

        Otherwise the minute's table goes on: while the store is away, there is one a minute.
        """
        self.start_minute(minute_s)
        if not self._closed:
            self._close(minute_s)

    def take(self, most: int = CHUNK) -> tuple[int, dict[Counted, int]] | None:
        """The next counts to write, of up to so many entries, and their minute; None: no more.

        Only what is closed is taken, and it is out of the table then.
        """
        if not self._closed:
            return None
        table = self._closed[0]
        chunk: dict[Counted, int] = {}
        size = min(most, len(table))
        for _ in range(size):
            if table.tallies:
                tally = table.tallies.pop()
                _add(chunk, tally.key_id, tally.plan, tally.route, "admitted", tally.requests)
            else:
                (key_id, plan, route, refusal, detail), requests = table.counts.popitem()
                outcome = outcome_of(decision_of(refusal), detail)
                _add(chunk, key_id, plan, route, outcome, requests)
        self._waiting -= size
        if not table:
            self._closed.popleft()
        return table.minute_s, chunk

    def _close(self, minute_s: int) -> None:
        if self.open:
            self._closed.append(self.open)
            self._waiting += len(self.open)
        self.open = Table(minute_s)


def decision_of(refusal: Refusal | None) -> str:
    """What the access log and the usage figures call it where the upstream's answer was not passed.

    refusal: what was answered in its place; None where the client was gone before anything was
    """
    if refusal is None:
        return "failed"
    if refusal.status == 429:
        return "limited"
    return "refused" if refusal.blame == "client" else "failed"


def _add(
    counts: dict[Counted, int], key_id: str, plan: str, route: str, outcome: str, requests: int
) -> None:
    """Count under the key, where it is known, and under the plan."""
    subjects = (f"key:{key_id}", f"plan:{plan}") if key_id else (f"plan:{plan}",)
    for subject in subjects:
        counted = subject, route or "none", outcome
        counts[counted] = counts.get(counted, 0) + requests
