"""The public field names are those of one table: in answers, errors, commands and the access log.

A name that is not in the table is a second word for something, or a new one, which needs a line
here. A name with a value of another shape elsewhere would be one word for two things.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from gateway.admin import refusals
from gateway.admin.api.routes import OPERATIONS
from gateway.admin.api.schemas import SCHEMAS
from gateway.cli.main import cli
from gateway.domain.keys import Account
from gateway.domain.networks import parse_network
from gateway.domain.ports import UsageBatch
from gateway.errors import NOT_FOUND, RATE_LIMITED, TABLE
from gateway.observe.access import AccessLog
from gateway.proxy.answers import refusal_body
from gateway.stores.managed import open_managed
from gateway.stores.redis.address import parse_url
from gateway.webhooks.delivery_routes import ROUTES as ROUTES_OF_CUSTOMERS
from tests.kit.access import write_line
from tests.kit.policies import PLANS, write_policies
from tests.kit.redis_server import RedisServer
from tests.kit.rows import each_row
from tests.kit.wire import bearer
from tests.proxy.conftest import Start, start
from tests.suites.warnings import warning

__all__ = ["start"]  # a fixture

#: A key, wherever one is shown; some fields may be left out.
KEY: Final = {
    "id": "12 letters and digits",
    "name": "what people call it",
    "account": "its account's name",
    "plan": "a plan's name; null: its account's, or none",
    "environment": "where it is good",
    "status": "valid, suspended, revoked or expired",
    "scopes": "list of scopes",
    "permissions": "area -> actions",
    "ip_ranges": "where it may be used from; empty: anywhere",
    "services": "the areas that are enabled for its account",
    "created": "time",
    "expires": "time; null: never",
    "last_used": "time; null: never",
    "lineage": "the id of the first key of its rotations",
    "successor": "the id of the key that replaces it",
    "limits": "its own limits, by name",
}
#: Of an account, beside names of a key.
ACCOUNT: Final = {
    "billing_day": "on which months of `from: account` begin, 1 to 31",
    "implicit": "it has no record; only keys name it",
    "keys": "how many of its keys are not revoked",
    "key_ids": "the ids of its keys",
    "effective_limits": "those of a key without a plan and limits of its own",
}
#: A created key, and what is returned with it.
MADE: Final = {
    "key": "the whole key, shown once",
    "replaces": "the id of the key before",
    "old_expires": "time at which that one ends",
}
#: A limit and its current values, in this order.
LIMIT: Final = {
    "name": "what it is known by",
    "route": "a route that has it; null: it is the plan's",
    "kind": "rate, quota or concurrency",
    "of": "what it counts: requests, messages or connections",
    "limit": "how much it admits; where something else names a limit, its name",
    "burst": "the peak; null: none",
    "window_seconds": "null: concurrency",
    "period": "of a quota: hour, day, week, month; else null",
    "time_zone": "in which the period begins; else null",
    "per": "key, account, ip or header:NAME",
    "mode": "enforce or shadow",
    "remaining": "how much is left",
    "reset_after": "whole seconds until all of it is back",
}
ERROR: Final = {
    "error": "snake_case",
    "message": "what was wrong, and what to do next",
    "code": "UPPER_CASE, but for the 429 of the proxy",
    "request_id": "X-Request-Id",
    "doc": "where the code is documented",
    "retry_after": "seconds",
    "faults": "all that is wrong",
    "path": "of the field",
    "found": "what stands there",
    "expected": "what should",
}
#: Of JSON-RPC 2.0.
JSON_RPC: Final = {"jsonrpc", "id", "error", "code", "message", "data"}
ACCESS_LOG: Final = {
    *("time", "request_id", "client_ip", "method", "path", "status", "route", "key_id", "account"),
    *("plan", "decision", "limit", "cost", "bytes_in", "bytes_out", "duration_ms", "upstream_ms"),
    *("upstream", "reason", "host", "protocol", "server", "remaining", "gate_ms", "limiter_ms"),
}
#: Other names in answers and commands.
OTHERS: Final = {
    "verify": {"valid", "key", "limits"},
    "a list": {"items", "next"},
    "a limit of a key": {"routes"},
    "usage": {
        *("window", "step_seconds", "requests", "points", "start", "counts", "totals", "groups"),
        *("admitted", "limited", "refused", "failed", "routes", "plan"),
        *("from", "to", "statuses", "1xx", "2xx", "3xx", "4xx", "5xx", "measures"),
        *("bytes_in", "bytes_out", "latency_ms", "p50", "p95", "p99", "account", "keys", "route"),
    },
    "calls of a tool": {"route", "tool", "calls", "totals", "groups"},
    "a key with connections": {"id", "reported", "limits", "open", "limit", "routes"},
    "an integration": {
        *("id", "account", "kind", "name", "paused", "created", "capture", "secret", "secrets"),
        "id_header",
    },
    "a watch": {
        *("id", "integration", "url", "events", "form", "secret_version", "created", "secret"),
        *("status", "reason", "waiting", "in_flight", "failures", "last_success", "next_attempt"),
        *("disabled_since", "failing_since", "rate"),
    },
    "an event": {
        *("id", "integration", "type", "data", "accepted", "open_deliveries", "event"),
        "deliveries",
    },
    "a delivery": {
        *("id", "event", "watch", "state", "reason", "created", "ended", "attempts", "delivery"),
        *("at", "status", "ms", "answer", "from", "to", "deliveries", "next"),
    },
    "a filter of events and deliveries": {"state", "type", "from", "to", "before"},
    "a warning": {"id", "time", "key_id", "plan", "limit", "level"},
    "policies": {
        *("hash", "loaded", "folder", "files", "environment", "on_store_failure", "plans"),
        *("routes", "disk", "match", "case_sensitive", "encoded_slash", "where", "upstream"),
        "hosts",
        *("access", "cost", "plan_limits", "limits", "name", "limit", "faults"),
        *("candidates", "of", "enforced", "candidate", "both_admit", "both_refuse"),
        *("only_candidate_refuses", "only_enforced_refuses"),
    },
    "a change of policies": {
        *("effect", "subject", "before", "after", "request", "counters", "plans", "routes"),
        *("old", "new", "changes", "keys", "affected", "count", "plan", "ids"),
    },
    "a loaded policy": {
        *("time", "hash", "previous", "cause", "actor", "gateway", "summary", "texts"),
    },
    "a question": {"method", "path", "key_id", "client_ip", "host"},
    "an explanation": {
        *(
            "request",
            "allow",
            "path",
            "route",
            "upstream",
            "access",
            "cost",
            "limits",
            "key",
            "remaining",
        ),
        *("now", "host", "hosts", "forwarded", "maintenance"),
    },
    "an audit entry": {
        *("number", "time", "actor", "action", "subject", "before", "after", "previous", "hash"),
    },
    "a verified log": {"count", "dropped", "head_hash", "faults"},
    "a rotation": {"overlap"},
    "a fault of policies": {"file", "line", "path", "found", "expected", "severity"},
    "results of tests": {
        *("passed", "failed", "tests", "faults", "file", "line", "name", "steps", "differences"),
        *("path", "found", "expected"),
    },
    "a simulated line": {
        *("allowed", "limit", "remaining", "reset_us", "retry_us", "error", "then", "now"),
    },
    "a simulation": {
        *(
            "without_host",
            "lines",
            "without_cost",
            "undecided",
            "faults",
            "limits",
            "most_limited",
            "refused",
        ),
        *("compared", "same", "unknown", "sampled", "differences", "routes", "keys"),
        *("plan", "limit", "mode", "decided", "admitted", "limited", "by_others"),
        *("first_limited", "last_limited", "then", "now", "requests", "reasons"),
        *("route", "key_id", "refused_now", "admitted_now", "otherwise"),
    },
}
NAMES: Final = {*KEY, *ACCOUNT, *MADE, *LIMIT, *ERROR, *JSON_RPC, *ACCESS_LOG}.union(
    *OTHERS.values()
)

#: Objects whose names are data: scopes, limits, routes, outcomes, plans.
DATA: Final = {"permissions", "limits", "totals", "counts", "routes", "remaining", "texts"}
#: Fields with a time, or null.
TIMES: Final = {"created", "expires", "last_used", "old_expires", "time", "start", "loaded"}
RFC_3339: Final = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z"

ROUTES: Final = """
routes:
  mcp: {match: "* /mcp", upstream: api, limits: [{name: held, concurrency: 5, mode: shadow}]}
  api: {match: "* /**", upstream: api, rate: 30/minute}
