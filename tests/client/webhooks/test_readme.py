"""The examples of receivers in the README run as they stand, with these variables."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gateway_client.webhooks import sign, wsgi

from tests.client.webhooks.samples import BODY, SECRET, body_of
from tests.client.webhooks.test_asgi import Exchange, in_pieces
from tests.client.webhooks.test_wsgi import Answered, environ_of
from tests.docs.pages import ROOT, Page
from tests.kit.redis_server import RedisServer, server_binaries, server_name

#: The part of its own is there until it is merged.
FILE = next(
    path
    for name in ("README-webhooks.part.md", "README.md")
    if (path := Path(ROOT, "client", name)).exists()
)
README = Page(FILE.name, FILE.read_text("utf-8"))


def example(words: str) -> str:
    """The example that has these words."""
    (found,) = [one.text for one in README.examples("python") if words in one.text]
    return found


def test_verifying(capsys: pytest.CaptureFixture[str]) -> None:
    """Says what the event is, or why there is none; the test of a watch is left out."""
    names = {"body": BODY, "headers": sign(BODY, SECRET, event_id="evt_1"), "secret": SECRET}
    code = example("verify(body, headers, secret)")
    exec(code, dict(names))
    exec(code, {**names, "secret": "another"})
    test = body_of(data={"test": True, "message": "This is a test."})
    headers = sign(test, SECRET, event_id="evt_1")
    exec(code, {**names, "body": test, "headers": headers})
    assert capsys.readouterr().out.splitlines() == [
        "evt_7d1f2c3b4a596877665544330b1c2d3e lab/tides merged",
        "answer 401: the signature does not fit the body and the secret",
    ]


def test_signing() -> None:
    """Makes headers by which the first example verifies."""
    names: dict[str, Any] = {"body": BODY, "secret": SECRET}
    exec(example("sign(body, secret"), names)
    exec(example("verify(body, headers, secret)"), names)
    assert names["event"].type == "pull_request.merged"


def test_an_asgi_application(capsys: pytest.CaptureFixture[str]) -> None:
    """Handles what is signed now."""
    names: dict[str, Any] = {"secret": SECRET}
    exec(example("webhooks.asgi import Receiver"), names)
    exchange = Exchange(in_pieces(BODY, 100), sign(BODY, SECRET, event_id="evt_1"))
    assert asyncio.run(exchange.through(names["app"])) == 200
    assert capsys.readouterr().out == "evt_7d1f2c3b4a596877665544330b1c2d3e pull_request.merged\n"


def test_a_wsgi_application(capsys: pytest.CaptureFixture[str]) -> None:
    """Handles what is signed now."""
    names: dict[str, Any] = {"secret": SECRET}
    exec(example("webhooks.wsgi import Receiver"), names)
    environ = environ_of(BODY, sign(BODY, SECRET, event_id="evt_1"))
    assert Answered(names["app"], environ).status == 200
    assert capsys.readouterr().out == "evt_7d1f2c3b4a596877665544330b1c2d3e pull_request.merged\n"


@pytest.fixture(params=server_binaries(), ids=server_name, scope="module")
def any_redis(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """A Redis of each release that is there."""
    server = RedisServer(binary=request.param).start()
    yield server
    server.stop()


@pytest.mark.parametrize("decode_responses", [False, True])
def test_redis(any_redis: RedisServer, decode_responses: bool) -> None:
    """Once it is handled it is dropped; while another handles it, it is to come again."""
    handled: list[str] = []
    fails = [True]

    def handle(event: Any) -> None:
        handled.append(event.id)
        if fails:
            raise ValueError(fails.pop())

    with any_redis.client() as client:
        client.flushall()
        client.connection_pool.connection_kwargs["decode_responses"] = decode_responses
        names: dict[str, Any] = {"secret": SECRET, "handle": handle, "redis": client}
        exec(example("class RedisSeen"), {**names, "Receiver": wsgi.Receiver}, names)
        environ = [environ_of(BODY, sign(BODY, SECRET, event_id="evt_1")) for _ in range(4)]
        statuses = [Answered(names["app"], one).status for one in environ[:3]]
        key = "seen:evt_7d1f2c3b4a596877665544330b1c2d3e"
        assert (statuses, len(handled)) == ([500, 200, 200], 2)
        assert 604_000 < client.ttl(key) <= 604_800
        client.set(key, "busy", ex=60)
        assert Answered(names["app"], environ[3]).status == 503
