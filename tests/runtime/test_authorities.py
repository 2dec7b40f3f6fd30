"""The files of authorities are reloaded when they change; a faulty one changes nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.domain.policy import Policy
from gateway.policies.load import load
from gateway.runtime.authorities import Authorities
from tests.kit.certificates import Certificate, make_certificate
from tests.kit.eventually import eventually
from tests.policies.folder import write


class Scene:
    """A policy whose upstream is verified by a file, watched while the test runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "policies"
        self.folder.mkdir()
        self.made = make_certificate(folder, ["localhost"])
        self.policy = load(write(self.folder, upstreams=self.upstreams(self.made)))
        self.used: list[Policy] = []
        self.watch = Authorities(lambda: self.policy, self.used.append, interval_s=0.005)

    @staticmethod
    def upstreams(made: Certificate) -> str:
        return f'upstreams: {{api: {{servers: ["https://localhost:9"], ca: {made.ca}}}}}\n'

    async def until_used(self, count: int) -> None:
        await eventually(lambda: len(self.used) >= count, f"taken up {count} times")


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene(tmp_path)
    task = asyncio.create_task(scene.watch.run())
    yield scene
    assert not task.done(), "the watch ended by itself"
    task.cancel()
    await asyncio.wait([task])


async def test_a_file_that_changes_is_read_anew(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """The upstreams use the new ones, and the log names the files."""
    caplog.set_level("INFO")
    scene.made.ca.write_bytes(scene.made.ca.read_bytes() * 2)
    await scene.until_used(1)
    assert scene.used == [scene.policy]
    assert f"upstream certificates loaded: {scene.made.ca}" in caplog.text


async def test_a_bad_file_is_refused(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once; the previous authorities stay, and a corrected file is loaded."""
    good = scene.made.ca.read_bytes()
    scene.made.ca.write_text("no certificate")
    await eventually(lambda: "upstream certificates reload failed" in caplog.text, "it is said")
    assert str(scene.made.ca) in caplog.text
    assert scene.used == []
    scene.made.ca.write_bytes(good)
    await scene.until_used(1)
    assert caplog.text.count("upstream certificates reload failed") == 1


async def test_a_named_pipe_is_refused(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """Reading one would block; a file in its place is loaded."""
    good = scene.made.ca.read_bytes()
    scene.made.ca.unlink()
    os.mkfifo(scene.made.ca)
    await eventually(lambda: "it is a named pipe, not a regular file" in caplog.text, "it is said")
    scene.made.ca.unlink()
    scene.made.ca.write_bytes(good)
    await scene.until_used(1)


async def test_another_policy_has_other_files(scene: Scene, tmp_path: Path) -> None:
    """The files of the current policy are watched."""
    (tmp_path / "other").mkdir()
    other = make_certificate(tmp_path / "other", ["localhost"])
    scene.policy = load(write(scene.folder, upstreams=scene.upstreams(other)))
    await scene.until_used(1)
    other.ca.write_bytes(other.ca.read_bytes() * 2)
    await scene.until_used(2)
    assert scene.used == [scene.policy] * 2


async def test_a_client_certificate(
    scene: Scene, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its files are watched as well; while a new one has the old key, the previous pair stays."""
    caplog.set_level("INFO")
    made = make_certificate(tmp_path / "client", ["gateway"])
    client = f"client_certificate: {made.certificate}, client_key: {made.key}"
    text = scene.upstreams(scene.made).replace(", ca", f", {client}, ca")
    scene.policy = load(write(scene.folder, upstreams=text))
    await scene.until_used(1)
    other = make_certificate(tmp_path / "other", ["gateway"])
    made.certificate.write_bytes(other.certificate.read_bytes())
    await eventually(lambda: "KEY_VALUES_MISMATCH" in caplog.text, "it is said")
    assert str(made.key) in caplog.text
    assert len(scene.used) == 1
    made.key.write_bytes(other.key.read_bytes())
    await scene.until_used(2)
