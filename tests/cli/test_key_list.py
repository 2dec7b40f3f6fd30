"""`gateway keys list`: filters, order, pages, and what a terminal gets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pty
import re
from typing import Any

import click
import pytest

from gateway.cli import main
from gateway.cli.accounts import accounts
from gateway.cli.key_list import cut
from gateway.cli.keys import keys
from gateway.domain.keys import KeyRecord
from gateway.manage.keys import KeyView
from gateway.stores.keys.store import RedisKeyStore
from gateway.stores.redis.address import parse_url
from gateway.stores.redis.clients import redis_client
from tests.cli.test_keys import Shell, shell
from tests.suites.keys import nth_id, plain_key

__all__ = ["shell"]
DAY = 86_400_000_000
#: In the past for the commands, whose time is the store's.
NOW = 1_700_000_000_000_000
FAR = 4_000_000_000_000_000
IDS = [nth_id(number) for number in range(4)]


@pytest.fixture
def filled(shell: Shell) -> Shell:
    """A store with four keys: by age, one after the other."""
    fields: list[dict[str, Any]] = [
        {"name": "delta", "expires_us": FAR},
        {"name": "Alpha", "expires_us": NOW + 5, "environment": "staging"},
        {"name": "beta", "scopes": ("a:read", "b:read"), "plan": "pro"},
        {"name": "charlie", "scopes": ("a:read",), "expires_us": FAR + DAY},
    ]
    records = [
        plain_key(key_id, created_us=NOW + number, **values)
        for number, (key_id, values) in enumerate(zip(IDS, fields, strict=True))
    ]
    asyncio.run(_add(shell.server.url, records))
    return shell


async def _add(url: str, records: list[KeyRecord]) -> None:
    client = redis_client(parse_url(url))
    store = RedisKeyStore(client)
    for record in records:
        await store.add(record)
    await store.touch([IDS[2]], NOW + 9)
    await store.touch([IDS[0]], NOW + 7)
    await client.aclose()


def listed(shell: Shell, *words: str) -> str:
    """The numbers of the keys, in order: "0123"."""
    return "".join(str(IDS.index(one["id"])) for one in shell.json(keys, "list", *words))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", "0123"),
        ("--reverse", "3210"),
        ("--sort name", "1230"),
        ("--sort last_used", "1302"),
        ("--sort expires", "1032"),
        ("--sort expires --reverse", "2301"),
        ("--scope a:read", "23"),
        ("--scope b:read", "2"),
        ("--scope a", ""),
        ("--environment staging", "1"),
        ("--status expired", "1"),
        ("--expires-before 1d", "1"),
        ("--expires-before 2096-10-02T07:06:40Z", "1"),
        ("--expires-before 2096-10-02T07:06:41Z", "01"),
        ("--expires-before 2100-01-01 --scope a:read", "3"),
        ("--limit 3", "012"),
        ("--count 3", "012"),
        ("--limit 3 --page 2", "3"),
        ("--limit 3 --page 3", ""),
        ("--page 1", "0123"),
        (f"--limit 2 --after {IDS[0]}", "12"),
        (f"--sort name --limit 2 --after {IDS[1]}", "23"),
    ],
)
def test_filters_order_and_pages(filled: Shell, words: str, expected: str) -> None:
    """Each filter, each order, and a part of the list by number or after a key."""
    assert listed(filled, *words.split()) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--limit 0", "--limit"),
        ("--sort plan", "--sort"),
        ("--expires-before soon", "--expires-before: found 'soon', expected a date"),
        (f"--page 2 --after {IDS[0]}", "--page and --after cannot be combined"),
        (f"--after {'a' * 12}", "is not in this list"),
        ("--after gwk_production_x", "this is a whole key"),
    ],
)
def test_wrong_options(filled: Shell, words: str, expected: str) -> None:
    """They are named."""
    assert expected in filled.refused(2, keys, "list", *words.split())


def test_a_page_says_how_to_continue(filled: Shell) -> None:
    """Beside the table, not in it."""
    done = filled.run(keys, "list", "--limit", "2", "--text")
    assert len(done.stdout.splitlines()) == 3
    assert done.stderr == f"2 of 4 keys; the next: --after {IDS[1]}\n"
    assert filled.run(keys, "list", "--limit", "4", "--text").stderr == ""
    assert filled.run(keys, "list", "--limit", "2", "--json").stderr == ""


def on_a_terminal(*words: str) -> str:
    """What a command prints on a terminal."""
    ours, theirs = pty.openpty()
    with open(theirs, "w") as terminal, contextlib.redirect_stdout(terminal):
        assert main.run(words) == 0
    with open(ours, "rb", buffering=0) as terminal, contextlib.suppress(OSError):
        shown = b""
        while part := terminal.read(65_536):  # at the end, Linux raises EIO
            shown += part
    return shown.decode()


def test_a_terminal_and_a_pipe(filled: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal gets relative times and colours; a pipe JSON, or exact times without colours."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert json.loads(filled.text(keys, "list"))[0]["name"] == "delta"
    piped = filled.text(keys, "list", "--text")
    assert "2023-11-14T22:13:20.000007Z" in piped
    assert "\x1b" not in piped
    words = ("keys", "list", "--store", filled.server.url)
    shown = on_a_terminal(*words)
    assert re.search(r"\x1b\[31mexpired\x1b\[0m .* \d+ years ago", shown)
    assert re.search(r"\x1b\[32mvalid\x1b\[0m .* in \d+ years", shown)
    assert json.loads(on_a_terminal(*words, "--json"))[0]["name"] == "delta"
    monkeypatch.setenv("NO_COLOR", "1")
    plain = on_a_terminal(*words)
    assert "\x1b" not in plain
    assert re.search(r"expired .* \d+ years ago", plain)


def test_accounts_have_the_same_table(filled: Shell) -> None:
    """Their status is a column, and piped output has no colours."""
    lines = filled.text(accounts, "list", "--text").splitlines()
    assert [line.split() for line in lines] == [
        ["NAME", "PLAN", "SERVICES", "STATUS", "KEYS"],
        ["acme", "no", "record", "4"],
    ]


def test_a_part_of_an_empty_list() -> None:
    """There is none, and nothing follows."""
    assert cut([], 5, 1, None) == ([], False)
    with pytest.raises(click.UsageError):
        cut([], 5, None, IDS[0])
    view = KeyView(plain_key(IDS[0]), None, "free")
    assert cut([view], None, None, IDS[0]) == ([], False)
