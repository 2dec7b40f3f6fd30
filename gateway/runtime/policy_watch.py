"""Loads changes of the policy files while the gateway runs.

`file_watch` watches the folder. If a change has faults, they are reported, and the previous policy
stays in use.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from gateway.domain.policy import Policy, with_kept_plans
from gateway.policies.documents import policy_files
from gateway.policies.faults import PolicyFaults
from gateway.policies.load import load
from gateway.runtime.file_watch import FileWatch, Signature, signature

log = logging.getLogger("gateway")

INTERVAL_S: Final = 0.5
#: The most warnings of a policy that are logged.
MOST_LOGGED: Final = 20


class PolicyWatch:
    """Owns the current policy.

    on_change: called with each valid policy, after `policy` is set; with one equal to the previous
               only after `reload_now`, or after faults. It has the plans that the files had before
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
        #: Was the last reading of the files requested by `reload_now`?
        self.was_requested = False
        self._on_change = on_change
        self._on_fault = on_fault
        self._faulty = False
        self._used = policy.used
        # The first check always reads: the files may have changed since `policy` was loaded.
        self._files = FileWatch(
            lambda: look_at(folder, self._used),
            lambda: _load(folder),
            self._take,
            interval_s=interval_s,
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._files.run()

    def reload_now(self) -> None:
        """Make `run` read the files now, changed or not (SIGHUP), and report the result."""
        self._files.read_now()

    def _take(self, result: Policy | PolicyFaults, asked: bool) -> None:
        self.was_requested = asked
        recovered, self._faulty = self._faulty, isinstance(result, PolicyFaults)
        self._used = result.used
        if isinstance(result, PolicyFaults):
            self._on_fault(result)
        elif asked or recovered or _differs(result, self.policy):
            self.policy = with_kept_plans(result, self.policy)
            self._on_change(self.policy)


def _load(folder: Path) -> Policy | PolicyFaults:
    try:
        return load(folder)
    except PolicyFaults as faults:
        return faults


def _differs(new: Policy, old: Policy) -> bool:
    """Did a policy file change, or a file that it names: a list of addresses, a page?"""
    return new.hash != old.hash or new.contents != old.contents


def look_at(folder: Path, used: Iterable[str] = ()) -> Signature:
    """The signature of the folder now; a file that cannot be read counts as absent.

    used: other files
    """
    with contextlib.suppress(OSError):
        files: list[str | Path] = [*policy_files(folder), *used]
        return tuple(found for found in signature(files) if found is not None)
    return ()


def log_warnings(policy: Policy) -> None:
    """Log what `gateway validate` warns of. Call it once for each policy that is loaded."""
    for warning in policy.warnings[:MOST_LOGGED]:
        log.warning("policy warning: %s", warning)
    if len(policy.warnings) > MOST_LOGGED:
        more = len(policy.warnings) - MOST_LOGGED
        log.warning("policy warning: %d more, see gateway validate", more)
