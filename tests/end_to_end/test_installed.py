"""The gateway as it is installed, outside a checkout: its distributions in new environments.

Those of the client library are in tests/client/test_distribution.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.kit.distributions import Built, Site, build, files, in_sdist, in_wheel, install
from tests.kit.eventually import eventually
from tests.kit.gateway import READY_S
from tests.kit.ports import free_port
from tests.kit.wire import TIMEOUT_S, fetch

#: Files of the package that are not installed, and why.
NOT_SHIPPED: dict[str, str] = {}
POLICIES = {f"{name}.yaml" for name in ("gateway", "plans", "routes", "upstreams")}
SHARED = "share/rate-limiting-gateway/policies"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("gateway"))


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Site]:
    """The environment of a kind of distribution: with the gateway, and what it depends on."""

    @cache
    def complete(kind: str) -> Site:
        site = install(getattr(built, kind), tmp_path_factory.mktemp(kind) / "site")
        site.add_dependencies()
        return site

    return complete


def package(built: Built) -> set[str]:
    """The files of the package that are to be installed."""
    found = files(built.project / "gateway")
    assert sorted(NOT_SHIPPED.keys() - found) == []
    return {f"gateway/{name}" for name in found - NOT_SHIPPED.keys()}


def test_the_wheel_has_every_file(built: Built) -> None:
    """Modules, scripts of the store, the console's templates and static files, the policies."""
    expected = package(built) | {f"{SHARED}/{name}" for name in POLICIES}
    assert sorted(in_wheel(built) ^ expected) == []


def test_the_source_has_every_file(built: Built) -> None:
    """The same files, and what the wheel is built with; none of the tests or the client library."""
    own = {"pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"}
    expected = package(built) | own | {f"policies/{name}" for name in POLICIES}
    assert sorted(in_sdist(built) ^ expected) == []


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_its_commands_run(installed: Callable[[str], Site], kind: str) -> None:
    """The command starts, and the shipped policies, as it finds them, have no faults."""
    site = installed(kind)
    assert "validate" in site.run("gateway", "--help")
    program = "from gateway.cli.shipped import find_policies; print(find_policies())"
    folder = site.run("python", "-c", program).strip()
    assert folder == str(site.folder / SHARED)
    site.run("gateway", "validate", "--strict", folder)


@pytest.mark.asyncio(loop_scope="session")
async def test_the_demo(installed: Callable[[str], Site], tmp_path: Path) -> None:
    """`gateway demo` works in an empty folder, with the policies of the package."""
    site = installed("wheel")
    empty = tmp_path / "empty"
    empty.mkdir()
    port, admin_port = free_port(), free_port()
    output = tmp_path / "output"
    with output.open("wb") as out:
        process = subprocess.Popen(  # noqa: ASYNC220 - it starts at once
            [
                *(str(site.program("gateway")), "demo", "--listen", f"127.0.0.1:{port}"),
                *("--admin", f"127.0.0.1:{admin_port}"),
            ],
            cwd=empty,
            env=site.environment(),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        await eventually(
            lambda: process.poll() is not None or "Ctrl-C" in output.read_text(),
            "the demo runs",
            READY_S,
        )
        printed = output.read_text()
        assert process.poll() is None, printed
        assert str(site.folder / SHARED) in printed
        (key,) = (line.split()[1] for line in printed.splitlines() if line.startswith("  pro "))

        async def is_served() -> bool:
            # The store's timeout is the shipped one, which may pass on a busy machine.
            answer = await fetch(port, "/v1/connectors", key=key)
            assert answer.status in (200, 503), output.read_text()
            return answer.status == 200

        await eventually(is_served, "the printed key is good")
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 0, output.read_text()
    assert os.listdir(empty) == []
