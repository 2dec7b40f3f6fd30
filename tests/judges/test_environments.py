"""What is installed for these tests is pinned; what is not installed is said, and how to get it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

from tests.judges import environments
from tests.judges.environments import HERE, PINS, CannotInstall, install, lock, missing
from tests.kit.rows import each_row


def test_npm_is_pinned() -> None:
    """Each package has one version and its hash, from whatever registry it comes."""
    packages = json.loads((HERE / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    wanted = json.loads((HERE / "package.json").read_text(encoding="utf-8"))["dependencies"]
    assert packages.pop("")["dependencies"] == wanted
    for name, package in packages.items():
        assert package["integrity"].startswith("sha512-"), name
        assert "resolved" not in package, name
    for name, version in wanted.items():
        assert packages[f"node_modules/{name}"]["version"] == version


@each_row("name", ["sdk-1", "sdk-2"])
def test_python_is_pinned(name: str) -> None:
    """Each package has one version and its hashes."""
    text = (HERE / PINS[name][0]).read_text(encoding="utf-8")
    lines = re.sub(r"\\\n\s*", "", re.sub(r"(?m)^\s*#.*\n", "", text)).splitlines()
    assert lines
    for line in lines:
        assert re.match(r"[\w.\[\]-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", line), line


def test_the_lock_of_npm_is_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that is locked stays; if npm fails, the lock stays as it was."""
    for name in PINS["npm"]:
        shutil.copy(HERE / name, tmp_path)
    locked = tmp_path / "package-lock.json"
    locked.write_text("old", encoding="utf-8")
    monkeypatch.setattr(environments, "_install", lambda *_: None)

    def run(command: list[str], cwd: Path, **_: object) -> subprocess.CompletedProcess[str]:
        assert "--package-lock-only" in command
        assert {each.name for each in cwd.iterdir()} == {"package.json", ".npmrc"}
        (cwd / "package-lock.json").write_text("new", encoding="utf-8")
        return subprocess.CompletedProcess(command, status, "", "ERROR: no network\n")

    monkeypatch.setattr(subprocess, "run", run)
    status = 1
    with pytest.raises(CannotInstall, match="no network"):
        lock(tmp_path)
    assert locked.read_text(encoding="utf-8") == "old"
    status = 0
    lock(tmp_path)
    assert locked.read_text(encoding="utf-8") == "new"


def test_versions() -> None:
    """Those of the SDKs, from the pins."""
    versions = environments.versions()
    assert versions["sdk-1/mcp"].startswith("1.")
    assert versions["sdk-2/mcp"].startswith("2.")
    assert "@modelcontextprotocol/conformance" in versions


def test_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason of a skip says what to run; an environment with other pins is missing, too."""
    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    assert missing() == "not installed; run make judges: sdk-1, sdk-2, npm"
    for name in PINS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "installed").write_text(environments._digest(name), encoding="utf-8")
    assert missing() == ""
    (tmp_path / "sdk-2" / "installed").write_text("other", encoding="utf-8")
    assert missing() == "not installed; run make judges: sdk-2"


def test_what_cannot_be_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is pip's last line; nothing counts as installed."""

    def fail(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "WARNING: slow\nERROR: no network\n")

    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    monkeypatch.setattr(venv, "create", lambda *_, **__: None)
    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(CannotInstall, match="-m pip install: ERROR: no network"):
        install()
    assert missing() == "not installed; run make judges: sdk-1, sdk-2, npm"
