"""The official conformance suite finds nothing worse through the gateway than without it."""

from __future__ import annotations

import asyncio

import pytest

from tests.judges.conformance import REVISIONS, Compared, Verdicts, compare, worse
from tests.judges.environments import needs_judges
from tests.judges.tables import PAGE, conformance_table

# The suite runs within the first test.
pytestmark = [needs_judges(), pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    return asyncio.run(compare(tmp_path_factory.mktemp("conformance")))


@pytest.mark.parametrize("revision", REVISIONS)
def test_no_verdict_is_worse(compared: Compared, revision: str) -> None:
    """Each check of each scenario has at least the result that it has directly."""
    direct, gateway = compared[revision]
    assert worse(direct, gateway) == []


def test_the_suite_ran(compared: Compared) -> None:
    """The server passes what the revisions require, so that there is something to lose."""
    assert compared
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


def test_the_documented_table(compared: Compared) -> None:
    """The page says what this run found; `python -m tests.judges.tables` renews it."""
    assert conformance_table(compared) in PAGE.read_text(encoding="utf-8")
