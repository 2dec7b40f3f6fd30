"""A client of Locust that sends with the client library, as users do, and with its pacing.

Each answer is heard by the witness of its key, also of what the library sends again. Alone with its
key, a paced client gets no 429. In an outage of Redis it may, as a worker has a share of the limit.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import httpx
from gateway_client import ApiError, Client, ConnectionFailed, UnexpectedAnswer
from locust import User, tag, task

from loadtests.traffic.answers import Answer
from loadtests.traffic.caller import BrokenTruth, Plan
from loadtests.traffic.keychain import HeldKey
from loadtests.traffic.outcome import TRUTH
from loadtests.traffic.truth import PACED, Broken

if TYPE_CHECKING:
    from locust.env import Environment

_PATH: Final = "/whoami"
_NAME: Final = f"{_PATH} by the client library"
#: After an answer without Redis, two windows, in which the counts of that time are added.
_AFTER_OUTAGE_S: Final = 130.0


class LibraryCaller(User):
    """One client, with a key that no other client should have. shared: as of `Caller`"""

    abstract = True
    shared: Plan

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._key: HeldKey | None = None
        self._client: Client | None = None
        self._sent_s = 0.0
        self._fallback_s = float("-inf")

    def on_start(self) -> None:
        """Take a key. The library reads nothing of the environment's SERVICE_ variables then."""
        self._key = self.shared.keychain.take()
        hooks = {"request": [self._send], "response": [self._hear]}
        self._client = Client(
            api_key=self._key.text,
            base_url=self.shared.hosts.next(),
            environment="",
            pace=True,
            http={"event_hooks": hooks},
        )

    def on_stop(self) -> None:
        if self._client is not None:
            self._client.close()
        if self._key is not None:
            self.shared.keychain.give_back(self._key)
            self._key = None

    @tag("library")
    @task
    def who_am_i(self) -> None:
        assert self._client is not None, "there is one from the start on"
        try:
            self._client.request("GET", _PATH)
        except ConnectionFailed as error:
            self._fire("GET", _NAME, time.monotonic() - self._sent_s, error)
        except (ApiError, UnexpectedAnswer):
            pass  # heard, and counted there

    def _send(self, _request: httpx.Request) -> None:
        self._sent_s = time.monotonic()

    def _hear(self, response: httpx.Response) -> None:
        assert self._key is not None, "answers come while it has a key"
        now_s = time.monotonic()
        answer = Answer(
            response.status_code, self._sent_s, now_s, time.time(), dict(response.headers)
        )
        witness = self._key.witness
        broken = witness.hear(self.shared.figures.meets("GET", _PATH), answer)
        is_limited = answer.status == 429
        if answer.fallback is not None:
            self._fallback_s = now_s
        if witness.is_alone and now_s - self._fallback_s > _AFTER_OUTAGE_S:
            witness.checks[PACED] += 1
            if is_limited:
                broken.append(Broken(PACED, f"429 with {answer.retry_after_s} s to wait"))
        expected = answer.is_admitted or is_limited
        failed = None if expected else BrokenTruth(f"status {answer.status}")
        self._fire("GET", f"{_NAME} 429" if is_limited else _NAME, now_s - self._sent_s, failed)
        for each in broken:
            self._fire(TRUTH, each.truth, 0.0, BrokenTruth(each.words))

    def _fire(self, kind: str, name: str, seconds: float, failed: Exception | None) -> None:
        self.environment.events.request.fire(
            request_type=kind,
            name=name,
            response_time=seconds * 1000,
            response_length=0,
            exception=failed,
            context={},
        )
