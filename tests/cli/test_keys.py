"""`gateway keys` and `gateway accounts`, as a user calls them."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli import store
from gateway.cli.accounts import accounts
from gateway.cli.audit import audit
from gateway.cli.keyforms import os_actor
from gateway.cli.keys import keys
from gateway.cli.main import cli
from gateway.cli.warnings import warnings
from gateway.domain import key_format, keylife
from gateway.domain.keys import Account, KeyRecord
from gateway.domain.limits import Limit
from gateway.domain.ports import KeyChanged
from gateway.manage.views import moment
from gateway.stores.keys.records import read_account, read_record
from gateway.stores.keys.store import RedisKeyStore
from gateway.stores.redis import embedded
from tests.kit.wire import TIMEOUT_S
from tests.policies.folder import write

NOW = 1_800_000_000_000_000
DAY = 86_400_000_000
SHIPPED = Path(__file__).parents[2] / "policies"


class Shell:
    """Runs commands on one store, in an empty folder, without the machine's environment."""

    def __init__(self, server) -> None:
        self.server = server
        self.environment = {}
        self.store = ["--store", server.url]

    def run(self, group, *words, store=True):
        return CliRunner(
            env={"GATEWAY_STORE": None, "GATEWAY_DATA": None, **self.environment}
        ).invoke(cli, [group.name, *words, *(self.store if store else [])])

    def json(self, group, *words):
        done = self.run(group, *words, "--json")
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout)

    def text(self, group, *words):
        done = self.run(group, *words)
        assert done.exit_code == 0, done.stderr
        return done.stdout

    def refused(self, status, group, *words, store=True):
        done = self.run(group, *words, store=store)
        assert done.exit_code == status, done.output
        assert done.stdout == ""
        return done.stderr

    def create(self, *words):
        return self.json(keys, "create", "--name", "ci", "--plan", "pro", *words)

    def record(self, key_id) -> KeyRecord:
        with self.server.client() as client:
            return read_record(key_id, client.get(f"gw:{{keys}}:key:{key_id}"))


