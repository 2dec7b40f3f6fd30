"""Handles an event once: claims it, has it handled, and keeps or releases the claim.

`handled` decides and calls nothing itself. It yields each call that is to be made, and is told its
result, or its exception: so the same code serves functions that block and functions that are
awaited. `run` makes the calls of one that blocks; `asgi` has its own.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from gateway_client.webhooks import answers
from gateway_client.webhooks.answers import Answer
from gateway_client.webhooks.events import Event
from gateway_client.webhooks.seen import BUSY, CLAIM_S, DONE, KEEP_S, AsyncSeenStore, SeenStore

log = logging.getLogger("gateway_client.webhooks")

#: What is done with an event. Its result is ignored; whatever it raises has the event sent again.
Handle = Callable[[Event], object]


@dataclass(frozen=True, slots=True)
class Call:
    """A call to be made."""

    function: Callable[..., object]
    arguments: tuple[object, ...]


Steps = Generator[Call, Any, Answer]


def handled(event: Event, handle: Handle, seen: SeenStore | AsyncSeenStore | None) -> Steps:
    """The answer for an event that is verified; what fails is logged with the event's id."""
    if seen is None:
        return (yield from _attempted(event, handle))
    try:
        found = _state_of((yield Call(seen.add, (event.id, BUSY, CLAIM_S))))
    except Exception:
        log.exception("event %s not handled: the store of seen events failed", event.id)
        return answers.STORE_DOWN
    if found is not None:
        return answers.SEEN if found == DONE else answers.BUSY_NOW
    answer = yield from _attempted(event, handle)
    try:
        if answer is answers.HANDLED:
            yield Call(seen.put, (event.id, DONE, KEEP_S))
        else:
            yield Call(seen.remove, (event.id,))
    except Exception:
        # The answer stays: the claim ends by itself, and a handled event need not be sent again.
        log.exception("event %s: what became of it was not kept: the store failed", event.id)
    return answer


def run(steps: Steps) -> Answer:
    """Make the calls, one after the other."""
    try:
        call = next(steps)
        while True:
            result, error = attempt(call)
            call = steps.send(result) if error is None else steps.throw(error)
    except StopIteration as end:
        answer: Answer = end.value
        return answer


def attempt(call: Call) -> tuple[object, Exception | None]:
    """The result of a call, and what it raised: a StopIteration cannot leave a thread's future."""
    try:
        return call.function(*call.arguments), None
    except Exception as error:
        return None, error


def is_async(function: Callable[..., object]) -> bool:
    """Is its result to be awaited? Also if it is an object with such a `__call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(type(function), "__call__", None)  # noqa: B004
    )


def _attempted(event: Event, handle: Handle) -> Steps:
    try:
        yield Call(handle, (event,))
    except Exception:
        log.exception("event %s not handled: the handler failed", event.id)
        return answers.FAILED
    return answers.HANDLED


def _state_of(found: Any) -> str | None:
    """BUSY, DONE; None: the event is claimed now. Raises TypeError for what nothing has kept."""
    if isinstance(found, bytes):
        found = found.decode("ascii", "replace")
    if found is not None and found not in {BUSY, DONE}:
        raise TypeError(f"found {found!r:.40}, expected None, {BUSY!r} or {DONE!r}")
    state: str | None = found
    return state
