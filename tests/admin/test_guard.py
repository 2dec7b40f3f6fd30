"""Checks on every request and answer of the admin listener."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from gateway import errors
from gateway.admin import refusals as admin_refusals
from gateway.admin.access import PAUSE_S
from gateway.admin.guard import MOST_BODY_BYTES, is_allowed
from gateway.domain.ports import CorruptRecord, StoreDown, WrongType
from gateway.errors import Refusal
from gateway.manage import refusals
from tests.kit.admin import TOKEN, AdminScene
from tests.kit.eventually import eventually
from tests.kit.raw_client import RawClient
from tests.kit.wire import Response, Wire, fetch
from tests.proxy.test_answers import NEXT_STEP

NAMES = {"localhost", "gate.internal"}
OWN = [
    each
    for table in (admin_refusals, refusals)
    for each in vars(table).values()
    if isinstance(each, Refusal)
]


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[AdminScene]:
    async with AdminScene(tmp_path) as scene:
        yield scene


async def raw(scene: AdminScene, target: str, *headers: tuple[str, str], **more: str) -> Response:
    """A request that no library would write."""
    return await fetch(scene.server.port, target, headers=headers, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1", True),
        ("127.0.0.1:9901", True),
        ("10.1.2.3:80", True),
        ("[::1]", True),
        ("[::1]:9901", True),
        ("[fe80::1%25eth0]:9901", True),
        ("localhost", True),
        ("LocalHost:9901", True),
        ("localhost.:9901", True),
        ("gate.internal:443", True),
        ("", False),
        (":9901", False),
        ("evil.example", False),
        ("evil.example:9901", False),
        ("localhost.evil.example", False),
        ("evil-localhost", False),
        ("127.0.0.1.evil.example", False),
        ("127.0.0.1@evil.example", False),
        ("sub.gate.internal", False),
        ("localhost:99x", False),
        ("localhost:80:80", False),
        ("[::1", False),
        ("[::1]x", False),
        ("[localhost]", False),
        ("::1", False),
        ("0x7f000001", False),
        ("2130706433", False),
    ],
)
def test_allowed_hosts(host: str, allowed: bool) -> None:
    """An address, localhost, or a configured name: never the host of another site's page."""
    assert is_allowed(host, NAMES) is allowed


async def test_a_page_under_another_name_gets_nothing(scene: AdminScene) -> None:
    """DNS rebinding: the name resolves to the gateway, and even the token does not help."""
    for target in ("/admin/v1/keys", "/console", "/console/sign-in", "/"):
        answer = await raw(
            scene, target, ("Host", "evil.example"), ("Authorization", f"Bearer {TOKEN}")
        )
        assert (answer.status, answer.json()["code"]) == (421, "HOST_NOT_ALLOWED")


async def test_probes_are_answered_by_every_name(scene: AdminScene) -> None:
    """They use the machine's names, which are not configured, and return almost nothing."""
    for target in ("/healthz", "/readyz"):
        assert (await raw(scene, target, ("Host", "gateway-7f9c.default.svc"))).status == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("10.1.2.3:9901", 200),
        ("[2001:db8::1]:9901", 200),
        ("localhost", 200),
        ("gate.internal:9901", 200),
        ("gateway-admin.default.svc:9901", 421),
        ("evil.example", 421),
        ("", 421),
    ],
)
async def test_metrics_are_for_addresses_and_known_names(
    scene: AdminScene, host: str, status: int
) -> None:
    """Prometheus uses the pods' addresses; another site's page could read plans and routes."""
    assert (await raw(scene, "/metrics", ("Host", host))).status == status


async def test_a_scrape_without_a_host_is_no_browsers(scene: AdminScene) -> None:
    """HTTP/1.0 permits it, and every browser sends a Host; the console and the API require one."""
    for target, status in (("/metrics", 200), ("/healthz", 200), ("/console", 421)):
        async with await Wire.connect(scene.server.port) as wire:
            await wire.send(f"GET {target} HTTP/1.0\r\n\r\n".encode())
            assert (await wire.read_some()).startswith(f"HTTP/1.0 {status} ".encode())


async def test_a_name_of_the_operators_is_taken(scene: AdminScene) -> None:
    """In any case, with or without a port."""
    headers = ("Host", "GATE.internal:9901"), ("Authorization", f"Bearer {TOKEN}")
    assert (await raw(scene, "/admin/v1/keys", *headers)).status == 200


