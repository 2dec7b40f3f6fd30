"""The history of policies: recording loads, comparing versions, and restoring one."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from unittest.mock import patch

import pytest

from gateway.domain.policy import Policy
from gateway.domain.policy_files import hash_of
from gateway.domain.policy_history import Cause, PolicyLoad
from gateway.domain.ports import CorruptRecord
from gateway.manage.audit_log import Actor
from gateway.manage.policy_history import PolicyHistory, file_changes, load_as_json
from gateway.manage.problems import Conflict, NotThere
from gateway.policies.load import load
from gateway.stores.audit.memory import MemoryAuditStore
from gateway.stores.policies.memory import MemoryPolicyStore
from tests.kit.certificates import write_pair
from tests.policies.folder import PLANS, write

ANNA = Actor("anna", "cli")
NOW_US = 1_800_000_000_000_000
FASTER = PLANS.replace("60/minute", "70/minute")


class Scene:
    """A history in memory, and a folder of policies."""

    def __init__(self, folder: Path) -> None:
        self.folder = write(folder)
        self.store = MemoryPolicyStore()
        self.audit = MemoryAuditStore()
        self.history = PolicyHistory(self.store, self.audit, lambda: folder)
        self._at_us = NOW_US

    async def record(self, cause: Cause = "file change", previous: str = "", summary: str = "x"):
        """Record the policy of the folder, as a gateway does; the policy."""
        policy = load(self.folder)
        self._at_us += 3_600_000_000
        entry = PolicyLoad(self._at_us, policy.hash, previous, cause, "web-1", summary)
        await self.history.record(entry, policy)
        return policy

    async def two(self) -> tuple[Policy, Policy]:
        """Record a policy and a change of it; the folder has the change."""
        first = await self.record("start")
        write(self.folder, plans=FASTER, more="timeouts: {idle: 9s}\n")
        return first, await self.record(previous=first.hash)

    async def restore(self, policy: Policy, **options: bool) -> Path | None:
        return await self.history.roll_back(ANNA, policy.hash, self.folder, NOW_US, **options)

    async def events(self) -> list[tuple[str, str, str]]:
        return [
            (each.event.actor, each.event.action, each.event.subject)
            for each in await self.audit.oldest()
        ]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def test_a_reload(scene: Scene) -> None:
    """It has an entry with its texts, and one in the audit log; the first start has only that."""
    first, second = await scene.two()
    loads = await scene.history.loads()
    assert [(each.hash, each.cause) for each in loads] == [
        (second.hash, "file change"),
        (first.hash, "start"),
    ]
    assert loads[1].summary == "the first policy of this history"
    texts = await scene.history.texts(second.hash)
    assert texts == {path.name: path.read_text() for path in scene.folder.glob("*.yaml")}
    (entry,) = await scene.audit.entries()
    assert (entry.event.actor, entry.event.action) == ("gateway (web-1)", "policy.load")
    assert entry.event.before == {"hash": first.hash}
    assert entry.event.after == {"hash": second.hash, "changes": "x", "cause": "file change"}
    assert load_as_json(loads[0])["previous"] == first.hash
    assert load_as_json(loads[1])["previous"] is None


async def test_gateways_that_load_the_same(scene: Scene) -> None:
    """One entry in the history, and one in the audit log."""
    first, second = await scene.two()
    again = PolicyLoad(NOW_US, second.hash, first.hash, "SIGHUP", "web-2", "x")
    await asyncio.gather(*(scene.history.record(again, second) for _ in range(5)))
    assert len(await scene.history.loads()) == 2
    assert len(await scene.events()) == 1


async def test_a_start_with_another_policy(scene: Scene) -> None:
    """What changed while no gateway ran is compared with the newest entry, and audited."""
    first = await scene.record("start")
    write(scene.folder, plans=FASTER)
    second = await scene.record("start")
    (newest, _) = await scene.history.loads()
    assert (newest.hash, newest.previous) == (second.hash, first.hash)
    assert newest.summary.startswith("limit: plan, plan free: 60/minute, burst 100")
    assert len(await scene.events()) == 1


async def test_a_start_after_a_policy_that_cannot_be_compared(scene: Scene) -> None:
    """The entry says why; the start is recorded."""
    texts = {"a.yaml": "x"}
    old = PolicyLoad(1, hash_of(texts), "", "start", "web-2", "")
    await scene.store.add(old, None)
    await scene.record("start")
    assert "has no files of a policy" in (await scene.history.loads())[0].summary
    await scene.store.add(PolicyLoad(2, hash_of(texts), "", "SIGHUP", "web-2", ""), texts)
    write(scene.folder, plans=FASTER)
    await scene.record("start")
    assert "has faults now" in (await scene.history.loads())[0].summary


async def test_versions_are_compared(scene: Scene) -> None:
    """By what they mean, and by their lines."""
    first, second = await scene.two()
    lines = list(map(str, await scene.history.changes(first.hash, second.hash)))
    assert len(lines) == 2
    assert lines[1] == "setting: timeouts.idle: 75s → 9s"
    assert await scene.history.before(second.hash) == first.hash
    changed = file_changes(
        await scene.history.texts(first.hash), await scene.history.texts(second.hash)
    )
    assert [each.name for each in changed] == ["more.yaml", "plans.yaml"]
    assert changed[1].lines is not None
    assert "-  free: {rate: 60/minute, burst: 100}" in changed[1].lines
    with pytest.raises(NotThere):
        await scene.history.changes(first.hash, "0" * 16)
    with pytest.raises(NotThere):
        await scene.history.before(first.hash)


def test_files_that_are_too_long() -> None:
    """They are not compared line by line; and of many lines, only the first are shown."""
    (long,) = file_changes({"a.yaml": "x"}, {"a.yaml": "x\n" * 200_000})
    assert long.lines is None
    (many,) = file_changes({}, {"a.yaml": "x\n" * 5_000})
    assert many.lines is not None
    assert many.lines[-1] == "… and 4002 more lines"


async def test_a_rollback(scene: Scene) -> None:
    """The folder has exactly the files of the version; who did it is in both logs."""
    first, _ = await scene.two()
    assert await scene.restore(first) is None
    assert load(scene.folder).hash == first.hash
    assert not (scene.folder / "more.yaml").exists()
    assert [path.name for path in scene.folder.iterdir() if path.name.startswith(".")] == []
    await scene.record(previous="0" * 16)
    newest = (await scene.history.loads())[0]
    assert (newest.cause, newest.actor) == ("rollback", "anna (cli)")
    actions = [action for _, action, _ in await scene.events()]
    assert actions == ["policy.load", "policy.rollback", "policy.load"]


async def test_changes_that_would_be_lost(scene: Scene) -> None:
    """Refused, unless it is forced; then a copy is kept, which the gateway does not read."""
    first, _ = await scene.two()
    for lost in ("faulty: [", PLANS.replace("60", "80")):
        write(scene.folder, plans=lost)
        with pytest.raises(Conflict, match="--force"):
            await scene.restore(first)
        assert (scene.folder / "plans.yaml").read_text() == lost
        copy = await scene.restore(first, force=True)
        assert copy is not None
        assert (copy / "plans.yaml").read_text() == lost
        assert load(scene.folder).hash == first.hash


async def test_nothing_to_restore(scene: Scene) -> None:
    """The folder has the version already, or the history does not have it."""
    _, second = await scene.two()
    with pytest.raises(Conflict, match="already"):
        await scene.restore(second)
    with pytest.raises(NotThere):
        await scene.history.roll_back(ANNA, "0" * 16, scene.folder, NOW_US)


async def test_a_version_with_faults(scene: Scene) -> None:
    """It is not restored, such as one whose certificate is no longer there."""
    write_pair(scene.folder / "c.pem", scene.folder / "c.key")
    write(scene.folder, tls="tls: {certificate: c.pem, key: c.key}\n")
    first = await scene.record()
    (scene.folder / "tls.yaml").unlink()
    (scene.folder / "c.pem").unlink()
    second = await scene.record()
    with pytest.raises(Conflict, match=r"has faults now: .*tls\.yaml"):
        await scene.restore(first)
    assert load(scene.folder).hash == second.hash


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.EROFS, "ConfigMap.*gateway policies show"), (errno.ENOSPC, "repeat the command")],
)
async def test_a_folder_that_cannot_be_written(scene: Scene, number: int, words: str) -> None:
    """Nothing is changed, and the error says what to do."""
    first, second = await scene.two()
    error = OSError(number, os.strerror(number))
    with (
        patch("gateway.policies.restore.tempfile.mkstemp", side_effect=error),
        pytest.raises(Conflict, match=words),
    ):
        await scene.restore(first)
    assert load(scene.folder).hash == second.hash
    assert await scene.events() == [
        ("gateway (web-1)", "policy.load", f"policy:{second.hash}"),
    ]


async def test_files_that_cannot_be_read(scene: Scene) -> None:
    """They might be changes that nobody has."""
    first, _ = await scene.two()
    os.mkfifo(scene.folder / "pipe.yaml")
    with pytest.raises(Conflict, match=r"pipe\.yaml cannot be read: it is a named pipe"):
        await scene.restore(first, force=True)


async def test_texts_that_others_have_written(scene: Scene) -> None:
    """Damaged texts of the folder's own version count as not kept."""
    first, second = await scene.two()
    texts = scene.store.texts

    async def damaged(policy: str):
        if policy == second.hash:
            raise CorruptRecord("policy", policy)
        return await texts(policy)

    with (
        patch.object(scene.store, "texts", damaged),
        pytest.raises(Conflict, match="would be lost"),
    ):
        await scene.restore(first)
