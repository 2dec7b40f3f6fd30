"""The operations of the admin API, over stores in memory; the document checks every answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gateway.admin.api.operations import Operation
from gateway.admin.api.routes import OPERATIONS, document
from gateway.domain import latency
from gateway.domain.limits import Check
from gateway.domain.policy_files import hash_of
from gateway.domain.policy_history import PolicyLoad
from gateway.domain.ports import UsageBatch
from gateway.domain.usage import Counted, Measured, Measures
from gateway.manage.policies import Loaded
from gateway.policies.load import load
from tests.kit.admin import AdminScene, Answer
from tests.kit.policies import mcp_routes, write_policies
from tests.suites.warnings import warning

NOBODY = "zzzzzzzzzzzz"


def closed(schema: Any) -> Any:
    """The schema, in which no object may have fields that it does not define."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: closed(value) for name, value in schema.items()}
    if found.get("type") == "object" and "properties" in found:
        found.setdefault("additionalProperties", False)
    return found


COMPONENTS = closed(document()["components"])


def operation_of(method: str, path: str) -> Operation:
    """The operation of a call; a path without parameters takes precedence."""
    asked = path.partition("?")[0].split("/")

    def fits(operation: Operation) -> bool:
        parts = operation.path.split("/")
        return len(parts) == len(asked) and all(
            part == word or part.startswith("{") for part, word in zip(parts, asked, strict=True)
        )

    found = [each for each in OPERATIONS if each.method == method and fits(each)]
    return min(found, key=lambda each: each.path.count("{"))


def check(method: str, path: str, answer: Answer) -> None:
    """Check that the document defines the answer's status, headers and body."""
    shown = document()["paths"][operation_of(method, path).path][method.lower()]
    promised = shown["responses"][str(answer.status)]
    for name, header in promised.get("headers", {}).items():
        assert name in answer.headers or not header["required"], name
    if "content" not in promised:
        assert answer.json is None
        return
    if answer.headers["Content-Type"].startswith("text/csv"):
        assert promised["content"]["text/csv"] == {"schema": {"type": "string"}}
        return
    schema = {**promised["content"]["application/json"]["schema"], "components": COMPONENTS}
    jsonschema.Draft202012Validator(
        schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    ).validate(answer.json)


class Caller:
    """Calls the API, and checks each answer against the document."""

    def __init__(self, scene: AdminScene) -> None:
        self.scene = scene

    async def __call__(
        self, method: str, path: str, body: object = None, status: int = 200, **headers: str
    ) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await self.scene.ask(method, path, body, headers=named)
        assert answer.status == status, answer.json
        check(method, path, answer)
        return answer

    async def events(self) -> list[tuple[str, str, str]]:
        """The audit log: action, actor, subject; the oldest first."""
        found = (await self("GET", "/audit?count=200")).json["items"]
        return [(one["action"], one["actor"], one["subject"]) for one in reversed(found)]


@pytest.fixture
async def call(tmp_path: Path) -> AsyncIterator[Caller]:
    async with AdminScene(tmp_path) as scene:
        yield Caller(scene)


async def made(call: Caller, **fields: object) -> dict[str, Any]:
    return (await call("POST", "/keys", {"name": "test", "plan": "free", **fields}, 201)).json


# -- keys ------------------------------------------------------------------------------------------
async def test_a_key_is_made_and_described(call: Caller) -> None:
    """Its text is returned once; later descriptions have the same version."""
    fields = {
        "name": "Billing",
        "plan": "pro",
        "account": "acme",
        "environment": "production",
        "scopes": ["connectors:read"],
        "permissions": {"ticketing": ["read"]},
        "ip_ranges": ["192.0.2.0/24", "2001:db8::/32"],
        "expires": "2099-12-31",
        "limits": {"plan": "1000/minute,burst=2000"},
    }
    answer = await call("POST", "/keys", fields, 201, X_Admin_Actor="anna")
    key = answer.json
    assert key["key"].startswith(f"gwk_production_{key['id']}_")
    assert answer.headers["Location"] == f"/admin/v1/keys/{key['id']}"
    found = await call("GET", f"/keys/{key['id']}")
    assert found.json == {name: value for name, value in key.items() if name != "key"}
    assert found.headers["ETag"] == answer.headers["ETag"]
    assert {name: found.json[name] for name in fields if name != "expires"} == {
        name: value for name, value in fields.items() if name != "expires"
    }
    assert found.json["expires"] == "2099-12-31T00:00:00Z"
    assert await call.events() == [
        ("key.create", "anna (api, 127.0.0.1)", f"key:{key['id']}"),
    ]


