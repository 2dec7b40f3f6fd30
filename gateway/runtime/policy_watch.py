"""Loads changes of the policy files while the gateway runs.

`file_watch` watches the folder. If a change has faults, they are reported, and the previous policy
stays in use.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gateway.domain.policy import Policy
from gateway.policies.documents import policy_files
from gateway.policies.faults import PolicyFaults
from gateway.policies.load import load
from gateway.runtime.file_watch import FileWatch, Signature, signature

INTERVAL_S: Final = 0.5


class PolicyWatch:
    """Owns the current policy.

    on_change: called with each valid policy, after `policy` is set; with one equal to the previous
               only after `reload_now`, or after faults
    on_fault:  called with the faults, once per change; the previous policy stays

    Both are called in the loop's thread.
    """

    def __init__(
        self,
        folder: Path,
        policy: Policy,
        *,
        on_change: Callable[[Policy], None],
        on_fault: Callable[[PolicyFaults], None],
        interval_s: float = INTERVAL_S,
    ) -> None:
        self.policy = policy
        self._on_change = on_change
        self._on_fault = on_fault
        self._faulty = False
        # The first check always reads: the files may have changed since `policy` was loaded.
        self._files = FileWatch(
            lambda: look_at(folder), lambda: _load(folder), self._take, interval_s=interval_s
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._files.run()

    def reload_now(self) -> None:
        """Make `run` read the files now, changed or not (SIGHUP), and report the result."""
        self._files.read_now()

    def _take(self, result: Policy | PolicyFaults, asked: bool) -> None:
        recovered, self._faulty = self._faulty, isinstance(result, PolicyFaults)
        if isinstance(result, PolicyFaults):
            self._on_fault(result)
        elif asked or recovered or result.hash != self.policy.hash:
            self.policy = result
            self._on_change(result)


def _load(folder: Path) -> Policy | PolicyFaults:
    try:
        return load(folder)
    except PolicyFaults as faults:
        return faults


def look_at(folder: Path) -> Signature:
    """The signature of the folder now; a file that cannot be read counts as absent."""
    with contextlib.suppress(OSError):
        return tuple(found for found in signature(policy_files(folder)) if found is not None)
    return ()
