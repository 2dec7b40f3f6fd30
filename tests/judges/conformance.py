"""Runs of the official conformance suite, and their verdicts."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Final

from tests.judges.environments import node, package
from tests.judges.relay import relay
from tests.judges.site import everything, run, started_site

#: The revisions whose requirements are run.
REVISIONS: Final = ("2025-11-25", "2026-07-28")
#: How good a check's result is. A check that is missing is as bad as one that fails.
RANKS: Final = {"SUCCESS": 3, "INFO": 2, "SKIPPED": 2, "WARNING": 1, "FAILURE": 0}


@dataclass(frozen=True)
class Verdicts:
    """scenarios: the results of the checks of each scenario, by the check's name"""

    scenarios: dict[str, dict[str, list[str]]]

    def count(self, scenario: str) -> Counter[str]:
        return Counter(
            result for results in self.scenarios[scenario].values() for result in results
        )


async def conformance(folder: Path, port: int, revision: str) -> Verdicts:
    """Run what a revision requires against the server on this port of localhost."""
    results = folder / "results"
    command: list[str | Path] = [
        *(node(), package("@modelcontextprotocol/conformance/dist/index.js"), "server"),
        *("--url", f"http://localhost:{port}/mcp/tools", "--requirements", revision),
        *("--output-dir", results),
    ]
    _, output, errors = await run(folder, command)
    assert "=== SUMMARY ===" in output, output[-2000:] + errors[-2000:]
    scenarios: dict[str, dict[str, list[str]]] = {}
    for file in sorted(results.glob("*/checks.json")):
        found = re.fullmatch(r"server-(.+?)-\d{4}-\d\d-\d\dT[\dTZ-]+", file.parent.name)
        assert found is not None, file
        checks = scenarios.setdefault(found[1], {})
        for check in json.loads(file.read_text(encoding="utf-8")):
            checks.setdefault(f"{check['id']}: {check['name']}", []).append(check["status"])
    return Verdicts(scenarios)


#: By revision: of the server itself, and through the gateway.
Compared = dict[str, tuple[Verdicts, Verdicts]]


async def compare(folder: Path) -> Compared:
    """The verdicts on each revision, without the gateway and through it."""
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


def worse(direct: Verdicts, gateway: Verdicts) -> list[str]:
    """The checks whose result is worse through the gateway than without it."""
    found = []
    for scenario in direct.scenarios.keys() | gateway.scenarios.keys():
        before, after = (each.scenarios.get(scenario, {}) for each in (direct, gateway))
        for check in before.keys() | after.keys():
            pairs = zip_longest(before.get(check, []), after.get(check, []))
            for one, other in pairs:
                # One that only the gateway's run has may be no failure.
                if RANKS.get(other, 0) < (1 if one is None else RANKS[one]):
                    found.append(f"{scenario}, {check}: {one} directly, {other} by the gateway")
    return sorted(found)