async def test_all_faults_are_reported_at_once(call: Caller) -> None:
    """The key is not created."""
    body = {"name": "", "plan": "gold", "ip_ranges": ["10.0.0.0/33"], "colour": "gwk_secret"}
    answer = await call("POST", "/keys", body, 422)
    assert {fault["path"] for fault in answer.json["faults"]} == {
        "name",
        "plan",
        "ip_ranges[0]",
        "colour",
    }
    assert "gwk_secret" not in str(answer.json)
    assert (await call("GET", "/keys")).json == {"items": [], "next": None}


async def test_a_repeated_request_makes_no_second_key(call: Caller) -> None:
    """A repeated idempotency key is refused with the first key's id; another one creates a key."""
    fields = {"name": "test", "plan": "free"}
    first = await call("POST", "/keys", fields, 201, Idempotency_Key="order-1")
    again = await call("POST", "/keys", fields, 409, Idempotency_Key="order-1")
    assert first.json["id"] in again.json["message"]
    await call("POST", "/keys", fields, 201, Idempotency_Key="order-2")
    assert len((await call("GET", "/keys")).json["items"]) == 2


async def test_keys_come_in_pages(call: Caller) -> None:
    """Newest first; `next` continues the list."""
    ids = [(await made(call, name=f"key {number}"))["id"] for number in range(5)]
    seen, path = [], "/keys?count=2"
    for _ in range(3):
        page = (await call("GET", path)).json
        seen += [one["id"] for one in page["items"]]
        path = f"/keys?count=2&after={page['next']}"
    assert page["next"] is None
    assert sorted(seen) == sorted(ids)
    await call("GET", f"/keys?after={NOBODY}", status=422)


async def test_keys_are_found(call: Caller) -> None:
    """By text, status, plan, account and environment, and by all of them together."""
    one = await made(call, name="Alpha", account="acme", plan="pro")
    other = await made(call, name="Beta")
    await call("POST", f"/keys/{other['id']}/revoke")
    for query, expected in (
        ("text=alp", [one]),
        ("text=ACME", [one]),
        (f"text={other['id']}", [other]),
        ("text=", [other, one]),
        ("status=revoked", [other]),
        ("status=valid", [one]),
        ("status=expired", []),
        ("plan=pro", [one]),
        ("account=acme&environment=production", [one]),
        ("scope=a:read", []),
        ("expires_before=2999-01-01", []),
        ("environment=staging", []),
        ("text=%FF%00", []),
    ):
        found = (await call("GET", f"/keys?{query}")).json["items"]
        assert {each["id"] for each in found} == {each["id"] for each in expected}, query


async def test_a_key_is_changed_by_version(call: Caller) -> None:
    """Of two changes of the same version, the second is refused; without a version both succeed."""
    key = await made(call)
    path = f"/keys/{key['id']}"
    seen = await call("GET", path)
    version = seen.headers["ETag"]
    await call("PATCH", path, {"name": "x"}, 428)
    changed = await call("PATCH", path, {"name": "mine", "plan": "pro"}, If_Match=version)
    assert (changed.json["name"], changed.json["plan"]) == ("mine", "pro")
    assert changed.headers["ETag"] != version
    late = await call("PATCH", path, {"name": "theirs"}, 412, If_Match=version)
    assert late.json["code"] == "CHANGED_MEANWHILE"
    await call("PATCH", path, {"name": "theirs"}, If_Match=changed.headers["ETag"])
    await call("PATCH", path, {"ip_ranges": ["192.0.2.1"]}, If_Match="*")
    found = (await call("GET", path)).json
    assert (found["name"], found["ip_ranges"]) == ("theirs", ["192.0.2.1/32"])


