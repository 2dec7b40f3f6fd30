"""The API of events and deliveries over HTTP: what became of them, in pages, and once more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest

from gateway.domain.webhooks.watches import Watch
from gateway.manage.deliveries import STATES, delivery_as_json, event_as_json
from gateway.stores.webhooks.queue import LOOKED_AT, Attempt, shard_of
from tests.kit.courier_api import NOW_US, WATCHES, Scene
from tests.kit.wire import Response

EVENTS = "/api/v1/integrations/int_1/events"
DEAD = "/api/v1/integrations/int_1/dead-letters"
ITS = f"{WATCHES}/wat_1/deliveries"
REPLAY = f"{WATCHES}/wat_1/replay"
TIMES = {"from": "2020-01-01", "to": "2100-01-01T00:00:00Z"}
WATCH = Watch("wat_1", "int_1", "https://hook.example/", ("a.*",), 1)


@pytest.fixture
async def scene(store_client: Any) -> AsyncIterator[Scene]:
    async with Scene(store_client) as made:
        await made.add_integrations()
        await made.store.add_watch(WATCH)
        await made.store.add_watch(replace(WATCH, id="wat_2", events=("b.*",)))
        yield made


async def accept(
    scene: Scene, *events: str, body: bytes = b'{"id": "x"}', kind: str = "a.b"
) -> None:
    for event in events:
        await scene.queues[shard_of("int_1")].accept("int_1", event, kind, body)


async def give_up(scene: Scene, number: int) -> None:
    """Each delivery that is due, up to so many."""
    queue = scene.queues[shard_of("int_1")]
    for _ in range(number):
        (found,) = (await queue.claim("token", 1, 1)).deliveries
        await queue.finish(found, "dead", Attempt(NOW_US, 7, 500, "no"), reason="exhausted")


async def shown(scene: Scene, path: str) -> Any:
    answer = await scene.send("GET", path)
    assert answer.status == 200
    return answer.json()


async def pages(scene: Scene, path: str, query: str) -> list[list[str]]:
    """The ids of each page, as a client reads them: until there is no next one."""
    found, before = [], ""
    while before is not None:
        page = await shown(scene, f"{path}?{query}{before}")
        found.append([each["id"] for each in page["items"]])
        before = page["next"] and f"&before={quote(page['next'])}"
    return found


def flat(found: list[list[str]]) -> list[str]:
    return [each for page in found for each in page]


def refusal(answer: Response) -> tuple[int, str, str]:
    told = answer.json()
    assert told["request_id"] == "worker-1"
    return answer.status, told["code"], told["message"]


async def test_what_became_of_an_event(scene: Scene) -> None:
    """In the words of the management: its deliveries, with their attempts."""
    await accept(scene, "evt_1")
    await give_up(scene, 1)
    (event,) = await scene.deliveries.events("acme", "int_1")
    (delivery,) = await scene.deliveries.of_watch("acme", "int_1", "wat_1")
    its = delivery_as_json(delivery)
    assert (its["id"], its["state"]) == ("evt_1:wat_1:0", "dead")
    assert await shown(scene, f"{EVENTS}/evt_1") == {**event_as_json(event), "deliveries": [its]}
    assert await shown(scene, f"{ITS}/evt_1:wat_1:0") == its
    assert await shown(scene, f"{ITS}/evt_1%3Awat_1%3A0") == its
    assert await shown(scene, ITS) == {"items": [its], "next": None}
    assert await shown(scene, DEAD) == {"items": [its], "next": None}
    (item,) = (await shown(scene, EVENTS))["items"]
    assert item == event_as_json(event)
    assert await shown(scene, f"{WATCHES}/wat_2/deliveries") == {"items": [], "next": None}


async def test_pages(scene: Scene) -> None:
    """Each entry is on one page, the newest first."""
    names = [f"evt_{number}" for number in range(5)]
    await accept(scene, *names)
    await give_up(scene, 5)
    newest = names[::-1]
    deliveries = [f"{name}:wat_1:0" for name in newest]
    assert await pages(scene, ITS, "limit=2") == [deliveries[:2], deliveries[2:4], deliveries[4:]]
    assert await pages(scene, ITS, "state=dead&limit=4") == [deliveries[:4], deliveries[4:]]
    dead = await pages(scene, DEAD, "limit=2")
    assert [len(page) for page in dead] == [2, 2, 1]
    assert sorted(flat(dead)) == sorted(deliveries)
    assert await pages(scene, EVENTS, "limit=2") == [newest[:2], newest[2:4], newest[4:]]
    assert await pages(scene, EVENTS, "limit=100") == [newest]


async def test_large_events(scene: Scene) -> None:
    """A page of them is short, and the next one goes on."""
    scene.budget = 64 * 1024 * 1024
    names = [f"evt_{number}" for number in range(7)]
    await accept(scene, *names, body=b'"%b"' % (b"x" * 1024 * 1024))
    found = await pages(scene, EVENTS, "limit=50")
    assert flat(found) == names[::-1]
    assert 0 < len(found[0]) < len(names)


async def test_pages_without_entries(scene: Scene) -> None:
    """Where few of many deliveries are in a state: `next` goes on."""
    scene.budget = 64 * 1024 * 1024
    await accept(scene, "evt_dead")
    await give_up(scene, 1)
    await accept(scene, *(f"evt_{number}" for number in range(LOOKED_AT)))
    assert await pages(scene, ITS, "state=dead") == [[], ["evt_dead:wat_1:0"]]


async def test_pages_of_a_type(scene: Scene) -> None:
    """Where few of many have it: `next` goes on, and ends at `from`."""
    scene.budget = 64 * 1024 * 1024
    await accept(scene, "evt_rare", kind="a.rare.one")
    await accept(scene, *(f"evt_{number}" for number in range(LOOKED_AT)))
    rare = "evt_rare:wat_1:0"
    assert await pages(scene, ITS, "type=a.rare.*") == [[], [rare]]
    assert await pages(scene, ITS, "type=a.rare.one&state=queued") == [[], [rare]]
    assert await pages(scene, EVENTS, "type=a.rare.*") == [[], ["evt_rare"]]
    since = quote((await shown(scene, f"{EVENTS}/evt_0"))["accepted"])
    assert await pages(scene, EVENTS, f"type=a.rare.*&from={since}") == [[]]
    assert await pages(scene, ITS, f"type=a.rare.*&from={since}") == [[]]
    assert await pages(scene, ITS, f"type=a.rare.*&to={since}") == [[rare]]


async def test_pages_of_a_time(scene: Scene) -> None:
    """From then on and before then, of events, deliveries and dead letters."""
    names = [f"evt_{number}" for number in range(6)]
    await accept(scene, *names)
    await give_up(scene, 6)
    times = [(await shown(scene, f"{EVENTS}/{name}"))["accepted"] for name in names]
    span = f"from={quote(times[1])}&to={quote(times[4])}"
    expected = names[3:0:-1]
    assert await pages(scene, EVENTS, f"{span}&limit=2") == [expected[:2], expected[2:]]
    deliveries = [f"{name}:wat_1:0" for name in expected]
    assert await pages(scene, ITS, f"{span}&limit=2") == [deliveries[:2], deliveries[2:]]
    assert await pages(scene, ITS, f"{span}&type=a.*&state=dead") == [deliveries]
    assert await pages(scene, ITS, f"{span}&type=b.*") == [[]]
    letters = (await shown(scene, DEAD))["items"]
    ended = {letter["id"]: letter["ended"] for letter in letters}
    span = f"from={quote(letters[4]['ended'])}&to={quote(letters[1]['ended'])}"
    assert await pages(scene, DEAD, f"{span}&type=a.b") == [list(ended)[2:5]]
    assert await pages(scene, DEAD, "to=1970-01-01") == [[]]


async def test_one_replay_of_an_account_at_a_time(scene: Scene) -> None:
    """Also of another integration, and at another courier; then the next one."""
    await accept(scene, "evt_1")
    await give_up(scene, 1)
    token = await scene.store.begin_replay("acme")
    assert token is not None
    refused = refusal(await scene.send("POST", REPLAY, TIMES))
    assert refused[:2] == (409, "CONFLICT")
    assert "another replay of the account is in progress" in refused[2]
    await scene.store.end_replay("acme", "another's")
    assert (await scene.send("POST", REPLAY, TIMES)).status == 409
    assert await scene.store.begin_replay("other") is not None
    await scene.store.end_replay("acme", token)
    for count in (1, 0):
        answer = await scene.send("POST", REPLAY, TIMES)
        assert (answer.status, answer.json()["deliveries"]) == (202, count)
    ttl = await scene.client.ttl("gw:{keys}:hooks:replaying:other")
    assert 0 < ttl <= 60, "one whose process was killed ends"


async def test_a_replays_pages(scene: Scene) -> None:
    """What was made together is on pages too."""
    names = [f"evt_{number}" for number in range(5)]
    await accept(scene, *names)
    await give_up(scene, 5)
    assert (await scene.send("POST", REPLAY, TIMES)).json()["deliveries"] == 5
    found = await pages(scene, ITS, "limit=2&state=queued")
    assert sorted(flat(found)) == [f"{name}:wat_1:1" for name in names]


async def test_states(scene: Scene) -> None:
    await accept(scene, "evt_1", "evt_2")
    await give_up(scene, 1)
    assert await pages(scene, ITS, "state=dead") == [["evt_1:wat_1:0"]]
    assert await pages(scene, ITS, "state=queued") == [["evt_2:wat_1:0"]]
    assert len((await shown(scene, f"{ITS}?state=dead,queued"))["items"]) == 2
    assert (await shown(scene, f"{ITS}?state={','.join(STATES)}"))["next"] is None


@pytest.mark.parametrize(
    ("path", "faults"),
    [
        (f"{ITS}?state=lost", ["state"]),
        (f"{ITS}?state=", ["state"]),
        (f"{ITS}?state=dead&state=queued", ["state"]),
        (f"{ITS}?state=dead,lost,,", ["state", "state"]),
        (f"{ITS}?limit=101&before=x", ["limit", "before"]),
        (f"{EVENTS}?state=dead", ["query"]),
        (f"{DEAD}?limit=0", ["limit"]),
        (f"{ITS}?type=&from=&to=", ["type", "from", "to"]),
        (f"{ITS}?type=a&type=a.b", ["type"]),
        (f"{EVENTS}?type=a.b&from=2026-01-01&from=2026-01-02&to=now", ["from", "to"]),
        (f"{EVENTS}?from=2026-01-02&to=2026-01-02", ["to"]),
        (f"{DEAD}?from=2026-01-02T00:00:00Z&to=2026-01-01", ["to"]),
        (f"{DEAD}?type={'a.' * 2_000}*", ["type"]),
        *(
            (f"{EVENTS}?type={each}", ["type"])
            for each in ("*", "a.b,c.d", "a.%2A.b", "%00", "A.B")
        ),
        ("/api/v1/integrations?type=a.b", ["query"]),
    ],
)
async def test_faults_of_the_query(scene: Scene, path: str, faults: list[str]) -> None:
    answer = await scene.send("GET", path)
    assert refusal(answer)[:2] == (422, "INVALID")
    assert [fault["path"] for fault in answer.json()["faults"]] == faults


@pytest.mark.parametrize(
    "path",
    [
        f"{EVENTS}/evt_9",
        f"{EVENTS}/%2F",
        f"{ITS}/evt_9:wat_1:0",
        f"{ITS}/evt_1:wat_1:9",
        f"{ITS}/evt_1",
        f"{ITS}/a:b:c:d",
        f"{WATCHES}/wat_2/deliveries/evt_1:wat_1:0",
    ],
)
async def test_what_is_not_there(scene: Scene, path: str) -> None:
    """The same words for what cannot be, and for another watch's."""
    await accept(scene, "evt_1")
    name = "event" if "/events/" in path else "delivery"
    words = f"there is no {name} with this id, or it is not kept any more"
    assert refusal(await scene.send("GET", path)) == (404, "NOT_FOUND", words)
    if name == "delivery":
        answer = await scene.send("POST", f"{path}/resend")
        assert refusal(answer) == (404, "NOT_FOUND", words)


