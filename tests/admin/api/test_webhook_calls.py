"""The operations of webhooks, over a real Redis; the document checks every answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.admin.api.routes import OPERATIONS
from gateway.domain.webhooks.watches import secret_of
from gateway.stores.webhooks.queue import Attempt
from tests.admin.api.test_calls import Caller
from tests.kit.admin import MASTER, AdminScene
from tests.kit.redis_server import RedisServer

INTEGRATION = {"kind": "github", "account": "acme", "name": "Code"}
WATCH = {"url": "https://hooks.example.com/", "events": ["build.*"]}
SECRET = "a-secret-of-the-provider"


@pytest.fixture
async def call(tmp_path: Path, redis_server: RedisServer) -> AsyncIterator[Caller]:
    async with AdminScene(tmp_path, webhooks_at=redis_server.url) as scene:
        yield Caller(scene)


async def made(call: Caller, **fields: object) -> dict[str, Any]:
    return dict((await call("POST", "/integrations", {**INTEGRATION, **fields}, 201)).json)


async def watched(call: Caller, integration: str) -> str:
    answer = await call("POST", f"/integrations/{integration}/watches", WATCH, 201)
    return f"/integrations/{integration}/watches/{answer.json['id']}"


async def actions(call: Caller) -> list[str]:
    return [action for action, _, _ in await call.events()]


async def test_an_integration(call: Caller) -> None:
    """Made, found, renamed, paused, resumed and deleted, each in the audit log."""
    answer = await call("POST", "/integrations", INTEGRATION, 201, X_Admin_Actor="anna")
    its = answer.json
    path = f"/integrations/{its['id']}"
    assert answer.headers["Location"] == f"/admin/v1{path}"
    secret = its.pop("secret")
    assert len(secret) >= 40
    assert (await call("GET", path)).json == its
    assert (await call("GET", "/integrations")).json == {"items": [its], "next": None}
    assert (await call("PATCH", path, {"name": "Ours"}, If_Match="*")).json == {
        **its,
        "name": "Ours",
    }
    for _ in range(2):
        assert (await call("POST", f"{path}/pause")).json["paused"] is True
    assert (await call("POST", f"{path}/resume")).json["paused"] is False
    await call("DELETE", path, status=204)
    await call("GET", path, status=404)
    assert await actions(call) == [
        f"integration.{name}" for name in ("create", "edit", "pause", "resume", "remove")
    ]
    events = await call.events()
    assert events[0][1:] == ("anna (api, 127.0.0.1)", f"integration:{its['id']}")
    log = json.dumps((await call("GET", "/audit")).json)
    assert secret not in log
    assert its["capture"] not in log


async def test_integrations_come_in_pages(call: Caller) -> None:
    """Of all accounts, or of one."""
    ids = sorted([(await made(call, account=name))["id"] for name in ("a", "b", "a")])
    seen, path = [], "/integrations?count=2"
    for _ in range(2):
        page = (await call("GET", path)).json
        seen += [each["id"] for each in page["items"]]
        path = f"/integrations?count=2&after={page['next']}"
    assert (seen, page["next"]) == (ids, None)
    assert len((await call("GET", "/integrations?account=a")).json["items"]) == 2
    assert (await call("GET", "/integrations?account=c")).json["items"] == []


async def test_secrets_of_a_provider(call: Caller) -> None:
    """They are taken, and never shown; one that is made is shown once."""
    its = await made(call, secrets=[SECRET])
    assert its["secret"] is None
    path = f"/integrations/{its['id']}/secret"
    assert (await call("PUT", path, {"secrets": [SECRET, SECRET + "2"]})).json["secret"] is None
    assert len((await call("PUT", path, {})).json["secret"]) >= 40
    faulty = await call("PUT", path, {"secrets": [f"{SECRET}\n"]}, 422)
    assert SECRET not in str(faulty.json)
    assert SECRET not in json.dumps((await call("GET", "/audit")).json)


async def test_another_address(call: Caller) -> None:
    its = await made(call)
    moved = await call("POST", f"/integrations/{its['id']}/rotate-address")
    assert moved.json["capture"].startswith("/hooks/")
    assert moved.json["capture"] != its["capture"]


async def test_watches(call: Caller) -> None:
    """The operator acts for the account of the integration."""
    its = await made(call)
    base = f"/integrations/{its['id']}/watches"
    answer = await call("POST", base, WATCH, 201)
    watch = answer.json
    path = f"{base}/{watch['id']}"
    assert answer.headers["Location"] == f"/admin/v1{path}"
    assert watch.pop("secret") == secret_of(MASTER, watch["id"], 1)
    inside = (await call("POST", base, {**WATCH, "url": "https://[::1]/"}, 422)).json
    assert [fault["path"] for fault in inside["faults"]] == ["url"]
    assert (await call("GET", path)).json == watch
    assert (await call("GET", base)).json == {"items": [watch], "next": None}
    assert (watch["status"], watch["reason"], watch["waiting"]) == ("active", None, 0)
    assert (watch["disabled_since"], watch["failing_since"]) == (None, None)
    for rate in ("10/second", None):
        changed = {"events": ["build.finished"], "form": "body-only", "rate": rate}
        assert (await call("PATCH", path, changed, If_Match="*")).json == {**watch, **changed}
    rotated = (await call("POST", f"{path}/rotate-secret")).json
    assert rotated["secret"] == secret_of(MASTER, watch["id"], 2)
    assert (await call("POST", f"{path}/pause")).json["status"] == "paused"
    assert (await call("POST", f"{path}/resume")).json["status"] == "active"
    await call("DELETE", f"/integrations/{its['id']}", status=409)
    await call("DELETE", path, status=204)
    await call("GET", path, status=404)
    assert (await actions(call))[1:] == [
        f"watch.{name}"
        for name in ("create", "edit", "edit", "rotate", "pause", "resume", "remove")
    ]


async def test_versions_of_an_integration(call: Caller) -> None:
    """A change of what was read before another change is refused; its secrets count as well."""
    created = await call("POST", "/integrations", INTEGRATION, 201)
    path = f"/integrations/{created.json['id']}"
    tag = created.headers["ETag"]
    assert (await call("GET", path)).headers["ETag"] == tag
    await call("PATCH", path, {"name": "x"}, 428)
    renamed = await call("PATCH", path, {"name": "x"}, If_Match=tag)
    assert renamed.headers["ETag"] != tag
    for method, where, body in (
        ("PATCH", path, {"name": "y"}),
        ("POST", f"{path}/pause", None),
        ("POST", f"{path}/resume", None),
        ("POST", f"{path}/rotate-address", None),
        ("PUT", f"{path}/secret", {}),
        ("DELETE", path, None),
    ):
        await call(method, where, body, 412, If_Match=tag)
    for method, where in (("PUT", "secret"), ("POST", "rotate-address"), ("POST", "pause")):
        tag = (await call("GET", path)).headers["ETag"]
        body = {} if method == "PUT" else None
        assert (await call(method, f"{path}/{where}", body, If_Match=tag)).headers["ETag"] != tag
    tag = (await call("GET", path)).headers["ETag"]
    await call("DELETE", path, status=204, If_Match=tag)


async def test_versions_of_a_watch(call: Caller) -> None:
    """Its record has one, which its status does not change."""
    base = f"/integrations/{(await made(call))['id']}/watches"
    created = await call("POST", base, WATCH, 201)
    path, tag = f"{base}/{created.json['id']}", created.headers["ETag"]
    await call("PATCH", path, {"form": "body-only"}, 428)
    for turn in ("pause", "resume"):
        assert (await call("POST", f"{path}/{turn}", If_Match=tag)).headers["ETag"] == tag
    rotated = await call("POST", f"{path}/rotate-secret", If_Match=tag)
    assert rotated.headers["ETag"] != tag
    for method, where, body in (
        ("PATCH", path, {"form": "body-only"}),
        ("POST", f"{path}/rotate-secret", None),
        ("POST", f"{path}/pause", None),
        ("POST", f"{path}/resume", None),
        ("DELETE", path, None),
    ):
        await call(method, where, body, 412, If_Match=tag)
    tag = rotated.headers["ETag"]
    changed = await call("PATCH", path, {"form": "body-only"}, If_Match=tag)
    await call("DELETE", path, status=204, If_Match=changed.headers["ETag"])


async def test_deleting_with_force(call: Caller) -> None:
    its = await made(call)
    path = await watched(call, its["id"])
    await call("DELETE", f"/integrations/{its['id']}?force=true", status=204)
    await call("GET", path, status=404)


async def test_publishing(call: Caller) -> None:
    """Once for each id; up to the size of an event, which is more than other bodies may have."""
    its = await made(call)
    watch = await watched(call, its["id"])
    path = f"/integrations/{its['id']}/events"
    event = {"type": "build.finished", "data": {"text": "x" * 500_000}, "id": "build-1"}
    first = (await call("POST", path, event, 202)).json
    assert first["deliveries"] == 1
    again = (await call("POST", path, event, 202)).json
    assert again == {"event": first["event"], "deliveries": 0}
    assert (await call("GET", watch)).json["waiting"] == 1
    large = {**event, "data": {"text": "x" * (1024 * 1024 - 150)}}
    fault = (await call("POST", path, large, 422)).json["faults"][0]
    assert fault["path"] == "data"
    await call("POST", "/integrations", {"name": "x" * 100_000}, 413)
    await call("POST", f"/integrations/{its['id']}/pause")
    await call("POST", path, event, 409)


async def test_without_room(call: Caller) -> None:
    """A 503 with the time after which there may be some, for new events and for old ones again."""
    its = await made(call)
    watch = await watched(call, its["id"])
    path, event = f"/integrations/{its['id']}/events", {"type": "build.finished", "data": {}}
    await call("POST", path, event, 202)
    (delivery,) = (await call("GET", f"{watch}/deliveries")).json["items"]
    queue = call.scene.webhook_stores.queue_of(its["id"])
    (claimed,) = (await queue.claim("token", 1, 1)).deliveries
    await queue.finish(claimed, "delivered", Attempt(1, 5, 204, ""))
    call.scene.webhook_settings = replace(call.scene.webhook_settings, budget_bytes=1)
    span = {"from": "2020-01-01", "to": "2100-01-01"}
    for where, body in (
        (f"{watch}/deliveries/{delivery['id']}/resend", None),
        (f"{watch}/replay", span),
        # It drops what is over, to make room.
        (path, event),
    ):
        answer = await call("POST", where, body, 503)
        assert (answer.json["code"], answer.headers["Retry-After"]) == ("EVENTS_FULL", "30")


async def test_faults(call: Caller) -> None:
    its = await made(call)
    base = f"/integrations/{its['id']}"
    for method, path, body, places in (
        ("POST", "/integrations", {}, ["kind", "account", "name"]),
        ("PATCH", base, {"kind": "gitlab"}, ["kind"]),
        ("POST", f"{base}/events", {"type": "x"}, ["data", "type"]),
        ("POST", f"{base}/watches", {"url": "http://x/", "events": []}, ["url", "events"]),
    ):
        headers = {"If_Match": "*"} if method == "PATCH" else {}
        answer = await call(method, path, body, 422, **headers)
        assert [fault["path"] for fault in answer.json["faults"]] == places


async def test_events_and_deliveries(call: Caller) -> None:
    """An event is shown with its deliveries; it is sent again, alone and with all of a time."""
    its = await made(call)
    watch = await watched(call, its["id"])
    base = f"/integrations/{its['id']}"
    ids = []
    for number in range(3):
        event = {"type": "build.finished", "data": {"number": number}}
        ids.append((await call("POST", f"{base}/events", event, 202)).json["event"])
    page = (await call("GET", f"{base}/events?count=2")).json
    assert [each["id"] for each in page["items"]] == [ids[2], ids[1]]
    assert page["items"][0]["event"]["data"] == {"number": 2}
    rest = (await call("GET", f"{base}/events?before={page['next']}")).json
    assert [each["id"] for each in rest["items"]] == [ids[0]]
    found = (await call("GET", f"{watch}/deliveries")).json
    assert [each["event"] for each in found["items"]] == ids[::-1]
    assert found["next"] is None
    (delivery,) = (await call("GET", f"{base}/events/{ids[0]}")).json["deliveries"]
    path = f"{watch}/deliveries/{delivery['id']}"
    assert (await call("GET", path)).json == delivery
    assert (delivery["state"], delivery["attempts"]) == ("queued", [])
    resent = (await call("POST", f"{path}/resend", status=202)).json["delivery"]
    assert resent.startswith(f"{ids[0]}:")
    assert resent != delivery["id"]
    span = {"from": "2020-01-01T00:00:00Z", "to": "2100-01-01T00:00:00Z"}
    assert (await call("POST", f"{watch}/replay", span, 202)).json["deliveries"] == 0
    queue = call.scene.webhook_stores.queue_of(its["id"])
    while claimed := (await queue.claim("t", 8, 8)).deliveries:
        for each in claimed:
            await queue.finish(each, "delivered", Attempt(1, 1, 200, ""))
    replayed = await call("POST", f"{watch}/replay", span, 202)
    assert replayed.json == {"deliveries": 3, "waiting": 0, "next": None}
    assert len((await call("GET", f"{watch}/deliveries?count=3")).json["items"]) == 3
    assert (await call("GET", f"{watch}/deliveries?state=dead")).json["items"] == []
    assert (await actions(call))[-2:] == ["watch.resend", "watch.replay"]
    for method, wrong, body, status in (
        ("GET", f"{base}/events/evt_1", None, 404),
        ("GET", f"{watch}/deliveries/{ids[0]}:wat_1:1", None, 404),
        ("POST", f"{watch}/replay", {"from": "now", "to": 7}, 422),
        ("POST", f"{watch}/replay", {"from": span["to"], "to": span["from"]}, 422),
        ("GET", f"{base}/events?before=yesterday", None, 422),
    ):
        await call(method, wrong, body, status)


async def test_lists_by_type_and_time(call: Caller) -> None:
    """Of events, deliveries and dead letters, with the same parameters."""
    its = await made(call)
    watch = await watched(call, its["id"])
    base = f"/integrations/{its['id']}"
    for kind in ("build.done", "build.step.done", "other.done"):
        await call("POST", f"{base}/events", {"type": kind, "data": {}}, 202)
    other, step, done = (await call("GET", f"{base}/events")).json["items"]
    queue = call.scene.webhook_stores.queue_of(its["id"])
    for each in (await queue.claim("t", 8, 8)).deliveries:
        await queue.finish(each, "dead", Attempt(1, 1, 500, ""), reason="exhausted")
    lists = (f"{base}/events", f"{watch}/deliveries", f"{base}/dead-letters")
    for query, counts in (
        ("type=build.*", (2, 2, 2)),
        ("type=build.step.*", (1, 1, 1)),
        ("type=other.done", (1, 0, 0)),
        (f"from={step['accepted']}", (2, 1, 2)),
        (f"to={step['accepted']}", (1, 1, 0)),
        (f"from={done['accepted']}&to={other['accepted']}&type=build.done", (1, 1, 0)),
        (f"from={step['accepted']}&before={other['accepted']}", (1, 1, 0)),
        ("from=2020-01-01&to=2020-01-02", (0, 0, 0)),
    ):
        found = [(await call("GET", f"{path}?{query}")).json for path in lists]
        assert tuple(len(each["items"]) for each in found) == counts, query
        assert [each["next"] for each in found] == [None] * 3
    states = f"{watch}/deliveries?state=dead&type=build.done"
    assert len((await call("GET", states)).json["items"]) == 1


@pytest.mark.parametrize(
    ("query", "places"),
    [
        *((f"type={each}", ["type"]) for each in ("", "*", "a", "a.%2A.b", "A.b", "a.b%0A")),
        (f"type={'a.' * 2_000}*", ["type"]),
        ("type=a.b&type=a.c", ["type"]),
        ("from=now&to=", ["from", "to"]),
        (f"from={'1' * 2_000}", ["from"]),
        ("from=2026-12-31&from=2026-12-31", ["from"]),
        ("from=2026-12-31&to=2026-12-31T00:00:00Z", ["to"]),
    ],
)
async def test_faults_of_a_filter(call: Caller, query: str, places: list[str]) -> None:
    base = f"/integrations/{(await made(call))['id']}"
    for path in (f"{base}/events", f"{base}/dead-letters"):
        answer = await call("GET", f"{path}?{query}", status=422)
        assert [fault["path"] for fault in answer.json["faults"]] == places


async def test_a_header_with_the_id(call: Caller) -> None:
    """Of the kind generic; shown in lower case, changed, and removed by null."""
    its = await made(call, kind="generic", id_header="X-Delivery-Id")
    path = f"/integrations/{its['id']}"
    assert (await call("GET", path)).json["id_header"] == "x-delivery-id"
    for value in ("x-other", None):
        changed = await call("PATCH", path, {"id_header": value}, If_Match="*")
        assert changed.json["id_header"] == value
    for kind, value in (("generic", "Cookie"), ("generic", "x" * 10_000), ("github", "x-id")):
        fields = {**INTEGRATION, "kind": kind, "id_header": value}
        answer = await call("POST", "/integrations", fields, 422)
        assert [fault["path"] for fault in answer.json["faults"]] == ["id_header"]
    assert (await made(call))["id_header"] is None


async def test_dead_letters(call: Caller) -> None:
    """What was given up, until it is sent again."""
    its = await made(call)
    watch = await watched(call, its["id"])
    base = f"/integrations/{its['id']}"
    await call("POST", f"{base}/events", {"type": "build.done", "data": {}}, 202)
    queue = call.scene.webhook_stores.queue_of(its["id"])
    (claimed,) = (await queue.claim("t", 1, 1)).deliveries
    attempt = Attempt(1_800_000_000_000_000, 12, 500, "no")
    await queue.finish(claimed, "dead", attempt, reason="exhausted")
    (letter,) = (await call("GET", f"{base}/dead-letters")).json["items"]
    assert (letter["id"], letter["state"], letter["reason"]) == (claimed.id, "dead", "exhausted")
    assert letter["attempts"] == [
        {"at": "2027-01-15T08:00:00Z", "status": 500, "ms": 12, "answer": "no"}
    ]
    assert (await call("GET", f"{watch}/deliveries?state=dead")).json["items"] == [letter]
    await call("POST", f"{watch}/deliveries/{letter['id']}/resend", status=202)
    assert (await call("GET", f"{base}/dead-letters")).json["items"] == []


async def test_without_a_redis(tmp_path: Path) -> None:
    """Each operation says that webhooks need one."""
    words = {"{id}": "int_1", "{watch}": "wat_1", "{event}": "evt_1", "{delivery}": "evt_1:wat_1:1"}
    async with AdminScene(tmp_path) as scene:
        call = Caller(scene)
        operations = [each for each in OPERATIONS if each.tag == "webhooks"]
        assert operations
        for operation in operations:
            path = operation.path
            for name, example in words.items():
                path = path.replace(name, example)
            body = {} if operation.body is not None else None
            headers = {"If_Match": "*"} if operation.method == "PATCH" else {}
            answer = await call(operation.method, path, body, 503, **headers)
            assert answer.json["code"] == "WEBHOOKS_OFF"
