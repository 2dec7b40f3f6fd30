"""`gateway policies`: the history on a terminal and for scripts, and restoring a version."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli import policy_history as module
from gateway.cli.main import cli
from gateway.domain.policy_files import hash_of
from gateway.domain.policy_history import PolicyLoad
from gateway.policies.load import load
from gateway.stores.managed import open_managed
from gateway.stores.names import POLICIES
from gateway.stores.redis.address import parse_url
from tests.kit.policies import PLANS, write_policies
from tests.kit.redis_server import RedisServer
from tests.suites.policies import NOW_US

HOSTILE = {"a.yaml": "# \x1b[2J\r\n\tx: \u202e1"}


class Scene:
    """A store with the policy of a folder, a change of it, and texts of another program."""

    def __init__(self, server: RedisServer, folder: Path) -> None:
        self.server = server
        self.folder = write_policies(folder / "policies", "http://127.0.0.1:9000")
        self.first = load(self.folder)
        plans = self.folder / "plans.yaml"
        plans.write_text(PLANS.replace("60/minute", "70/minute"))
        self.second = load(self.folder)
        asyncio.run(self._fill())

    async def _fill(self) -> None:
        hashes = [self.first.hash, self.second.hash, hash_of(HOSTILE)]
        files = [self.first.source, self.second.source]
        texts = [*(source.texts for source in files if source is not None), HOSTILE]
        async with open_managed(parse_url(self.server.url)) as stores:
            for at, (policy, each) in enumerate(zip(hashes, texts, strict=True)):
                previous = hashes[at - 1] if at else ""
                entry = PolicyLoad(NOW_US + at, policy, previous, "SIGHUP", "web-1", "faster")
                await stores.policies.add(entry, each)

    def run(self, *words: str) -> Result:
        environment = {"GATEWAY_STORE": self.server.url, "GATEWAY_DATA": None}
        return CliRunner(env=environment).invoke(cli, ["policies", *words])


@pytest.fixture
def scene(redis_server: RedisServer, tmp_path: Path) -> Scene:
    return Scene(redis_server, tmp_path)


def test_history(scene: Scene) -> None:
    """One line for each entry, the newest last; the newest only with --count."""
    head, *lines = scene.run("history", "--text").output.splitlines()
    assert head.split() == ["TIME", "HASH", "CAUSE", "GATEWAY", "CHANGE"]
    assert [line.split()[1] for line in lines] == [
        scene.first.hash,
        scene.second.hash,
        hash_of(HOSTILE),
    ]
    assert lines[0].split()[2:] == ["SIGHUP", "web-1", "faster"]
    assert len(scene.run("history", "--text", "--count", "1").output.splitlines()) == 2
    found = json.loads(scene.run("history", "--json").output)
    assert [each["previous"] for each in found] == [None, scene.first.hash, scene.second.hash]


def test_entries_of_others(scene: Scene) -> None:
    """An entry that cannot be read is left out."""
    with scene.server.client() as client:
        client.xadd(POLICIES, {"hash": "\x1b[2J"})
    assert len(scene.run("history", "--text").output.splitlines()) == 4


def test_files(scene: Scene) -> None:
    """All files with their names, or one exactly as it was, or JSON."""
    texts = {path.name: path.read_text() for path in scene.folder.glob("*.yaml")}
    output = scene.run("show", scene.second.hash).output
    for name, text in texts.items():
        assert f"# -- {name}\n{text}" in output
    assert scene.run("show", scene.second.hash, "plans.yaml").output == texts["plans.yaml"]
    found = json.loads(scene.run("show", scene.second.hash, "--json").output)
    assert found == {"hash": scene.second.hash, "texts": texts}
    (one,) = json.loads(scene.run("show", hash_of(HOSTILE), "--json").output)["texts"].values()
    assert one == HOSTILE["a.yaml"]


def test_a_terminal(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control characters reach a file or a pipe, but no terminal."""
    words = ("show", hash_of(HOSTILE), "a.yaml")
    assert scene.run(*words).stdout_bytes == HOSTILE["a.yaml"].encode()
    monkeypatch.setattr(module, "is_terminal", lambda: True)
    assert scene.run(*words).stdout_bytes == b"# ?[2J?\n    x: ?1\n"


def test_a_rollback(scene: Scene) -> None:
    """The folder has the files of the version, and the audit log says who did it."""
    result = scene.run("rollback", scene.first.hash, str(scene.folder))
    assert result.exit_code == 0, result.output
    # Not that one does: no gateway runs here.
    assert result.output.endswith(
        "; a gateway that uses this folder loads them within two seconds\n"
    )
    assert load(scene.folder).hash == scene.first.hash
    environment = {"GATEWAY_STORE": scene.server.url}
    words = ["audit", "--action", "policy.rollback", "--json"]
    (entry,) = json.loads(CliRunner(env=environment).invoke(cli, words).output)
    assert entry["actor"].endswith(" (cli)")
    assert entry["before"] == {"hash": scene.second.hash}


def test_changes_that_would_be_lost(scene: Scene) -> None:
    """They are replaced with --force only, and the output says where the copy is."""
    plans = scene.folder / "plans.yaml"
    plans.write_text("faulty: [")
    words = ("rollback", scene.first.hash, str(scene.folder))
    result = scene.run(*words)
    assert (result.exit_code, plans.read_text()) == (1, "faulty: [")
    assert "would be lost" in result.output
    result = scene.run(*words, "--force")
    assert result.exit_code == 0
    copy = Path(result.output.strip().rpartition(" ")[2])
    assert (copy / "plans.yaml").read_text() == "faulty: ["


@pytest.mark.parametrize(
    ("words", "status", "complaint"),
    [
        (("show", "x\x1b[2J"), 2, "found 'x?[2J', expected 16 hexadecimal digits"),
        (("show", "0" * 16), 1, "has no files of a policy"),
        (("show", "FIRST", "x.yaml"), 1, "has no file x.yaml; it has "),
        (("rollback", "FIRST", "nowhere"), 2, "'nowhere' is not a folder"),
        (("rollback", "0" * 16, "FOLDER"), 1, "has no files of a policy"),
        (("rollback", "SECOND", "FOLDER"), 1, "already"),
        (("rollback", "HOSTILE", "FOLDER"), 1, "has faults now"),
    ],
)
def test_bad_usage(scene: Scene, words: tuple[str, ...], status: int, complaint: str) -> None:
    """Each error is one line that says what to do."""
    names = {
        **{"FIRST": scene.first.hash, "SECOND": scene.second.hash, "HOSTILE": hash_of(HOSTILE)},
        "FOLDER": str(scene.folder),
    }
    result = scene.run(*(names.get(word, word) for word in words))
    assert result.exit_code == status
    assert complaint in result.output.replace("\n", " ")


def test_a_folder_that_is_gone(scene: Scene) -> None:
    """An empty folder is filled: it has nothing to lose."""
    shutil.rmtree(scene.folder)
    scene.folder.mkdir()
    assert scene.run("rollback", scene.first.hash, str(scene.folder)).exit_code == 0
    assert load(scene.folder).hash == scene.first.hash
