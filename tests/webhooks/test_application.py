"""The API of watches over HTTP: what is done, and what each fault is answered."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from itertools import islice
from typing import Any

import pytest

from gateway.domain.webhooks.events import Integration
from gateway.domain.webhooks.watches import MOST_WATCHES, secret_of
from gateway.stores.redis.address import parse_url
from gateway.stores.redis.clients import redis_client
from gateway.webhooks.requests import MOST_BODY
from gateway.webhooks.turns import AT_ONCE, MOST_OF_ACCOUNT, OF_ACCOUNT
from tests.kit.courier_api import CAPTURE, GIVEN, MASTER, TOKEN, WATCHES, Scene
from tests.kit.redis_server import RedisServer
from tests.kit.wire import Response, Wire, build_request

#: Every path that needs an account, with a method that it has.
PATHS = (
    ("GET", "/api/v1/integrations"),
    ("GET", WATCHES),
    ("POST", WATCHES),
    ("GET", f"{WATCHES}/wat_1"),
    ("PATCH", f"{WATCHES}/wat_1"),
    ("DELETE", f"{WATCHES}/wat_1"),
    ("POST", f"{WATCHES}/wat_1/rotate-secret"),
    ("POST", f"{WATCHES}/wat_1/pause"),
    ("POST", f"{WATCHES}/wat_1/resume"),
    ("POST", "/api/webhooks/test"),
    ("GET", "/api/v1/integrations/int_1/events"),
    ("GET", "/api/v1/integrations/int_1/events/evt_1"),
    ("GET", f"{WATCHES}/wat_1/deliveries"),
    ("GET", f"{WATCHES}/wat_1/deliveries/evt_1:wat_1:0"),
    ("POST", f"{WATCHES}/wat_1/deliveries/evt_1:wat_1:0/resend"),
    ("POST", f"{WATCHES}/wat_1/replay"),
    ("GET", "/api/v1/integrations/int_1/dead-letters"),
)
TIMES = {"from": "2026-01-01", "to": "2030-01-01"}


@pytest.fixture
async def scene(store_client: Any) -> AsyncIterator[Scene]:
    async with Scene(store_client) as made:
        await made.add_integrations()
        yield made


async def made_in(scene: Scene, **given: object) -> dict[str, Any]:
    answer = await scene.send("POST", WATCHES, {**GIVEN, **given})
    assert answer.status == 201
    watch: dict[str, Any] = answer.json()
    return watch


def body_for(path: str) -> dict[str, Any]:
    return TIMES if path.endswith("replay") else GIVEN


def error_of(answer: Response) -> tuple[int, str, str]:
    """Status, code and message of an error in the gateway's form."""
    body = answer.json()
    assert set(body) - {"faults"} == {"error", "message", "code", "request_id"}
    assert body["request_id"] == "worker-1"
    return answer.status, body["code"], body["message"]


async def test_a_watch(scene: Scene) -> None:
    """Created with its secret, shown without it, changed, rotated, paused, removed."""
    answer = await scene.send("POST", WATCHES, GIVEN)
    made = answer.json()
    path = f"{WATCHES}/{made['id']}"
    assert (answer.status, answer["Location"]) == (201, path)
    assert answer["Cache-Control"] == "no-store"
    assert made.pop("secret") == secret_of(MASTER, made["id"], 1)
    assert made == {
        "id": made["id"],
        "integration": "int_1",
        **GIVEN,
        "form": "timed",
        "rate": None,
        "secret_version": 1,
        "created": "2027-01-15T08:00:00Z",
        "status": "active",
        "reason": None,
        "disabled_since": None,
        "waiting": 0,
        "in_flight": 0,
        "failures": 0,
        "failing_since": None,
        "last_success": None,
        "next_attempt": None,
    }
    assert (await scene.send("GET", path)).json() == made
    assert (await scene.send("GET", WATCHES)).json() == {"items": [made], "next": None}
    changed = await scene.send("PATCH", path, {"events": ["ticket.*"]})
    assert changed.json() == {**made, "events": ["ticket.*"]}
    for rate in ("600/minute", None):
        changed = await scene.send("PATCH", path, {"rate": rate})
        assert changed.json() == {**made, "events": ["ticket.*"], "rate": rate}
    rotated = (await scene.send("POST", f"{path}/rotate-secret")).json()
    assert rotated["secret"] == secret_of(MASTER, made["id"], 2)
    assert (await scene.send("POST", f"{path}/pause")).json()["status"] == "paused"
    assert (await scene.send("POST", f"{path}/resume")).json()["status"] == "active"
    removed = await scene.send("DELETE", path)
    assert (removed.status, removed.body) == (204, b"")
    assert error_of(await scene.send("GET", path))[:2] == (404, "NOT_FOUND")


