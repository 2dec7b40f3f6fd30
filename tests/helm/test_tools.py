"""The helm programs are fetched once and unpacked; if they cannot be, there is a reason."""

from __future__ import annotations

import io
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helm import tools


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder without a helm."""
    monkeypatch.setattr(tools, "CACHE", tmp_path / "cache")
    tools.helm.cache_clear()
    tools._fetch.cache_clear()
    yield tmp_path / "cache"
    tools.helm.cache_clear()
    tools._fetch.cache_clear()


def write_wheel(path: Path, program: bytes) -> None:
    """A wheel with the program in the same place as in the real ones."""
    layer, package = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(layer, "w") as inner:
        inner.writestr("helm/helm", program)
    with tarfile.open(fileobj=package, mode="w:gz") as archive:
        entry = tarfile.TarInfo("package/lib/layer.zip")
        entry.size = len(layer.getvalue())
        archive.addfile(entry, io.BytesIO(layer.getvalue()))
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("some/_jsii/layer.jsii.tgz", package.getvalue())


def test_fetched_once(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call of pip gets the wheels; each program is in the cache and executable."""
    calls = []

    def pip(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        calls.append(words)
        folder = Path(words[words.index("--dest") + 1])
        for major, mark in tools.WHEELS.items():
            write_wheel(folder / f"{mark}-1.whl", b"#!/bin/sh\necho %d\n" % major)
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr(tools.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(tools.sys, "platform", "linux")
    with monkeypatch.context() as patched:
        patched.setattr(tools.subprocess, "run", pip)
        found = {major: tools.helm(major) for major in tools.WHEELS}
    assert len(calls) == 1
    assert "--require-hashes" in calls[0]
    assert found == {3: empty_cache / "3" / "helm", 4: empty_cache / "4" / "helm"}
    assert subprocess.check_output([str(found[4])], text=True) == "4\n"


def test_what_cannot_be_fetched(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is pip's last line, reported each time, but pip runs only once."""
    calls = []

    def pip(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        calls.append(words)
        return subprocess.CompletedProcess(words, 1, stderr="WARNING: slow\nERROR: no network\n")

    monkeypatch.setattr(tools.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(tools.sys, "platform", "linux")
    monkeypatch.setattr(tools.subprocess, "run", pip)
    for major in tools.WHEELS:
        with pytest.raises(tools.HelmUnavailable, match="could not be fetched: ERROR: no network"):
            tools.helm(major)
    assert len(calls) == 1


def test_another_machine(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that cannot run them, they are not fetched."""
    monkeypatch.setattr(tools.platform, "machine", lambda: "arm64")
    with pytest.raises(tools.HelmUnavailable, match="Linux on x86_64 alone"):
        tools.helm(4)
    assert not empty_cache.exists()
