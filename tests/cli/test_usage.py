"""`gateway keys usage` and `gateway usage`, as a user calls them."""

from __future__ import annotations

import asyncio
import csv
import json
import time
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from click.testing import CliRunner

from gateway.cli import usage as module
from gateway.cli.main import cli
from gateway.domain import latency
from gateway.domain.ports import UsageBatch
from gateway.domain.usage import Measures
from gateway.stores.keys.store import RedisKeyStore
from gateway.stores.redis.address import parse_url
from gateway.stores.redis.clients import redis_client
from gateway.stores.usage.store import RedisUsageStore
from tests.suites.keys import plain_key

KEY = "7h3k9m2p4q6r"
COUNTS = {
    (f"key:{KEY}", "api", "admitted"): 1_200,
    (f"key:{KEY}", "search", "limited:search"): 30,
    (f"key:{KEY}", "search", "admitted"): 9,
    (f"key:{KEY}", "api", "refused:ip_not_allowed"): 1,
}


@pytest.fixture
def url(redis_server):
    """A store with one key."""

    async def fill() -> None:
        client = redis_client(parse_url(redis_server.url))
        await RedisKeyStore(client).add(plain_key(KEY))
        await client.aclose()

    asyncio.run(fill())
    return redis_server.url


def count(url) -> None:
    """The key has been used, a minute ago."""

    async def fill() -> None:
        client = redis_client(parse_url(url))
        now_s = int(time.time())
        batch = UsageBatch("worker", 1, now_s - now_s % 60 - 60, COUNTS)
        await RedisUsageStore(client).add(batch)
        await RedisKeyStore(client).touch([KEY], 1_800_000_000_000_000)
        await client.aclose()

    asyncio.run(fill())


def run(url, *words, columns="60", **options):
    environment = {"GATEWAY_STORE": url, "GATEWAY_DATA": None, "COLUMNS": columns}
    words = ["keys", "usage", "--text", *words]
    return CliRunner(env=environment).invoke(cli, words, **options)


def test_a_key_that_was_never_used(url):
    """The command reports that it has neither uses nor requests."""
    done = run(url, KEY)
    assert done.exit_code == 0, done.output
    assert "never" in done.stdout
    assert done.stdout.endswith("no requests in the last 24h\n")


@pytest.mark.parametrize("window", ["1h", "24h", "7d", "30d"])
def test_what_is_shown(url, window):
    """Status and last use, a plot, and the requests by outcome and route."""
    count(url)
    done = run(url, KEY, "--window", window)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert "last used: 2027-01-15T08:00:00Z" in done.stdout
    assert f"1,240 requests in the last {window}, by time (UTC):" in lines
    assert "█ admitted  ▒ limited  ░ refused" in done.stdout
    assert max(map(len, lines)) <= 60
    at = lines.index("OUTCOME                 REQUESTS  SHARE")
    assert lines[at + 1 : at + 4] == [
        "admitted                1,209     97.5%",
        "limited:search          30        2.4%",
        "refused:ip_not_allowed  1         0.1%",
    ]
    assert lines[-2:] == [
        "api     1,201     1,200     0        1        0",
        "search  39        9         30       0        0",
    ]
    assert "\x1b" not in done.stdout


def test_colour(url):
    """On a terminal the plot has colours."""
    count(url)
    assert "\x1b[32m" in run(url, KEY, color=True).stdout


def test_json(url):
    """For scripts, all of it as JSON."""
    count(url)
    done = run(url, KEY, "--window", "7d", "--json")
    shown = json.loads(done.stdout)
    assert (shown["id"], shown["status"], shown["window"]) == (KEY, "valid", "7d")
    assert shown["last_used"] == "2027-01-15T08:00:00Z"
    assert shown["requests"] == 1_240
    assert shown["routes"]["search"] == {"admitted": 9, "limited:search": 30}
    assert len(shown["points"]) == 84


def run_all(url, *words):
    environment = {"GATEWAY_STORE": url, "GATEWAY_DATA": None, "COLUMNS": "100"}
    return CliRunner(env=environment).invoke(cli, ["usage", *words])


