"""Integrations: what can be done, what every fault says, and what is published."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gateway.domain.webhooks.destinations import Destinations
from gateway.domain.webhooks.events import Integration
from gateway.domain.webhooks.kinds import table
from gateway.domain.webhooks.settings import WebhookSettings
from gateway.manage.audit_log import Actor
from gateway.manage.integrations import Integrations, integration_as_json
from gateway.manage.problems import Changed, Conflict, Full, Invalid, NotThere
from gateway.manage.watches import Watches
from gateway.stores.audit.memory import MemoryAuditStore
from gateway.stores.redis.address import parse_url
from gateway.stores.redis.clients import redis_client
from gateway.stores.webhooks import resources
from gateway.stores.webhooks.link import executing
from gateway.stores.webhooks.opening import open_webhooks
from gateway.webhooks.sealing import Sealer
from tests.kit.redis_server import RedisServer

MASTER = b"m" * 32
ACTOR = Actor("anna", "api")
GIVEN = {"kind": "github", "account": "acme", "name": "Code"}
SECRET = "s" * 20
NOW_US = 1_800_000_000_000_000
MOST = 2_000


class Bench:
    def __init__(self, client: Any, settings: WebhookSettings) -> None:
        self.stores = open_webhooks(executing(client), lambda: settings)
        self.audit = MemoryAuditStore()
        self.sealer = Sealer(MASTER)
        self.integrations = Integrations(
            self.stores.resources,
            self.audit,
            self.stores.queue_of,
            self.sealer,
            lambda: NOW_US,
            lambda: MOST,
        )
        self.watches = Watches(
            self.stores.resources, self.audit, MASTER, lambda: NOW_US, Destinations
        )

    async def make(self, **given: object) -> Integration:
        return (await self.integrations.create(ACTOR, {**GIVEN, **given}))[0]

    async def watch(self, integration: Integration) -> str:
        given = {"url": "https://hook.example/", "events": ["build.*"]}
        made, _ = await self.watches.create(ACTOR, integration.account, integration.id, given)
        return made.watch.id

    def secrets(self, integration: Integration) -> tuple[str, ...]:
        return self.sealer.open(integration.id, integration.sealed)

    async def actions(self) -> list[str]:
        entries = await self.audit.entries(before=None, count=50)
        return [entry.event.action for entry in reversed(entries)]


@pytest.fixture
async def client(redis_server: RedisServer):
    client = redis_client(parse_url(redis_server.url))
    yield client
    await client.aclose()


@pytest.fixture
def bench(client: Any) -> Bench:
    return Bench(client, WebhookSettings())


async def test_an_integration(bench: Bench) -> None:
    """Made with an address and a secret, found, listed, renamed, removed, and all of it noted."""
    made, shown = await bench.integrations.create(ACTOR, GIVEN)
    assert shown.made is not None
    assert bench.secrets(made) == (shown.made,)
    assert await bench.stores.resources.captures_to(made.capture) == made
    assert integration_as_json(made) == {
        "id": made.id,
        "account": "acme",
        "kind": "github",
        "name": "Code",
        "paused": False,
        "created": "2027-01-15T08:00:00Z",
        "id_header": None,
        "capture": f"/hooks/{made.capture}",
    }
    other = await bench.make(account="other")
    assert await bench.integrations.list("acme") == [made]
    assert {each.id for each in await bench.integrations.list()} == {made.id, other.id}
    renamed = await bench.integrations.edit(ACTOR, made.id, {"name": "Our code"})
    assert await bench.integrations.get(made.id) == replace(made, name="Our code") == renamed
    assert await bench.integrations.remove(ACTOR, made.id) == 0
    assert await bench.integrations.list("acme") == []
    assert await bench.stores.resources.captures_to(made.capture) is None
    assert await bench.actions() == [
        *("integration.create", "integration.create", "integration.edit", "integration.remove")
    ]
    for entry in await bench.audit.entries(before=None, count=50):
        for hidden in (shown.made, made.capture, made.sealed):
            assert hidden not in str(entry)


async def test_secrets(bench: Bench) -> None:
    """Given ones are kept and not shown; others replace them; without any, one is made."""
    made, shown = await bench.integrations.create(ACTOR, {**GIVEN, "secrets": [SECRET, "t" * 20]})
    assert (bench.secrets(made), shown.made) == ((SECRET, "t" * 20), None)
    one, shown = await bench.integrations.set_secrets(ACTOR, made.id, {"secrets": ["u" * 20]})
    assert (bench.secrets(one), shown.made) == (("u" * 20,), None)
    two, shown = await bench.integrations.set_secrets(ACTOR, made.id, {})
    assert bench.secrets(two) == (shown.made,)
    assert (await bench.actions())[1:] == ["integration.set_secrets"] * 2
    assert SECRET not in f"{made!r}{shown!r}"


async def test_a_secret_of_user_and_password(bench: Bench) -> None:
    """Of a kind that sends both, one that is made has both, and one that is given needs both."""
    made, shown = await bench.integrations.create(ACTOR, {**GIVEN, "kind": "azure-devops"})
    assert shown.made is not None
    assert shown.made.startswith("gateway:")
    with pytest.raises(Invalid, match="expected USER:PASSWORD") as error:
        await bench.integrations.set_secrets(ACTOR, made.id, {"secrets": [SECRET]})
    assert SECRET not in str(error.value)


async def test_a_header_with_the_id(bench: Bench) -> None:
    """Of the kind generic: named in any case, changed, and removed by null."""
    made = await bench.make(kind="generic", id_header="X-Delivery-Id")
    assert made.id_header == "x-delivery-id"
    assert integration_as_json(made)["id_header"] == "x-delivery-id"
    assert await bench.stores.resources.captures_to(made.capture) == made
    edit = bench.integrations.edit
    assert (await edit(ACTOR, made.id, {"name": "Builds"})).id_header == "x-delivery-id"
    assert (await edit(ACTOR, made.id, {"id_header": "x-other"})).id_header == "x-other"
    assert (await edit(ACTOR, made.id, {"id_header": None})).id_header == ""
    assert (await bench.make(kind="github", id_header=None)).id_header == ""
    entries = await bench.audit.entries(before=None, count=50)
    assert [(entry.event.after or {}).get("id_header") for entry in entries[1:4]] == [
        *(None, "x-other", "x-delivery-id")
    ]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        *(("", "found ''"), (7, "found a number"), (["x-id"], "found a list")),
        *(("Authorization", "found 'Authorization'"), ("Content-MD5", "expected the name of a")),
        *(("WEBHOOK-ID", "found 'WEBHOOK-ID'"), ("x id", "up to 64 characters"), ("\u212a", "")),
        ("x" * 10_000, "found 'x+…'"),
    ],
)
async def test_headers_that_have_no_id(bench: Bench, value: object, words: str) -> None:
    for call in (
        bench.make(kind="generic", id_header=value),
        bench.integrations.edit(ACTOR, (await bench.make(kind="generic")).id, {"id_header": value}),
    ):
        with pytest.raises(Invalid, match=f"id_header: .*{words}") as error:
            await call
        assert len(str(error.value)) < 400


async def test_kinds_without_a_header_for_the_id(bench: Bench) -> None:
    """What a provider names its webhooks by is known, and the gateway's own have no sender."""
    words = "id_header: found 'x-id', expected none, as only the kind generic has one"
    for kind in ("github", "operator"):
        with pytest.raises(Invalid, match=words):
            await bench.make(kind=kind, id_header="x-id")
        made = await bench.make(kind=kind)
        with pytest.raises(Invalid, match=words):
            await bench.integrations.edit(ACTOR, made.id, {"id_header": "x-id"})


