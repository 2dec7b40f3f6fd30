"""Records each policy that this gateway loads: what has changed, in the log and in the history.

Once for all workers. The log gets it at once; the history is written in the background, so that an
outage of the store never disturbs a reload. What could not be written is retried.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.domain.patterns import printable
from gateway.domain.policy import Policy
from gateway.domain.policy_history import MOST_SUMMARY, Cause, PolicyLoad
from gateway.domain.ports import KeyStore, StoreDown
from gateway.manage.policy_changes import compare, summary
from gateway.manage.policy_history import PolicyHistory
from gateway.manage.policy_renames import keys_of_missing_plans

log = logging.getLogger("gateway")

#: How many policies wait to be compared, and to be written, at most; then the oldest are dropped.
MOST_WAITING: Final = 10
#: The most plans whose keys are counted in the log.
MOST_NAMED: Final = 20
#: The pause after a failure of the store.
RETRY_S: Final = 10.0
_KEPT: Final = (
    "policy: plan %r is no longer in the files; valid keys that have it: %d%s. They keep it until "
    "the gateway is restarted: give them another plan, or write `was: %s` in the plan that "
    "replaces it"
)
_MISSING: Final = (
    "policy: plan %r is not in the files; valid keys that have it: %d%s. Their requests get 503: "
    "give them another plan, or write `was: %s` in the plan that replaces it"
)


@dataclass(frozen=True, slots=True)
class _Loaded:
    policy: Policy
    cause: Cause
    at_us: int


class PolicyRecorder:
    """Records what `loaded` gets, while `describe`, `count_keys` and `write` run.

    listen: the address for clients, "127.0.0.1:8080"; with the host's name it names the gateway
    """

    def __init__(self, listen: str, clock_us: Callable[[], int]) -> None:
        self._gateway = printable(f"{socket.gethostname()} {listen}")
        self._clock_us = clock_us
        self._loaded: deque[_Loaded] = deque(maxlen=MOST_WAITING)
        self._described: deque[tuple[PolicyLoad, Policy]] = deque(maxlen=MOST_WAITING)
        self._new = asyncio.Event()
        self._unwritten = asyncio.Event()
        #: The newest policy; keys whose plan is not in its files were not yet counted.
        self._uncounted: Policy | None = None
        self._to_count = asyncio.Event()

    def loaded(self, policy: Policy, cause: Cause) -> None:
        """A policy with another hash than the one before, or the first one."""
        self._loaded.append(_Loaded(policy, cause, self._clock_us()))
        self._new.set()

    async def describe(self) -> None:
        """Write to the log what has changed, until cancelled."""
        previous: Policy | None = None
        while True:
            await self._new.wait()
            self._new.clear()
            while self._loaded:
                each = self._loaded.popleft()
                self._described.append((await self._load(previous, each), each.policy))
                self._unwritten.set()
                previous = self._uncounted = each.policy
                self._to_count.set()

    async def _load(self, previous: Policy | None, each: _Loaded) -> PolicyLoad:
        policy, words, before = each.policy, "", ""
        if previous is not None:
            before = previous.hash
            words = summary(await asyncio.to_thread(compare, previous, policy), MOST_SUMMARY)
            log.info(
                "policy changed from %s to %s (%s): %s", before, policy.hash, each.cause, words
            )
        return PolicyLoad(each.at_us, policy.hash, before, each.cause, self._gateway, words)

    async def count_keys(self, keys: KeyStore, retry_s: float = RETRY_S) -> None:
        """Warn of keys whose plan is not in the files, until cancelled."""
        warned: set[str] = set()
        while True:
            await self._to_count.wait()
            self._to_count.clear()
            policy = self._uncounted
            if policy is None:
                continue
            try:
                counts, are_all = await keys_of_missing_plans(keys, policy, self._clock_us())
            except StoreDown:
                self._to_count.set()
                await asyncio.sleep(retry_s)
                continue
            warned &= counts.keys()
            for name, count in counts.most_common(MOST_NAMED):
                if name not in warned:
                    words = _MISSING if policy.plan(name) is None else _KEPT
                    log.warning(words, name, count, "" if are_all else " or more", name)
            warned |= counts.keys()

    async def write(self, history: PolicyHistory, retry_s: float = RETRY_S) -> None:
        """Write to the history, until cancelled."""
        is_failing = False
        while True:
            await self._unwritten.wait()
            self._unwritten.clear()
            while self._described:
                each = self._described.popleft()
                try:
                    await history.record(*each)
                    is_failing = False
                except StoreDown as error:
                    if not is_failing:
                        log.warning("policy history: not written, and will be retried: %s", error)
                    is_failing = True
                    if len(self._described) < MOST_WAITING:
                        self._described.appendleft(each)
                    await asyncio.sleep(retry_s)