@pytest.fixture
def shell(redis_server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Shell(redis_server)


def test_a_plain_key(shell):
    """The key is printed once, and the store has only its digest."""
    made = shell.create()
    parsed = key_format.parse(made["key"])
    record = shell.record(made["id"])
    assert parsed == ("production", made["id"])
    assert record.digest == key_format.digest(made["key"].encode())
    assert (record.account, record.lineage) == (made["id"], made["id"])
    assert (record.name, record.plan, record.status, record.expires_us) == (
        "ci",
        "pro",
        "valid",
        None,
    )
    assert abs(record.created_us - time.time_ns() // 1000) < DAY
    with shell.server.client() as client:
        stored = b"".join(client.dump(name) for name in client.scan_iter())
    assert made["key"].encode() not in stored
    assert made["key"] not in json.dumps(shell.json(keys, "describe", made["id"]))


def test_a_key_with_everything(shell):
    """Each option is in the record, and `describe` shows it as given."""
    made = shell.create(
        *("--account", "acme", "--environment", "staging", "--expires", "2h"),
        *("--scope", "connectors:read", "--scope", "ticketing:write", "--scope", "connectors:read"),
        *("--permission", "ticketing:write", "--permission", "edr:read"),
        *("--permission", "ticketing:read", "--ip", "10.0.0.0/8", "--ip", "::ffff:192.0.2.1"),
        *("--limit", "plan=300/minute,burst=500", "--limit", "search=5/second"),
    )
    record = shell.record(made["id"])
    assert (record.account, record.environment) == ("acme", "staging")
    assert record.scopes == ("connectors:read", "ticketing:write")
    assert record.permissions == {"ticketing": ("write", "read"), "edr": ("read",)}
    assert record.expires_us == record.created_us + 7_200_000_000
    assert record.limits == {
        "plan": Limit("plan", "rate", 300, 60_000_000, 500),
        "search": Limit("search", "rate", 5, 1_000_000),
    }
    shown = shell.json(keys, "describe", made["id"])
    assert {**shown, "key": made["key"]} == made
    assert shown["ip_ranges"] == ["10.0.0.0/8", "192.0.2.1/32"]
    assert shown["limits"] == {"plan": "300/minute,burst=500", "search": "5/second"}
    assert shown["status"] == "valid"
    text = shell.text(keys, "describe", "--text", made["id"])
    assert "permissions: edr read; ticketing write, read" in " ".join(text.split())


def test_what_a_person_reads(shell):
    """create prints the key on a separate line and in a curl command to paste."""
    lines = shell.text(keys, "create", "--name", "ci", "--plan", "pro").splitlines()
    (key,) = [line for line in lines if key_format.parse(line)]
    assert any(f"curl -H 'Authorization: Bearer {key}'" in line for line in lines)
    listed = shell.text(keys, "list", "--text")
    assert key_format.parse(key).id in listed
    assert key not in listed


def test_policies_set_the_environment_and_are_checked(shell, tmp_path):
    """Plan and limits must be in the policies, whose environment is the default."""
    folder = tmp_path / "other"
    folder.mkdir()
    for file in SHIPPED.glob("*.yaml"):
        content = file.read_text().replace("environment: production", "environment: staging")
        (folder / file.name).write_text(content)
    given = ["--policies", str(folder)]
    assert shell.create(*given)["environment"] == "staging"
    assert shell.create(*given, "--environment", "dev")["environment"] == "dev"
    made = shell.create(*given, "--limit", "mcp-daily=20/day", "--limit", "api=5/second")
    assert shell.record(made["id"]).limits["mcp-daily"].kind == "quota"

    base = ["create", "--name", "x", "--plan"]
    assert "expected a plan" in shell.refused(2, keys, *base, "huge", *given)
    assert "expected a limit" in shell.refused(2, keys, *base, "pro", *given, "--limit", "x=1/day")
    words = shell.refused(2, keys, *base, "pro", *given, "--limit", "mcp-daily=9/day,burst=9")
    assert "quota" in words
    words = shell.refused(2, keys, *base, "pro", *given, "--limit", "mcp-connections=9/day")
    assert "a number of connections, 1 to 1000" in words
    folder.rename(tmp_path / "policies")
    assert shell.create()["environment"] == "staging"
    assert "expected a plan" in shell.refused(2, keys, *base, "huge")


def test_scopes_and_permissions_that_no_route_requires(shell, tmp_path):
    """They are a warning, with the most similar one; without policies, there is none."""
    routes = (SHIPPED / "routes.yaml").read_text()
    more = '  tickets: {match: "* /t", upstream: api, permission: "ticketing:write"}\n'
    (tmp_path / "policies").mkdir()
    for file in SHIPPED.glob("*.yaml"):
        (tmp_path / "policies" / file.name).write_text(file.read_text())
    (tmp_path / "policies/routes.yaml").write_text(routes + more)
    given = ["--scope", "connectors:read", "--permission", "ticketing:write"]
    given += ["--permission", "scm:read"]  # of a tool
    create = ["create", "--name", "x", "--plan", "pro", "--json"]
    assert shell.run(keys, *create, *given).stderr == ""
    wrong = ["--scope", "connector:read", "--permission", "tickets:write", "--scope", "zzz"]
    expected = [
        "warning: --scope: no route requires 'connector:read' (did you mean 'connectors:read'?); "
        "it is only forwarded to upstreams",
        "warning: --scope: no route requires 'zzz'; it is only forwarded to upstreams",
        "warning: --permission: no route requires 'tickets:write' (did you mean "
        "'ticketing:write'?); it has no effect",
    ]
    done = shell.run(keys, *create, *wrong)
    assert (done.exit_code, done.stderr.splitlines()) == (0, expected)
    key_id = json.loads(done.stdout)["id"]
    done = shell.run(keys, "edit", key_id, *wrong)
    assert (done.exit_code, done.stderr.splitlines()) == (0, expected)
    assert shell.run(keys, "edit", key_id, "--name", "y").stderr == ""
    (tmp_path / "policies").rename(tmp_path / "elsewhere")
    assert shell.run(keys, *create, *wrong).stderr == ""


def test_faulty_policies(shell, tmp_path):
    """Policies that cannot be loaded are one line, which names the first fault."""
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "a.yaml").write_text("plans: 5\nnonsense: 1\n")
    words = shell.refused(1, keys, "create", "--name", "x", "--plan", "pro")
    assert len(words.splitlines()) == 1
    assert "policies" in words
    assert "more, see gateway validate" in words


@pytest.mark.parametrize(
    "words",
    [
        ["--name", ""],
        ["--name", "a\nb"],
        ["--name", "\x1b[31m"],
        ["--name", "x" * 101],
        ["--plan", "a b"],
        ["--account", "-acme"],
        ["--account", "a:b"],
        ["--environment", "Prod"],
        ["--scope", "a b"],
        ["--permission", "ticketing"],
        ["--permission", "ticketing:"],
        ["--ip", "10.0.0.1/8"],
        ["--expires", "2020-01-01"],
        ["--expires", "0s"],
        ["--expires", "tomorrow"],
        ["--expires", "2099-01-01T00:00:00"],
        ["--limit", "plan"],
        ["--limit", "plan=300"],
        ["--limit", "plan=300/minute,burst=1"],
        ["--limit", "plan=300/minute,burst=x"],
        ["--limit", "pl an=300/minute"],
        ["--limit", "plan=1/day", "--limit", "plan=2/day"],
    ],
)
def test_bad_usage(shell, words):
    """An invalid option is exit status 2, and no key is created."""
    base = ["create", "--name", "ci", "--plan", "pro"]
    assert words[0] in shell.refused(2, keys, *base, *words)
    assert shell.json(keys, "list") == []


def test_the_statuses(shell):
    """A key is suspended, resumed and revoked; an impossible change is refused with the reason."""
    key_id = shell.create()["id"]
    assert shell.json(keys, "suspend", key_id) == {"id": key_id, "status": "suspended"}
    assert "suspended already" in shell.refused(1, keys, "suspend", key_id)
    assert "is resumed" in shell.text(keys, "resume", key_id)
    assert "not suspended" in shell.refused(1, keys, "resume", key_id)
    assert shell.json(keys, "revoke", key_id)["status"] == "revoked"
    for command in ("suspend", "resume", "revoke", "rotate"):
        assert "revoked" in shell.refused(1, keys, command, key_id)
    assert shell.record(key_id).status == "revoked"


def test_rotation(shell):
    """The successor has a new key and id, and the old key's other fields; the old key expires."""
    old_id = shell.create("--account", "acme", "--scope", "edr:read")["id"]
    before = shell.record(old_id)
    made = shell.json(keys, "rotate", old_id, "--overlap", "2h")
    old, new = shell.record(old_id), shell.record(made["id"])
    assert key_format.parse(made["key"]).id == made["id"] != old_id
    assert new.digest == key_format.digest(made["key"].encode())
    assert made["replaces"] == old_id
    assert keylife.rotate(before, new.id, new.digest, new.created_us, 7_200_000_000) == (old, new)
    assert made["old_expires"] == moment(old.expires_us)
    assert new.id in shell.refused(1, keys, "rotate", old_id)
    again = shell.text(keys, "rotate", new.id)
    assert f"replaces: {new.id}" in " ".join(again.split())
    rotated = shell.record(new.id)
    assert rotated.expires_us - shell.record(rotated.successor).created_us == DAY
    assert shell.record(rotated.successor).lineage == old_id
    assert "found 'x'" in shell.refused(2, keys, "rotate", old_id, "--overlap", "x")


def test_a_concurrent_change_is_not_lost(shell, monkeypatch):
    """If a key changes between reading and writing, the command decides again, or gives up."""
    key_id = shell.create()["id"]
    replacing, renames = RedisKeyStore.replace, iter(("first", "second"))

    async def beaten(self, old, new):
        if new.id == key_id and (name := next(renames, None)):
            await replacing(self, old, replace(old, name=name))
        await replacing(self, old, new)

    monkeypatch.setattr(RedisKeyStore, "replace", beaten)
    shell.text(keys, "revoke", key_id)
    record = shell.record(key_id)
    assert (record.name, record.status) == ("second", "revoked")

    async def hopeless(self, old, new):
        if old.id == other:
            raise KeyChanged
        await replacing(self, old, new)

    other = shell.create()["id"]
    monkeypatch.setattr(RedisKeyStore, "replace", hopeless)
    assert "try again" in shell.refused(1, keys, "revoke", other)
    assert "try again" in shell.refused(1, keys, "rotate", other)
    assert shell.record(other).successor is None
    # The successor that was not printed is not valid.
    made = [one for one in shell.json(keys, "list") if one["lineage"] == other != one["id"]]
    assert [one["status"] for one in made] == ["revoked"]


def test_last_use(shell):
    """A key shows when it was last used, or that it never was."""
    key_id = shell.create()["id"]
    assert shell.json(keys, "describe", key_id)["last_used"] is None
    assert "never" in shell.text(keys, "list", "--text")
    with shell.server.client() as client:
        client.hset("gw:{keys}:used", key_id, NOW)
    assert shell.json(keys, "describe", key_id)["last_used"] == "2027-01-15T08:00:00Z"
    assert "2027-01-15T08:00:00Z" in shell.text(keys, "list", "--text")


@pytest.mark.parametrize("command", ["describe", "usage", "rotate", "suspend", "resume", "revoke"])
def test_ids(shell, command):
    """An id that does not exist is a failure; a whole key is refused and not repeated."""
    assert "no key with the id" in shell.refused(1, keys, command, "7h3k9m2p4q6r")
    text = shell.create()["key"]
    for word in (text, text[:-1], text.upper(), "hunter2"):
        words = shell.refused(2, keys, command, word)
        assert word not in words
        assert text[30:] not in words


def test_lists(shell):
    """A list shows every key, oldest first, and none where there are none."""
    assert shell.json(keys, "list") == []
    ids = [shell.create()["id"] for _ in range(3)]
    assert [shown["id"] for shown in shell.json(keys, "list")] == ids
    lines = shell.text(keys, "list", "--text").splitlines()
    assert [line.split()[0] for line in lines] == ["ID", *ids]


def test_filters(shell):
    """By status, plan, account, or a text that it contains; still oldest first."""
    shell.text(accounts, "set", "acme", "--plan", "pro")
    first = shell.create("--account", "acme")["id"]
    second = shell.json(keys, "create", "--name", "Billing", "--account", "acme")["id"]
    third = shell.json(keys, "create", "--name", "mail", "--plan", "free")["id"]
    shell.text(keys, "suspend", second)

    def listed(*words):
        return [shown["id"] for shown in shell.json(keys, "list", *words)]

    assert listed() == [first, second, third]
    assert listed("--plan", "pro") == [first, second]
    assert listed("--plan", "free") == [third]
    assert listed("--account", "acme", "--status", "valid") == [first]
    assert listed("--search", "bill") == [second]
    assert listed("--status", "expired") == []
    assert "'--status'" in shell.refused(2, keys, "list", "--status", "good")


def test_a_list_of_a_plan_that_was_renamed(shell, tmp_path):
    """With --policies or ./policies, a plan's keys are also those that have its earlier name."""
    first = shell.create()["id"]
    words = ("list", "--plan", "gold")
    assert shell.json(keys, *words) == []
    folder = tmp_path / "renamed"
    folder.mkdir()
    write(folder, plans="plans: {gold: {rate: 1/day, was: pro}}\n")
    assert [shown["id"] for shown in shell.json(keys, *words, "--policies", str(folder))] == [first]
    folder.rename(tmp_path / "policies")
    assert [shown["id"] for shown in shell.json(keys, *words)] == [first]
    (tmp_path / "policies/plans.yaml").write_text("")
    assert shell.refused(1, keys, *words)
    assert len(shell.json(keys, "list")) == 1  # which needs no policies


def test_long_lists(shell, monkeypatch):
    """A list is complete, whatever the number of pages it is read in."""
    monkeypatch.setattr("gateway.cli.key_list._PAGE", 2)
    made = [shell.create() for _ in range(5)]
    # The clock of a machine may step back meanwhile.
    made.sort(key=lambda key: (key["created"], key["id"]))
    assert [shown["id"] for shown in shell.json(keys, "list")] == [key["id"] for key in made]


def test_editing(shell):
    """Named fields are changed, or removed with --no-…; all others stay."""
    key_id = shell.create(
        *("--expires", "1d", "--scope", "a:read", "--limit", "plan=5/second", "--account", "acme"),
        *("--ip", "10.0.0.0/8", "--permission", "edr:read"),
    )["id"]
    before = shell.record(key_id)
    shown = shell.json(
        *(keys, "edit", key_id, "--name", "other", "--plan", "free", "--no-expires"),
        *("--scope", "b:read", "--scope", "c:read", "--no-limit"),
    )
    assert shown == shell.json(keys, "describe", key_id)
    assert shell.record(key_id) == replace(
        before,
        **{"name": "other", "plan": "free", "expires_us": None, "limits": {}},
        scopes=("b:read", "c:read"),
    )
    text = shell.text(keys, "edit", key_id, "--no-scope", "--no-ip", "--no-permission")
    assert "other" in text
    record = shell.record(key_id)
    assert (record.scopes, record.networks, record.permissions) == ((), (), {})
    assert "no field to change was given" in shell.refused(2, keys, "edit", key_id)
    assert "--no-ip" in shell.refused(2, keys, "edit", key_id, "--no-ip", "--ip", "::1")
    assert "--plan" in shell.refused(2, keys, "edit", key_id, "--no-plan")
    words = shell.refused(2, keys, "edit", key_id, "--plan", "a b", "--ip", "x", "--expires", "0s")
    assert all(option in words for option in ("--plan", "--ip", "--expires"))
    shell.text(keys, "revoke", key_id)
    assert "is final" in shell.refused(1, keys, "edit", key_id, "--name", "y")


def test_plans_of_accounts(shell):
    """A key needs no plan if its account has one; both plans are shown."""
    assert "--plan" in shell.refused(2, keys, "create", "--name", "ci")
    error = shell.refused(2, keys, "create", "--name", "ci", "--account", "acme")
    assert "its account has none" in error
    given = ["--plan", "pro", "--limit", "plan=9/second", "--service", "edr"]
    shown = shell.json(accounts, "set", "acme", *given)
    assert shown == {
        **{"name": "acme", "status": "valid", "plan": "pro"},
        **{"services": ["edr"], "limits": {"plan": "9/second"}, "billing_day": 1},
    }
    made = shell.json(keys, "create", "--name", "ci", "--account", "acme")
    assert made["plan"] is None
    assert "plan: pro (its account's)" in " ".join(
        shell.text(keys, "describe", "--text", made["id"]).split()
    )
    assert "pro" in shell.text(keys, "list", "--text")
    with shell.server.client() as client:
        kept = read_account("acme", client.get("gw:{keys}:account:acme"))
    assert kept == Account("acme", ("edr",), "pro", {"plan": Limit("plan", "rate", 9, 1_000_000)})
    assert "--limit" in shell.refused(2, accounts, "set", "acme", "--limit", "plan=x")


def test_an_account_that_loses_its_plan(shell):
    """A change that removes keys' plan reports how many have none now."""
    shell.text(accounts, "set", "acme", "--plan", "pro")
    for plan in ([], [], ["--plan", "free"]):
        shell.json(keys, "create", "--name", "ci", "--account", "acme", *plan)
    revoked = shell.json(keys, "create", "--name", "ci", "--account", "acme")
    shell.text(keys, "revoke", revoked["id"])
    shell.json(keys, "create", "--name", "ci", "--plan", "pro")
    assert shell.run(accounts, "set", "acme", "--plan", "free").stderr == ""
    done = shell.run(accounts, "set", "acme", "--service", "edr")
    assert done.exit_code == 0
    assert "2 keys of this account have no plan now" in done.stderr
    assert "PLAN_NOT_CONFIGURED" in done.stderr
    shell.text(accounts, "set", "zeta", "--plan", "free")
    shell.json(keys, "create", "--name", "ci", "--account", "zeta")
    assert "1 key of this account has no plan" in shell.run(accounts, "set", "zeta").stderr


def test_an_expired_key_is_described_as_listed(shell):
    """Both show the same status.

    By the store's time, of which a command knows as much as the time of one answer allows.
    """
    made = shell.create("--expires", "1ms")
    give_up = time.monotonic() + TIMEOUT_S
    described = ""
    while "status: expired" not in described:
        assert time.monotonic() < give_up, described
        described = " ".join(shell.text(keys, "describe", "--text", made["id"]).split())
    assert "expired: yes" not in described
    assert "expired" in shell.text(keys, "list", "--text")


def test_a_long_wait_is_reported(monkeypatch, tmp_path):
    """The command prints what it waits for if a private Redis does not answer."""
    (tmp_path / "appendonlydir").mkdir()
    was_printed = threading.Event()

    def start(_):
        assert was_printed.wait(20)
        raise embedded.EmbeddedFailed("it does not answer")

    def echo(words, err):
        assert err
        assert words == f"waiting for the private Redis in {tmp_path} …"
        was_printed.set()

    monkeypatch.setattr(embedded.EmbeddedRedis, "start", start)
    monkeypatch.setattr(store, "_SILENT_S", 0.0)
    monkeypatch.setattr("click.echo", echo)
    words = ["keys", "list", "--data", str(tmp_path)]
    result = CliRunner().invoke(cli, words, standalone_mode=False)
    assert "it does not answer" in str(result.exception)


def test_an_empty_folder_is_refused(shell):
    """An empty --data, as from an unset variable, is not the current folder."""
    words = shell.refused(2, keys, "list", "--data", "", store=False)
    assert "--data" in words
    assert "expected a folder" in words
    assert "--store" in shell.refused(2, keys, "list", "--store", "", store=False)
    assert list(Path().iterdir()) == []


def test_a_change_is_in_the_audit_log(shell):
    """Changes by commands are recorded with their user, and without the key or its digest."""
    shell.text(accounts, "set", "acme", "--plan", "pro")
    made = shell.json(keys, "create", "--name", "ci", "--account", "acme")
    shell.text(keys, "edit", made["id"], "--name", "x")
    rotated = shell.json(keys, "rotate", made["id"])
    for command in ("suspend", "resume", "revoke"):
        shell.text(keys, command, made["id"])
    with shell.server.client() as client:
        entries = [str(fields) for _, fields in client.xrange("gw:{keys}:audit")]
    expected = ["account.set", *(f"key.{word}" for word in ("create", "edit", "rotate"))]
    expected += ["key.suspend", "key.resume", "key.revoke"]
    assert len(entries) == len(expected)
    for entry, action in zip(entries, expected, strict=True):
        assert action in entry
        assert str(os_actor()) in entry
    for secret in (made["key"], rotated["key"], shell.record(made["id"]).digest.hex()):
        assert secret not in str(entries)


def test_a_user_without_a_name(monkeypatch):
    """A user without a name is recorded by number."""
    monkeypatch.setattr("os.getuid", lambda: 4_123_456)
    assert str(os_actor()) == "uid 4123456 (cli)"


def test_accounts(shell):
    """Services are replaced as a whole; accounts are listed and shown."""
    assert shell.json(accounts, "list") == []
    shell.text(accounts, "set", "zeta")
    shell.text(accounts, "set", "acme", "--service", "edr")
    shown = shell.json(
        accounts, "set", "acme", "--service", "scm", "--service", "edr", "--service", "scm"
    )
    assert shown == {
        **{"name": "acme", "status": "valid", "plan": None, "services": ["edr", "scm"]},
        **{"limits": {}, "billing_day": 1},
    }
    described = shell.json(accounts, "describe", "acme")
    assert described == {
        **shown,
        **{"implicit": False, "keys": 0, "effective_limits": None, "key_ids": []},
    }
    assert [entry["name"] for entry in shell.json(accounts, "list")] == ["acme", "zeta"]
    listed = [line.split() for line in shell.text(accounts, "list", "--text").splitlines()]
    assert listed == [
        ["NAME", "PLAN", "SERVICES", "STATUS", "KEYS"],
        ["acme", "edr,", "scm", "valid", "0"],
        ["zeta", "valid", "0"],
    ]
    described = " ".join(shell.text(accounts, "describe", "--text", "acme").split())
    assert described == "name: acme status: valid services: edr, scm billing day: 1"
    assert "no account nobody" in shell.refused(1, accounts, "describe", "nobody")
    for words in (["set", "a:b"], ["set", "acme", "--service", "a b"], ["describe", "-"]):
        shell.refused(2, accounts, *words)


def test_fields_of_an_account_are_edited(shell):
    """Others stay; a field is cleared by its option; a key without a plan then is warned of."""
    shell.text(accounts, "set", "acme", "--plan", "pro", "--service", "edr", "--billing-day", "15")
    shell.json(keys, "create", "--name", "ci", "--account", "acme")
    shown = shell.json(accounts, "edit", "acme", "--plan", "free", "--limit", "plan=5/second")
    assert (shown["plan"], shown["services"], shown["billing_day"]) == ("free", ["edr"], 15)
    shown = shell.json(accounts, "edit", "acme", "--no-service", "--no-limit", "--billing-day", "2")
    assert (shown["services"], shown["limits"], shown["billing_day"]) == ([], {}, 2)
    done = shell.run(accounts, "edit", "acme", "--no-plan")
    assert done.exit_code == 0
    assert "1 key of this account has no plan now" in done.stderr
    assert "no account nobody" in shell.refused(1, accounts, "edit", "nobody", "--plan", "pro")
    for words in ((), ("--plan", "pro", "--no-plan"), ("--billing-day", "32")):
        shell.refused(2, accounts, "edit", "acme", *words)


def test_an_account_is_suspended_resumed_and_deleted(shell):
    """A change without effect is an error; an account with keys is deleted by force only."""
    key_id = shell.create("--account", "acme")["id"]
    assert shell.text(accounts, "suspend", "acme") == "Account acme is suspended, with 1 key.\n"
    assert "suspended already" in shell.refused(1, accounts, "suspend", "acme")
    shell.text(accounts, "set", "acme", "--plan", "free")
    assert shell.json(accounts, "describe", "acme")["status"] == "suspended"
    assert shell.json(accounts, "resume", "acme") == {"name": "acme", "status": "valid"}
    assert "is not suspended" in shell.refused(1, accounts, "resume", "acme")
    assert "1 key that is not revoked" in shell.refused(1, accounts, "delete", "acme")
    words = shell.text(accounts, "delete", "acme", "--force")
    assert words == "Account acme is deleted. 1 key was revoked.\n"
    assert shell.json(keys, "describe", key_id)["status"] == "revoked"
    assert "has no record" in shell.refused(1, accounts, "delete", "acme")
    for command in ("suspend", "resume", "delete"):
        assert "no account nobody" in shell.refused(1, accounts, command, "nobody")


def test_accounts_that_keys_name(shell):
    """They are listed although they have no record; accounts of their own only with --all."""
    own = shell.create()["id"]
    named = shell.create("--account", "acme")["id"]
    assert [one["name"] for one in shell.json(accounts, "list")] == ["acme"]
    listed = {one["name"]: one for one in shell.json(accounts, "list", "--all")}
    assert listed.keys() == {own, "acme"}
    assert (listed["acme"]["implicit"], listed["acme"]["keys"]) == (True, 1)
    assert shell.json(accounts, "list", "--search", "x") == []
    described = shell.json(accounts, "describe", "acme")
    assert described["key_ids"] == [named]
    assert "only named by its keys" in shell.text(accounts, "describe", "--text", "acme")


def test_the_limits_of_an_account(shell):
    """With policies, the limits of its keys are shown; those per account with their state."""
    shell.text(accounts, "set", "acme", "--plan", "pro", "--limit", "plan=9/second")
    folder = ["--policies", str(Path(__file__).parents[2] / "policies")]
    limits = shell.json(accounts, "describe", "acme", *folder)["effective_limits"]
    assert (limits[0]["name"], limits[0]["limit"]) == ("plan", 9)
    assert "9/second" in shell.text(accounts, "describe", "--text", "acme", *folder)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("memory://", "is inside one gateway"),
        ("redis://u:hunter2@h", "GATEWAY_STORE_PASSWORD"),
        ("redis://u:hunter2/@h", "port"),
        ("redis+cluster://h/1", "database 0"),
        ("nonsense", "unknown scheme"),
    ],
)
def test_stores_that_are_refused(shell, url, words):
    """An invalid store is a usage error; no password is repeated."""
    shell.store = ["--store", url]
    error = shell.refused(2, keys, "list")
    assert words in error
    assert "hunter2" not in error


