"""The history of policies: records loads, shows versions, and compares them.

A version is a policy as it was loaded once, known by its hash. Its texts come from the store, where
others may have written them; so they are parsed like any policy, and never used to decide requests.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import unified_diff
from pathlib import Path
from typing import Final

from gateway.domain.audit import Event
from gateway.domain.policy import Policy
from gateway.domain.policy_files import Texts, hash_of
from gateway.domain.policy_history import MOST_SUMMARY, PolicyLoad
from gateway.domain.ports import AuditStore, CorruptRecord, PolicyStore
from gateway.manage.audit_log import Actor, note
from gateway.manage.policy_changes import Change, compare, summary
from gateway.manage.problems import Conflict, NotThere
from gateway.manage.views import moment
from gateway.policies.faults import PolicyFaults
from gateway.policies.load import load_texts
from gateway.policies.restore import contents, keep_copy, replace_files

#: The action of the audit log's entry for a policy that was loaded; and for one that was restored.
LOADED: Final = "policy.load"
ROLLED_BACK: Final = "policy.rollback"
#: The most characters of two versions of a file that are compared line by line, which takes a time
#: that grows with the square of their length; and the most lines of the result.
_MOST_COMPARED: Final = 200_000
_MOST_LINES: Final = 1_000


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that differs. lines: as `diff -u` shows it; None: it is too long to be compared"""

    name: str
    lines: tuple[str, ...] | None


class PolicyHistory:
    """The policies that gateways on a store have loaded. folder: where theirs are now"""

    def __init__(self, store: PolicyStore, audit: AuditStore, folder: Callable[[], Path]) -> None:
        self._store = store
        self._audit = audit
        self._folder = folder

    async def loads(self) -> list[PolicyLoad]:
        """The entries, newest first. Raises StoreDown and WrongType."""
        return await self._store.loads()

    async def before(self, policy: str) -> str:
        """The hash of the policy before this one, at its newest load. Raises NotThere."""
        loads = await self._store.loads()
        found = next((load.previous for load in loads if load.hash == policy), "")
        if not found:
            raise NotThere(f"the history has no policy before {policy}")
        return found

    async def texts(self, policy: str) -> Texts:
        """The files of the version with this hash. Raises NotThere, CorruptRecord and StoreDown."""
        texts = await self._store.texts(policy)
        if texts is None:
            raise NotThere(f"the history has no files of a policy {policy}")
        return texts

    async def policy(self, policy: str) -> Policy:
        """The version with this hash, loaded again. Raises as `texts` does, and Conflict."""
        return await asyncio.to_thread(_load, self._folder(), policy, await self.texts(policy))

    async def changes(self, old: str, new: str) -> list[Change]:
        """What differs between two versions, given by their hashes. Raises as `policy` does."""
        return await asyncio.to_thread(compare, await self.policy(old), await self.policy(new))

    async def record(self, load: PolicyLoad, policy: Policy) -> None:
        """Add an entry for a policy that was loaded, unless there is one, and note it in the audit
        log. Raises StoreDown.
        """
        if load.cause == "start":
            load = await self._since_the_newest(load, policy)
        added = await self._store.add(load, None if policy.source is None else policy.source.texts)
        if added is not None and added.previous:
            await note(self._audit, _event(added))

    async def roll_back(
        self, actor: Actor, policy: str, folder: Path, now_us: int, *, force: bool = False
    ) -> Path | None:
        """Give a folder the files of a version; gateways that use the folder then load them.

        force: replace files that no version in the history has, and keep a copy of them
        Returns the folder of that copy, if there is one. Raises as `policy` does; Conflict if
        files would be lost or cannot be written.
        """
        texts = await self.texts(policy)
        await asyncio.to_thread(_load, folder, policy, texts)
        files = await asyncio.to_thread(_read, folder)
        before = hash_of(files)
        if before == policy:
            raise Conflict(f"{folder} has the files of the policy {policy} already")
        is_kept = not files or await self._has(before)
        if not (is_kept or force):
            raise Conflict(
                f"{folder} has changes that are in no version of the history, and would be lost; "
                "copy them, or use --force, which keeps a copy in a hidden folder there"
            )
        try:
            copy = None if is_kept else await asyncio.to_thread(keep_copy, folder, files)
            await self._store.note_rollback(policy, str(actor))
            await asyncio.to_thread(replace_files, folder, texts)
        except OSError as error:
            raise Conflict(_why_not_written(folder, policy, error)) from error
        path = os.path.abspath(folder)  # noqa: ASYNC240 - it does no I/O
        after = {"hash": policy, "folder": path}
        event = Event(now_us, str(actor), ROLLED_BACK, f"policy:{policy}", {"hash": before}, after)
        await note(self._audit, event)
        return copy

    async def _has(self, policy: str) -> bool:
        try:
            return await self._store.texts(policy) is not None
        except CorruptRecord:
            return False

    async def _since_the_newest(self, load: PolicyLoad, policy: Policy) -> PolicyLoad:
        """The entry of a start, compared with the newest one: what has changed meanwhile."""
        try:
            newest = next(iter(await self._store.loads()), None)
        except CorruptRecord:  # `add` starts a new history
            newest = None
        if newest is None:
            return replace(load, summary="the first policy of this history")
        if newest.hash == load.hash:
            return load
        try:
            before = await self.policy(newest.hash)
        except (NotThere, Conflict, CorruptRecord) as error:
            words = f"cannot be compared with the one before: {error}"
        else:
            words = summary(await asyncio.to_thread(compare, before, policy), MOST_SUMMARY)
        return replace(load, previous=newest.hash, summary=words)