@pytest.mark.parametrize("version", ["x", '"x"', 'W/"00000000000000000000000000000000"', '""'])
async def test_an_invalid_version_is_a_fault(call: Caller, version: str) -> None:
    """It is not reported as an outdated version."""
    key = await made(call)
    answer = await call("PATCH", f"/keys/{key['id']}", {"name": "x"}, 422, If_Match=version)
    assert answer.json["faults"][0]["path"] == "If-Match"


async def test_a_key_is_rotated(call: Caller) -> None:
    """The successor's text is returned once; the old key ends after the overlap, or a day."""
    key = await made(call, expires="2099-12-31")
    answer = await call("POST", f"/keys/{key['id']}/rotate", {"overlap": "2h"}, 201)
    new = answer.json
    assert (new["replaces"], new["lineage"]) == (key["id"], key["id"])
    assert new["key"].startswith(f"gwk_production_{new['id']}_")
    old = (await call("GET", f"/keys/{key['id']}")).json
    assert (old["successor"], old["expires"]) == (new["id"], new["old_expires"])
    again = await call("POST", f"/keys/{key['id']}/rotate", {"overlap": "2h"}, 409)
    assert new["id"] in again.json["message"]
    last = await call("POST", f"/keys/{new['id']}/rotate", status=201)
    assert last.json["old_expires"] > new["old_expires"]


@pytest.mark.parametrize("body", [{"overlap": "soon"}, {"overlap": 2}, {"overlaps": "2h"}])
async def test_an_overlap_is_a_duration(call: Caller, body: object) -> None:
    """Anything else is refused."""
    key = await made(call)
    await call("POST", f"/keys/{key['id']}/rotate", body, 422)


async def test_a_key_is_suspended_resumed_and_revoked(call: Caller) -> None:
    """Repeating an operation changes nothing and succeeds; a revocation is final."""
    key = await made(call)
    path = f"/keys/{key['id']}"
    for verb, status in (
        ("suspend", "suspended"),
        ("suspend", "suspended"),
        ("resume", "valid"),
        ("resume", "valid"),
        ("revoke", "revoked"),
        ("revoke", "revoked"),
    ):
        answer = await call("POST", f"{path}/{verb}")
        assert answer.json["status"] == status
        assert answer.headers["ETag"] == (await call("GET", path)).headers["ETag"]
    await call("POST", f"{path}/resume", status=409)
    await call("POST", f"{path}/suspend", status=409)
    await call("PATCH", path, {"name": "x"}, 409, If_Match="*")
    actions = [action for action, _, _ in await call.events()]
    assert actions == ["key.create", "key.suspend", "key.resume", "key.revoke"]


async def test_a_status_change_may_have_a_version(call: Caller) -> None:
    """A version is optional; a change with an outdated one is refused."""
    key = await made(call)
    version = (await call("GET", f"/keys/{key['id']}")).headers["ETag"]
    await call("PATCH", f"/keys/{key['id']}", {"name": "x"}, If_Match=version)
    await call("POST", f"/keys/{key['id']}/revoke", None, 412, If_Match=version)


async def test_concurrent_changes_lose_nothing(call: Caller) -> None:
    """Of ten changes of the same version, one succeeds; the others are refused."""
    key = await made(call)
    path = f"/keys/{key['id']}"
    version = (await call("GET", path)).headers["ETag"]
    answers = await asyncio.gather(
        *(
            call.scene.ask("PATCH", path, {"name": f"n{number}"}, headers={"If-Match": version})
            for number in range(10)
        )
    )
    assert sorted(answer.status for answer in answers) == [200] + [412] * 9


@pytest.mark.parametrize("key_id", [NOBODY, "x", "7h3k9m2p4q6r7", "gwk_x", "a%2Fb"])
async def test_an_unknown_key_is_404(call: Caller, key_id: str) -> None:
    """Every operation on a key is a 404, and does not repeat an id that could be a secret."""
    for method, path, body in (
        ("GET", "", None),
        ("PATCH", "", {"name": "x"}),
        ("POST", "/rotate", {}),
        ("POST", "/suspend", None),
        ("POST", "/resume", None),
        ("POST", "/revoke", None),
        ("GET", "/usage", None),
        ("GET", "/limits", None),
        ("POST", "/limits/plan/reset", None),
    ):
        headers = {"If-Match": "*"} if method == "PATCH" else {}
        answer = await call.scene.ask(method, f"/keys/{key_id}{path}", body, headers=headers)
        assert answer.status == 404, (method, path)
        assert key_id == NOBODY or key_id not in answer.json["message"]


