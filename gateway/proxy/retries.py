"""Decides whether a request is sent again, and counts that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from gateway.domain.forwarding import SAFE_METHODS, RetryBudget
from gateway.observe.metrics import Metrics
from gateway.proxy.request import Request


class RetryBudgets:
    """What is left for retries, by route."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._by_route: defaultdict[str, RetryBudget] = defaultdict(RetryBudget)

    def use(self, routes: Collection[str]) -> None:
        """Forget the budgets of other routes."""
        for name in self._by_route.keys() - routes:
            del self._by_route[name]

    def attempted(self, request: Request, resent: int, cause: str) -> bool:
        """Note how an attempt ended; True: send the request again, which is then counted.

        resent: how often it was sent again before; cause: a `Cause`, or another status
        """
        route = request.route
        retries = route.retries
        assert retries is not None
        budget = self._by_route[route.name]
        if not resent:
            budget.add(retries.budget)
        if (
            cause not in retries.causes
            or resent >= retries.count
            or request.method not in SAFE_METHODS
            or request.fields.websocket is not None
            or request.fields.chunked
            or request.fields.length
            or not budget.take()
        ):
            return False
        self._metrics.retried(route.name, cause)
        return True
