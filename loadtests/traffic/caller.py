"""A client of Locust: sends requests of each kind, and passes each answer to a witness.

Nothing is registered here, so that loading this module twice, as Locust does with a folder, has no
effect; `loadtests/locustfile.py` has the clients of each plan and the options.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import gevent
from locust import FastHttpUser, tag, task
from locust.exception import StopUser

from loadtests.traffic.answers import Answer
from loadtests.traffic.figures import Figures, Met
from loadtests.traffic.keychain import HeldKey, Keychain, Turns
from loadtests.traffic.outcome import TRUTH
from loadtests.traffic.truth import Broken

if TYPE_CHECKING:
    from locust.contrib.fasthttp import ResponseContextManager
    from locust.env import Environment

#: Added to a wait: how much a client's clock may be faster than the store's in a minute or two.
_GRACE_S: Final = 0.1
#: A repeatedly broken assertion is described this often, then only counted.
_IN_FULL: Final = 10
_VERIFY: Final = "/v1/auth/verify"


class Choices(Protocol):
    """The options of a run that a client needs."""

    pace: float
    longest_wait: float


@dataclass(slots=True)
class Plan:
    """What the clients of one plan share."""

    figures: Figures
    keychain: Keychain
    hosts: Turns
    told: dict[str, int] = field(default_factory=dict)


class Caller(FastHttpUser):
    """One client, which sends one request after another with one key.

    shared:   what it shares with the clients of its plan; set before the first is created
    pause_s:  between an answer and the next request, on average
    wait_share: the share of refusals after which it waits, of those that permit it
    """

    abstract = True
    shared: Plan
    pause_s = 0.3
    wait_share = 0.2

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._key: HeldKey | None = None
        self._scopes: frozenset[str] = frozenset()

    def wait_time(self) -> float:
        choices: Choices = self.environment.parsed_options
        return random.uniform(0.5, 1.5) * self.pause_s * choices.pace

    def on_start(self) -> None:
        """Take a key, and request its plan and scopes."""
        self._key = self.shared.keychain.take()
        answer, text = self._send("GET", _VERIFY)
        if answer.status != 200:
            raise StopUser
        key = _read_key(text)
        plan = self.shared.figures.plan
        if key.get("plan") != plan:
            self._report([Broken("the key is of the plan it is said to be", f"plan: {plan}")])
            raise StopUser
        self._scopes = frozenset(key.get("scopes", ()))

    def on_stop(self) -> None:
        if self._key is not None:
            self.shared.keychain.give_back(self._key)
            self._key = None

    @tag("connectors")
    @task(8)
    def connectors(self) -> None:
        self._ask("GET", "/v1/connectors")

    @tag("search")
    @task(6)
    def search(self) -> None:
        self._ask("GET", "/api/search/issues", name="/api/search/*", query="?q=open")

    @tag("batch")
    @task(2)
    def batch(self) -> None:
        self._ask("POST", "/api/tickets/batch", {"ids": ["t1", "t2"]}, name="/api/**/batch")

    @tag("webhook")
    @task(1)
    def test_webhook(self) -> None:
        self._ask("POST", "/api/webhooks/test", {})

    @tag("mcp")
    @task(4)
    def mcp(self) -> None:
        self._ask("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})

    @tag("other")
    @task(4)
    def who_am_i(self) -> None:
        self._ask("GET", "/whoami")

    @tag("other")
    @task(1)
    def watch(self) -> None:
        watch = {"url": "https://example.com/hook", "events": ["ticket.created"]}
        self._ask("POST", "/api/v1/integrations/int_1/watches", watch, name="/api/v1/*/watches")

    @tag("verify")
    @task(1)
    def verify(self) -> None:
        self._send("GET", _VERIFY)

    def _ask(
        self, method: str, path: str, body: object = None, *, name: str = "", query: str = ""
    ) -> None:
        """Send a request; if it is refused, sometimes wait Retry-After and send it again."""
        answer, _ = self._send(method, path, body, name=name, query=query)
        wait_s = self._wait_s(self.shared.figures.meets(method, path), answer)
        if wait_s is None or self._key is None:
            return
        witness = self._key.witness
        turn = witness.turn
        gevent.sleep(wait_s)
        again, _ = self._send(method, path, body, name=name, query=query)
        self._report(witness.hear_after_wait(again, wait_s, turn))

    def _wait_s(self, met: Met, answer: Answer) -> float | None:
        """How long to wait after an answer; None: not at all."""
        choices: Choices = self.environment.parsed_options
        retry_s = answer.retry_after_s
        if answer.status != 429 or retry_s is None or not met.waits or self._key is None:
            return None
        if not self._key.witness.is_alone or retry_s > choices.longest_wait:
            return None
        return retry_s + _GRACE_S if random.random() < self.wait_share else None

    def _send(
        self, method: str, path: str, body: object = None, *, name: str = "", query: str = ""
    ) -> tuple[Answer, str]:
        """Send one request, check and count its answer, and return the answer and its body."""
        assert self._key is not None, "a caller has a key from its start on"
        met = self.shared.figures.meets(method, path)
        name = name or path
        sent_s = time.monotonic()
        with self.client.request(
            method,
            f"{self.shared.hosts.next()}{path}{query}",
            name=name,
            headers={"Authorization": f"Bearer {self._key.text}"},
            json=body,
            catch_response=True,
            allow_redirects=False,
        ) as response:
            answer = _read_answer(response, sent_s)
            self._count(response, answer, name, lacks=bool(met.scopes - self._scopes))
            text = response.text or ""
        self._report(self._key.witness.hear(met, answer))
        return answer, text

    def _count(
        self, response: ResponseContextManager, answer: Answer, name: str, *, lacks: bool
    ) -> None:
        """Set the name under which an answer counts, and whether it is expected.

        lacks: the key lacks a scope that the route requires
        """
        expected = {403} if lacks else {429}
        if answer.status in expected:
            response.request_meta["name"] = f"{name} {answer.status}"
            response.success()
        elif answer.is_admitted and not lacks:
            response.success()
        elif answer.status:
            response.failure(f"status {answer.status}{' without the scope' if lacks else ''}")
        else:
            response.failure(f"no answer: {getattr(response, 'error', '')}")

    def _report(self, broken: Iterable[Broken]) -> None:
        """Count each broken assertion as a separate failure."""
        for each in broken:
            told = self.shared.told[each.truth] = self.shared.told.get(each.truth, 0) + 1
            words = each.words if told <= _IN_FULL else "and again, in other figures"
            self.environment.events.request.fire(
                request_type=TRUTH,
                name=each.truth,
                response_time=0,
                response_length=0,
                exception=BrokenTruth(words),
                context={},
            )


class BrokenTruth(Exception):
    """What Locust shows of a broken assertion."""


def _read_answer(response: ResponseContextManager, sent_s: float) -> Answer:
    headers: Mapping[str, str] = response.headers or {}
    return Answer(
        response.status_code or 0,
        sent_s,
        time.monotonic(),
        time.time(),
        {name.lower(): value for name, value in headers.items()},
    )


def _read_key(text: str) -> dict[str, Any]:
    """`key` in the answer of /v1/auth/verify; empty if it has none."""
    try:
        found = json.loads(text)["key"]
    except (ValueError, LookupError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}
