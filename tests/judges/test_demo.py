"""The client that docs/mcp.md shows walks through the demo."""

from __future__ import annotations

import ast
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from tests.docs.pages import page
from tests.judges.environments import needs_judges, python
from tests.judges.site import run
from tests.kit.eventually import eventually
from tests.kit.gateway import READY_S, Process
from tests.kit.policies import copy_shipped
from tests.kit.ports import free_port

pytestmark = [needs_judges(), pytest.mark.asyncio(loop_scope="module")]


@dataclass
class Walk:
    """A running demo. keys: their texts by plan"""

    url: str
    keys: dict[str, str]
    folder: Path

    async def client(self, plan: str) -> tuple[int, str, str]:
        """Run the documents' client with the key of a plan."""
        (example,) = page("docs/mcp.md").examples("python")
        text = example.text.replace("https://api.example.com/mcp", self.url)
        text = text.replace("os.environ['KEY']", repr(self.keys[plan]))
        assert text.count(self.url) == text.count(self.keys[plan]) == 1, text
        script = self.folder / "client.py"
        script.write_text(text, encoding="utf-8")
        return await run(self.folder, [python("sdk-2"), script])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def walk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Walk]:
    folder = tmp_path_factory.mktemp("demo")
    listen, admin = (f"127.0.0.1:{free_port()}" for _ in "12")
    policies = copy_shipped(folder / "policies")
    words = ("--listen", listen, "--admin", admin, "--policies", str(policies))
    process = Process(folder / "output", "demo", *words)
    try:
        shown = process.out.read_text
        await eventually(lambda: "Ctrl-C ends the demo" in shown(), "the demo runs", READY_S)
        keys = dict(re.findall(r"^  (\w+) +(gwk_\S+)$", shown(), re.MULTILINE))
        yield Walk(f"http://{listen}/mcp", keys, folder)
    finally:
        await process.stop()


async def test_the_documents_client(walk: Walk) -> None:
    """It lists the tools and calls one."""
    status, out, errors = await walk.client("pro")
    assert status == 0, errors
    tools, called = map(ast.literal_eval, out.splitlines())
    assert tools == ["search_code", "create_ticket"]
    assert {match["file"] for match in called["matches"]} == {"billing/limits.py"}


async def test_a_key_without_permissions(walk: Walk) -> None:
    """Its list is empty, and a call says which permission is needed."""
    status, out, errors = await walk.client("free")
    assert (status, out) == (1, "[]\n")
    assert "Needed: scm:read." in errors