async def test_usage_of_a_key_is_shown(call: Caller) -> None:
    """By time, outcome and route."""
    key = await made(call)
    await call.scene.count(
        {
            (f"key:{key['id']}", "search", "admitted"): 3,
            (f"key:{key['id']}", "search", "limited:search"): 2,
            ("plan:free", "search", "admitted"): 3,
            ("plan:", "none", "refused:key_unknown"): 1,
        }
    )
    for window in ("1h", "24h", "7d", "30d"):
        shown = (await call("GET", f"/keys/{key['id']}/usage?window={window}")).json
        assert shown["window"] == window
        assert shown["totals"] == {"admitted": 3, "limited:search": 2}
        assert shown["routes"] == {"search": shown["totals"]}
    assert (await call("GET", f"/keys/{key['id']}/usage")).json["window"] == "24h"
    plans = {one["plan"]: one["requests"] for one in (await call("GET", "/usage")).json["items"]}
    assert plans == {"free": 3, None: 1}
    (busy,) = (await call("GET", "/usage/busiest?count=1")).json["items"]
    assert (busy["id"], busy["name"], busy["requests"]) == (key["id"], "test", 5)


async def test_usage_of_dates_and_of_an_account(call: Caller) -> None:
    """The same numbers by key, account and route, as JSON and as CSV."""
    key = await made(call, account="acme")
    minute_s = int(time.time()) // 60 * 60
    counts, measures = dict[Counted, int](), dict[Measured, Measures]()
    for subject in (f"key:{key['id']}", "plan:free"):
        counts[subject, "search", "admitted:2xx"] = 3
        counts[subject, "search", "failed:5xx"] = 1
        measures[subject, "search"] = Measures(7, 900, latency.count([0.05] * 4))
    await call.scene.usage.add(UsageBatch("worker", 1, minute_s, counts, measures))
    span = f"from={datetime.fromtimestamp(minute_s, UTC):%Y-%m-%d}"
    for path in (f"/keys/{key['id']}/usage", "/accounts/acme/usage"):
        shown = (await call("GET", f"{path}?{span}")).json
        assert shown["window"] is None
        assert (shown["requests"], shown["groups"]["failed"]) == (4, 1)
        assert (shown["statuses"]["2xx"], shown["statuses"]["5xx"]) == (3, 1)
        assert (shown["measures"]["bytes_in"], shown["measures"]["bytes_out"]) == (7, 900)
        assert shown["measures"]["latency_ms"]["p95"] == pytest.approx(50, rel=0.1)
    assert [one["id"] for one in shown["keys"]] == [key["id"]]
    (route,) = (await call("GET", f"/usage/routes?{span}")).json["items"]
    assert (route["route"], route["requests"], route["measures"]["bytes_out"]) == ("search", 4, 900)
    for path in (f"/keys/{key['id']}/usage", "/accounts/acme/usage", "/usage", "/usage/routes"):
        answer = await call("GET", f"{path}?{span}&format=csv")
        assert answer.headers["Content-Type"].startswith("text/csv")
    for query in ("to=2026-01-01", "from=2026-02-30", f"window=7d&{span}", "from=yesterday"):
        await call("GET", f"/accounts/acme/usage?{query}", status=422)
    await call("GET", "/accounts/nobody/usage", status=404)


async def test_limits_are_shown_and_reset(call: Caller) -> None:
    """The response has what remains; a reset restores the whole limit and is audited."""
    key = await made(call)
    path = f"/keys/{key['id']}/limits"
    before = {one["name"]: one for one in (await call("GET", path)).json["items"]}
    assert {"plan", "search", "batch"} <= before.keys()
    whole = before["plan"]["remaining"]
    limits = await call.scene.management.limits._met(key["id"])
    plan = next(one for one in limits if one.limit.name == "plan")
    call.scene.limiter.decide_now(Check((plan.limit,), (plan.counter,), 90))
    left = {one["name"]: one["remaining"] for one in (await call("GET", path)).json["items"]}
    assert left["plan"] < whole
    await call("POST", f"{path}/plan/reset", status=204)
    left = {one["name"]: one["remaining"] for one in (await call("GET", path)).json["items"]}
    assert left["plan"] == whole
    await call("POST", f"{path}/nothing/reset", status=404)
    assert (await call.events())[-1][0] == "limit.reset"


