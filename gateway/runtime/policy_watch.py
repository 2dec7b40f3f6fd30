"""Loads changes of the policy files while the gateway runs.

`file_watch` watches the folder. If a change has faults, they are reported, and the previous policy
stays in use.

A file that is written in place is read when it has not changed for two seconds. If routes or rules
of access are missing then, it may still not be complete, and the previous policy stays in use until
the files have not changed for ten seconds. A file that was renamed into place is complete.
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
from gateway.policies.losses import losses
from gateway.runtime.file_watch import FileWatch, Signature, signature

log = logging.getLogger("gateway")

INTERVAL_S: Final = 0.5
#: How long files that were written in place are unchanged before they are read; and where rules
#: would be lost.
_IN_PLACE_S: Final = 2.0
_LOST_S: Final = 10.0
#: The same as checks in a row that find the same.
_IN_PLACE: Final = 1 + round(_IN_PLACE_S / INTERVAL_S)
_LOST: Final = 1 + round(_LOST_S / INTERVAL_S)
#: The most lost rules that are logged.
_MOST_LOST: Final = 5
#: The most warnings of a policy that are logged.
MOST_LOGGED: Final = 20


class PolicyWatch:
    """Owns the current policy.

    on_change: called with each valid policy, after `policy` is set; with one equal to the previous
               only after `reload_now`, or after faults. It has the plans that the files had before
    on_fault:  called with the faults, once per change; the previous policy stays
    on_wait:   called when a change waits, as it lacks rules of the previous policy

    All are called in the loop's thread.
    """

    def __init__(
        self,
        folder: Path,
        policy: Policy,
        *,
        on_change: Callable[[Policy], None],
        on_fault: Callable[[PolicyFaults], None],
        on_wait: Callable[[], None] = lambda: None,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self.policy = policy
        #: Was the last reading of the files requested by `reload_now`?
        self.was_requested = False
        self._on_change = on_change
        self._on_fault = on_fault
        self._on_wait = on_wait
        self._faulty = False
        self._used = policy.used
        # The first check always reads: the files may have changed since `policy` was loaded.
        self._files = FileWatch(
            lambda: look_at(folder, self._used),
            lambda: _load(folder),
            self._take,
            interval_s=interval_s,
            in_place=_IN_PLACE,
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._files.run()

    def reload_now(self) -> None:
        """Make `run` read the files now, changed or not (SIGHUP), and report the result."""
        self._files.read_now()

    def _take(self, result: Policy | PolicyFaults, asked: bool) -> None:
        if isinstance(result, Policy) and not asked and self._may_be_incomplete(result):
            return
        self.was_requested = asked
        recovered, self._faulty = self._faulty, isinstance(result, PolicyFaults)
        self._used = result.used
        if isinstance(result, PolicyFaults):
            self._on_fault(result)
        elif asked or recovered or _differs(result, self.policy):
            self.policy = with_kept_plans(result, self.policy)
            self._on_change(self.policy)

    def _may_be_incomplete(self, policy: Policy) -> bool:
        """Does the policy lack rules, and may the rest of its files still be written? Then wait."""
        if self._files.is_whole or self._files.checks >= _LOST:
            return False
        lost = losses(policy, self.policy)
        if not lost:
            return False
        more = f" and {len(lost) - _MOST_LOST} more" if len(lost) > _MOST_LOST else ""
        log.warning(
            "policy reload waiting: the files lack %s%s, and may not be complete; they are loaded "
            "if they stay as they are for %g s, or by SIGHUP",
            "; ".join(lost[:_MOST_LOST]),
            more,
            _LOST_S,
        )
        self._on_wait()
        self._files.read_later(_LOST)
        return True


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