async def test_resend(scene: Scene) -> None:
    """A new delivery, which can be looked at; the dead letter is none any more."""
    await accept(scene, "evt_1")
    await give_up(scene, 1)
    answer = await scene.send("POST", f"{ITS}/evt_1:wat_1:0/resend")
    assert (answer.status, answer["Location"]) == (202, f"{ITS}/evt_1:wat_1:1")
    assert answer.json() == {"id": "evt_1:wat_1:1", "event": "evt_1", "watch": "wat_1"}
    assert (await shown(scene, answer["Location"]))["state"] == "queued"
    assert (await shown(scene, DEAD))["items"] == []
    (entry,) = await scene.audit.entries(before=None, count=50)
    assert (entry.event.actor, entry.event.action) == ("key 7h3k9m2p4q6r (api)", "watch.resend")


async def test_replay(scene: Scene) -> None:
    """The kept events of a time, as far as the watch takes them."""
    await accept(scene, "evt_1", "evt_2")
    await give_up(scene, 2)
    accepted = (await shown(scene, f"{EVENTS}/evt_2"))["accepted"]
    answer = await scene.send("POST", REPLAY, {"from": accepted, "to": TIMES["to"]})
    assert (answer.status, answer.json()) == (202, {"deliveries": 1, "waiting": 0, "next": None})
    assert await pages(scene, ITS, "state=queued") == [["evt_2:wat_1:1"]]
    other = await scene.send("POST", f"{WATCHES}/wat_2/replay", TIMES)
    assert other.json() == {"deliveries": 0, "waiting": 0, "next": None}