# -- accounts --------------------------------------------------------------------------------------
async def test_an_account_is_set_up_and_changed(call: Caller) -> None:
    """PUT creates it once, and replaces it only with its current version."""
    fields = {"plan": "pro", "services": ["scm"], "limits": {"plan": "1000/minute"}}
    await call("PUT", "/accounts/acme", fields, 428)
    new = await call("PUT", "/accounts/acme", fields, 201, If_None_Match="*")
    more = {"name": "acme", "status": "valid", "implicit": False, "keys": 0, "billing_day": 1}
    assert new.json == {**more, **fields}
    await call("PUT", "/accounts/acme", fields, 412, If_None_Match="*")
    seen = await call("GET", "/accounts/acme")
    assert seen.headers["ETag"] == new.headers["ETag"]
    changed = await call("PUT", "/accounts/acme", {}, If_Match=seen.headers["ETag"])
    assert changed.json == {**more, "plan": None, "services": [], "limits": {}}
    await call("PUT", "/accounts/acme", fields, 412, If_Match=seen.headers["ETag"])
    await call("PUT", "/accounts/acme", {"plan": "gold"}, 422, If_Match="*")
    await call("GET", "/accounts/nobody", status=404)
    assert [action for action, _, _ in await call.events()] == ["account.set", "account.set"]


async def test_an_account_is_suspended_and_deleted(call: Caller) -> None:
    """Fields are edited with its version; keys prevent its deletion, unless they are revoked."""
    key = await made(call, account="acme")
    seen = await call("GET", "/accounts/acme")
    assert (seen.json["implicit"], seen.json["keys"]) == (True, 1)
    await call("PATCH", "/accounts/acme", {"plan": "pro"}, 428)
    version = {"If_Match": seen.headers["ETag"]}
    edited = await call("PATCH", "/accounts/acme", {"plan": "pro"}, **version)
    assert (edited.json["implicit"], edited.json["plan"]) == (False, "pro")
    await call("PATCH", "/accounts/acme", {"plan": "free"}, 412, **version)
    await call("PATCH", "/accounts/acme", {"status": "suspended"}, 422, If_Match="*")
    assert (await call("POST", "/accounts/acme/suspend")).json["status"] == "suspended"
    refused = {"method": "GET", "path": "/api/search/x", "key_id": key["id"]}
    assert "account" in (await call("POST", "/explain", refused)).json["now"]
    await call("POST", "/accounts/acme/suspend", status=412, **version)
    assert (await call("POST", "/accounts/acme/resume")).json["status"] == "valid"
    await call("DELETE", "/accounts/acme", status=409)
    await call("DELETE", "/accounts/acme?force=yes", status=422)
    await call("DELETE", "/accounts/acme?force=true", status=412, **version)
    await call("DELETE", "/accounts/acme?force=true", status=204)
    assert (await call("GET", f"/keys/{key['id']}")).json["status"] == "revoked"
    await call("DELETE", "/accounts/acme", status=404)
    for path in ("suspend", "resume"):
        await call("POST", f"/accounts/nobody/{path}", status=404)
    actions = [action for action, _, _ in await call.events()]
    assert actions[1:] == [
        *("account.edit", "account.suspend", "account.resume", "key.revoke", "account.delete"),
    ]


async def test_the_limits_of_an_account(call: Caller) -> None:
    """They are those of a key without a plan and values; only shared ones have a state."""
    await call("GET", "/accounts/acme/limits", status=404)
    fields = {"plan": "pro", "limits": {"plan": "7/minute"}}
    await call("PUT", "/accounts/acme", fields, 201, If_None_Match="*")
    limits = (await call("GET", "/accounts/acme/limits")).json["items"]
    assert limits[0]["name"] == "plan"
    assert limits[0]["limit"] == 7
    for limit in limits:
        assert (limit["remaining"] is None) == (limit["per"] == "key")


