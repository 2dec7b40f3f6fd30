"""The history of policies in process, for memory:// and tests."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace

from gateway.domain.policy_files import Texts
from gateway.domain.policy_history import MOST_KEPT, ROLLBACK_S, PolicyLoad, is_known


class MemoryPolicyStore:
    """domain.ports.PolicyStore over a list; it never raises StoreDown."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._loads: deque[PolicyLoad] = deque(maxlen=MOST_KEPT)
        self._texts: Mapping[str, Texts] = {}
        #: The hash of the restored policy, by whom, and until when this is noted.
        self._rollback: tuple[str, str, float] | None = None

    async def add(self, load: PolicyLoad, texts: Texts | None) -> PolicyLoad | None:
        """Store an entry, and the texts of its policy."""
        if is_known(load, self._loads):
            return None
        if self._rollback is not None and self._rollback[0] == load.hash:
            _, actor, until_s = self._rollback
            self._rollback = None
            if self._clock_s() < until_s:
                load = replace(load, cause="rollback", actor=actor)
        self._loads.appendleft(load)
        stored = self._texts if texts is None else {**self._texts, load.hash: texts}
        kept = {other.hash for other in self._loads}
        self._texts = {name: each for name, each in stored.items() if name in kept}
        return load

    async def loads(self) -> list[PolicyLoad]:
        """The entries, newest first."""
        return list(self._loads)

    async def texts(self, policy: str) -> Texts | None:
        """The texts of the policy with this hash; None: not stored."""
        return self._texts.get(policy)

    async def note_rollback(self, policy: str, actor: str) -> None:
        """Note that someone has restored the files of the policy with this hash."""
        self._rollback = policy, actor, self._clock_s() + ROLLBACK_S