"""


def names_in(value: object) -> set[str]:
    """Every field name within a JSON value. Checks times as well."""
    if isinstance(value, list):
        return set().union(*map(names_in, value))
    if not isinstance(value, Mapping):
        return set()
    found = set(value)
    for name, entry in value.items():
        if name in TIMES and entry is not None:
            assert re.fullmatch(RFC_3339, str(entry)), (name, entry)
        if not (name in DATA and isinstance(entry, Mapping)):
            found |= names_in(entry)
    return found


def names_of(schema: object) -> set[str]:
    """Every property name within a JSON Schema. Checks times as well."""
    if isinstance(schema, list | tuple):
        return set().union(*map(names_of, schema))
    if not isinstance(schema, Mapping):
        return set()
    properties = schema.get("properties", {})
    for name in TIMES & set(properties):
        # A key to create may have a duration in place of a time.
        assert "format" in properties[name] or "duration" in properties[name]["description"], name
    inner = {
        name: entry for name, entry in schema.items() if name not in {"examples", "properties"}
    }
    return set(properties).union(
        *map(names_of, properties.values()), *map(names_of, inner.values())
    )


def properties(schema: str) -> set[str]:
    return set(SCHEMAS[schema]["properties"])


# -- the admin API ---------------------------------------------------------------------------------


def test_the_document() -> None:
    """Each schema has names of the table; keys and limits are the same everywhere."""
    assert names_of(list(SCHEMAS.values())) <= NAMES
    # An account has its services; its key names it.
    assert properties("Key") == set(KEY) - {"services"}
    assert properties("MadeKey") == properties("Key") | {"key"}
    assert properties("RotatedKey") == properties("Key") | set(MADE)
    assert properties("KeyChange") < properties("NewKey") < set(KEY)
    assert properties("Account") < {*KEY, *ACCOUNT}
    assert list(SCHEMAS["Limit"]["properties"]) == [
        *(name for name in LIMIT if name not in {"remaining", "reset_after"}),
        *("routes", "remaining", "reset_after"),
    ]
    assert properties("InvalidError") == set(ERROR) - {"retry_after", "path", "found", "expected"}
    assert properties("Error") == properties("InvalidError") - {"faults"}


# -- the proxy -------------------------------------------------------------------------------------


async def test_verify(start: Start) -> None:
    """A key and its limits have the names of the admin API."""
    bench = await start(files={"routes": ROUTES})
    await bench.gateway.keys.put_account(Account("acme", ("scm",)))
    key = await bench.mint(
        permissions={"edr": ("read",)},
        networks=(parse_network("127.0.0.0/8"),),
        expires_us=4_102_444_800_000_001,
    )
    async with await bench.connect() as wire:
        told = (await wire.request("GET", "/v1/auth/verify", bearer(key))).json()
    assert set(told) == OTHERS["verify"]
    assert names_in(told) <= NAMES
    assert set(told["key"]) < set(KEY)
    assert [row["name"] for row in told["limits"]] == ["plan", "held", "api"]
    for row in told["limits"]:
        assert list(row) == list(LIMIT)
        assert type(row["reset_after"]) is int
        assert type(row["window_seconds"]) is (int if row["kind"] != "concurrency" else type(None))


@each_row("error_docs", [None, "https://docs.example.com/errors"])
def test_errors(error_docs: str | None) -> None:
    """All errors have the same names; a 429 of the proxy has them nested, with `retry_after`."""
    names = {"message", "code", "request_id"} | ({"doc"} if error_docs else set())
    for refusal in TABLE.values():
        body = json.loads(refusal_body(refusal, 5, request_id="a", error_docs=error_docs))
        if refusal.status == RATE_LIMITED.status:
            assert set(body) == {"error"}
            assert set(body["error"]) == names | {"retry_after"}
        else:
            assert set(body) == names | {"error"}
            assert re.fullmatch("[a-z_]+", body["error"])
            assert re.fullmatch("[A-Z_]+", body["code"])
    rpc = json.loads(
        refusal_body(RATE_LIMITED, 5, json_rpc=True, request_id="a", error_docs=error_docs)
    )
    assert names_in(rpc) <= JSON_RPC | set(ERROR)
    assert set(rpc["error"]["data"]) == names - {"message"} | {"retry_after"}
    response = refusals.refusal(NOT_FOUND)
    response.complete("a", error_docs)
    assert set(json.loads(response.text or "")) == names | {"error"}


def test_the_access_log(tmp_path: Path) -> None:
    """Every line has all names of the log."""
    log = AccessLog(str(tmp_path / "access.log"))
    write_line(log)
    log.close()
    line = json.loads((tmp_path / "access.log").read_text())
    assert set(line) == ACCESS_LOG
    assert names_in(line) <= NAMES


# -- the commands ----------------------------------------------------------------------------------


class Shell:
    """Runs commands on one store, with their own policies."""

    def __init__(self, server: RedisServer, folder: Path) -> None:
        self.server = server
        self.folder = write_policies(folder / "policies", "http://127.0.0.1:9", routes=ROUTES)

    def run(self, *words: str, status: int = 0) -> str:
        environment = {"GATEWAY_DATA": None, "GATEWAY_STORE": self.server.url}
        done = CliRunner(env=environment).invoke(cli, words)
        assert done.exit_code == status, done.output
        return done.stdout

    def json(self, *words: str, status: int = 0) -> Any:
        return json.loads(self.run(*words, "--json", status=status))


@pytest.fixture
def shell(redis_server: RedisServer, tmp_path: Path) -> Shell:
    return Shell(redis_server, tmp_path)


async def use(url: str, key_id: str) -> None:
    """Note a request of the key, and a warning."""
    async with open_managed(parse_url(url)) as stores:
        now_s = stores.clock_us() // 1_000_000
        counts = {(f"key:{key_id}", "api", "admitted"): 3, (f"key:{key_id}", "api", "limited:x"): 1}
        await stores.usage.add(UsageBatch("worker", 1, now_s - now_s % 60, counts))
        await stores.warnings.warn(warning("a", 80, key_id=key_id))


def outputs(shell: Shell) -> Iterator[tuple[str, Any]]:
    """What every command prints with --json, by the command."""
    policies = ("--policies", str(shell.folder))
    made = shell.json("keys", "create", "--name", "ci", "--plan", "free", "--account", "acme")
    yield "keys create", made
    key_id = made["id"]
    asyncio.run(use(shell.server.url, key_id))
    limited = ("--limit", "plan=9/minute", "--permission", "edr:read", "--ip", "192.0.2.7")
    yield "keys edit", shell.json("keys", "edit", key_id, *limited)
    yield "keys describe", shell.json("keys", "describe", key_id)
    yield "keys list", shell.json("keys", "list")
    yield "keys suspend", shell.json("keys", "suspend", key_id)
    yield "keys resume", shell.json("keys", "resume", key_id)
    yield "keys usage", shell.json("keys", "usage", key_id)
    yield "usage", shell.json("usage")
    yield "keys rotate", shell.json("keys", "rotate", key_id)
    yield "keys revoke", shell.json("keys", "revoke", key_id)
    yield "accounts set", shell.json("accounts", "set", "acme", "--service", "scm", *policies)
    yield "accounts describe", shell.json("accounts", "describe", "acme")
    yield "accounts list", shell.json("accounts", "list")
    yield "warnings", shell.json("warnings")
    yield "audit", shell.json("audit")
    yield "audit --verify", shell.json("audit", "--verify")
    other = shell.json("keys", "create", "--name", "x", "--plan", "free")["id"]
    explained = shell.json("explain", *policies, "--key", other, "GET", "/x")
    yield "explain", explained
    log = shell.folder / "access.log"
    line = {"time": "2027-01-15T08:00:00Z", "method": "GET", "path": "/x", "key_id": other}
    log.write_text(json.dumps({**line, "plan": "free", "status": 429}) + "\n")
    yield "policies history", shell.json("policies", "history")
    faster = PLANS.replace("60/minute", "70/minute")
    changed = write_policies(shell.folder.parent / "new", "http://127.0.0.1:9", plans=faster)
    yield "diff", shell.json("diff", str(shell.folder), str(changed), status=1)
    yield "simulate", shell.json("simulate", *policies, str(log))
    yield (
        "simulate --json-summary",
        json.loads(shell.run("simulate", "--json-summary", *policies, str(log))),
    )
    tests = shell.folder / "tests.yaml.txt"
    tests.write_text("tests: [{name: x, send: GET /x, expect: {status: 401}}]")
    yield "test", shell.json("test", str(shell.folder), str(tests))


def test_commands(shell: Shell) -> None:
    """--json has names of the table; a key has those of the admin API."""
    found = dict(outputs(shell))
    for command, shown in found.items():
        assert names_in(shown) <= NAMES, command
    key = properties("Key")
    (listed,) = found["keys list"]
    assert set(found["keys describe"]) == set(found["keys edit"]) == set(listed) == key
    assert set(found["keys create"]) == properties("MadeKey")
    assert set(found["keys rotate"]) == properties("RotatedKey")
    assert set(found["keys suspend"]) == set(found["keys revoke"]) == {"id", "status"}
    assert set(found["keys usage"]) == properties("Usage") | {"id", "status", "last_used"}
    counted = {"implicit", "keys"}
    assert set(found["accounts set"]) == properties("Account") - counted
    described = properties("Account") | {"key_ids", "effective_limits"}
    assert set(found["accounts describe"]) == described
    assert set(found["warnings"][0]) == properties("LimitWarning")
    assert set(found["audit"][0]) == properties("AuditEntry")
    assert set(found["audit --verify"]) == properties("Verified")
    assert set(found["explain"]) <= properties("Explanation")
    assert set(found["simulate"]) == {"allowed", "limit", "remaining", "reset_us", "then", "now"}


def test_tables(shell: Shell) -> None:
    """The head of a column is a name of the table in capitals."""
    shell.run("keys", "create", "--name", "ci", "--plan", "free", "--account", "acme")
    heads = {name.replace("_", " ").upper() for name in NAMES} | {"CHANGE"}
    for command in (("keys", "list"), ("accounts", "list"), ("warnings",), ("audit",)):
        head = shell.run(*command, "--text").splitlines()[0]
        assert set(re.split(" {2,}", head)) <= heads, command


@pytest.mark.parametrize(
    ("operation", "path", "command"),
    [
        ("listEvents", "/events", "events list"),
        ("listDeadLetters", "/dead-letters", "deliveries dead"),
        ("listDeliveries", "/deliveries", "deliveries list"),
    ],
)
def test_filters(operation: str, path: str, command: str) -> None:
    """Lists of events and deliveries have the same ones in both APIs and in commands."""
    names = OTHERS["a filter of events and deliveries"]
    names = names if operation == "listDeliveries" else names - {"state"}
    (found,) = (each for each in OPERATIONS if each.name == operation)
    assert {each.name for each in found.parameters if each.where == "query"} == names | {"count"}
    (route,) = (each for each in ROUTES_OF_CUSTOMERS if each.path.endswith(path))
    assert set(route.query) == names | {"limit"}
    shown = CliRunner().invoke(cli, [*command.split(), "--help"]).stdout
    options = set(re.findall(r"^  --(\w+) [^/]", shown, re.MULTILINE))
    # click names the help option of a command once: by the context that first asks for it.
    assert options - {"help"} == names | {"count", "store", "data"}


# -- the table -------------------------------------------------------------------------------------


def test_the_table_has_nothing_else(shell: Shell, tmp_path: Path) -> None:
    """A name that no answer, command or log has any more must be removed from the table."""
    (broken := tmp_path / "broken").mkdir()
    (broken / "x.yaml").write_text("plans: 7\n")
    done = CliRunner().invoke(cli, ["validate", str(broken), "--json"])
    faults = names_in(json.loads(done.stdout))
    assert faults == OTHERS["a fault of policies"]
    used = names_of(list(SCHEMAS.values())) | set(LIMIT) | ACCESS_LOG | JSON_RPC | faults
    used |= set().union(*(names_in(shown) for _, shown in outputs(shell)))
    used |= {"valid", "services", "retry_after"}  # of verify, its key, and a 429
    # Of a refused line, and of one that cannot be decided.
    used |= {"retry_us", "error"}
    used |= {"found", "expected"}  # of a test that fails
    assert used >= NAMES
