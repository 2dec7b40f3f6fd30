"""Keeps the addresses of the servers' names up to date.

A name is looked up when a policy first has it, and again when the answer's time to live ends. While
look-ups fail, the last answer stays in use. Requests read what is known and wait for nothing, but
for the first answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Final

from gateway import tasks
from gateway.domain.targets import Answer, Target, literal
from gateway.domain.upstreams import Server
from gateway.observe.metrics import Metrics

log = logging.getLogger("gateway.upstream")

#: Looks a server's name up. Raises OSError.
LookUp = Callable[[Server], Awaitable[Answer]]

#: The bounds of an answer's time to live: some DNS servers send 0, others days.
LEAST_S: Final = 1.0
MOST_S: Final = 300.0
#: After a look-up that failed.
RETRY_S: Final = 1.0


@dataclass(slots=True, eq=False)
class _Name:
    """What is known of one name.

    targets:  of the last good answer; (): there was none so far
    failure:  why the last look-up failed; "": it did not
    is_first: the first look-up is in progress
    """

    targets: tuple[Target, ...] = ()
    failure: str = ""
    is_first: bool = True
    task: asyncio.Task[None] | None = None


class Lookups:
    """The names of all servers of a policy.

    changed: called when the targets of a server have changed, or its first look-up failed
    """

    def __init__(
        self,
        metrics: Metrics,
        look_up: LookUp,
        changed: Callable[[Server], None],
    ) -> None:
        self._metrics = metrics
        self._look_up = look_up
        self._changed = changed
        self._names: dict[Server, _Name] = {}

    def use(self, servers: Collection[Server]) -> list[asyncio.Task[None]]:
        """Look these names up from now on, and no others.

        Returns the tasks for the others, which were cancelled.
        """
        ending = []
        wanted = {server for server in servers if not literal(server)}
        for server in self._names.keys() - wanted:
            task = self._names.pop(server).task
            if task is not None:
                task.cancel()
                ending.append(task)
            if server.authority not in {each.authority for each in wanted}:
                self._metrics.lookups_ended(server.authority)
        for server in wanted - self._names.keys():
            name = self._names[server] = _Name()
            name.task = tasks.spawn(self._keep(server, name), f"look-ups of {server.authority}")
        return ending

    def targets(self, server: Server) -> tuple[Target, ...]:
        """The targets of a server, as far as they are known."""
        name = self._names.get(server)
        return literal(server) if name is None else name.targets

    def is_first(self, server: Server) -> bool:
        """Is its first look-up in progress?"""
        name = self._names.get(server)
        return name is not None and name.is_first

    async def _keep(self, server: Server, name: _Name) -> None:
        """Look one name up, again and again, until cancelled."""
        while True:
            again_s = await self._once(server, name)
            await asyncio.sleep(again_s)

    async def _once(self, server: Server, name: _Name) -> float:
        """Look a name up; return after how many seconds to do so again."""
        try:
            answer = await self._look_up(server)
            if not answer.targets:
                raise OSError("the name has no address")
        except OSError as error:
            self._failed(server, name, str(error) or type(error).__name__)
            return RETRY_S
        except Exception as error:
            log.exception("look-up of %s failed", server.authority)
            self._failed(server, name, type(error).__name__)
            return RETRY_S
        self._metrics.looked_up(server.authority, "success")
        if name.failure:
            log.warning("look-up of %s succeeds again", server.authority)
        name.failure = ""
        self._take(server, name, answer.targets)
        return min(max(answer.ttl_s, LEAST_S), MOST_S)

    def _failed(self, server: Server, name: _Name, words: str) -> None:
        self._metrics.looked_up(server.authority, "failure")
        if not name.failure:
            # Only the first of a series: the metric counts all.
            kept = "; its last addresses stay in use" if name.targets else ""
            log.warning("look-up of %s failed%s: %s", server.authority, kept, words)
        name.failure = words
        self._take(server, name, name.targets)

    def _take(self, server: Server, name: _Name, targets: tuple[Target, ...]) -> None:
        if targets == name.targets and not name.is_first:
            return
        if not name.is_first:
            log.info("%s is now %s", server.authority, ", ".join(each.label for each in targets))
        name.targets = targets
        name.is_first = False
        self._changed(server)