def test_the_password_comes_from_the_environment(shell, tmp_path):
    """From its variable, its file, or the URL's variable."""
    port = shell.server.port
    with shell.server.client() as client:
        client.execute_command("ACL", "SETUSER", "ops", "on", ">hunter2", "~*", "&*", "+@all")
    try:
        shell.store = ["--store", f"redis://ops@127.0.0.1:{port}"]
        (tmp_path / "password").write_text("hunter2\n")
        for name, value in (
            ("GATEWAY_STORE_PASSWORD", "hunter2"),
            ("GATEWAY_STORE_PASSWORD_FILE", str(tmp_path / "password")),
        ):
            shell.environment = {name: value}
            assert shell.json(keys, "list") == []
        shell.environment = {"GATEWAY_STORE_PASSWORD": "wrong"}
        assert "invalid username-password" in shell.refused(1, keys, "list")
        shell.environment = {"GATEWAY_STORE_PASSWORD_FILE": "/does/not/exist"}
        assert "cannot be read" in shell.refused(2, keys, "list")
        shell.store = []
        shell.environment = {"GATEWAY_STORE": f"redis://ops:hunter2@127.0.0.1:{port}"}
        assert shell.json(keys, "list") == []
    finally:
        with shell.server.client() as client:
            client.execute_command("ACL", "DELUSER", "ops")


