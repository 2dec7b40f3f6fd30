"""Takes up changes of the policy files while the gateway runs.

The folder is looked at on every turn: which files there are, and of which inode, time and size.
That sees a file edited, replaced, added or removed, and a symbolic link that now leads elsewhere,
as Kubernetes swaps a mounted ConfigMap. Polling needs no support by the file system; inotify is
silent on some network mounts.

A change is read once two looks in a row found the same, so that a file that is being written, or
a folder that is being copied, is met whole; and what was read counts only if the folder still
looks the same afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from gateway.domain.policy import Policy
from gateway.policies.documents import policy_files
from gateway.policies.faults import PolicyFaults
from gateway.policies.load import load

#: What a folder looks like: each file's resolved path, inode, mtime in nanoseconds and size.
Signature = tuple[tuple[str, int, int, int], ...]


class PolicyWatch:
    """Owns the current policy.

    on_change: called with each good policy, after `policy` is set; one that is equal to the last
               is reported only where somebody waits for it: after `reload_now`, or after a fault
    on_fault:  called with what is wrong, once per change; the last good policy stays

    Both are called in the loop's own thread.
    """

    def __init__(
        self,
        folder: Path,
        policy: Policy,
        *,
        on_change: Callable[[Policy], None],
        on_fault: Callable[[PolicyFaults], None],
        interval_s: float = 0.5,
    ) -> None:
        self.policy = policy
        self._folder = folder
        self._on_change = on_change
        self._on_fault = on_fault
        self._interval_s = interval_s
        self._asked = asyncio.Event()
        self._faulty = False
        #: As last looked at, and as last read. The first look always reads: the files may have
        #: changed between the start's reading and now.
        self._seen: Signature | None = None
        self._read: Signature | None = None

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), self._interval_s)
            asked = self._asked.is_set()
            self._asked.clear()
            await self._look(asked=asked)

    def reload_now(self) -> None:
        """Read the files at once, changed or not (SIGHUP); `run` does it and reports either way."""
        self._asked.set()

    async def _look(self, *, asked: bool) -> None:
        # In a thread, as a network file system may keep one waiting.
        seen = await asyncio.to_thread(signature, self._folder)
        settled = seen == self._seen
        self._seen = seen
        if not asked and (not settled or seen == self._read):
            return
        result = await asyncio.to_thread(_load, self._folder)
        after = await asyncio.to_thread(signature, self._folder)
        if after != seen and not asked:
            self._seen = after
            return
        self._read = seen
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


def signature(folder: Path) -> Signature:
    """What the folder looks like now; what cannot be looked at counts as absent."""
    found = []
    with contextlib.suppress(OSError):
        for path in policy_files(folder):
            with contextlib.suppress(OSError):
                stat = path.stat()
                found.append((str(path.resolve()), stat.st_ino, stat.st_mtime_ns, stat.st_size))
    return tuple(found)