async def test_an_integration_of_an_older_gateway(bench: Bench, client: Any) -> None:
    """Its record without the field is read and changed."""
    made = await bench.make(kind="generic")
    record = json.loads(await client.hget(resources.INTEGRATIONS, made.id))
    assert "id_header" not in record
    changed = await bench.integrations.edit(ACTOR, made.id, {"id_header": "x-id"})
    assert await bench.integrations.get(made.id) == changed


async def test_pause_and_resume(bench: Bench) -> None:
    """Both may be repeated, which changes nothing."""
    made = await bench.make()
    for _ in range(2):
        assert (await bench.integrations.pause(ACTOR, made.id)).is_paused
    for _ in range(2):
        assert await bench.integrations.resume(ACTOR, made.id) == made
    assert (await bench.actions())[1:] == ["integration.pause", "integration.resume"]


async def test_another_address(bench: Bench) -> None:
    """The one before captures nothing any more."""
    made = await bench.make()
    moved = await bench.integrations.rotate_address(ACTOR, made.id)
    assert moved.capture != made.capture
    assert await bench.stores.resources.captures_to(moved.capture) == moved
    assert await bench.stores.resources.captures_to(made.capture) is None


async def test_removing_one_with_watches(bench: Bench) -> None:
    """Only with force."""
    made = await bench.make()
    await bench.watch(made)
    with pytest.raises(Conflict, match="has 1 watch: remove them first"):
        await bench.integrations.remove(ACTOR, made.id)
    assert await bench.integrations.remove(ACTOR, made.id, force=True) == 1
    assert await bench.stores.resources.watches(made.id) == []


