"""The ASGI application: what arrives in any pieces, who is served meanwhile, and the ends."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import pytest
from gateway_client.webhooks import Event
from gateway_client.webhooks.asgi import Receiver
from gateway_client.webhooks.seen import BUSY, DONE
from hypothesis import given
from hypothesis import strategies as st

from tests.client.webhooks.samples import BODY, NOW, SECRET, AsyncStore, Handler, Store, signed

ID = json.loads(BODY)["id"]
Message = dict[str, Any]
DISCONNECT: Message = {"type": "http.disconnect"}


def receiver(handle: Any = None, **more: Any) -> Receiver:
    return Receiver(SECRET, Handler() if handle is None else handle, clock=lambda: NOW, **more)


def in_pieces(body: bytes, size: int) -> list[Message]:
    """The messages of a body, of so many bytes each."""
    parts = [body[at : at + size] for at in range(0, len(body), size)] or [b""]
    return [
        {"type": "http.request", "body": part, "more_body": number < len(parts)}
        for number, part in enumerate(parts, 1)
    ]


class Exchange:
    """One request. messages: of its body; those that are left were not received"""

    def __init__(
        self,
        messages: list[Message] | None = None,
        headers: Any = None,
        method: str = "POST",
    ) -> None:
        pairs = [*(signed() if headers is None else headers).items()]
        self.scope = {
            "type": "http",
            "method": method,
            "path": "/any",
            "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs],
        }
        self.left = in_pieces(BODY, len(BODY)) if messages is None else messages
        self.sent: list[Message] = []

    async def receive(self) -> Message:
        await asyncio.sleep(0)
        assert self.left, "more was received than there is"
        return self.left.pop(0)

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    async def through(self, app: Receiver) -> int | None:
        """The status of the answer; None: there was none."""
        await app(self.scope, self.receive, self.send)
        if not self.sent:
            return None
        start, body = self.sent
        assert (start["type"], body["type"]) == ("http.response.start", "http.response.body")
        headers = dict(start["headers"])
        assert all(name == name.lower() for name in headers)
        assert headers[b"content-length"] == str(len(body["body"])).encode()
        status: int = start["status"]
        return status

    @property
    def answer(self) -> Any:
        return json.loads(self.sent[1]["body"])


@pytest.mark.parametrize("size", [1, 7, len(BODY)])
async def test_however_it_arrives(size: int) -> None:
    """Whole, in pieces, or byte by byte."""
    handle = Handler()
    exchange = Exchange(in_pieces(BODY, size))
    assert await exchange.through(receiver(handle)) == 200
    assert exchange.answer == {"result": "handled"}
    assert [event.body for event in handle.events] == [BODY]
    assert exchange.left == []


async def test_pieces_that_are_empty() -> None:
    """Messages without a body, or without what is left out by default."""
    empty: Message = {"type": "http.request", "more_body": True}
    last: Message = {"type": "http.request"}
    pieces = [{**one, "more_body": True} for one in in_pieces(BODY, 9)]
    assert await Exchange([empty, *pieces, empty, last]).through(receiver()) == 200


@pytest.mark.parametrize("size", [1, 10_000])
@pytest.mark.parametrize("change", [b" ", b"x" * 50])
async def test_a_body_that_was_changed(size: int, change: bytes) -> None:
    """401, however it arrives; nothing is handled."""
    handle = Handler()
    assert await Exchange(in_pieces(BODY + change, size)).through(receiver(handle)) == 401
    assert handle.events == []


OLD = {**signed(), "x-service-timestamp": "1"}


@pytest.mark.parametrize(
    ("headers", "method", "expected"),
    [
        ({}, "POST", 401),
        (OLD, "POST", 401),
        ({**signed(), "x-service-signature": "zz"}, "POST", 401),
        (signed(), "GET", 405),
        ({**signed(), "content-length": "1048577"}, "POST", 413),
        ({**signed(), "content-length": "-1"}, "POST", 400),
    ],
)
async def test_a_body_that_cannot_help(headers: Any, method: str, expected: int) -> None:
    """What the head refuses is answered without receiving anything."""
    exchange = Exchange([DISCONNECT], headers, method)
    assert await exchange.through(receiver()) == expected
    assert exchange.left == [DISCONNECT]


async def test_a_header_twice() -> None:
    """401, as two values would be judged by different ones."""
    exchange = Exchange()
    exchange.scope["headers"] += [(b"X-Service-Signature", b"v1=" + b"0" * 64)]  # type: ignore[operator]
    assert await exchange.through(receiver()) == 401
    assert "more than once" in exchange.answer["message"]


@pytest.mark.parametrize("length", [None, "5", "1000"])
@pytest.mark.parametrize("size", [1, 100])
async def test_a_body_without_end(length: str | None, size: int) -> None:
    """413 at the bound, whatever length was given; nothing more is received then."""
    piece: Message = {"type": "http.request", "body": b"x" * size, "more_body": True}
    headers = signed() if length is None else {**signed(), "content-length": length}
    exchange = Exchange([dict(piece) for _ in range(3000)], headers)
    assert await exchange.through(receiver(max_body=1000)) == 413
    assert 3000 - len(exchange.left) == 1000 // size + 1


@pytest.mark.parametrize("size", [1, 4096])
async def test_the_largest_body(size: int) -> None:
    """As many bytes as the bound are read."""
    for most, expected in ((len(BODY), 200), (len(BODY) - 1, 413)):
        exchange = Exchange(in_pieces(BODY, size))
        assert await exchange.through(receiver(max_body=most)) == expected


@pytest.mark.parametrize("before", [0, 1, 50])
async def test_a_client_that_leaves(before: int, caplog: pytest.LogCaptureFixture) -> None:
    """Ends quietly: no answer, no event, no line in the log."""
    handle = Handler()
    exchange = Exchange([*in_pieces(BODY, 1)[:before], DISCONNECT])
    assert await exchange.through(receiver(handle)) is None
    assert handle.events == []
    assert caplog.records == []


async def test_a_client_that_leaves_before_the_answer() -> None:
    """The event is handled; that the answer cannot be sent is no error."""
    handle = Handler()

    async def send(_message: Message) -> None:
        raise ConnectionResetError

    exchange = Exchange()
    await receiver(handle)(exchange.scope, exchange.receive, send)
    assert len(handle.events) == 1


class Awaited:
    """A handler that is an object."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    async def __call__(self, _event: Event) -> None:
        self.threads.append(threading.get_ident())