async def test_accounts_that_only_keys_name(call: Caller) -> None:
    """They are listed if that is asked for; keys are counted then."""
    await call("PUT", "/accounts/zeta", {}, 201, If_None_Match="*")
    await made(call, account="acme")
    own = (await made(call))["id"]

    async def listed(query: str) -> dict[str, int | None]:
        items = (await call("GET", f"/accounts{query}")).json["items"]
        return {one["name"]: one["keys"] for one in items}

    assert await listed("") == {"zeta": None}
    assert await listed("?implicit=named") == {"acme": 1, "zeta": 0}
    assert await listed("?implicit=all") == {own: 1, "acme": 1, "zeta": 0}


async def test_accounts_come_in_pages(call: Caller) -> None:
    """By name, filtered by a part of it."""
    for name in ("beta", "alpha", "acme"):
        await call("PUT", f"/accounts/{name}", {}, 201, If_None_Match="*")
    page = (await call("GET", "/accounts?count=2")).json
    assert [one["name"] for one in page["items"]] == ["acme", "alpha"]
    rest = (await call("GET", f"/accounts?count=2&after={page['next']}")).json
    assert ([one["name"] for one in rest["items"]], rest["next"]) == (["beta"], None)
    found = (await call("GET", "/accounts?text=ET")).json["items"]
    assert [one["name"] for one in found] == ["beta"]


# -- policies and the audit log --------------------------------------------------------------------
async def test_the_loaded_policies_are_shown(call: Caller) -> None:
    """The response says whether the files on disk have changed since."""
    shown = (await call("GET", "/policies")).json
    assert shown["hash"] == shown["disk"]["hash"] == call.scene.policy.hash
    assert {plan["name"] for plan in shown["plans"]} == set(call.scene.policy.plans)
    (call.scene.loaded.folder / "plans.yaml").write_text("plans: {free: {rate: often}}\n")
    shown = (await call("GET", "/policies")).json
    assert shown["hash"] == call.scene.policy.hash
    assert shown["disk"]["hash"] is None
    assert shown["disk"]["faults"]


async def test_the_history_of_policies(call: Caller) -> None:
    """Entries, the newest first; the files of a policy, and what differs from another one."""
    assert (await call("GET", "/policies/history")).json == {"items": [], "next": None}
    first, second = await record_two(call.scene)
    items = (await call("GET", "/policies/history")).json["items"]
    assert [(each["hash"], each["previous"]) for each in items] == [(second, first), (first, None)]
    texts = (await call("GET", f"/policies/history/{second}")).json["texts"]
    assert "70/minute" in texts["plans.yaml"]
    path = f"/policies/history/{second}/changes"
    shown = (await call("GET", path)).json
    assert shown == (await call("GET", f"{path}?since={first}")).json
    assert [(each["subject"], each["counters"]) for each in shown["changes"]] == [
        ("limit:plan", "kept")
    ]
    back = (await call("GET", f"/policies/history/{first}/changes?since={second}")).json["changes"]
    assert back[0]["after"] == shown["changes"][0]["before"]


async def test_policies_that_are_not_in_the_history(call: Caller) -> None:
    """404 for a hash that is unknown or invalid, and where no policy before it is known; 409 for
    files that have faults.
    """
    first, _ = await record_two(call.scene)
    for path in ("", "/changes", f"/changes?since={first}"):
        await call("GET", f"/policies/history/{'0' * 16}{path}", status=404)
        await call("GET", f"/policies/history/..%2Fplans{path}", status=404)
    await call("GET", f"/policies/history/{first}/changes", status=404)
    await call("GET", f"/policies/history/{first}/changes?since=x", status=422)
    texts = {"plans.yaml": "plans: {free: {rate: often}}"}
    await call.scene.policies.add(PolicyLoad(2, hash_of(texts), first, "start", "x", ""), texts)
    path = f"/policies/history/{hash_of(texts)}/changes"
    assert "has faults now" in (await call("GET", path, status=409)).json["message"]


async def record_two(scene: AdminScene) -> tuple[str, str]:
    """Record the policy of the scene, and a change of it; the hashes of both."""
    history, folder, first = scene.management.history, scene.loaded.folder, scene.policy
    await history.record(PolicyLoad(1, first.hash, "", "start", "web-1", ""), first)
    plans = folder / "plans.yaml"
    plans.write_text(plans.read_text().replace("60/minute", "70/minute"))
    second = load(folder)
    await history.record(
        PolicyLoad(2, second.hash, first.hash, "file change", "web-1", "faster"), second
    )
    return first.hash, second.hash