def test_failures_of_the_store(shell, redis_server, monkeypatch):
    """An outage, or invalid data in the store, is one line and exit status 1."""
    with redis_server.client() as client:
        client.set("gw:{keys}:key:7h3k9m2p4q6r", "hunter2")
    error = shell.refused(1, keys, "describe", "7h3k9m2p4q6r")
    assert "7h3k9m2p4q6r" in error
    assert "hunter2" not in error
    shell.store = ["--store", "unix:///does/not/exist"]
    assert "the store is unavailable" in shell.refused(1, keys, "list")
    shell.store = ["--data", "data"]
    monkeypatch.setattr(embedded, "find_server_binary", lambda: None)
    assert "install one" in shell.refused(1, keys, "create", "--name", "ci", "--plan", "pro")


def test_without_a_store_there_is_a_private_one(shell, tmp_path):
    """Keys created in a data folder are there for the next command, which needs not name it."""
    shell.store = ["--data", ".gateway"]
    key_id = shell.create()["id"]
    shell.store = []
    assert [shown["id"] for shown in shell.json(keys, "list")] == [key_id]
    assert not list((tmp_path / ".gateway").glob("*.sock"))
    shell.store = ["--data", str(tmp_path / "other")]
    assert shell.create()["id"] != key_id
    assert key_id not in shell.text(keys, "list", "--text")
    shell.store, shell.environment = [], {"GATEWAY_DATA": str(tmp_path / ".gateway")}
    assert [shown["id"] for shown in shell.json(keys, "list")] == [key_id]


