"""Both kinds of event loop: asyncio's own, which tests run on, and uvloop, as a gateway has."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable

import pytest
import uvloop

FACTORIES = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def on_each_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an asynchronous test once on each of them, as two tests; its fixtures are synchronous."""

    @functools.wraps(test)
    def run(*, kind_of_loop: str, **arguments: object) -> None:
        with asyncio.Runner(loop_factory=FACTORIES[kind_of_loop]) as runner:
            runner.run(entered(arguments))

    async def entered(arguments: dict[str, object]) -> None:
        await test(**arguments)

    own = inspect.signature(test)
    kind = inspect.Parameter("kind_of_loop", inspect.Parameter.KEYWORD_ONLY)
    run.__signature__ = own.replace(parameters=[*own.parameters.values(), kind])  # type: ignore[attr-defined]
    return pytest.mark.parametrize("kind_of_loop", FACTORIES)(run)