async def test_where_a_handler_runs() -> None:
    """One that blocks runs in a thread; one that is async where the application runs."""
    here = threading.get_ident()
    threads: list[int] = []

    def blocks(*_arguments: object) -> None:
        threads.append(threading.get_ident())

    async def waits(*_arguments: object) -> None:
        threads.append(threading.get_ident())

    def gives(event: Event) -> Awaitable[None]:
        return waits(event)

    awaited = Awaited()
    handlers: list[Any] = [waits, partial(waits, 1), awaited, gives]
    for handle in (blocks, partial(blocks, 1), *handlers):
        assert await Exchange().through(receiver(handle)) == 200
    assert [thread == here for thread in threads + awaited.threads] == [False] * 2 + [True] * 4


async def test_a_handler_that_blocks_holds_up_nobody() -> None:
    """Others are answered while it runs."""
    ends = threading.Event()

    def blocks(_event: Event) -> None:
        assert ends.wait(60)

    task = asyncio.ensure_future(Exchange().through(receiver(blocks)))
    assert await Exchange().through(receiver()) == 200
    assert not task.done()
    ends.set()
    assert await task == 200


@pytest.mark.parametrize("error", [ValueError("no room"), StopIteration("x"), StopAsyncIteration()])
@pytest.mark.parametrize("kind", ["blocks", "waits"])
async def test_a_handler_that_fails(
    error: Exception, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """500, and the log has the event's id, but no secret; sent again, it is handled."""
    store, handler = Store(), Handler(raises=[error])
    app = receiver(handler if kind == "blocks" else handler.awaited, seen=store)
    exchange = Exchange()
    assert await exchange.through(app) == 500
    assert exchange.answer["message"] == "The event could not be handled. Send it again."
    assert f"event {ID} not handled: the handler failed" in caplog.text
    assert SECRET not in caplog.text
    assert await Exchange().through(app) == 200
    assert len(handler.events) == 2


@pytest.mark.parametrize("wrapped", [lambda store: store, AsyncStore], ids=["blocks", "waits"])
async def test_an_event_that_was_seen(wrapped: Callable[[Store], Any]) -> None:
    """It is handled once, with stores of both kinds."""
    store, handle = Store(), Handler()
    app = receiver(handle, seen=wrapped(store))
    first, second = Exchange(), Exchange()
    assert (await first.through(app), first.answer["result"]) == (200, "handled")
    assert (await second.through(app), second.answer["result"]) == (200, "seen")
    assert len(handle.events) == 1
    assert store.kept == {ID: DONE}
    store.kept[ID] = BUSY
    third = Exchange()
    assert (await third.through(app), third.answer["code"]) == (503, "EVENT_IN_PROGRESS")
    assert dict(third.sent[0]["headers"])[b"retry-after"] == b"60"


async def test_a_store_that_fails() -> None:
    """503, also if its methods are awaited; nothing is handled."""
    for store in (Store(broken={"add"}), AsyncStore(Store(broken={"add"}))):
        handle = Handler()
        assert await Exchange().through(receiver(handle, seen=store)) == 503
        assert handle.events == []


async def test_the_same_event_twice_at_once() -> None:
    """One is handled, the other is asked to come again."""
    begun, ends = asyncio.Event(), asyncio.Event()

    async def handle(_event: Event) -> None:
        begun.set()
        await ends.wait()

    app = receiver(handle, seen=AsyncStore(Store()))
    first = asyncio.ensure_future(Exchange().through(app))
    await begun.wait()
    assert await Exchange().through(app) == 503
    ends.set()
    assert await first == 200
    assert await Exchange().through(app) == 200


async def test_a_server_that_ends() -> None:
    """The request is cancelled; the claim stays, and ends by itself."""
    begun, store = asyncio.Event(), Store()

    async def handle(_event: Event) -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(Exchange().through(receiver(handle, seen=AsyncStore(store))))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert store.kept == {ID: BUSY}


def scripted(*kinds: str) -> tuple[Callable[[], Awaitable[Message]], Iterator[str]]:
    left = iter(kinds)

    async def receive() -> Message:
        return {"type": next(left)}

    return receive, left


async def test_a_lifespan() -> None:
    """Start and end are confirmed."""
    sent: list[str] = []

    async def send(message: Message) -> None:
        sent.append(message["type"])

    receive, left = scripted("lifespan.startup", "lifespan.shutdown", "more")
    await receiver()({"type": "lifespan"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert list(left) == ["more"]


async def test_what_is_no_request() -> None:
    """A websocket is closed; a scope that is not known is an error, as ASGI asks for."""
    sent: list[str] = []

    async def send(message: Message) -> None:
        sent.append(message["type"])

    receive, _ = scripted("websocket.connect")
    await receiver()({"type": "websocket"}, receive, send)
    assert sent == ["websocket.close"]
    with pytest.raises(ValueError, match="found a scope of type 'mail', expected 'http'"):
        await receiver()({"type": "mail"}, receive, send)


LATIN = st.text(st.characters(max_codepoint=255), max_size=20)
LENGTHS = st.lists(st.one_of(LATIN, st.integers(0, 2000).map(str)), max_size=2)


@given(
    st.dictionaries(st.one_of(st.sampled_from([*signed()]), LATIN), LATIN),
    LENGTHS,
    st.lists(st.binary(max_size=20), max_size=5),
    st.booleans(),
)
def test_whatever_is_sent(
    headers: dict[str, str], lengths: list[str], parts: list[bytes], leaves: bool
) -> None:
    """An answer of the table, or none to a client that left; nothing is raised."""
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    messages.append(DISCONNECT if leaves else {"type": "http.request"})
    exchange = Exchange(messages, {**signed(b"".join(parts)), **headers})
    pairs: Any = exchange.scope["headers"]
    pairs += [(b"content-length", length.encode("latin-1")) for length in lengths]
    assert asyncio.run(exchange.through(receiver(max_body=50))) in {None, 400, 401, 413}