async def test_the_audit_log(scene: Scene) -> None:
    """It says which key has changed what."""
    watch = await made_in(scene)
    await scene.send("DELETE", f"{WATCHES}/{watch['id']}")
    entries = await scene.audit.entries(before=None, count=50)
    assert [entry.event.action for entry in entries] == ["watch.remove", "watch.create"]
    assert {entry.event.actor for entry in entries} == {"key 7h3k9m2p4q6r (api)"}


async def test_integrations(scene: Scene) -> None:
    """Those of the account, the newest first, in pages; without capture addresses."""
    for number in range(2, 7):
        # Two of each moment, which a page has both of.
        made = Integration(
            f"int_a{number}", "acme", "linear", f"n{number}", number // 2 * 1_000_000
        )
        await scene.store.add_integration(made)
    answer = await scene.send("GET", "/api/v1/integrations")
    assert answer.json()["next"] is None
    names = [each["id"] for each in answer.json()["items"]]
    assert names == ["int_a6", "int_a5", "int_a4", "int_a3", "int_a2", "int_1"]
    assert CAPTURE.encode() not in answer.body
    assert answer.json()["items"][-1] == {
        "id": "int_1",
        "provider": "github",
        "name": "Code",
        "paused": False,
        "created": "1970-01-01T00:00:00.000001Z",
    }
    seen, query = [], "limit=2"
    while query:
        page = (await scene.send("GET", f"/api/v1/integrations?{query}")).json()
        seen += [each["id"] for each in page["items"]]
        query = page["next"] and f"limit=2&before={page['next']}"
    assert seen == names
    none = await scene.send("GET", "/api/v1/integrations", account="nobody")
    assert none.json() == {"items": [], "next": None}


@pytest.mark.parametrize(
    ("query", "faults"),
    [
        ("limit=0", ["limit"]),
        ("limit=101", ["limit"]),
        ("limit=01", ["limit"]),
        ("limit=%D9%A3", ["limit"]),
        ("limit=" + "9" * 3_000, ["limit"]),
        ("limit=1&limit=2", ["limit"]),
        ("before=yesterday", ["before"]),
        ("before=2026-01-01T00:00:00", ["before"]),
        ("before=0000-00-00", ["before"]),
        ("a=1&b=2", ["query"]),
        ("limit=x&before=y&z", ["limit", "before", "query"]),
    ],
)
async def test_faults_of_the_query(scene: Scene, query: str, faults: list[str]) -> None:
    """All of them at once."""
    answer = await scene.send("GET", f"/api/v1/integrations?{query}")
    assert error_of(answer)[:2] == (422, "INVALID")
    assert [fault["path"] for fault in answer.json()["faults"]] == faults


async def test_faults_of_a_body(scene: Scene) -> None:
    """All of them at once, as in the admin API."""
    given = {"url": "http://127.0.0.1/", "events": ["*", "a.b"], "form": 1, "color": "red"}
    answer = await scene.send("POST", WATCHES, given)
    assert error_of(answer)[:2] == (422, "INVALID")
    faults = {fault["path"]: fault for fault in answer.json()["faults"]}
    assert set(faults) == {"url", "events[0]", "form", "color"}
    assert faults["form"] == {
        "path": "form",
        "found": "a number",
        "expected": '"timed" or "body-only"',
    }
    answer = await scene.send("POST", WATCHES, {**GIVEN, "url": "https://0x7f.1/"})
    (fault,) = answer.json()["faults"]
    assert fault["found"] == "an address that is not written as 192.0.2.1 or [2001:db8::1]"
    answer = await scene.send("POST", WATCHES, {})
    assert [fault["path"] for fault in answer.json()["faults"]] == ["url", "events"]
    watch = await made_in(scene)
    assert (await scene.send("PATCH", f"{WATCHES}/{watch['id']}", {"url": None})).status == 422


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (b"", {}, 400, "BODY_NOT_JSON"),
        (b"[]", {}, 400, "BODY_NOT_JSON"),
        (b'{"url": "a", "url": "b"}', {}, 400, "BODY_NOT_JSON"),
        (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, {}, 400, "BODY_NOT_JSON"),
        (b"{" + b" " * MOST_BODY + b"}", {}, 413, "BODY_TOO_LARGE"),
        (b"{}", {"Content_Type": None}, 415, "UNSUPPORTED_MEDIA_TYPE"),
        (b"{}", {"Content_Type": "text/plain"}, 415, "UNSUPPORTED_MEDIA_TYPE"),
        (b"{}", {"Content_Type": "application/json, text/plain"}, 415, "UNSUPPORTED_MEDIA_TYPE"),
        (b"{}", {"Content_Type": "application/json;a=((("}, 415, "UNSUPPORTED_MEDIA_TYPE"),
        (b"{}", {"Content_Encoding": "identity"}, 415, "UNSUPPORTED_MEDIA_TYPE"),
    ],
)
async def test_bodies(
    scene: Scene, body: bytes, headers: dict[str, str | None], status: int, code: str
) -> None:
    answer = await scene.send("POST", WATCHES, body, **headers)
    assert error_of(answer)[:2] == (status, code)
    assert ("found 101 levels" in answer.json()["message"]) is (b'{"a":{' in body)
    assert (await scene.send("GET", WATCHES)).json()["items"] == []


