"""What receivers over ASGI and WSGI share: from the head and the body of a request to its answer.

In this order: what the headers alone refuse is refused before any of the body is read, as the
gateway does; the body is bounded, then verified, then parsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gateway_client.webhooks import answers
from gateway_client.webhooks.answers import Answer
from gateway_client.webhooks.events import Event, EventInvalid, read_event
from gateway_client.webhooks.handling import Handle, Steps, handled, log
from gateway_client.webhooks.seen import AsyncSeenStore, SeenStore
from gateway_client.webhooks.signatures import Claim, Form, SignatureInvalid
from gateway_client.webhooks.verification import Headers, Verification

#: As the gateway's own `max_event`.
MOST_BODY: Final = 1024 * 1024

_DIGITS = re.compile(r"[0-9]+").fullmatch


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Decides about requests. It reads nothing, and waits for nothing.

    most_body: bytes; clock: Unix seconds
    """

    verification: Verification
    handle: Handle
    seen: SeenStore | AsyncSeenStore | None
    most_body: int
    clock: Callable[[], float]

    @classmethod
    def of(
        cls,
        secrets: str | Sequence[str],
        handle: Handle,
        seen: SeenStore | AsyncSeenStore | None,
        tolerance: float,
        forms: Sequence[Form],
        brand: str,
        max_body: int,
        clock: Callable[[], float],
    ) -> Endpoint:
        """Of the arguments of a `Receiver`. Raises ValueError and TypeError."""
        if not callable(handle):
            raise TypeError(f"handle: found {type(handle).__name__}, expected a function")
        if max_body < 1:
            raise ValueError(f"max_body: found {max_body}, expected at least 1 byte")
        verification = Verification.of(secrets, tolerance, forms, brand)
        return cls(verification, handle, seen, max_body, clock)

    def opened(self, method: str, headers: Headers) -> Claim | Answer:
        """What a request claims by its head; an answer: no body could help."""
        if method != "POST":
            return answers.method_not_allowed(method)
        try:
            return self.verification.read(headers, self.clock())
        except SignatureInvalid as error:
            return _unverified(error)

    def bounded(self, length: str) -> int | Answer:
        """The length that a request gives; an answer: it is malformed, or too large."""
        if not _DIGITS(length):
            return answers.BAD_LENGTH
        digits = length.lstrip("0")
        if len(digits) > len(str(self.most_body)) or int(digits or "0") > self.most_body:
            return self.too_large
        return int(digits or "0")

    @property
    def too_large(self) -> Answer:
        return answers.too_large(self.most_body)

    def read(self, claim: Claim, body: bytes) -> Event | Answer:
        """The event of a whole body; an answer: it is not verified, or no event."""
        try:
            self.verification.check(claim, body)
            return read_event(body)
        except SignatureInvalid as error:
            return _unverified(error)
        except EventInvalid as error:
            log.warning("webhook not handled: it is verified, but no event: %s", error)
            return answers.no_event(str(error))

    def handled(self, event: Event) -> Steps:
        return handled(event, self.handle, self.seen)


def _unverified(error: SignatureInvalid) -> Answer:
    # Anyone can send such, as often as they like.
    log.debug("webhook not verified: %s", error)
    return answers.unauthorized(str(error))