async def test_a_request_is_explained(call: Caller) -> None:
    """Without a key, for a key, and for a refused request."""
    asked = {"method": "GET", "path": "/v1/connectors"}
    assert "401" in (await call("POST", "/explain", asked)).json["now"]
    key = await made(call)
    for key_id in (key["id"], key["key"]):
        shown = (
            await call("POST", "/explain", {**asked, "key_id": key_id, "client_ip": "192.0.2.1"})
        ).json
        assert "403" in shown["now"]
        assert key["key"] not in str(shown)
    scoped = await made(call, scopes=["connectors:read"])
    shown = (await call("POST", "/explain", {**asked, "key_id": scoped["id"]})).json
    assert shown["now"] == "admitted"
    assert shown["remaining"]
    for wrong in (
        {"method": "GET"},
        {**asked, "client_ip": "x"},
        {**asked, "key_id": 7},
        {**asked, "x": 1},
    ):
        await call("POST", "/explain", wrong, 422)
    answer = await call("POST", "/explain", {**asked, "path": "x" * 9_000}, 422)
    assert answer.json["faults"] == [
        {
            "path": "path",
            "found": "9000 other characters",
            "expected": "A path as it would be sent, with its query.",
        }
    ]


async def test_the_audit_log_is_read_and_followed(call: Caller) -> None:
    """In pages, and filtered; without secrets; and the chain verifies."""
    keys = [await made(call) for _ in range(3)]
    await call("POST", f"/keys/{keys[0]['id']}/revoke", X_Admin_Actor="anna")
    page = (await call("GET", "/audit?count=3")).json
    assert [one["number"] for one in page["items"]] == [4, 3, 2]
    rest = (await call("GET", f"/audit?count=3&before={page['next']}")).json
    assert ([one["number"] for one in rest["items"]], rest["next"]) == ([1], None)
    first, revoked = rest["items"][0], page["items"][0]
    assert (first["before"], first["after"]["id"]) == (None, keys[0]["id"])
    assert (revoked["before"]["status"], revoked["after"]["status"]) == ("valid", "revoked")
    for query, count in (
        ("action=key.revoke", 1),
        ("action=key", 4),
        ("actor=ANNA", 1),
        (f"subject=key:{keys[0]['id']}", 2),
        (f"subject={keys[1]['id']}", 1),
        ("actor=", 4),
    ):
        assert len((await call("GET", f"/audit?{query}")).json["items"]) == count, query
    everything = str((await call("GET", "/audit")).json)
    for key in keys:
        assert key["key"] not in everything
        assert key["key"].rpartition("_")[2] not in everything
    verified = (await call("GET", "/audit/verify")).json
    assert (verified["count"], verified["dropped"], verified["faults"]) == (4, 0, [])


async def test_warnings_are_read(call: Caller) -> None:
    """Newest first, in pages, of all keys or of one."""
    ids = ["7h3k9m2p4q6r", "8h3k9m2p4q6r"]
    for number in range(4):
        await call.scene.warnings.warn(warning(str(number), key_id=ids[number % 2]))
    page = (await call("GET", "/warnings?count=3")).json
    assert [one["key_id"] for one in page["items"]] == [ids[1], ids[0], ids[1]]
    assert page["items"][0]["level"] == 80
    rest = (await call("GET", f"/warnings?count=3&before={page['next']}")).json
    assert ([one["key_id"] for one in rest["items"]], rest["next"]) == ([ids[0]], None)
    assert len((await call("GET", f"/warnings?key_id={ids[0]}")).json["items"]) == 2
    for query in ("before=junk", "before=5", "key=x", "count=0"):
        await call("GET", f"/warnings?{query}", status=422)


@pytest.mark.parametrize("name", ["", "anna (console, 127.0.0.1)", "x" * 65, "zoë"])
async def test_an_actors_name_is_checked(call: Caller, name: str) -> None:
    """A name that could be mistaken for another one is refused, and nothing changes."""
    headers = {"X-Admin-Actor": name}
    answer = await call.scene.ask("POST", "/keys", {"name": "x", "plan": "free"}, headers=headers)
    assert answer.status == 422
    assert answer.json["faults"][0]["path"] == "X-Admin-Actor"
    assert await call.events() == []


