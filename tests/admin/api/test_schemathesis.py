"""The API checked against its document by generated calls: valid, invalid and unusual values.

The same calls each time, over a live listener with stores in this process.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings

from gateway.admin.api.routes import OPERATIONS, document
from tests.kit.admin import TOKEN, AdminScene
from tests.kit.redis_server import RedisServer
from tests.kit.tiers import examples

CONFIG = schemathesis.Config.from_dict(
    {
        "seed": 1,
        "generation": {"mode": "all", "deterministic": True},
        "checks": {
            # What no schema can express (a plan of the policies, a future date) is 422; a key that
            # cannot be changed any more is 409, another version 412.
            "positive_data_acceptance": {
                "expected-statuses": ["2xx", "404", "409", "412", "422", "428"]
            },
            "negative_data_rejection": {
                "expected-statuses": [400, 401, 404, 405, 409, 412, 413, 415, 422, 428]
            },
            "missing_required_header": {"expected-statuses": ["422", "428"]},
        },
    }
)
#: These headers say where a request ends, so no generated value belongs to the call itself:
#: tests/admin/test_connection.py has them.
FRAMING = {"content-length", "expect", "transfer-encoding"}
SCHEMA = schemathesis.openapi.from_dict(document(), config=CONFIG)


class Live:
    """A listener in its own thread, and its stores. Wrong tokens are not delayed."""

    def __init__(self, folder: Path, redis: RedisServer) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        minutes = itertools.count(0, 60)
        self._scene = AdminScene(folder, clock=lambda: float(next(minutes)), webhooks_at=redis.url)
        self._run(self._scene.__aenter__)
        self.url = self._scene.url("/admin/v1")

    def fresh_key(self) -> str:
        """The id of a new key."""
        return str(self._run(self._scene.make_key)["id"])

    def fresh(self, path: str) -> dict[str, str]:
        """The parameters of a path with something new at it, as far as it needs something."""
        if not path.startswith("/integrations/"):
            return {"id": self.fresh_key()}
        return self._run(partial(self._fresh_webhooks, "{watch}" in path))

    async def _fresh_webhooks(self, has_watch: bool) -> dict[str, str]:
        body = {"kind": "github", "account": "acme", "name": "Code"}
        made = await self._scene.ask("POST", "/integrations", body)
        found = {"id": str(made.json["id"])}
        if has_watch:
            body = {"url": "https://hooks.example.com/", "events": ["build.*"]}
            watch = await self._scene.ask("POST", f"/integrations/{found['id']}/watches", body)
            found["watch"] = str(watch.json["id"])
        return found

    def stop(self) -> None:
        self._run(self._scene.__aexit__)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, what: Callable[[], Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(what(), self._loop).result(20)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    redis = RedisServer().start()
    live = Live(tmp_path_factory.mktemp("live"), redis)
    yield live
    live.stop()
    redis.stop()


@settings(
    max_examples=examples(10),
    derandomize=True,
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
def keeps_what_its_document_promises(case: schemathesis.Case, live: Live) -> None:
    """Statuses, bodies and headers are those of the document; a call that it forbids is refused."""
    if "id" in case.path_parameters and case.meta is not None:
        path = case.meta.components.get(schemathesis.core.parameters.ParameterLocation.PATH)
        if path is not None and path.mode.is_positive:
            case.path_parameters.update(live.fresh(case.operation.path))
    for name in FRAMING & {name.lower() for name in case.headers}:
        del case.headers[name]  # a dict that ignores case
    case.call_and_validate(
        base_url=live.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=20
    )


# A test function for each operation, with a separate name: pytest-xdist distributes tests by
# name, and would take tests made from one function for one test.
for _operation in OPERATIONS:
    _parametrize = SCHEMA.include(operation_id=_operation.name).parametrize()
    globals()[f"test_{_operation.name}"] = _parametrize(keeps_what_its_document_promises)
