"""`gateway audit`: the log on a terminal, for scripts, and its verification."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.cli.main import cli
from gateway.domain.audit import Event, Trim, write_trim
from gateway.manage import audit_log as managed
from gateway.stores.managed import open_managed
from gateway.stores.names import AUDIT
from gateway.stores.redis.address import parse_url
from tests.kit.redis_server import RedisServer

NOW = 1_800_000_000_000_000
EDIT = Event(NOW, "anna (console, 127.0.0.1)", "key.edit", "key:abc")
EVENTS = (
    replace(EDIT, action="key.create", after={"id": "abc", "name": "ci", "plan": "free"}),
    replace(
        EDIT,
        before={"name": "ci", "scopes": [], "expires": None, "kept": 1},
        after={"name": "ci two", "scopes": ["a:read"], "expires": "2030-01-01", "kept": 1},
    ),
    Event(NOW, "root (cli)", "limit.reset", "key:abc", before={"limit": "search", "limits": []}),
    Event(NOW, "evil\x1b[2J", "account.set", "account:acme", after={"services": ["x" * 500]}),
    replace(EDIT, before={"name": "a" * 200}, after={"name": "b" * 200}),
)


@pytest.fixture
def log(redis_server: RedisServer) -> RedisServer:
    """A store with these events in its audit log."""

    async def fill() -> None:
        async with open_managed(parse_url(redis_server.url)) as stores:
            for event in EVENTS:
                await stores.audit.append(event)

    asyncio.run(fill())
    return redis_server


def run(server: RedisServer, *words: str) -> Result:
    return CliRunner().invoke(cli, ["audit", "--store", server.url, "--text", *words])


def listed(server: RedisServer, *words: str) -> list[dict[str, Any]]:
    result = run(server, "--json", *words)
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.output)
    return found


def test_on_a_terminal(log: RedisServer) -> None:
    """One line per entry, the newest last: actor, action, subject, and what changed."""
    head, *lines = run(log).output.splitlines()
    assert head.split() == ["NUMBER", "TIME", "ACTOR", "ACTION", "SUBJECT", "CHANGE"]
    assert [line.split()[0] for line in lines] == ["1", "2", "3", "4", "5"]
    assert lines[0].endswith("key.create   key:abc       name ci, plan free")
    assert lines[1].endswith(
        'name: ci → ci two, scopes: none → ["a:read"], expires: none → 2030-01-01'
    )
    assert lines[2].endswith("limit search")
    assert "2027-01-15T08:00:00Z  anna (console, 127.0.0.1)  key.edit" in lines[4]
    assert lines[4].endswith("aa…")


def test_nothing_reaches_the_terminal_as_a_command(log: RedisServer) -> None:
    """Control characters are not printed."""
    output = run(log).output
    assert "evil?[2J" in output
    assert "\x1b" not in output


def test_for_scripts(log: RedisServer) -> None:
    """A JSON list of whole entries, the newest last."""
    entries = listed(log)
    assert [entry["number"] for entry in entries] == [1, 2, 3, 4, 5]
    assert entries[0]["after"] == {"id": "abc", "name": "ci", "plan": "free"}
    assert entries[1]["previous"] == entries[0]["hash"]


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        (("--count", "2"), [4, 5]),
        (("--action", "key"), [1, 2, 5]),
        (("--action", "key", "--count", "2"), [2, 5]),
        (("--subject", "acme"), [4]),
        (("--actor", "ROOT"), [3]),
        (("--actor", "nobody"), []),
    ],
)
def test_narrowed(
    log: RedisServer, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], numbers: list[int]
) -> None:
    """The newest that match, however many newer ones do not."""
    monkeypatch.setattr(managed, "CHUNK", 2)
    monkeypatch.setattr(managed, "MOST_LOOKED_AT", 2)
    assert [entry["number"] for entry in listed(log, *words)] == numbers


def test_changes_by_customers(log: RedisServer) -> None:
    """They are in a log of their own, with a chain of its own."""

    async def add() -> None:
        async with open_managed(parse_url(log.url)) as stores:
            await stores.customers.append(
                Event(NOW, "key abc (api)", "watch.pause", "watch:wat_1", before=None, after=None)
            )

    asyncio.run(add())
    (entry,) = listed(log, "--customers")
    assert (entry["number"], entry["action"]) == (1, "watch.pause")
    assert len(listed(log)) == len(EVENTS)
    assert "1 entry, the log is whole" in run(log, "--customers", "--verify").output


def test_a_whole_log(log: RedisServer, redis_server: RedisServer) -> None:
    """An intact log is reported with the hash to note."""
    last = listed(log)[-1]["hash"]
    result = run(log, "--verify")
    assert result.exit_code == 0
    assert result.output == f"5 entries, the log is whole; hash of the last: {last}\n"
    result = run(log, "--verify", "--json")
    whole = {"count": 5, "dropped": 0, "head_hash": last, "faults": []}
    assert json.loads(result.output) == whole
    with redis_server.client() as client:
        client.flushall()
    assert "0 entries, the log is whole" in run(log, "--verify").output


def test_a_log_whose_beginning_was_dropped(log: RedisServer) -> None:
    """Entries dropped for their age are counted, and are no fault."""

    async def trim() -> None:
        async with open_managed(parse_url(log.url)) as stores:
            last = (await stores.audit.oldest(count=2))[1]
            event = write_trim(Trim(2, last.hash, True), NOW)
            await stores.audit.append(event, drop_to=2)

    asyncio.run(trim())
    result = run(log, "--verify")
    assert result.exit_code == 0
    assert "4 entries (2 older ones were deleted by age), the log is whole" in result.output


@pytest.mark.parametrize(
    ("tamper", "fault"),
    [
        (lambda client: client.xdel(AUDIT, "3-0"), "entry 3: missing"),
        (lambda client: client.xdel(AUDIT, "5-0"), "the end is cut off: entry 5"),
        (lambda client: client.delete(AUDIT), "the end is cut off: entries 1 to 5"),
        (
            lambda client: client.xtrim(AUDIT, maxlen=2, approximate=False),
            "entries 1 to 3: missing",
        ),
        (lambda client: client.xadd(AUDIT, {"event": "{}"}, "6-0"), "entry 6: not written by"),
        (lambda client: client.xadd(AUDIT, {"event": "{}"}, "5-1"), "entry 5: not written by"),
        (
            lambda client: client.xadd(AUDIT, {"event": "x"}, "18446744073709551615-5"),
            "entry 18446744073709551615: not written by the gateway",
        ),
        (lambda client: client.xadd(AUDIT, {"event": "[" * 200_000}, "6-0"), "entry 6: not writ"),
    ],
)
def test_a_log_that_is_not_whole(
    log: RedisServer, tamper: Callable[[Any], object], fault: str
) -> None:
    """Every gap, cut or addition is named, and the exit status is 1."""
    with log.client() as client:
        tamper(client)
    result = run(log, "--verify")
    assert result.exit_code == 1
    assert fault in result.stderr
    assert "the log is not whole" in result.stdout
    result = run(log, "--verify", "--json")
    assert result.exit_code == 1
    assert any(fault in words for words in json.loads(result.stdout)["faults"])


def test_an_empty_log(redis_server: RedisServer) -> None:
    """No entry is listed, and an empty log is intact."""
    assert listed(redis_server) == []
    assert run(redis_server).output.split()[0] == "NUMBER"


def test_an_outage() -> None:
    """One line and exit status 1."""
    result = run(RedisServer())
    assert result.exit_code == 1
    assert "the store is unavailable" in result.output


def test_verify_prints_no_control_characters(redis_server: RedisServer) -> None:
    """Names and hashes that another program wrote into the log are printed as harmless text."""
    event = {"at_us": 1, "actor": "gateway", "action": "audit.moved", "subject": "audit:log"}
    event_text = json.dumps(event | {"after": {"to": "\x1b[2J\u202e"}})
    with redis_server.client() as client:
        client.xadd(AUDIT, {"event": event_text, "hash": "\x1b[2J", "previous": "\x07"}, "1-0")
    result = run(redis_server, "--verify")
    assert result.exit_code == 1
    assert all(char.isprintable() or char == "\n" for char in result.output)
    assert "moved to ?[2J?" in result.stderr
    assert "hash of the last: ?[2J" in result.stdout