@pytest.mark.parametrize("path", ["/api/webhooks/test", "/api/v1/integrations/int_9/watches"])
@pytest.mark.parametrize("char", ['"', "(", "a=b;"])
async def test_a_content_type_that_takes_long(scene: Scene, path: str, char: str) -> None:
    """It is not read beyond its bound: aiohttp takes 6 s for 28,000 quotes, for all accounts."""
    kind = f"application/json;a1={char * (28_000 // len(char))}"
    begun_s = time.thread_time()
    answer = await scene.send("POST", path, b"{}", Content_Type=kind)
    assert time.thread_time() - begun_s < 0.5
    assert error_of(answer)[:2] == (415, "UNSUPPORTED_MEDIA_TYPE")
    assert f"Found a Content-Type of {len(kind)} characters" in answer.json()["message"]


async def test_a_body_in_chunks(scene: Scene) -> None:
    """It is bounded as any other one: what follows is not read."""
    chunk = b"%x\r\n%b\r\n" % (32 * 1024, b" " * 32 * 1024)
    fields = [("Transfer-Encoding", "chunked")]
    answer = await scene.send("POST", WATCHES, chunk * 3 + b"0\r\n\r\n", more=fields)
    assert error_of(answer)[:2] == (413, "BODY_TOO_LARGE")
    small = json.dumps(GIVEN).encode()
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in small) + b"0\r\n\r\n"
    assert (await scene.send("POST", WATCHES, chunks, more=fields)).status == 201