def answered(url) -> None:
    """The key was answered, today."""
    counts, measures = {}, {}
    for subject in (f"key:{KEY}", "plan:free"):
        counts[subject, "api", "admitted:2xx"] = 7
        counts[subject, "api", "failed:5xx"] = 1
        counts[subject, "search", "admitted:4xx"] = 2
        measures[subject, "api"] = Measures(0, 25_000, latency.count([0.05] * 8))

    async def fill() -> None:
        client = redis_client(parse_url(url))
        minute_s = int(time.time()) // 60 * 60
        await RedisUsageStore(client).add(UsageBatch("worker", 1, minute_s, counts, measures))
        await client.aclose()

    asyncio.run(fill())


def test_what_is_piped_is_json(url):
    """A terminal gets a table; a script that says nothing, JSON."""
    answered(url)
    assert json.loads(run_all(url).stdout)["requests"] == 10
    assert run_all(url, "--text").stdout == run_all(url, "--format", "table").stdout


@pytest.mark.parametrize("choice", [(), ("--account", "acme"), ("--key", KEY)])
def test_usage_of_all_an_account_and_a_key(url, choice):
    """Each is the same here, by outcome and route, with statuses, latencies and bytes."""
    answered(url)
    done = run_all(url, *choice, "--window", "7d", "--text")
    assert done.exit_code == 0, done.output
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["failed:5xx", "1", "10.0%"] in lines
    assert ["api", "8", "7", "0", "0", "1"] in lines
    (api,) = [line for line in lines if line[:5] == ["api", "7", "0", "0", "1"]]
    assert api[-4:] == ["0", "B", "25", "kB"]
    shown = json.loads(run_all(url, *choice, "--json").stdout)
    assert (shown["requests"], shown["statuses"]["5xx"]) == (10, 1)
    today = f"{datetime.now(UTC) - timedelta(hours=1):%Y-%m-%d}"
    table = run_all(url, *choice, "--route", "api", "--from", today, "--format", "csv").stdout
    (row,) = csv.DictReader(StringIO(table))
    assert (row["route"], row["requests"], row["status_5xx"]) == ("api", "8", "1")
    assert row["bytes_out"] == "25000"


def test_bad_ranges(url):
    """A fault says what was found; options that exclude each other are bad usage."""
    for words, found in (
        (("--from", "1 July"), "from: found '1 July', expected a date such as 2026-07-01"),
        (("--from", "2026-07-02", "--to", "2026-07-01"), "expected a date after from"),
        (("--json", "--format", "csv"), "--json and --format csv differ"),
        (("--text", "--format", "json"), "--text and --format json differ"),
        (("--account", "acme", "--key", KEY), "--account and --key: give one of them"),
    ):
        done = run_all(url, *words)
        assert done.exit_code == 2
        assert found in done.stderr
    assert run_all(url, "--account", "nobody").exit_code == 1


def test_a_whole_key_is_not_printed(url):
    """It is a secret; so is what may be one."""
    key = f"gwk_production_{KEY}_" + "x" * 43
    for text in (key, key[20:]):
        done = run_all(url, "--key", text)
        assert done.exit_code == 2
        assert text not in done.output


def test_bad_usage(url):
    """An unknown window is bad usage, an unknown key a failure."""
    assert run(url, KEY, "--window", "1y").exit_code == 2
    done = run(url, "b" * 12)
    assert done.exit_code == 1
    assert "there is no key with the id bbbbbbbbbbbb" in done.stderr


@pytest.mark.parametrize(
    ("encoding", "can"),
    [("utf-8", True), ("ascii", False), ("latin-1", False), (None, False), ("nonsense", False)],
)
def test_what_an_output_can_draw(encoding, can):
    """Block characters are used only if the output's encoding has them."""
    assert module._can_draw(encoding) is can


def test_nothing_reaches_the_terminal_as_a_command(url, redis_server):
    """A route or outcome that another program wrote into the store is printed as text."""
    count(url)
    now_s = int(time.time())
    with redis_server.client() as client:
        evil = "%1b]0;pwn%07%c2%9b31m%e2%80%ae|admitted"
        client.set(f"gw:{{keys}}:usage:key:{KEY}", f"{evil}\n{_base36(now_s // 60)}:5")
    done = run(url, KEY, "--window", "1h")
    assert done.exit_code == 0, done.output
    assert "?]0;pwn??31m?" in done.stdout
    assert all(char.isprintable() or char == "\n" for char in done.output)


def _base36(number):
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    return (_base36(number // 36) if number >= 36 else "") + digits[number % 36]
