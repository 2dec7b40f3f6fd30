"""Distributions, built from a copy of the checkout and installed in environments of their own.

Nothing is fetched, and nothing is left in the checkout. What builds them is of the environment that
runs the tests, and so is what they depend on (`Site.add_dependencies`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePath

from tests.kit.wire import TIMEOUT_S

CHECKOUT = Path(__file__).parents[2]
#: What git does not track: the patterns of .gitignore have no folders in them.
_IGNORED = [
    ".git",
    *(line.strip("/") for line in (CHECKOUT / ".gitignore").read_text("utf-8").split()),
]
_PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
#: Made by setuptools in every source distribution.
_MADE = ("PKG-INFO", "setup.cfg")


@dataclass(frozen=True)
class Built:
    """The two distributions of a project, and the folder that they were built from."""

    project: Path
    wheel: Path
    sdist: Path


@dataclass(frozen=True)
class Site:
    """An environment of its own in a folder."""

    folder: Path

    def program(self, name: str) -> Path:
        return self.folder / "bin" / name

    def add_dependencies(self) -> None:
        """Make the packages of the tests' environment importable, after the installed ones.

        A .pth file among those does not count here, so that the checkout is not on the path.
        """
        packages = Path(sysconfig.get_path("purelib", vars={"base": str(self.folder)}))
        (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def environment(self) -> dict[str, str]:
        """The variables of a process here: nothing points to the checkout."""
        return {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}

    def run(self, name: str, *words: str) -> str:
        """The output of a program of this environment, which must succeed."""
        done = subprocess.run(
            [str(self.program(name)), *words],
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S * 2,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def build(folder: Path, project: str = ".") -> Built:
    """Build the distributions of a project of the checkout, its root by default, below `folder`."""
    sources = folder / "sources"
    ignored = shutil.ignore_patterns(*_IGNORED)
    shutil.copytree(CHECKOUT / project, sources / project, ignore=ignored)
    words = ["-m", "build", "--no-isolation", "--wheel", "--sdist", "--outdir", str(folder)]
    _run([sys.executable, *words, str(sources / project)])
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return Built(sources / project, wheel, sdist)


def install(archive: Path, folder: Path) -> Site:
    """Install a wheel or a source distribution, and nothing else, in a new environment."""
    offline = ["--no-deps", "--no-index"]
    if archive.suffix != ".whl":
        # Built here, as pip would do it: the new environment has no setuptools.
        to = folder.with_name(f"{folder.name}-wheel")
        _run([*_PIP, "wheel", *offline, "--no-build-isolation", "--wheel-dir", to, archive])
        (archive,) = to.glob("*.whl")
    site = Site(folder)
    venv.create(folder)
    _run([*_PIP, "--python", site.program("python"), "install", *offline, archive])
    return site


def files(folder: Path) -> set[str]:
    """The files below a folder of a built project: "proxy/gate.py"."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def in_wheel(built: Built) -> set[str]:
    """The files of a wheel, without its metadata; shared ones are below "share/"."""
    with zipfile.ZipFile(built.wheel) as archive:
        names = [PurePath(name) for name in archive.namelist() if not name.endswith("/")]
    kept = (name for name in names if not name.parts[0].endswith(".dist-info"))
    return {"/".join(n.parts[2:] if n.parts[0].endswith(".data") else n.parts) for n in kept}


def in_sdist(built: Built) -> set[str]:
    """The files of a source distribution, without those that setuptools makes."""
    with tarfile.open(built.sdist) as archive:
        names = [PurePath(member.name) for member in archive if member.isfile()]
    kept = (PurePath(*name.parts[1:]) for name in names)
    return {
        str(name)
        for name in kept
        if str(name) not in _MADE and not name.parts[0].endswith(".egg-info")
    }


def _run(words: list[str | Path]) -> None:
    done = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S * 4,
    )
    assert done.returncode == 0, done.stdout + done.stderr