async def test_a_missing_token_is_401(scene: AdminScene) -> None:
    """Unknown paths get the same 401, so that it does not reveal which paths exist."""
    for path in ("/admin", "/admin/", "/admin/v1/keys", "/admin/v1/nothing", "/admin/v2/keys"):
        answer = await scene.ask("GET", path, token=None)
        assert (answer.status, answer.json["code"]) == (401, "ADMIN_TOKEN_REQUIRED")
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        assert (await scene.ask("GET", path, token="wrong")).json["code"] == "INVALID_ADMIN_TOKEN"


async def test_with_the_token_an_unknown_path_is_404(scene: AdminScene) -> None:
    """404 in JSON, or 405 with the allowed methods."""
    assert (await scene.ask("GET", "/nothing")).json["code"] == "NOT_FOUND"
    for method in ("DELETE", "OPTIONS", "TRACE"):
        answer = await scene.ask(method, "/keys")
        assert (answer.status, answer.json["code"]) == (405, "METHOD_NOT_ALLOWED")
        assert set(answer.headers["Allow"].split(", ")) == {"GET", "HEAD", "POST"}
        assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "POST", "PATCH", "DELETE", "PURGE"])
async def test_no_method_goes_without_a_token(scene: AdminScene, method: str) -> None:
    """Not even a preflight: no other site's page may use the API."""
    assert (await scene.ask(method, "/keys", token=None)).status == 401


@pytest.mark.parametrize(
    "target",
    [
        "/%61dmin/v1/keys",
        "/admin%2Fv1%2Fkeys",
        "//admin/v1/keys",
        "/./admin/v1/keys",
        "/console/../admin/v1/keys",
        "/metrics/../admin/v1/keys",
        "/metrics/..%2fadmin/v1/keys",
        "/admin/v1/keys;x",
        "/ADMIN/v1/keys",
        "/admin/v1/keys#x",
        "http://127.0.0.1/admin/v1/keys",
        "http://127.0.0.1/metrics/../admin/v1/keys",
    ],
)
async def test_no_spelling_of_a_path_escapes_the_token(scene: AdminScene, target: str) -> None:
    """Whatever the request line, keys are listed only with the token."""
    answer = await raw(scene, target, ("Host", "127.0.0.1"))
    assert answer.status in {303, 400, 401, 404}
    assert b"items" not in answer.body


@pytest.mark.parametrize(
    "header",
    [
        ("Authorization", "Bearer"),
        ("Authorization", "Bearer  "),
        ("Authorization", f"Basic {TOKEN}"),
        ("Authorization", TOKEN),
        ("apiKey", TOKEN),
        ("X-Admin-Token", TOKEN),
        ("Cookie", f"gateway_session={TOKEN}"),
        ("Cookie", f"token={TOKEN}"),
        ("Proxy-Authorization", f"Bearer {TOKEN}"),
    ],
)
async def test_the_token_is_read_from_one_header_only(
    scene: AdminScene, header: tuple[str, str]
) -> None:
    """Headers that browsers send by themselves, or that servers log, are not accepted."""
    answer = await raw(scene, "/admin/v1/keys", ("Host", "127.0.0.1"), header)
    assert (answer.status, answer.json()["code"]) == (401, "ADMIN_TOKEN_REQUIRED")


@pytest.mark.parametrize("name", ["token", "access_token", "apiKey", "admin_token"])
async def test_a_token_in_a_url_is_not_taken(scene: AdminScene, name: str) -> None:
    """URLs end up in logs and histories."""
    answer = await scene.ask("GET", f"/keys?{name}={TOKEN}", token=None)
    assert answer.status == 401
    # With the right header it is an unknown parameter, whose value is not repeated.
    answer = await scene.ask("GET", f"/keys?{name}={TOKEN}")
    assert answer.status == 422
    assert TOKEN not in str(answer.json)


async def test_a_session_does_not_open_the_api(scene: AdminScene) -> None:
    """Another site's page could make a browser send the cookie."""
    session = scene.sessions.open("anna", scene.now_s)
    sealed = scene.sessions.seal(session, "http ")
    cookie = {"Cookie": f"gateway_session={sealed}", "User-Agent": "", "X-CSRF-Token": session.csrf}
    assert (await scene.ask("GET", "/console", token=None, headers=cookie)).status == 200
    assert (await scene.ask("GET", "/keys", token=None, headers=cookie)).status == 401
    assert (await scene.ask("GET", "/keys", token=sealed)).status == 401


