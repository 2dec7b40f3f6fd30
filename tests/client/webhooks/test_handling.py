"""An event is handled once: its claim, the handler's failures, and those of the store."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from gateway_client.webhooks import MemorySeen, answers
from gateway_client.webhooks.events import read_event
from gateway_client.webhooks.handling import handled, is_async, run
from gateway_client.webhooks.seen import BUSY, CLAIM_S, DONE, KEEP_S

from tests.client.webhooks.samples import BODY, SECRET, Handler, Store

EVENT = read_event(BODY)
ID = EVENT.id


def test_without_a_store() -> None:
    """Each one is handled; a failure has it sent again."""
    handle = Handler(raises=[ValueError("no room")])
    assert run(handled(EVENT, handle, None)) is answers.FAILED
    assert run(handled(EVENT, handle, None)) is answers.HANDLED
    assert handle.events == [EVENT, EVENT]


def test_once() -> None:
    """It is claimed before it is handled, and kept for 7 days afterwards."""
    store, handle = Store(), Handler()
    assert run(handled(EVENT, handle, store)) is answers.HANDLED
    assert store.calls == [("add", ID, BUSY, CLAIM_S), ("put", ID, DONE, KEEP_S)]
    assert run(handled(EVENT, handle, store)) is answers.SEEN
    assert handle.events == [EVENT]
    assert KEEP_S == 7 * 24 * 3600


@pytest.mark.parametrize("error", [ValueError("no room"), StopIteration(), StopAsyncIteration()])
def test_a_handler_that_fails(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """The claim is released, so that the next attempt is handled; the log has the event's id."""
    store, handle = Store(), Handler(raises=[error])
    assert run(handled(EVENT, handle, store)) is answers.FAILED
    assert store.kept == {}
    (record,) = caplog.records
    assert (record.levelno, record.name) == (logging.ERROR, "gateway_client.webhooks")
    assert record.getMessage() == f"event {ID} not handled: the handler failed"
    assert record.exc_info is not None
    assert record.exc_info[1] is error
    assert run(handled(EVENT, handle, store)) is answers.HANDLED
    assert len(handle.events) == 2


def test_while_another_handles_it() -> None:
    """503: the other may fail yet, and only then the sender's next attempt would be needed."""
    store, handle = Store({ID: BUSY}), Handler()
    answer = run(handled(EVENT, handle, store))
    assert (answer.status, dict(answer.headers)["Retry-After"]) == (503, str(CLAIM_S))
    assert handle.events == []
    assert store.kept == {ID: BUSY}


def test_a_process_that_died() -> None:
    """Its claim ends by itself; then the event is handled."""
    time, handle = 0.0, Handler()
    seen = MemorySeen(clock=lambda: time)
    seen.add(ID, BUSY, CLAIM_S)
    assert run(handled(EVENT, handle, seen)) is answers.BUSY_NOW
    time += CLAIM_S
    assert run(handled(EVENT, handle, seen)) is answers.HANDLED
    time += KEEP_S - 1
    assert run(handled(EVENT, handle, seen)) is answers.SEEN
    time += 1
    assert run(handled(EVENT, handle, seen)) is answers.HANDLED


def test_an_end_is_no_failure() -> None:
    """What ends the process passes; the claim stays, as nobody knows how far the handler was."""
    store = Store()

    def handle(_event: object) -> None:
        raise SystemExit

    with pytest.raises(SystemExit):
        run(handled(EVENT, handle, store))
    assert store.kept == {ID: BUSY}


def test_a_store_that_cannot_claim(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is handled, as it may have been before; the sender keeps the event."""
    handle = Handler()
    answer = run(handled(EVENT, handle, Store(broken={"add"})))
    assert (answer.status, "Retry-After" in dict(answer.headers)) == (503, True)
    assert handle.events == []
    assert f"event {ID} not handled: the store of seen events failed" in caplog.text


@pytest.mark.parametrize(
    ("raises", "broken", "expected"),
    [([], "put", answers.HANDLED), ([ValueError()], "remove", answers.FAILED)],
)
def test_a_store_that_fails_afterwards(
    raises: list[Exception], broken: str, expected: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer is that of the handler: what was handled need not be sent again."""
    answer = run(handled(EVENT, Handler(raises=raises), Store(broken={broken})))
    assert answer is expected
    assert f"event {ID}: what became of it was not kept: the store failed" in caplog.text


@pytest.mark.parametrize(
    ("found", "expected"), [(b"busy", answers.BUSY_NOW), (b"done", answers.SEEN)]
)
def test_a_store_that_gives_bytes(found: bytes, expected: Any) -> None:
    """As clients of Redis do unless they decode."""
    store = Store()
    store.add = lambda *_: found  # type: ignore[method-assign,assignment,return-value]
    assert run(handled(EVENT, Handler(), store)) is expected


@pytest.mark.parametrize("found", [True, False, 0, 1, "", "OK", b"OK", b"\xff", []])
def test_a_store_that_is_wrong(found: Any, caplog: pytest.LogCaptureFixture) -> None:
    """One that says whether it was added, as `SET NX` does: no event is taken as seen by it."""
    store, handle = Store(), Handler()
    store.add = lambda *_: found  # type: ignore[method-assign]
    assert run(handled(EVENT, handle, store)) is answers.STORE_DOWN
    assert handle.events == []
    assert "expected None, 'busy' or 'done'" in caplog.text or "unhashable" in caplog.text


def test_what_is_awaited() -> None:
    """Functions, methods and objects."""

    class Awaited:
        async def __call__(self, _event: object) -> None: ...

    assert is_async(Handler().awaited)
    assert is_async(Awaited())
    assert not is_async(Handler())
    assert not is_async(Handler().__call__)
    assert not is_async(print)


def test_no_secret_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever fails."""
    caplog.set_level(logging.DEBUG)
    for broken in ({"add"}, {"put"}, {"remove"}):
        run(handled(EVENT, Handler(raises=[ValueError()]), Store(broken=broken)))
    assert SECRET not in caplog.text