async def test_a_body_that_does_not_come(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """408 after the time for a body, and the connection is closed."""
    monkeypatch.setattr("gateway.webhooks.requests.BODY_S", 0.05)
    fields = [
        ("X-Gateway-Courier", TOKEN),
        ("X-Gateway-Account", "acme"),
        ("X-Gateway-Key-Id", "7h3k9m2p4q6r"),
        ("X-Request-Id", "worker-1"),
        ("Content-Type", "application/json"),
        ("Content-Length", "100"),
    ]
    async with await Wire.connect(scene.port) as wire:
        await wire.send(build_request("POST", WATCHES, fields) + b'{"url"')
        answer = await wire.read_response()
    assert error_of(answer)[:2] == (408, "REQUEST_TIMEOUT")
    assert answer.closes


@pytest.mark.parametrize("token", [None, "", "0", TOKEN[:-1], TOKEN + "0", "é", TOKEN.upper()])
async def test_without_the_token(scene: Scene, token: str | None) -> None:
    """Whatever is asked for, the answer is the same and says nothing."""
    asked = [*PATHS, ("POST", f"/hooks/{CAPTURE}"), ("GET", "/"), ("TRACE", "/x"), ("PUT", WATCHES)]
    for method, path in asked:
        answer = await scene.send(method, path, X_Gateway_Courier=token)
        assert (answer.status, answer.body) == (404, b"")
        names = {name for name, _ in answer.headers if name != "Date"}
        assert names == {"Content-Length", "Server", "Cache-Control", "Connection"}


async def test_two_tokens(scene: Scene) -> None:
    more = [("X-Gateway-Courier", TOKEN)]
    assert (await scene.send("GET", WATCHES, more=more)).body == b""


@pytest.mark.parametrize("account", ["", "-", "a b", "x" * 65])
async def test_without_an_account(scene: Scene, account: str) -> None:
    """A policy forwards what has no key: 401, as the gateway answers it."""
    for method, path in PATHS:
        answer = await scene.send(method, path, account=account)
        assert error_of(answer)[:2] == (401, "INVALID_API_KEY")
        assert answer["WWW-Authenticate"] == "Bearer"
    twice = await scene.send("GET", WATCHES, more=[("X-Gateway-Account", "other")])
    assert twice.status == 401
    assert (await scene.send("GET", WATCHES, X_Gateway_Key_Id=None)).status == 401


async def test_another_accounts(scene: Scene) -> None:
    """It is answered as what does not exist, byte for byte."""
    watch = await made_in(scene)
    for method, path in PATHS:
        if "int_1" not in path:
            continue
        body = body_for(path) if method in ("POST", "PATCH") else None
        its = path.replace("wat_1", watch["id"])
        theirs = await scene.send(method, its, body, account="other")
        absent = await scene.send(method, its.replace("int_1", "int_9"), body, account="other")
        assert error_of(theirs) == (404, "NOT_FOUND", "there is no integration with this id")
        assert theirs.body == absent.body
    theirs = await scene.send(
        "POST", "/api/webhooks/test", {"watch_id": watch["id"]}, account="other"
    )
    absent = await scene.send("POST", "/api/webhooks/test", {"watch_id": "wat_9"}, account="other")
    assert error_of(theirs) == (404, "NOT_FOUND", "there is no watch with this id")
    assert theirs.body == absent.body
    assert (await scene.send("GET", f"{WATCHES}/{watch['id']}")).status == 200


@pytest.mark.parametrize(
    "name",
    [
        "%2F",
        "int_1%2Fwatches",
        "%00",
        "..%2Fint_1",
        "int_1%0d%0aX",
        "%ff",
        "é",
        "a" * 6_000,
        "int:1",
    ],
)
async def test_odd_ids(scene: Scene, name: str) -> None:
    """Nothing can have them."""
    quoted = name.replace("é", "%C3%A9")
    answer = await scene.send("GET", f"/api/v1/integrations/{quoted}/watches")
    assert error_of(answer)[:2] == (404, "NOT_FOUND")
    answer = await scene.send("GET", f"{WATCHES}/{quoted}")
    assert error_of(answer) == (404, "NOT_FOUND", "there is no watch with this id")
    answer = await scene.send("POST", "/api/webhooks/test", {"watch_id": name})
    assert error_of(answer) == (404, "NOT_FOUND", "there is no watch with this id")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", WATCHES, "GET, HEAD, POST"),
        ("OPTIONS", f"{WATCHES}/wat_1", "DELETE, GET, HEAD, PATCH"),
        ("GET", f"{WATCHES}/wat_1/pause", "POST"),
        ("GET", "/api/webhooks/test", "POST"),
        ("GET", f"/hooks/{CAPTURE}", "POST"),
        ("TRACE", "/api/v1/integrations", "GET, HEAD"),
    ],
)
async def test_methods(scene: Scene, method: str, path: str, allowed: str) -> None:
    answer = await scene.send(method, path)
    assert error_of(answer)[:2] == (405, "METHOD_NOT_ALLOWED")
    assert answer["Allow"] == allowed


async def test_head_and_other_paths(scene: Scene) -> None:
    answer = await scene.send("HEAD", WATCHES)
    assert (answer.status, answer.body) == (200, b"")
    assert error_of(await scene.send("GET", "/api/v1/other"))[:2] == (404, "NOT_FOUND")


async def test_too_many_watches(scene: Scene) -> None:
    for _ in range(MOST_WATCHES):
        await made_in(scene)
    assert error_of(await scene.send("POST", WATCHES, GIVEN))[:2] == (409, "CONFLICT")