async def test_an_api_key_is_no_admin_token(scene: AdminScene) -> None:
    """In whatever header it is sent."""
    key = (await scene.make_key(plan="enterprise"))["key"]
    assert (await scene.ask("GET", "/keys", token=key)).json["code"] == "INVALID_ADMIN_TOKEN"
    for headers in ({"apiKey": key}, {"Cookie": f"gateway_session={key}"}):
        assert (await scene.ask("GET", "/keys", token=None, headers=headers)).status == 401
        assert (await scene.ask("GET", "/console/keys", token=None, headers=headers)).status == 303


async def test_guesses_must_wait(scene: AdminScene) -> None:
    """429 with the time to wait; never for the right token, though from the same address."""
    for _ in range(10):
        assert (await scene.ask("GET", "/keys", token="wrong-wrong-wrong")).status == 401
    answer = await scene.ask("GET", "/keys", token="wrong-wrong-wrong")
    assert (answer.status, answer.json["code"]) == (429, "TOO_MANY_ATTEMPTS")
    assert 1 <= int(answer.headers["Retry-After"]) <= 60
    assert (await scene.ask("GET", "/keys")).status == 200
    scene.now_s += int(answer.headers["Retry-After"])
    assert (await scene.ask("GET", "/keys", token="wrong-wrong-wrong")).status == 401


async def test_each_guess_costs_a_connection(scene: AdminScene) -> None:
    """A wrong token closes its connection; a missing or a right one does not."""
    for token, closes in ((TOKEN, False), (None, False), ("wrong-wrong-wrong", True)):
        async with await Wire.connect(scene.server.port) as wire:
            fields = [
                ("Host", "127.0.0.1"),
                *([("Authorization", f"Bearer {token}")] * bool(token)),
            ]
            answer = await wire.request("GET", "/admin/v1/keys", fields)
            assert answer.closes is closes
            if closes:
                await wire.read_end()


def at(
    suppressed: Callable[[str, float], int | None],
    moments: Iterator[float],
    kind: str,
    _now_s: float,
) -> int | None:
    """Whether a line is logged at each of these times."""
    return suppressed(kind, next(moments))


async def test_guessing_is_in_the_log(scene: AdminScene, caplog: pytest.LogCaptureFixture) -> None:
    """A line a minute, with the address and the number of guesses; never the guesses."""
    moments = iter([0.0, 1.0, 2.0, 3.0, 59.9, 60.0])
    scene.access.throttle.suppressed = partial(at, scene.access.throttle.suppressed, moments)  # type: ignore[method-assign]
    for _ in range(6):
        await scene.ask("GET", "/keys", token="guessed-guessed-guessed")
    lines = [line for line in caplog.messages if "wrong token" in line]
    assert lines == [
        "admin: wrong token from 127.0.0.1",
        "admin: wrong token from 127.0.0.1 (and 4 more since the last such line)",
    ]
    assert "guessed" not in caplog.text


async def test_no_token_is_no_attempt(scene: AdminScene) -> None:
    """A browser or a monitor without a token does not block other clients."""
    for _ in range(30):
        await scene.ask("GET", "/keys", token=None)
    assert (await scene.ask("GET", "/keys")).status == 200


async def test_a_body_has_an_end(scene: AdminScene) -> None:
    """With a length or in chunks: beyond 64 KiB it is refused."""
    large = b'{"name": "' + b"x" * MOST_BODY_BYTES + b'"}'
    json_headers = {"Content-Type": "application/json"}
    answer = await scene.ask("POST", "/keys", data=large, headers=json_headers)
    assert (answer.status, answer.json["code"]) == (413, "BODY_TOO_LARGE")
    chunks = [b"%x\r\n%b\r\n" % (len(part), part) for part in (large[:40_000], large[40_000:])]
    async with await Wire.connect(scene.server.port) as wire:
        await wire.send(
            b"POST /admin/v1/keys HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "
            + TOKEN.encode()
            + b"\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"".join(chunks)
            + b"0\r\n\r\n"
        )
        assert (await wire.read_response()).status == 413


async def test_every_answer_is_hardened(scene: AdminScene) -> None:
    """Refusals, redirects and scrapes included; and it does not name the server's software."""
    answers = [
        await scene.ask("GET", path, token=token)
        for path in ("/keys", "/nothing", "/metrics", "/console", "/console/sign-in")
        for token in (TOKEN, None)
    ]
    for answer in answers:
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Server"] == "gateway"


PROXIED_ID = "mine-1.2_3"

