"""An outage in the middle of a run: Redis is killed, and restarted after a while."""

from __future__ import annotations

import http.client
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from loadtests.compare import probe
from tests.kit.redis_server import RedisServer

#: How long Redis is down.
AWAY_S: Final = 5.0
#: A gateway that takes longer to use it again has not recovered.
_TIMEOUT_S: Final = 30.0
_RELIED_ON: Final = {"gateway_store_up": 1.0, "gateway_store_fallback_active": 0.0}


@dataclass(slots=True)
class Outage:
    """An outage whose steps follow the time that it is given.

    at_s:        when Redis is killed, since the start of the run
    was_noticed: a gateway reported meanwhile that it decides without Redis
    recovered_s: from its restart until every gateway used it again; None: not yet
    """

    redis: RedisServer
    admins: Sequence[int]
    at_s: float
    killed_s: float | None = None
    started_s: float | None = None
    was_noticed: bool = False
    recovered_s: float | None = None

    def move(self, now_s: float) -> None:
        """Do the steps that are due."""
        if self.killed_s is None:
            if now_s >= self.at_s:
                self.redis.kill()
                self.killed_s = now_s
        elif self.started_s is None:
            self.was_noticed |= not all(map(_is_relied_on, self.admins))
            if now_s >= self.killed_s + AWAY_S:
                self.redis.start()
                self.started_s = now_s
        elif self.recovered_s is None and all(map(_is_relied_on, self.admins)):
            self.recovered_s = now_s - self.started_s

    @property
    def words(self) -> str:
        """The result, as an objective."""
        if not self.was_noticed:
            return "the gateways did not notice that Redis was away"
        if self.recovered_s is None:
            return "the gateways did not rely on Redis again"
        return f"Redis relied on again {self.recovered_s:.0f} s after its return"

    @property
    def is_over(self) -> bool:
        return self.was_noticed and self.recovered_s is not None and self.recovered_s <= _TIMEOUT_S


def _is_relied_on(admin: int) -> bool:
    """Does a gateway ask Redis for every decision again, by its metrics?"""
    try:
        text = probe.ask(admin, "/metrics").body.decode()
    except (OSError, http.client.HTTPException):
        return False
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return all(float(values.get(name, "nan")) == value for name, value in _RELIED_ON.items())
