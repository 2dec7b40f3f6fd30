"""A policy of the history: its files, and what differs from another version."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import web

from gateway.admin.console.gate import management_of
from gateway.admin.console.render import page
from gateway.domain.policy_files import is_hash
from gateway.domain.policy_history import PolicyLoad
from gateway.domain.ports import CorruptRecord
from gateway.manage.policy_changes import LABELS, Change
from gateway.manage.policy_history import FileChange, PolicyHistory, file_changes
from gateway.manage.problems import Conflict, NotThere


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs from another version.

    changes: None: they are not known, for the reason in `why`
    files:   those that differ
    """

    changes: Sequence[Change] | None
    why: str
    files: Sequence[FileChange]


async def show(request: web.Request) -> web.StreamResponse:
    """Show a version; `since` is the hash of the one that it is compared with."""
    history = management_of(request).history
    policy = request.match_info["policy"]
    loads = await history.loads()
    texts = await history.texts(policy)
    mine = [load for load in loads if load.hash == policy]
    since = request.query.get("since", "")
    if not is_hash(since):
        since = mine[0].previous if mine else ""
    return page(
        request,
        "policy",
        policy=policy,
        loads=mine,
        texts=texts,
        since=since,
        others=_others(loads, policy),
        compared=await _compare(history, since, policy) if since else None,
        labels=LABELS,
    )


async def _compare(history: PolicyHistory, old: str, new: str) -> Comparison:
    try:
        before, after = await history.texts(old), await history.texts(new)
    except (NotThere, CorruptRecord) as error:
        return Comparison(None, str(error), ())
    files = await asyncio.to_thread(file_changes, before, after)
    try:
        return Comparison(await history.changes(old, new), "", files)
    except Conflict as error:
        return Comparison(None, str(error), files)


def _others(loads: Sequence[PolicyLoad], policy: str) -> list[PolicyLoad]:
    """The newest entry of each other version."""
    newest: dict[str, PolicyLoad] = {}
    for load in loads:
        newest.setdefault(load.hash, load)
    newest.pop(policy, None)
    return list(newest.values())
