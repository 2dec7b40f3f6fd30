"""The authorities of receivers are reloaded with their file and setting; faults change nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway import tasks
from gateway.runtime.receivers import ReceiverTrust
from gateway.runtime.settings import CannotStart
from tests.kit.certificates import make_certificate
from tests.kit.eventually import eventually


class File:
    """A file of authorities."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.good = path.read_bytes()

    def add(self, other: Path) -> None:
        self.path.write_bytes(self.good + other.read_bytes())

    def damage(self) -> None:
        self.path.write_text("no certificate")

    def mend(self) -> None:
        self.path.write_bytes(self.good)


class Scene:
    """Authorities that are watched while the test runs. ca: the setting"""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = File(self.authority("first"))
        self.ca: str | None = str(self.file.path)
        self.trust = ReceiverTrust(lambda: self.ca, interval_s=0.005)

    def authority(self, name: str) -> Path:
        return make_certificate(self.folder, ["localhost"], name).ca

    def added(self) -> int:
        """How many authorities are trusted beside the system's."""
        system = ReceiverTrust(lambda: None).context.cert_store_stats()["x509_ca"]
        return self.trust.context.cert_store_stats()["x509_ca"] - system


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene(tmp_path)
    task = tasks.spawn(scene.trust.run(), "authorities")
    yield scene
    assert not task.done(), "the watch ended by itself"
    await tasks.end(task)


async def test_a_file_that_changes(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """Attempts that begin later trust what it has now, and the log names it."""
    caplog.set_level("INFO")
    assert scene.added() == 1
    scene.file.add(scene.authority("second"))
    await eventually(lambda: scene.added() == 2, "both are trusted")
    assert f"webhooks.ca: authorities loaded: {scene.file.path}" in caplog.text


async def test_a_setting_that_changes(scene: Scene) -> None:
    """To another file, to none, and to a file again."""
    before = scene.trust.context
    scene.ca = str(scene.authority("second"))
    await eventually(lambda: scene.trust.context is not before, "the other file is loaded")
    assert scene.added() == 1
    scene.ca = None
    await eventually(lambda: scene.added() == 0, "only the system's are trusted")
    scene.ca = str(scene.authority("third"))
    await eventually(lambda: scene.added() == 1, "a file is loaded")


async def test_a_file_that_cannot_be_used(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged; the previous authorities stay until it can be used."""
    before = scene.trust.context
    scene.file.damage()
    await eventually(lambda: "keeping the previous authorities" in caplog.text, "it is said")
    assert str(scene.file.path) in caplog.text
    assert scene.trust.context is before
    scene.file.mend()
    await eventually(lambda: scene.trust.context is not before, "it is loaded")


def test_a_first_file_that_cannot_be_used(tmp_path: Path) -> None:
    """A courier does not start; the setting and the file are named."""
    with pytest.raises(CannotStart, match=r"webhooks\.ca: .*none\.pem: No such file"):
        ReceiverTrust(lambda: str(tmp_path / "none.pem"))
