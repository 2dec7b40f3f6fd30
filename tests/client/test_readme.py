"""The examples of the client's README, run against a demo as a reader would."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.docs.pages import Example, page
from tests.kit.eventually import eventually
from tests.kit.gateway import READY_S, Process
from tests.kit.policies import copy_shipped
from tests.kit.ports import free_port
from tests.kit.wire import TIMEOUT_S

pytestmark = pytest.mark.asyncio(loop_scope="session")

README = page("client/README.md")
CALLING, _, RECEIVING = README.text.partition("\n## Receive webhooks\n")
EXAMPLES = [each for each in README.examples("python") if each.text in CALLING]


@dataclass
class Demo:
    """A running demo, and the environment of its clients."""

    environment: dict[str, str]

    async def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(
            subprocess.run,
            [sys.executable, *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S * 4,
            check=False,
        )


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def demo(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Demo]:
    folder = tmp_path_factory.mktemp("demo")
    port, admin_port = free_port(), free_port()
    listen = ("--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin_port}")
    policies = copy_shipped(folder / "policies")
    process = Process(folder, "demo", *listen, "--policies", str(policies))
    try:
        printed = process.out.read_text
        await eventually(lambda: "Ctrl-C ends" in printed(), "the demo runs", READY_S)
        found = re.search(r"^  pro +(\S+)$", printed(), re.MULTILINE)
        assert found is not None
        own = {name: text for name, text in os.environ.items() if not name.startswith("SERVICE_")}
        url = f"http://127.0.0.1:{port}"
        yield Demo({**own, "SERVICE_API_KEY": found[1], "SERVICE_BASE_URL": url})
    finally:
        await process.stop()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each.where)
async def test_an_example(demo: Demo, example: Example) -> None:
    """It runs as it is, with the two variables."""
    done = await demo.run("-W", "error", "-c", example.text)
    assert done.returncode == 0, done.stderr
    assert "wait" not in done.stdout, "no example is refused"


async def test_the_command(demo: Demo) -> None:
    """It prints what the page shows."""
    (example,) = [each for each in README.examples("console") if "gateway_client GET" in each.text]
    done = await demo.run("-m", "gateway_client", "GET", "/v1/connectors")
    first, *body = example.text.splitlines()[1:]
    numbers = re.compile(r"\d+(?= of )|(?<=in )\d+|(?<=request )\S+")
    assert numbers.sub("N", done.stderr).splitlines() == [numbers.sub("N", first)]
    assert done.stdout.splitlines()[: len(body) - 1] == body[:-1]


async def test_nothing_is_left_to_fill_in() -> None:
    """Figures are measured ones."""
    assert re.findall(r"\b[A-Z]+_[A-Z0-9_]+\b", README.section("Pacing")) == []