NEW = [(keys, "create", "--name", "ci", "--plan", "pro"), (accounts, "set", "acme")]


@pytest.mark.parametrize("words", NEW, ids=lambda words: words[0].name)
def test_nothing_is_created_that_no_gateway_knows(shell, tmp_path, words):
    """Without --store and --data, where no gateway has run: the error says what to do."""
    shell.store = []
    error = shell.refused(1, *words)
    assert f"no private store in {tmp_path / '.gateway'}: found no such folder" in error
    assert "Nothing was created" in error
    assert "start `gateway serve` in this folder first, or give the --store or --data" in error
    # As after a gateway with --store, whose admin token is there.
    (tmp_path / ".gateway").mkdir(mode=0o700)
    (tmp_path / ".gateway/admin-token").touch(mode=0o600)
    assert "found other files" in shell.refused(1, *words)
    assert os.listdir(tmp_path / ".gateway") == ["admin-token"]


@pytest.mark.parametrize("words", NEW, ids=lambda words: words[0].name)
def test_a_private_store_without_a_gateway(shell, tmp_path, words):
    """A note says that none is running, on stderr; not so while its server runs."""
    shell.store = ["--data", str(tmp_path / "data")]
    done = shell.run(*words, "--json")
    assert json.loads(done.stdout)
    note = f"note: no gateway is running on the private store in {tmp_path / 'data'}; start one"
    assert done.stderr.startswith(note)
    with embedded.EmbeddedRedis(tmp_path / "data"):
        assert shell.run(*words, "--json").stderr == ""


