"""The package as it is installed, outside a checkout: its wheel in a new environment."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.kit.eventually import eventually
from tests.kit.ports import free_port
from tests.kit.wire import TIMEOUT_S, fetch

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROOT = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "gateway", "policies")


def install(folder: Path) -> Path:
    """Build the wheel from a copy of the sources, install it in a new environment; its command."""
    sources = folder / "sources"
    sources.mkdir()
    for name in SOURCES:
        is_folder = (ROOT / name).is_dir()
        (shutil.copytree if is_folder else shutil.copy)(ROOT / name, sources / name)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = ["wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(folder)]
    subprocess.run([*pip, *build, str(sources)], check=True, timeout=TIMEOUT_S * 2)
    (wheel,) = folder.glob("*.whl")
    shutil.rmtree(sources)
    site = folder / "site"
    venv.create(site)
    into = ["--python", str(site / "bin/python"), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([*pip, *into], check=True, timeout=TIMEOUT_S * 2)
    # Its dependencies are those of this environment; a .pth file there does not count here, so the
    # checkout is not on the path.
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(site)}))
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return site / "bin/gateway"


async def test_the_demo(tmp_path: Path) -> None:
    """`gateway demo` works in an empty folder, with the policies of the package."""
    program = install(tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    port, admin_port = free_port(), free_port()
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    output = tmp_path / "output"
    with output.open("wb") as out:
        process = subprocess.Popen(  # noqa: ASYNC220 - it starts at once
            [
                *(str(program), "demo", "--listen", f"127.0.0.1:{port}"),
                *("--admin", f"127.0.0.1:{admin_port}"),
            ],
            cwd=empty,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        await eventually(
            lambda: process.poll() is not None or "Ctrl-C" in output.read_text(), "the demo runs"
        )
        printed = output.read_text()
        assert process.poll() is None, printed
        assert str(tmp_path / "site/share/rate-limiting-gateway/policies") in printed
        (key,) = (line.split()[1] for line in printed.splitlines() if line.startswith("  pro "))
        assert (await fetch(port, "/v1/connectors", key=key)).status == 200
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 0
    assert os.listdir(empty) == []