#: Ways to get an answer: method, path, token, body, further headers.
ANSWERS: dict[str, tuple[str, str, str | None, object, dict[str, str]]] = {
    "200": ("GET", "/keys", TOKEN, None, {}),
    "200 of a probe": ("GET", "/metrics", None, None, {}),
    "303": ("GET", "/console", None, None, {}),
    "401, no token": ("GET", "/keys", None, None, {}),
    "401, wrong token": ("GET", "/keys", "wrong", None, {}),
    "404": ("GET", "/nothing", TOKEN, None, {}),
    "404, no such key": ("GET", f"/keys/{'7' * 12}", TOKEN, None, {}),
    "405": ("DELETE", "/keys", TOKEN, None, {}),
    "413": ("POST", "/keys", TOKEN, {"name": "x" * MOST_BODY_BYTES}, {}),
    "415": ("POST", "/keys", TOKEN, {"name": "x"}, {"Content-Type": "text/plain"}),
    "417": ("GET", "/keys", TOKEN, None, {"Expect": "nothing"}),
    "421": ("GET", "/keys", TOKEN, None, {"Host": "elsewhere.example"}),
    "422": ("POST", "/keys", TOKEN, {"name": ""}, {}),
    "428": ("PATCH", f"/keys/{'7' * 12}", TOKEN, {"name": "x"}, {}),
}


@pytest.mark.parametrize("case", ANSWERS)
@pytest.mark.parametrize("error_docs", [None, "https://docs.example.com/errors"])
async def test_answers_name_their_request(
    scene: AdminScene, case: str, error_docs: str | None
) -> None:
    """X-Request-Id is the client's own id or a new one; an error body repeats it, and links to
    the documentation of its code.
    """
    policy = replace(scene.policy, error_docs=error_docs)
    scene.loaded = replace(scene.loaded, policy=policy)
    method, path, token, body, headers = ANSWERS[case]
    ids = set()
    for own in (None, None, PROXIED_ID, "no <id>"):
        sent = headers if own is None else {**headers, "X-Request-Id": own}
        answer = await scene.ask(method, path, body, token=token, headers=sent)
        assert str(answer.status) == case[:3]
        ids.add(request_id := answer.headers["X-Request-Id"])
        if answer.status >= 400:
            assert answer.json["request_id"] == request_id
            anchored = error_docs and f"{error_docs}#{answer.json['code'].lower()}"
            assert answer.json.get("doc") == anchored
    assert len(ids) == 4
    assert PROXIED_ID in ids
    assert not any("<" in each for each in ids)


async def test_an_outage_is_503(scene: AdminScene) -> None:
    """503 during the outage; then requests succeed again."""
    scene.keys.failure = StoreDown("the store is unavailable: nobody is there")
    answer = await scene.ask("GET", "/keys")
    assert (answer.status, answer.json["code"]) == (503, "SERVICE_UNAVAILABLE")
    scene.keys.failure = None
    assert (await scene.ask("GET", "/keys")).status == 200


async def test_a_record_that_cannot_be_read_is_named(scene: AdminScene) -> None:
    """500, as it is no client error; the answer names the record."""
    scene.keys.failure = CorruptRecord("key", "7h3k9m2p4q6r")
    answer = await scene.ask("GET", "/keys/7h3k9m2p4q6r")
    assert (answer.status, answer.json["code"]) == (500, "CORRUPT_RECORD")
    assert "key 7h3k9m2p4q6r" in answer.json["message"]


async def test_an_index_of_another_type_is_named(scene: AdminScene) -> None:
    """The answer has the index's name and type, and the remedy; trying again does not help."""
    scene.keys.failure = WrongType("gw:{keys}:index", "string", "zset")
    answer = await scene.ask("GET", "/keys")
    assert (answer.status, answer.json["code"]) == (500, "CORRUPT_RECORD")
    assert "type string under gw:{keys}:index, expected zset" in answer.json["message"]
    assert "RENAME gw:{keys}:index" in answer.json["message"]


async def test_keys_inside_a_worker_are_out_of_reach(tmp_path: Path) -> None:
    """memory:// with several processes: the refusal says what to use instead."""
    async with AdminScene(tmp_path, managed=False) as scene:
        answer = await scene.ask("GET", "/keys")
        assert (answer.status, answer.json["code"]) == (503, "STORE_NOT_SHARED")
        assert "--store" in answer.json["message"]
        assert (await scene.ask("GET", "/nothing")).status == 404
        assert (await scene.ask("GET", "/keys", token=None)).status == 401