@pytest.mark.parametrize(
    ("given", "faults"),
    [
        ({}, ["from", "to"]),
        ({"from": 1, "to": "tomorrow", "x": 1}, ["from", "to", "x"]),
        ({"from": "2026-01-01", "to": "2026-01-01"}, ["to"]),
        ({"from": "2026-01-01", "to": None}, ["to"]),
    ],
)
async def test_faults_of_a_replay(
    scene: Scene, given: dict[str, object], faults: list[str]
) -> None:
    answer = await scene.send("POST", REPLAY, given)
    assert refusal(answer)[:2] == (422, "INVALID")
    assert [fault["path"] for fault in answer.json()["faults"]] == faults


async def test_a_disabled_watch(scene: Scene) -> None:
    """409: it has to be resumed first."""
    await accept(scene, "evt_1")
    await give_up(scene, 1)
    await scene.queues[shard_of("int_1")].disable("wat_1", "int_1", "gone")
    for path, body in ((f"{ITS}/evt_1:wat_1:0/resend", None), (REPLAY, TIMES)):
        answer = await scene.send("POST", path, body)
        assert refusal(answer) == (409, "CONFLICT", "watch wat_1 is disabled: resume it")


async def test_without_room(scene: Scene) -> None:
    """503, with the time after which there may be some, as where an event is published."""
    await accept(scene, "evt_1")
    await give_up(scene, 1)
    scene.budget = 1
    for path, body in ((f"{ITS}/evt_1:wat_1:0/resend", None), (REPLAY, TIMES)):
        answer = await scene.send("POST", path, body)
        assert refusal(answer)[:2] == (503, "EVENTS_FULL")
        assert answer["Retry-After"] == "30"
