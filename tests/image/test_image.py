"""The image's files, built in a folder and run read-only as another user."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.image.layout import CHECKOUT, BuildFailed, Layout, build
from tests.kit.eventually import eventually
from tests.kit.ports import free_port
from tests.kit.wire import Response, fetch

# The first test that uses it builds it, which takes half a minute on a busy machine.
pytestmark = pytest.mark.timeout(400)

#: World-writable folders; the gateway may use /tmp.
ELSEWHERE = [path for path in map(Path, ("/var/tmp", "/dev/shm")) if path.is_dir()]


@pytest.fixture(scope="module")
def layout() -> Iterator[Layout]:
    # Every user can read here, unlike in pytest's folder and perhaps that of TMPDIR.
    folder = Path(tempfile.mkdtemp(prefix="gateway-image-", dir="/tmp"))
    folder.chmod(0o755)
    umask = os.umask(0o022)  # the default where images are built
    try:
        built = build(folder / "root", folder / "python")
        os.umask(umask)
        yield built
    except BuildFailed as failed:
        if "connection broken by" in str(failed):
            pytest.skip(f"the package index is out of reach: {failed}")
        raise
    finally:
        os.umask(umask)
        subprocess.run(["chmod", "-R", "u+w", str(folder)], check=False)
        shutil.rmtree(folder)


class Running:
    """The image's ENTRYPOINT and CMD as a process, on free ports of this machine."""

    def __init__(self, layout: Layout) -> None:
        final = layout.dockerfile.final
        self.layout = layout
        self.port, self.admin_port = free_port(), free_port()
        self.environment = layout.environment(
            GATEWAY_LISTEN=f"0.0.0.0:{self.port}",
            GATEWAY_ADMIN=f"0.0.0.0:{self.admin_port}",
        )
        words = [*final.the("ENTRYPOINT").arguments, *final.the("CMD").arguments]
        self.process = layout.popen(words, self.environment)

    async def is_ready(self) -> bool:
        assert self.process.poll() is None, self.process.communicate()[0]
        try:
            return (await fetch(self.admin_port, "/readyz")).status == 200
        except OSError:
            return False

    async def end(self) -> tuple[int, str]:
        """Stop it like `docker stop`; return its exit status and its output."""
        self.process.send_signal(signal.SIGTERM)
        output, _ = await asyncio.to_thread(self.process.communicate, timeout=60)
        return self.process.returncode, output

    async def run(self, *words: str) -> tuple[int, str]:
        """Run a command in the image, like `docker exec`."""
        return await asyncio.to_thread(self.layout.run, list(words), self.environment)


@dataclass(slots=True)
class Life:
    """What one gateway of the image did, from its start to its end.

    user:      as which its process ran
    healthy:   exit status and output of the Dockerfile's health check while it ran
    unhealthy: its exit status after the end
    verified, unserved, refused: answers about a new key, to a request with it, and to one without
    page, parts: the sign-in page, and the answers for what it uses
    ended:     exit status and output
    changed:   files of the image that are not what they were before, and new ones elsewhere
    """

    user: int
    healthy: tuple[int, str]
    unhealthy: int
    verified: Response
    unserved: Response
    refused: Response
    page: Response
    parts: dict[str, Response]
    ended: tuple[int, str]
    changed: set[str]


@pytest.fixture(scope="module")
def life(layout: Layout) -> Life:
    _suit_this_machine(layout.policies)
    return asyncio.run(_live(layout))


def _suit_this_machine(policies: Path) -> None:
    """No upstream listens, whatever runs here; and Redis may be slow, as requests are counted."""
    for name, shipped, suited in (
        ("upstreams.yaml", "http://127.0.0.1:9000", f"http://127.0.0.1:{free_port()}"),
        ("gateway.yaml", "timeout: 50ms", "timeout: 5s"),
    ):
        file = policies / name
        text, mode = file.read_text(encoding="utf-8"), file.stat().st_mode
        assert shipped in text, name
        file.chmod(0o644)
        file.write_text(text.replace(shipped, suited), encoding="utf-8")
        file.chmod(mode)


