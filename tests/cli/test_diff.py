"""`gateway diff`: folders and versions of the history, and the affected keys."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli.main import cli
from gateway.domain.policy_history import PolicyLoad
from gateway.policies.load import load
from gateway.stores.managed import open_managed
from gateway.stores.redis.address import parse_url
from tests.cli.test_explain import make_key
from tests.kit.policies import PLANS, write_policies
from tests.kit.redis_server import RedisServer

LINE = (
    "limit: plan, plan free: 60/minute, burst 100, per key → 70/minute, burst 100, per key; "
    "counters are kept"
)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A policy and a change of it."""
    old = write_policies(tmp_path / "old", "http://127.0.0.1:9000")
    plans = PLANS.replace("60/minute", "70/minute")
    return old, write_policies(tmp_path / "new", "http://127.0.0.1:9000", plans=plans)


def run(*words: object) -> Result:
    environment = {"GATEWAY_STORE": None, "GATEWAY_DATA": None}
    return CliRunner(env=environment).invoke(cli, ["diff", *map(str, words)])


def test_folders(folders: tuple[Path, Path]) -> None:
    """A line for each difference, and exit status 1; without a store, the plans are named."""
    result = run(*folders)
    assert result.exit_code == 1
    assert result.output.splitlines() == [
        LINE,
        "keys: of plan free; --store counts those that are affected",
    ]


def test_no_difference(folders: tuple[Path, Path]) -> None:
    """Exit status 0, also where only the texts differ."""
    old, _ = folders
    assert (run(old, old).exit_code, run(old, old).output) == (0, "no difference\n")
    before = load(old).hash
    other = write_policies(old.parent / "other", "http://127.0.0.1:9000", more="# a comment\n")
    assert load(other).hash != before
    result = run(old, other)
    assert (result.exit_code, result.output) == (0, "the files differ, but not in effect\n")


def test_keys_of_a_store(folders: tuple[Path, Path], redis_server: RedisServer) -> None:
    """The keys that are affected are counted by plan, and some are named."""
    old, new = folders
    key_id, _ = make_key(redis_server, old)
    make_key(redis_server, old, "--limit", "plan=5/minute")
    result = run(old, new, "--store", redis_server.url)
    assert result.exit_code == 1
    assert result.output.splitlines() == [
        LINE,
        f"keys: 1 of plan free get other limits: {key_id}",
    ]
    found = json.loads(run(old, new, "--store", redis_server.url, "--json").output)
    assert found["keys"] == {
        "count": 2,
        "affected": [{"plan": "free", "effect": "limits", "count": 1, "ids": [key_id]}],
    }
    other = write_policies(old.parent / "other", "http://127.0.0.1:9000", more="timeouts: {}\n")
    (other / "more.yaml").unlink()
    (other / "gateway.yaml").write_text("timeouts: {idle: 9s}\n")
    result = run(old, other, "--store", redis_server.url)
    assert result.output.splitlines()[-1] == "keys: none of 2 is affected"


def test_a_store_that_is_unavailable(folders: tuple[Path, Path]) -> None:
    """Folders are compared without it, a note says so; a version needs it."""
    result = run(*folders, "--store", RedisServer().url)
    assert result.exit_code == 1
    assert LINE in result.output
    assert "the affected keys are not known: the store is unavailable" in result.output
    result = run(folders[0], "0" * 16, "--store", RedisServer().url)
    assert result.exit_code == 2


def test_versions(folders: tuple[Path, Path], redis_server: RedisServer) -> None:
    """Either side may be the hash of a policy in the history."""
    old, new = (load(folder) for folder in folders)

    async def fill() -> None:
        async with open_managed(parse_url(redis_server.url)) as stores:
            for policy in (old, new):
                entry = PolicyLoad(1, policy.hash, "", "SIGHUP", "web-1", "")
                assert policy.source is not None
                await stores.policies.add(entry, policy.source.texts)

    asyncio.run(fill())
    store = ("--store", redis_server.url)
    for words in (
        (old.hash, new.hash),
        (folders[0], new.hash),
        (old.hash, folders[1]),
    ):
        result = run(*words, *store)
        assert result.exit_code == 1, result.output
        assert LINE in result.output
    found = json.loads(run(old.hash, new.hash, *store, "--json").output)
    assert (found["old"], found["new"]) == (old.hash, new.hash)
    result = run("0" * 16, new.hash, *store)
    assert result.exit_code == 2
    assert "the history has no files of a policy 0000000000000000" in result.output


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("nowhere", "found 'nowhere', expected a folder, or a hash of 16 digits"),
        ("", "found nothing"),
        ("faulty", "faulty/plans.yaml:1: plans.free.rate"),
    ],
)
def test_trouble(folders: tuple[Path, Path], bad: str, words: str, tmp_path: Path) -> None:
    """Exit status 2, unlike that of differences, with the first fault."""
    faulty = write_policies(
        tmp_path / "faulty", "http://127.0.0.1:9", plans="plans: {free: {rate: x}}"
    )
    assert faulty.is_dir()
    result = run(folders[0], tmp_path / bad if bad == "faulty" else bad)
    assert result.exit_code == 2
    assert words in result.output


def test_faults_are_reported_before_the_store_is_asked(
    folders: tuple[Path, Path], tmp_path: Path, redis_server: RedisServer
) -> None:
    """Faulty policies are one error, and no note about keys."""
    (tmp_path / "empty").mkdir()
    result = run(folders[0], tmp_path / "empty", "--store", redis_server.url)
    assert result.exit_code == 2
    assert "found no *.yaml file" in result.output
    assert "affected keys" not in result.output


def test_control_characters(folders: tuple[Path, Path]) -> None:
    """A text of a policy file never reaches the terminal as it is."""
    old, new = folders
    routes = "routes:\n  a: {match: 'GET /\x7f', upstream: api}\n".replace("\x7f", "\u200e")
    (new / "routes.yaml").write_text(routes)
    output = run(old, new).output
    assert "\u200e" not in output
