"""The official conformance suite finds nothing worse through the gateway than without it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.judges.conformance import REVISIONS, Verdicts, conformance, worse
from tests.judges.environments import needs_judges
from tests.judges.relay import relay
from tests.judges.site import everything, started_site

pytestmark = needs_judges()


async def compare(folder: Path) -> dict[str, tuple[Verdicts, Verdicts]]:
    """The verdicts on each revision: of the server itself, and through the gateway."""
    found = {}
    async with (
        everything(folder / "server") as server,
        started_site(folder, f"http://127.0.0.1:{server}") as site,
        relay(site.port, await site.key()) as through,
    ):
        for revision in REVISIONS:
            found[revision] = (
                await conformance(folder / f"direct-{revision}", server, revision),
                await conformance(folder / f"gateway-{revision}", through, revision),
            )
    return found


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Verdicts, Verdicts]]:
    return asyncio.run(compare(tmp_path_factory.mktemp("conformance")))


@pytest.mark.parametrize("revision", REVISIONS)
def test_no_verdict_is_worse(compared: dict[str, tuple[Verdicts, Verdicts]], revision: str) -> None:
    """Each check of each scenario has at least the result that it has directly."""
    direct, gateway = compared[revision]
    assert worse(direct, gateway) == []


def test_the_suite_ran(compared: dict[str, tuple[Verdicts, Verdicts]]) -> None:
    """The server passes what the revisions require, so that there is something to lose."""
    for direct, _ in compared.values():
        required = [name for name in direct.scenarios if not name.startswith("tasks-")]
        assert len(required) >= 30
        assert {name: direct.count(name)["FAILURE"] for name in required} == dict.fromkeys(
            required, 0
        )


def test_what_is_worse_is_found() -> None:
    """A result that is worse, one that is missing, and a failure that is new."""
    direct = Verdicts({"a": {"x": ["SUCCESS", "SUCCESS"], "y": ["WARNING"]}, "b": {"z": ["INFO"]}})
    gateway = Verdicts({"a": {"x": ["SUCCESS", "WARNING"], "y": ["SUCCESS"], "n": ["FAILURE"]}})
    assert worse(direct, gateway) == [
        "a, n: None directly, FAILURE by the gateway",
        "a, x: SUCCESS directly, WARNING by the gateway",
        "b, z: INFO directly, None by the gateway",
    ]
    assert worse(direct, direct) == []
