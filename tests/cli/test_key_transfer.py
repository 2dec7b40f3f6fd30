"""`gateway keys export` and `gateway keys import`, as a user calls them."""

from __future__ import annotations

import json

import pytest

from gateway.cli.accounts import accounts
from gateway.cli.keys import keys
from gateway.manage.key_file import MOST_LINE_BYTES
from tests.cli.test_keys import SHIPPED, Shell, shell

__all__ = ["shell"]


@pytest.fixture
def exported(shell: Shell) -> list[str]:
    """The lines of a store with two keys and an account; the store is empty then."""
    shell.text(accounts, "set", "acme", "--plan", "pro")
    shell.create("--account", "acme")
    shell.create()
    lines = shell.text(keys, "export").splitlines()
    with shell.server.client() as client:
        client.flushdb()
    return lines


def write(lines: list[str]) -> str:
    with open("keys.jsonl", "w", encoding="ascii") as file:
        file.write("".join(f"{line}\n" for line in lines))
    return "keys.jsonl"


def test_a_store_is_exported_and_imported(shell: Shell, exported: list[str]) -> None:
    """The other store has the same keys; a dry run writes none; a repetition changes none."""
    assert [next(iter(json.loads(line))) for line in exported] == [
        "format",
        "account",
        "key",
        "key",
    ]
    file = write(exported)
    assert shell.json(keys, "import", file, "--dry-run")["keys"]["created"] == 2
    assert shell.json(keys, "list") == []
    assert shell.text(keys, "import", file).splitlines() == [
        "accounts: 1 created, 0 replaced, 0 unchanged, 0 skipped",
        "keys: 2 created, 0 replaced, 0 unchanged, 0 skipped",
    ]
    assert shell.text(keys, "export").splitlines()[1:] == exported[1:]
    assert shell.json(keys, "import", file)["accounts"]["unchanged"] == 1


def test_conflicts(shell: Shell, exported: list[str]) -> None:
    """By default nothing is imported, and the line is named; or one of both records is kept."""
    file = write(exported)
    shell.text(keys, "import", file)
    key_id = shell.json(keys, "list")[0]["id"]
    shell.text(keys, "edit", key_id, "--name", "other")
    words = shell.refused(1, keys, "import", file).splitlines()
    assert words[0].startswith(f"keys.jsonl:3: key {key_id}: the store has another record")
    assert words[1] == "Error: 1 line has a fault, nothing was imported"
    assert shell.json(keys, "import", file, "--conflicts", "skip")["keys"]["skipped"] == 1
    assert shell.json(keys, "describe", key_id)["name"] == "other"
    assert shell.json(keys, "import", file, "--conflicts", "replace")["keys"]["replaced"] == 1
    assert shell.json(keys, "describe", key_id)["name"] == "ci"


def test_hostile_files(shell: Shell, exported: list[str]) -> None:
    """Faults have their line and no control characters; a huge line is not read as a whole."""
    key = json.loads(exported[2])
    key["key"]["name"] = "evil\x1b[2J"
    key["key"]["id"] = "\x1b]0;x\x07"
    huge = "x" * (3 * MOST_LINE_BYTES + 5)
    file = write([exported[0], huge, json.dumps(key), *exported[1:2], *exported[3:]])
    words = shell.refused(1, keys, "import", file)
    assert [line.partition(": ")[0] for line in words.splitlines()] == [
        *("keys.jsonl:2", "keys.jsonl:3", "Error"),
    ]
    assert "\x1b" not in words
    assert "\x07" not in words
    assert shell.json(keys, "list") == []
    for lines in ([], ["not a file of keys"], [huge], ["\x00" * 100]):
        assert "nothing was imported" in shell.refused(1, keys, "import", write(lines))
    shell.refused(2, keys, "import", "missing.jsonl")


def test_keys_of_another_environment(shell: Shell, exported: list[str]) -> None:
    """They are imported, with a warning."""
    changed = exported[2].replace('"environment": "production"', '"environment": "staging"')
    assert changed != exported[2]
    file = write([exported[0], exported[1], changed, exported[3]])
    folder = ["--policies", str(SHIPPED)]
    done = shell.run(keys, "import", file, *folder)
    assert done.exit_code == 0
    assert "1 key is of another environment than the policies' production" in done.stderr