ABSENT = "7h3k9m2p4q6r"
#: Each command that needs a store and creates none.
OTHERS = [
    (keys, "list"),
    *((keys, verb, ABSENT) for verb in ("describe", "rotate", "suspend", "resume", "revoke")),
    (keys, "usage", ABSENT),
    (accounts, "list"),
    (accounts, "describe", "acme"),
    (audit,),
    (warnings,),
]


@pytest.mark.parametrize("words", OTHERS, ids=lambda words: " ".join((words[0].name, *words[1:2])))
def test_only_a_command_that_creates_makes_a_store(shell, tmp_path, words):
    """All others report that there is none, and leave the folder unchanged."""
    folder = tmp_path / "etc"
    for found, make in (
        ("no such folder", lambda: None),
        ("an empty folder", folder.mkdir),
        ("other files", (folder / "hosts").touch),
    ):
        make()
        shell.store = ["--data", str(folder)]
        error = shell.refused(1, *words)
        assert f"no private store in {folder}: found {found}, expected the --data" in error
    assert [entry.name for entry in tmp_path.iterdir()] == ["etc"]
    assert [entry.name for entry in folder.iterdir()] == ["hosts"]


def test_every_command_has_an_example():
    """Each command's --help has an example."""
    for group in (keys, accounts):
        for name in (None, *group.commands):
            words = [word for word in (group.name, name, "--help") if word]
            assert "Example: gateway" in CliRunner().invoke(cli, words).stdout