async def test_a_kind_without_a_provider(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no address and no secret, and takes none; it can be published to."""
    own = replace(table.GENERIC, name="github", captures=False)
    monkeypatch.setattr("gateway.manage.integrations.KINDS", {"github": own})
    made, shown = await bench.integrations.create(ACTOR, GIVEN)
    assert (made.capture, made.sealed, shown.made) == ("", "", None)
    assert integration_as_json(made)["capture"] is None
    for call in (
        bench.integrations.rotate_address(ACTOR, made.id),
        bench.integrations.set_secrets(ACTOR, made.id, {}),
    ):
        with pytest.raises(Conflict, match="no address and no secret"):
            await call
    with pytest.raises(Invalid, match="no address and no secret"):
        await bench.integrations.create(ACTOR, {**GIVEN, "secrets": [SECRET]})
    assert await bench.integrations.remove(ACTOR, made.id) == 0


async def test_none_of_this_id(bench: Bench) -> None:
    its = bench.integrations
    for call in (
        its.get("int_1"),
        its.edit(ACTOR, "int_1", {}),
        its.pause(ACTOR, "int_1"),
        its.resume(ACTOR, "int_1"),
        its.rotate_address(ACTOR, "int_1"),
        its.set_secrets(ACTOR, "int_1", {}),
        its.remove(ACTOR, "int_1", force=True),
        its.publish("int_1", {}),
    ):
        with pytest.raises(NotThere):
            await call


@pytest.mark.parametrize(
    ("given", "faults"),
    [
        ({}, ["kind: found nothing", "account: found nothing", "name: found nothing"]),
        (
            {"kind": "svn", "account": "a b", "name": "\n"},
            ["kind: found 'svn', expected one of github, gitlab", "account: found", "name: found"],
        ),
        ({**GIVEN, "kind": ["github"]}, ["kind: found a list"]),
        ({**GIVEN, "paused": "yes"}, ["paused: found 'yes', expected true or false"]),
        ({**GIVEN, "secrets": SECRET}, ["secrets: found no list, expected a list of 1 to 4"]),
        ({**GIVEN, "secrets": []}, ["secrets: found 0 entries, expected 1 to 4"]),
        ({**GIVEN, "secrets": [SECRET] * 5}, ["secrets: found 5 entries"]),
        (
            {**GIVEN, "secrets": ["short", SECRET, f"{SECRET} ", 7, "s" * 513]},
            ["secrets: found 5 entries"],
        ),
        (
            {**GIVEN, "secrets": ["short", SECRET, f"{SECRET} ", 7]},
            ["secrets[0]: found another", "secrets[2]: found another", "secrets[3]: found another"],
        ),
        ({**GIVEN, "secret": SECRET}, ["secret: found an unknown field"]),
    ],
)
async def test_faults(bench: Bench, given: dict[str, object], faults: list[str]) -> None:
    """All of them are named, and no secret is in them."""
    with pytest.raises(Invalid) as error:
        await bench.integrations.create(ACTOR, given)
    found = [str(fault) for fault in error.value.faults]
    assert len(found) == len(faults)
    for fault, begins in zip(found, faults, strict=True):
        assert fault.startswith(begins)
        assert SECRET not in fault
    assert await bench.integrations.list() == []


async def test_what_cannot_be_changed(bench: Bench) -> None:
    made = await bench.make()
    with pytest.raises(Invalid) as error:
        await bench.integrations.edit(ACTOR, made.id, {"kind": "gitlab", "account": "other"})
    assert [fault.at for fault in error.value.faults] == ["kind", "account"]
    with pytest.raises(Invalid, match="secrets: found an unknown field"):
        await bench.integrations.edit(ACTOR, made.id, {"secrets": [SECRET]})


async def test_the_most(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "MOST_INTEGRATIONS", 1)
    await bench.make()
    with pytest.raises(Conflict, match="as many integrations"):
        await bench.make()


async def test_a_change_meanwhile(bench: Bench) -> None:
    """The store has another record than the one that was read."""
    made = await bench.make()
    read = bench.stores.resources.integration

    async def changed_after(integration: str) -> Integration | None:
        found = await read(integration)
        assert found is not None
        await bench.stores.resources.replace_integration(found, replace(found, name="Theirs"))
        return found

    class Behind:
        integration = staticmethod(changed_after)

        def __getattr__(self, name: str) -> Any:
            return getattr(bench.stores.resources, name)

    bench.integrations._store = Behind()
    with pytest.raises(Changed):
        await bench.integrations.edit(ACTOR, made.id, {"name": "Mine"})


# -- publishing ------------------------------------------------------------------------------------


async def test_publishing(bench: Bench) -> None:
    """An event for the watches that take it; with the same id it is the same event."""
    made = await bench.make()
    watch = await bench.watch(made)
    given = {"type": "build.finished", "data": {"number": 7}, "id": "build 7"}
    event = await bench.integrations.publish(made.id, given)
    assert event.deliveries == 1
    queue = bench.stores.queue_of(made.id)
    (delivery,) = await queue.deliveries(watch)
    assert delivery.event == event.event
    (claimed,) = (await queue.claim("t", 1, 1)).deliveries
    body = json.loads(claimed.body)
    assert (body["id"], body["type"], body["data"]) == (event.event, given["type"], given["data"])
    assert body["integration"] == {"id": made.id, "provider": "github", "name": "Code"}
    again = await bench.integrations.publish(made.id, given)
    assert (again.event, again.deliveries) == (event.event, 0)
    without = {"type": "deploy.finished", "data": {}}
    first = await bench.integrations.publish(made.id, without)
    second = await bench.integrations.publish(made.id, without)
    assert first.event != second.event
    assert first.deliveries == 0


@pytest.mark.parametrize(
    ("given", "faults"),
    [
        ({}, ["type: found nothing", "data: found nothing"]),
        ({"type": "x", "data": [], "id": ""}, ["type: found 'x'", "data: found a list", "id: fou"]),
        ({"type": "a.b", "data": {}, "id": "a\nb"}, ["id: found"]),
        ({"type": "a.b", "data": {}, "id": "i" * 513}, ["id: found"]),
        ({"type": "a.b", "data": {"at": float("inf")}}, ["data: found a value that JSON"]),
        ({"type": "a.b", "data": {"text": "x" * MOST}}, ["data: found an event of 2"]),
        ({"type": "a.b", "data": {}, "more": 1}, ["more: found an unknown field"]),
    ],
)
async def test_faults_of_events(bench: Bench, given: dict[str, object], faults: list[str]) -> None:
    made = await bench.make()
    with pytest.raises(Invalid) as error:
        await bench.integrations.publish(made.id, given)
    found = [str(fault) for fault in error.value.faults]
    assert len(found) == len(faults)
    for fault, begins in zip(found, faults, strict=True):
        assert fault.startswith(begins)


async def test_publishing_to_a_paused_one(bench: Bench) -> None:
    made = await bench.make(paused=True)
    with pytest.raises(Conflict, match="is paused"):
        await bench.integrations.publish(made.id, {"type": "a.b", "data": {}})


async def test_no_room(client: Any) -> None:
    bench = Bench(client, WebhookSettings(budget_bytes=16))
    made = await bench.make()
    await bench.watch(made)
    with pytest.raises(Full, match="no room"):
        await bench.integrations.publish(made.id, {"type": "build.done", "data": {}})
