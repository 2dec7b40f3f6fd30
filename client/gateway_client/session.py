"""What a client remembers and decides: the limits, their warnings, the pace, the retries.

Both clients are thin around it. It does no I/O but the log.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import httpx

from gateway_client import calls
from gateway_client.errors import RateLimited
from gateway_client.limits import Limits, LowLimits, read_limits
from gateway_client.pacing import Pacer, Pause, Ticket, kind_of
from gateway_client.retries import Answer, Done, Lost, Wait, decide, retry_after_s
from gateway_client.settings import Settings, configure_logging

#: What came for a request. A RequestError: no answer.
Came = httpx.Response | httpx.RequestError


class Session:
    """`ask` and `ended` are called with a lock held, the others without.

    limits: of the last answer that had them
    """

    def __init__(
        self, settings: Settings, *, pace: bool, on_low: Callable[[Limits], object] | None
    ) -> None:
        self.limits: Limits | None = None
        self._settings = settings
        self._pacer = Pacer() if pace else None
        self._low = LowLimits()
        self._on_low = on_low
        self._log = configure_logging(settings)
        if settings.log_auth:
            self._log.debug("authenticates with %s", _name_of_key(settings))

    def ask(self, request: httpx.Request, now_s: float) -> Ticket | Pause | None:
        """May it be sent now? None: yes, and there is no pace.

        Raises RateLimited if the wait would be longer than the client's patience.
        """
        if self._pacer is None:
            return None
        found = self._pacer.ask(kind_of(request.method, calls.path_of(request)), now_s)
        patience_s = self._settings.rules.patience_s
        if isinstance(found, Pause) and found.seconds is not None and found.seconds > patience_s:
            raise RateLimited(
                f"not sent: the limit is used up for {found.seconds:.0f} s, "
                f"and patience_s is {patience_s:g}",
                status=0,
                retry_after=found.seconds,
                limit=self.limits.limit if self.limits else None,
            )
        return found

    def ended(self, ticket: Ticket | None, came: Came | None, now_s: float) -> Limits | None:
        """A request has ended. came: None if it was cancelled. The limits, if a warning is due."""
        answer = came if isinstance(came, httpx.Response) else None
        limits = read_limits(answer.headers) if answer is not None else None
        self.limits = limits or self.limits
        if answer is None or _costs_too_much(answer, limits):
            if self._pacer is not None and ticket is not None:
                self._pacer.lost(ticket, now_s)
            return None
        if self._pacer is not None and ticket is not None:
            wait_s = retry_after_s(answer.headers) if answer.status_code == 429 else None
            self._pacer.answered(ticket, limits, now_s, retry_after_s=wait_s)
        return limits if limits is not None and self._low.is_due(limits, now_s) else None

    def warn(self, limits: Limits) -> None:
        """Little remains of a limit."""
        self._log.warning(
            "%d of %d requests remain; all of them are available again in %d s",
            limits.remaining,
            limits.limit,
            limits.reset_after,
        )
        if self._on_low is not None:
            try:
                self._on_low(limits)
            except Exception:
                self._log.exception("on_low failed")

    def decide(self, request: httpx.Request, came: Came, attempt: int) -> Wait | Done:
        """What to do now. attempt: how often the request was sent again before"""
        answer: Answer | Lost
        if isinstance(came, httpx.Response):
            answer = Answer(came.status_code, came.headers)
            said = f"{came.status_code}, request {calls.request_id_of(came) or 'unknown'}"
        else:
            answer = calls.lost_of(came)
            said = type(came).__name__
        todo: Wait | Done
        if isinstance(came, httpx.LocalProtocolError):
            todo = Done("it is not valid HTTP, and would not be the next time")
        else:
            todo = decide(
                calls.sent_of(request),
                answer,
                attempt,
                self._settings.rules,
                random=random.random(),  # noqa: S311 - spreads waits, and is no secret
            )
        then = f"again in {todo.seconds:.1f} s" if isinstance(todo, Wait) else todo.why
        words = f"{said}; {then}" if then else said
        self._log.debug("%s %s: %s", request.method, calls.path_of(request), words)
        return todo


def _costs_too_much(answer: httpx.Response, limits: Limits | None) -> bool:
    """Was it refused for ever? Then it says that 0 remain, whatever remains for other requests."""
    return (
        answer.status_code == 429 and limits is not None and retry_after_s(answer.headers) is None
    )


def _name_of_key(settings: Settings) -> str:
    """Never the key itself."""
    if settings.key_id:
        return f"the key {settings.key_id} of the environment {settings.key_environment}"
    return f"a key of {len(settings.api_key)} characters"
