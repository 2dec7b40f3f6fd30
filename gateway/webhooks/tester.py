"""Test deliveries: one attempt at once to the address of a watch, outside its queue.

Neither the attempt nor its outcome is kept, and it does not count for the watch's health.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from gateway.domain.webhooks.deliveries import is_id
from gateway.domain.webhooks.event_types import is_type, takes
from gateway.domain.webhooks.events import trial
from gateway.domain.webhooks.schedule import is_success
from gateway.domain.webhooks.signatures import Names
from gateway.domain.webhooks.watches import Watch
from gateway.manage.problems import Fault, Invalid, NotThere
from gateway.manage.reading import Reader, found, read_fields
from gateway.manage.refusals import TOO_MANY_TESTS, Refused
from gateway.manage.watches import Watches
from gateway.webhooks.sender import Answer, Sender
from gateway.webhooks.signed import headers_of

#: The most tests in progress, in all and of one account. An endpoint may take all the time of an
#: attempt.
MOST_TESTS: Final = 16
MOST_OF_ACCOUNT: Final = 4
#: The type of a test for which no other can be made of the watch's patterns.
TEST_TYPE: Final = "webhook.test"


@dataclass(frozen=True, slots=True)
class Tested:
    """How a test ended.

    status: of the answer; None: there was none
    reason: why it counts as a failure; None: it does not
    """

    status: int | None
    ms: int
    reason: str | None


class Tester:
    """Sends test events. master: the key of which the secrets of watches are derived"""

    def __init__(
        self,
        watches: Watches,
        sender: Sender,
        master: bytes,
        names: Callable[[], Names],
        clock_us: Callable[[], int],
    ) -> None:
        self._watches = watches
        self._sender = sender
        self._master = master
        self._names = names
        self._clock_us = clock_us
        self._in_progress: Counter[str] = Counter()

    async def test(self, account: str, given: Mapping[str, object]) -> Tested:
        """One attempt. Raises Invalid, NotThere, and Refused where too many are in progress."""
        values = read_fields(given, _READERS, "watch_id")
        its = self._in_progress[account]
        if its >= MOST_OF_ACCOUNT or self._in_progress.total() >= MOST_TESTS:
            raise Refused(TOO_MANY_TESTS)
        self._in_progress[account] += 1
        try:
            return await self._test(account, values["watch_id"], values.get("type"))
        finally:
            self._in_progress[account] -= 1
            if not self._in_progress[account]:
                del self._in_progress[account]

    async def _test(self, account: str, watch_id: str, wanted: str | None) -> Tested:
        integration, watch = await self._watches.find(account, watch_id)
        if wanted is not None and wanted != TEST_TYPE and not takes(watch.events, wanted):
            expected = f"a type that the watch takes, or {TEST_TYPE}"
            raise Invalid(Fault("type", found(wanted), expected))
        now_us = self._clock_us()
        event = trial(integration, wanted or _type_for(watch), secrets.token_hex(16), now_us)
        headers = headers_of(watch, event.id, event.body, self._master, self._names(), now_us)
        return _tested(await self._sender.send(watch.url, event.body, headers))


def tested_as_json(tested: Tested) -> dict[str, object]:
    """How a test ended. The endpoint's answer is not in it: the address may be of anybody."""
    return {
        "delivered": tested.reason is None,
        "status": tested.status,
        "ms": tested.ms,
        "reason": tested.reason,
    }


def _tested(answer: Answer) -> Tested:
    if not answer.status:
        return Tested(None, answer.ms, answer.found)
    reason = None
    if not is_success(answer.status):
        reason = "the answer's status is not 2xx"
        if 300 <= answer.status < 400:
            reason += ", and redirects are not followed"
    return Tested(answer.status, answer.ms, reason)


def _type_for(watch: Watch) -> str:
    """A type of which the watch gets events."""
    concrete = watch.events[0].removesuffix("*") + ("test" if watch.events[0][-1] == "*" else "")
    return concrete if is_type(concrete) else TEST_TYPE


def _read_watch_id(value: object) -> str:
    if not isinstance(value, str):
        raise Invalid(Fault("watch_id", found(value), "the id of a watch"))
    if not is_id(value):
        raise NotThere("there is no watch with this id")
    return value


def _read_type(value: object) -> str:
    if not isinstance(value, str) or not is_type(value):
        raise Invalid(Fault("type", found(value), 'a type such as "pull_request.merged"'))
    return value


_READERS: Final[Mapping[str, Reader]] = {"watch_id": _read_watch_id, "type": _read_type}