async def test_changed_meanwhile(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of changes at once, each that is answered 200 is kept; others are told."""
    watch = await made_in(scene)
    path = f"{WATCHES}/{watch['id']}"
    urls = [f"https://hook.example/{number}" for number in range(8)]
    answers = await asyncio.gather(*(scene.send("PATCH", path, {"url": url}) for url in urls))
    lost = [answer for answer in answers if answer.status != 200]
    assert {error_of(answer)[:2] for answer in lost} <= {(412, "CHANGED_MEANWHILE")}
    assert len(lost) < len(urls)
    assert (await scene.send("GET", path)).json()["url"] in urls


async def test_many_at_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some are served, and the others wait: deliveries need connections to the store too."""
    now, most = 0, 0
    release, full = asyncio.Event(), asyncio.Event()

    async def held(*_: object) -> list[object]:
        nonlocal now, most
        now += 1
        most = max(most, now)
        if now == AT_ONCE:
            full.set()
        await release.wait()
        now -= 1
        return []

    monkeypatch.setattr(scene.watches, "list", held)
    asked = [
        asyncio.create_task(scene.send("GET", WATCHES, account=f"acme{number // OF_ACCOUNT}"))
        for number in range(2 * AT_ONCE)
    ]
    await full.wait()
    release.set()
    assert {answer.status for answer in await asyncio.gather(*asked)} == {200}
    assert most == AT_ONCE


async def test_many_of_one_account(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of all is served at once, some wait, the rest is refused; others are served."""
    now, most = Counter[str](), Counter[str]()
    release = asyncio.Event()

    async def held(account: str, _integration: str) -> list[object]:
        now[account] += 1
        most[account] = max(most[account], now[account])
        if account == "acme":
            await release.wait()
        now[account] -= 1
        return []

    monkeypatch.setattr(scene.watches, "list", held)
    asked = [asyncio.create_task(scene.send("GET", WATCHES)) for _ in range(MOST_OF_ACCOUNT + 5)]
    refused = [await each for each in islice(asyncio.as_completed(asked), 5)]
    assert {error_of(answer)[:2] for answer in refused} == {(429, "TOO_MANY_CALLS")}
    assert {answer["Retry-After"] for answer in refused} == {"1"}
    assert now == {"acme": OF_ACCOUNT}
    assert (await scene.send("GET", WATCHES, account="other")).status == 200
    release.set()
    answers = await asyncio.gather(*asked)
    assert Counter(answer.status for answer in answers) == {200: MOST_OF_ACCOUNT, 429: 5}
    assert most == {"acme": OF_ACCOUNT, "other": 1}
    assert (await scene.send("GET", WATCHES)).status == 200


async def test_captures(scene: Scene) -> None:
    """They need no account, and are as large as events may be."""
    payload = {"action": "opened", "pull_request": {"title": "x" * 100_000}, "repository": {}}
    body = json.dumps(payload).encode()
    mac = hmac.digest(b"s" * 20, body, "sha256").hex()
    answer = await scene.send(
        "POST",
        f"/hooks/{CAPTURE}",
        body,
        account="",
        X_Hub_Signature_256=f"sha256={mac}",
        X_GitHub_Event="pull_request",
    )
    assert (answer.status, answer.json()["result"]) == (202, "captured")
    assert answer.json()["request_id"] == "worker-1"
    assert error_of(await scene.send("POST", "/hooks/x", b"{}"))[:2] == (404, "NOT_FOUND")


async def test_records_that_cannot_be_read(scene: Scene) -> None:
    """500, without what is in them."""
    watch = await made_in(scene)
    await scene.client.hset("gw:{keys}:hooks:integrations", "int_1", "a secret")
    answer = await scene.send("GET", f"{WATCHES}/{watch['id']}")
    assert error_of(answer)[:2] == (500, "CORRUPT_RECORD")
    assert b"a secret" not in answer.body
    assert (await scene.send("GET", "/api/v1/integrations")).json()["items"] == []


async def test_without_the_store() -> None:
    """503, to be tried again, on every path; and the application recovers."""
    server = RedisServer().start()
    client = redis_client(parse_url(server.url))
    try:
        async with Scene(client) as scene:
            await scene.add_integrations()
            watch = await made_in(scene)
            server.kill()
            for method, path in PATHS:
                body = {"watch_id": watch["id"]} if path.endswith("test") else body_for(path)
                answer = await scene.send(method, path, body)
                assert error_of(answer)[:2] == (503, "SERVICE_UNAVAILABLE")
                assert answer["Retry-After"] == "1"
            server.revive()
            assert (await scene.send("GET", "/api/v1/integrations")).status == 200
    finally:
        await client.aclose()
        server.stop()


async def test_an_error_of_the_program(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """500; the log has its cause, and the route without what was in its path."""

    async def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(scene.watches, "list", fail)
    answer = await scene.send("GET", WATCHES)
    assert error_of(answer)[:2] == (500, "INTERNAL_ERROR")
    (line,) = [record for record in caplog.records if record.exc_info]
    assert line.getMessage() == (
        "GET /api/v1/integrations/{integration}/watches failed (request worker-1)"
    )