def file_changes(old: Texts, new: Texts) -> list[FileChange]:
    """The files that differ. Takes up to a second: in an event loop, call it in a thread."""
    return [
        FileChange(name, _compared(old.get(name, ""), new.get(name, "")))
        for name in sorted({**old, **new})
        if old.get(name) != new.get(name)
    ]


def load_as_json(load: PolicyLoad) -> dict[str, object]:
    """An entry as JSON."""
    return {
        "time": moment(load.at_us),
        "hash": load.hash,
        "previous": load.previous or None,
        "cause": load.cause,
        "actor": load.actor or None,
        "gateway": load.gateway,
        "summary": load.summary,
    }


def _load(folder: Path, policy: str, texts: Texts) -> Policy:
    try:
        return load_texts(folder, texts)
    except PolicyFaults as faults:
        raise Conflict(f"the policy {policy} has faults now: {faults.brief()}") from faults


def _read(folder: Path) -> Mapping[str, bytes]:
    try:
        return contents(folder)
    except OSError as error:
        words = f"{error.filename or folder} cannot be read: {error.strerror}"
        raise Conflict(words) from error


def _why_not_written(folder: Path, policy: str, error: OSError) -> str:
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return (
            f"{folder} cannot be written: {error.strerror}. In Kubernetes the files come from a "
            f"ConfigMap: print them with gateway policies show {policy}, put them into the chart's "
            "values, and run helm upgrade"
        )
    return (
        f"{folder} cannot be written: {error.strerror}; some files may have been replaced: repeat "
        "the command with --force"
    )


def _compared(old: str, new: str) -> tuple[str, ...] | None:
    if len(old) + len(new) > _MOST_COMPARED:
        return None
    # Only at line breaks of YAML: others may be within a line.
    lines = unified_diff(old.split("\n"), new.split("\n"), lineterm="", n=2)
    found = list(lines)[2:]  # without the names
    more = len(found) - _MOST_LINES
    return (*found[:_MOST_LINES], *((f"… and {more} more lines",) if more > 0 else ()))


def _event(load: PolicyLoad) -> Event:
    after: dict[str, object] = {"hash": load.hash, "changes": load.summary, "cause": load.cause}
    if load.actor:
        after["actor"] = load.actor
    return Event(
        load.at_us,
        f"gateway ({load.gateway})",
        LOADED,
        f"policy:{load.hash}",
        before={"hash": load.previous},
        after=after,
    )