async def _live(layout: Layout) -> Life:
    """Start the gateway, use it, check its health, and stop it."""
    before, strays = layout.files(), _strays(layout)
    check = json.loads(layout.dockerfile.final.the("HEALTHCHECK").text.partition(" CMD ")[2])
    gateway = Running(layout)
    try:
        await eventually(gateway.is_ready, "the image's gateway is ready", 60)
        user = os.stat(f"/proc/{gateway.process.pid}").st_uid
        made = await gateway.run(
            *("gateway", "keys", "create", "--name", "x", "--plan", "free", "--json")
        )
        key = json.loads(made[1])["key"]
        answers = [
            await fetch(gateway.port, "/v1/auth/verify", key=key),
            await fetch(gateway.port, "/api/x", key=key),
            await fetch(gateway.port, "/api/x"),
        ]
        local = [("Host", f"localhost:{gateway.admin_port}")]
        page = await fetch(gateway.admin_port, "/console/sign-in", headers=local)
        parts = {
            path: await fetch(gateway.admin_port, path, headers=local)
            for path in re.findall(r'(?:href|src)="(/console/static/[^"]+)"', page.body.decode())
        }
        healthy = await gateway.run(*check)
        ended = await gateway.end()
        unhealthy, _ = await gateway.run(*check)
    finally:
        if gateway.process.poll() is None:
            await gateway.end()
    assert before, "there is an image"
    after = layout.files()
    changed = {path for path in before.keys() | after if before.get(path) != after.get(path)}
    changed |= {str(path) for path in _strays(layout) - strays}
    return Life(user, healthy, unhealthy, *answers, page, parts, ended, changed)


def test_it_serves_as_another_user(layout: Layout, life: Life) -> None:
    """On the Redis in /data a key is created, used and counted; SIGTERM ends it with 0."""
    assert life.user == (os.geteuid() if layout.user is None else layout.user)
    assert (life.verified.status, life.verified.json()["key"]["plan"]) == (200, "free")
    # The policies' upstream does not run; the request is still counted.
    assert (life.unserved.status, life.unserved["X-RateLimit-Remaining"]) == (502, "59")
    assert life.refused.status == 401
    status, output = life.ended
    assert status == 0, output
    assert "Traceback" not in output


def test_its_console_is_whole(life: Life) -> None:
    """The sign-in page, and each style, script and picture that it uses, are served."""
    assert life.page.status == 200
    kinds = {path.rpartition(".")[2].partition("?")[0] for path in life.parts}
    assert kinds >= {"css", "js"}
    assert {path for path, answer in life.parts.items() if answer.status != 200} == set()


def test_the_health_check(life: Life) -> None:
    """The Dockerfile's command returns 0 while the gateway runs, and not 0 after its end."""
    assert life.healthy == (0, "")
    assert life.unhealthy != 0


def test_nothing_is_written_elsewhere(life: Life) -> None:
    """A start, requests, a command and a stop change no file of the image."""
    assert life.changed == set()


def test_the_image_cannot_be_written(layout: Layout) -> None:
    """Its user can write neither its programs nor its policies."""
    tries = (
        "import os, sys\n"
        "for path in sys.argv[1:]:\n"
        "    try: open(os.path.join(path, 'x'), 'w').close()\n"
        "    except PermissionError: continue\n"
        "    sys.exit(path)"
    )
    folders = [layout.home, layout.home / "bin", layout.policies]
    words = ["python", "-c", tries, *map(str, folders)]
    assert layout.run(words, layout.environment()) == (0, "")


def test_no_tool_for_building_is_in_it(layout: Layout) -> None:
    """No installer, compiler, headers or tests, and no development package."""
    names = {path.name for path in layout.root.rglob("*")}
    packages = {path.name.partition("-")[0].lower() for path in layout.home.rglob("*.dist-info")}
    assert not packages & {"pip", "setuptools", "wheel", "pytest", "mypy", "ruff", "cython"}
    assert not names & {"pip", "pip3", "ensurepip", "gcc", "cc", "make", "ld", "conftest.py"}
    assert "rate_limiting_gateway" in packages


def test_versions_are_the_pinned_ones(layout: Layout) -> None:
    """Each package in it is in requirements/run.txt, with the same version."""
    text = (CHECKOUT / "requirements/run.txt").read_text(encoding="utf-8")
    pinned = {_normal(found) for found in re.findall(r"^\S+==\S+", text, re.MULTILINE)}
    found = {
        _normal("==".join(path.name.removesuffix(".dist-info").split("-")))
        for path in layout.home.rglob("*.dist-info")
    }
    assert {each for each in found if not each.startswith("rate-limiting-gateway=")} <= pinned


def test_every_data_file_is_in_it(layout: Layout) -> None:
    """The limiter's script, templates, styles: all files of the checkout that are no modules."""
    (package,) = layout.home.glob("lib/python3*/site-packages/gateway")
    source = CHECKOUT / "gateway"
    assert _data_files(package) == _data_files(source)
    assert Path("stores/limits/lua/decide.lua") in _data_files(package)


def _data_files(package: Path) -> set[Path]:
    return {
        path.relative_to(package)
        for path in package.rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    }


def _normal(requirement: str) -> str:
    return requirement.strip().lower().replace("_", "-").replace(".dist", "")


def _strays(layout: Layout) -> set[Path]:
    """The files of the image's user in world-writable folders, outside /tmp."""
    if layout.user is None:
        return set()
    return {
        path
        for folder in ELSEWHERE
        for path in folder.rglob("*")
        if path.exists() and path.lstat().st_uid == layout.user
    }
