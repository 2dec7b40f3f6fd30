"""Where our own code's time goes, step by step, measured without a profiler.

A profiler adds a cost to each call, which makes small functions look expensive. Here a dozen
functions, one or two per step of a request, are wrapped in a timer. The time of a step is its own,
without the steps within it; the cost of the timers is measured and subtracted.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Any, Final

from gateway.proxy import exchange, reply
from gateway.proxy.account import Accounting
from gateway.proxy.client_connection import ClientConnection
from gateway.proxy.exchange import Exchange
from gateway.proxy.gate import Gate
from gateway.proxy.intake import Intake
from gateway.proxy.server_pool import ServerPool
from gateway.proxy.upstream_connection import UpstreamConnection
from gateway.proxy.upstream_pool import UpstreamPools
from gateway.stores.limits.leases import LeaseKeeper
from tests.bench.cases import Round, get_together
from tests.bench.rig import TOGETHER, PromptLink, Turns, rig

#: The step of each function, in the order of a request: its owner and its name there. The limiter's
#: client is the check, the batch that the turn of the loop sends, and the callbacks of the reply.
STEPS: Final[tuple[tuple[str, Any, str], ...]] = (
    ("read the head", Intake, "read"),
    ("match, identify, scope", Gate, "judge"),
    ("limiter's client", LeaseKeeper, "decide"),
    ("limiter's client", Turns, "run"),
    ("limiter's client", PromptLink, "answer"),
    ("pick a connection", UpstreamPools, "serve"),
    ("pick a connection", ServerPool, "give_back"),
    ("head for the upstream", exchange, "request_head"),
    ("read the answer", UpstreamConnection, "buffer_updated"),
    ("head for the client", reply, "relayed"),
    ("account", Accounting, "decided"),
    ("account", Accounting, "ended"),
    ("client's connection", ClientConnection, "buffer_updated"),
    ("client's connection", ClientConnection, "exchange_over"),
    ("exchange, phase to phase", Exchange, "decided"),
    ("exchange, phase to phase", Exchange, "connected"),
    ("exchange, phase to phase", Exchange, "respond"),
    ("exchange, phase to phase", Exchange, "complete"),
)

WARM_ROUNDS: Final = 100
#: A run takes a few milliseconds, so that few are interrupted on a busy machine; the best counts.
ROUNDS: Final = 10
RUNS: Final = 200

_clock = time.perf_counter


class Stopwatch:
    """Adds up what functions take, each without the timed functions that it calls.

    own_s, calls: of each step; inner: the timed calls that it made
    """

    def __init__(self) -> None:
        self.own_s: dict[str, float] = {}
        self.calls: dict[str, int] = {}
        self.inner: dict[str, int] = {}
        #: Of the calls in progress: seconds in timed calls within, and their number.
        self._under_way: list[list[float]] = [[0.0, 0]]

    def clear(self) -> None:
        """Reset all times."""
        for step in self.own_s:
            self.own_s[step], self.calls[step], self.inner[step] = 0.0, 0, 0

    def timed(self, step: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its time added to the step."""
        own_s, calls, inner, under_way = self.own_s, self.calls, self.inner, self._under_way
        own_s.setdefault(step, 0.0)
        calls.setdefault(step, 0)
        inner.setdefault(step, 0)

        def wrapped(*arguments: Any) -> Any:
            within = [0.0, 0]
            under_way.append(within)
            begin = _clock()
            result = function(*arguments)
            spent = _clock() - begin
            under_way.pop()
            own_s[step] += spent - within[0]
            calls[step] += 1
            inner[step] += int(within[1])
            outer = under_way[-1]
            outer[0] += spent
            outer[1] += 1
            return result

        return wrapped

    def net_s(self, within_s: float, around_s: float) -> dict[str, float]:
        """Each step's time without that of the timers.

        within_s, around_s: what a timer adds to the function's own step, and to its caller's
        """
        return {
            step: max(0.0, own_s - self.calls[step] * within_s - self.inner[step] * around_s)
            for step, own_s in self.own_s.items()
        }


def timer_cost_s() -> tuple[float, float]:
    """What one timer adds to its function's own step, and to its caller's."""
    calls = 2_000
    watch = Stopwatch()
    timed, caller = watch.timed("inside", _nothing), watch.timed("caller", _call)
    within_s = around_s = 1.0
    for _ in range(RUNS):
        begin = _clock()
        for _ in range(calls):
            pass
        loop_s = (_clock() - begin) / calls
        begin = _clock()
        _call(_nothing, calls)
        call_s = (_clock() - begin) / calls - loop_s
        watch.clear()
        caller(timed, calls)
        # The call itself is not the timer's cost: it is made inside now, before by the caller.
        within_s = min(within_s, watch.own_s["inside"] / calls - call_s)
        around_s = min(around_s, watch.own_s["caller"] / calls - loop_s)
    return max(0.0, within_s), max(0.0, around_s)


def _nothing() -> None: ...


def _call(function: Callable[[], object], calls: int) -> None:
    for _ in range(calls):
        function()


@contextmanager
def _wrapped(watch: Stopwatch) -> Iterator[None]:
    before = [(owner, name, getattr(owner, name)) for _, owner, name in STEPS]
    for step, owner, name in STEPS:
        setattr(owner, name, watch.timed(step, getattr(owner, name)))
    try:
        yield
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


def split(runs: int = RUNS) -> tuple[float, dict[str, float]]:
    """The microseconds of an admitted GET in our own code, and of each of its steps.

    The steps are measured with timers and the whole without; they are scaled to add up to it.
    """
    with rig() as parts:
        whole_s = min(_runs_s(get_together(parts), runs))
    watch = Stopwatch()
    timers = timer_cost_s()
    best = dict.fromkeys((step for step, *_ in STEPS), inf)
    with _wrapped(watch), rig() as parts:
        for _ in _runs_s(get_together(parts), runs, before=watch.clear):
            net_s = watch.net_s(*timers)
            best = {step: min(least_s, net_s[step]) for step, least_s in best.items()}
    scale = whole_s / sum(best.values())
    request_us = 1e6 / ROUNDS / TOGETHER
    return whole_s * request_us, {step: s * scale * request_us for step, s in best.items()}


def _runs_s(once: Round, runs: int, before: Callable[[], object] = lambda: None) -> Iterator[float]:
    """Seconds of each of several runs."""
    for _ in range(WARM_ROUNDS):
        once()
    gc.collect()
    for _ in range(runs):
        before()
        begin = _clock()
        for _ in range(ROUNDS):
            once()
        yield _clock() - begin