# -- MCP servers -----------------------------------------------------------------------------------
MCP_ROUTES = mcp_routes(
    "{name: sessions, concurrency: 5, of: connections}",
    "{name: control, rate: 600/minute, of: messages}",
)


def use_mcp(call: Caller, folder: Path) -> None:
    """Load a policy with a route to an MCP server."""
    policies = write_policies(folder / "mcp", "http://127.0.0.1:9", routes=MCP_ROUTES)
    call.scene.loaded = Loaded(load(policies), call.scene.loaded.at_us, policies)


async def test_calls_of_tools_are_listed(call: Caller) -> None:
    """By route and tool, in a window or between dates."""
    assert (await call("GET", "/mcp/tools")).json == {"items": [], "next": None}
    await call.scene.count(
        {
            ("mcp:mcp", "search", "admitted:2xx"): 3,
            ("mcp:mcp", "search", "limited:mcp/search"): 2,
            ("mcp:mcp", "other", "refused:tool_unknown"): 1,
        }
    )
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    for query in ("", "?window=1h", "?window=30d", f"?from={today}"):
        found = (await call("GET", f"/mcp/tools{query}")).json["items"]
        assert [(one["route"], one["tool"], one["calls"]) for one in found] == [
            ("mcp", "search", 5),
            ("mcp", "other", 1),
        ]
    assert found[0]["totals"] == {"admitted": 3, "limited:mcp/search": 2}
    assert found[1]["groups"] == {"admitted": 0, "limited": 0, "refused": 1, "failed": 0}
    for query in ("window=2h", "window=1h&from=2026-07-01", "to=2026-07-01", "from=yesterday"):
        await call("GET", f"/mcp/tools?{query}", status=422)


async def test_open_connections_are_listed(call: Caller, tmp_path: Path) -> None:
    """Of the keys that have the most, or of one key; its limits show how many it may have."""
    use_mcp(call, tmp_path)
    key = await made(call)
    assert (await call("GET", "/mcp/connections")).json == {"items": [], "next": None}
    await call.scene.connections.report("a", {key["id"]: 2, NOBODY: 1})
    limits = await call.scene.management.limits._met(key["id"])
    held = next(one for one in limits if one.limit.name == "sessions")
    for lease in (1, 2):
        check = Check((held.limit,), (held.counter,)).leased(lease)
        assert call.scene.limiter.decide_now(check).allowed
    found = (await call("GET", "/mcp/connections")).json["items"]
    assert [(one["id"], one["name"], one["reported"]) for one in found] == [
        (key["id"], "test", 2),
        (NOBODY, None, 1),
    ]
    sessions = {
        **{"name": "sessions", "routes": ["mcp"], "per": "key", "mode": "enforce"},
        **{"open": 2, "limit": 5},
    }
    assert [one["limits"] for one in found] == [[sessions], []]
    assert len((await call("GET", "/mcp/connections?count=1")).json["items"]) == 1
    other = await made(call)
    (one,) = (await call("GET", f"/mcp/connections?key_id={other['id']}")).json["items"]
    assert (one["reported"], one["limits"][0]["open"]) == (0, 0)
    await call("GET", f"/mcp/connections?key_id={NOBODY}", status=404)
    for query in ("count=0", "count=101", "key_id=nobody"):
        await call("GET", f"/mcp/connections?{query}", status=422)


async def test_limits_of_mcp_routes(call: Caller, tmp_path: Path) -> None:
    """What each limit counts is shown; that of a tool can be reset, with its slash encoded."""
    use_mcp(call, tmp_path)
    key = await made(call)
    path = f"/keys/{key['id']}/limits"
    shown = {one["name"]: one for one in (await call("GET", path)).json["items"]}
    assert {name: (one["kind"], one["of"]) for name, one in shown.items()} == {
        "plan": ("rate", "requests"),
        "sessions": ("concurrency", "connections"),
        "control": ("rate", "messages"),
        "mcp/search": ("rate", "requests"),
    }
    await call("POST", f"{path}/mcp%2Fsearch/reset", status=204)
    assert (await call.events())[-1][0] == "limit.reset"
    await call("POST", f"{path}/sessions/reset", status=409)