async def test_an_internal_error_reveals_nothing(
    scene: AdminScene, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has the cause, without the query and the headers."""
    scene.audit.entries = None  # type: ignore[method-assign, assignment]
    answer = await scene.ask("GET", "/audit?actor=somebody")
    assert (answer.status, answer.json["code"]) == (500, errors.INTERNAL.code)
    request_id = answer.headers["X-Request-Id"]
    assert f"failed at GET /admin/v1/audit (request {request_id})" in caplog.text
    assert "somebody" not in caplog.text


async def test_no_secret_reaches_a_log(scene: AdminScene, caplog: pytest.LogCaptureFixture) -> None:
    """Neither the token, nor a new key, nor a guess."""
    caplog.set_level(logging.DEBUG)
    key = (await scene.make_key())["key"]
    await scene.ask("GET", "/keys", token="guessed-guessed-guessed")
    await scene.ask("GET", f"/keys/{key}")
    await asyncio.sleep(0)
    for secret in (TOKEN, key, "guessed-guessed-guessed"):
        assert secret not in caplog.text


def test_refusals_are_worded_as_all_others() -> None:
    """Each has a unique code, a reason, and a message that ends with a full stop."""
    assert len({each.reason for each in OWN}) == len(OWN)
    assert len({(each.status, each.code) for each in OWN}) == len(OWN)
    for each in OWN:
        assert each.message == "" or each.message.endswith(".")
        assert each.error == each.error.lower()
        assert each.code == each.code.upper()


async def test_a_weak_token_is_guessed_at_slowly(scene: AdminScene) -> None:
    """One at a time, with a delay after each wrong one; the right one is not delayed."""
    scene.access.one_at_a_time = turns = asyncio.Lock()
    loop = asyncio.get_running_loop()
    rests: list[float] = []
    call_later = loop.call_later

    def note(delay_s: float, callback: Callable[..., object], *arguments: object) -> object:
        if callback == turns.release:
            rests.append(delay_s)
            delay_s = 0.0
        return call_later(delay_s, callback, *arguments)

    loop.call_later = note  # type: ignore[method-assign, assignment]
    tokens = ["wrong-wrong-wrong", TOKEN] * 3
    answers = await asyncio.gather(*(scene.ask("GET", "/keys", token=token) for token in tokens))
    assert [answer.status for answer in answers] == [401, 200] * 3
    assert sorted(rests) == [0.0] * 3 + [PAUSE_S] * 3


async def test_waiting_guesses_make_room(scene: AdminScene) -> None:
    """Waiting guesses delay no probe, and a closed connection leaves the queue."""
    scene.access.one_at_a_time = turns = asyncio.Lock()
    scene.server.connections.most = 4
    request = (
        b"GET /admin/v1/keys HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer wrong\r\n\r\n"
    )
    async with turns:
        clients = []
        for _ in range(8):
            clients.append(client := await RawClient.connect(scene.server.port))
            await client.send(request)
        assert (await raw(scene, "/healthz", ("Host", "a"))).status == 200
    assert (await scene.ask("GET", "/keys")).status == 200
    for client in clients:
        client.close()


class CountedLock(asyncio.Lock):
    """asked: how often it was acquired, or is awaited; released: how often it was released"""

    asked = released = 0

    async def acquire(self) -> Literal[True]:
        self.asked += 1
        return await super().acquire()

    def release(self) -> None:
        self.released += 1
        super().release()


async def test_a_guess_of_a_client_that_left(
    scene: AdminScene, caplog: pytest.LogCaptureFixture
) -> None:
    """Its token is not checked, and the others need not wait for it.

    A change goes on without its client: its request is not cancelled while it waits.
    """
    scene.access.one_at_a_time = turns = CountedLock()
    async with turns:
        client = await RawClient.connect(scene.server.port)
        await client.send(
            b"POST /admin/v1/keys HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n"
            b"Authorization: Bearer wrong\r\n\r\n"
        )
        await eventually(lambda: turns.asked == 2, "the guess waits for its turn")
        client.close()
        await eventually(lambda: len(scene.server.connections) == 0, "its connection is closed")
    await eventually(lambda: turns.released == 2, "its turn is over")
    assert "wrong token" not in caplog.text
    assert (await scene.ask("GET", "/keys")).status == 200


@pytest.mark.parametrize(
    "refusal",
    [one for one in OWN if one.message],
    ids=lambda refusal: refusal.reason,
)
def test_every_message_says_what_to_do_next(refusal: Refusal) -> None:
    """The message of a problem is the problem's own text."""
    assert NEXT_STEP.search(f". {refusal.message}"), refusal.message
