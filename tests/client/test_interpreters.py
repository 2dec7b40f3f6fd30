"""The client library on every Python that it is for, as far as this machine has them.

They are looked for on PATH by their names, such as python3.10; the variable CLIENT_PYTHONS names
others, as paths with a colon between them. The one that runs the tests is always tried.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.kit.rows import each_row
from tests.kit.wire import TIMEOUT_S

CLIENT = Path(__file__).parents[2] / "client"
CONFIGURED = tomllib.loads((CLIENT / "pyproject.toml").read_text("utf-8"))
PROJECT = CONFIGURED["project"]
#: "3.10" and later ones.
VERSIONS = [
    words[-1]
    for line in PROJECT["classifiers"]
    if (words := line.split(" :: "))[:-1] == ["Programming Language", "Python"]
]
#: The version of the one that runs the tests.
THIS = "{}.{}".format(*sys.version_info)
MODULES = sorted((CLIENT / "gateway_client").rglob("*.py"))
#: Programs that take the folder of the library.
PROGRAMS = [Path(__file__).with_name(name) for name in ("webhooks_alone.py", "import_all.py")]


def run(python: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-I", "-B", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S * 2,
    )


def version_of(python: str) -> str:
    """The version of an interpreter, as "3.10"; "" if it does not start, as a shim may not."""
    try:
        return run(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").stdout.strip()
    except OSError:
        return ""


def interpreters(named: str, path: str) -> dict[str, str]:
    """An interpreter of each version. named: CLIENT_PYTHONS; path: PATH"""
    found = {}
    for version in VERSIONS:
        python = shutil.which(f"python{version}", path=path)
        if python is not None and version_of(python) == version:
            found[version] = python
    for python in filter(None, named.split(os.pathsep)):
        version = version_of(python)
        assert version in VERSIONS, f"CLIENT_PYTHONS: {python} is {version!r}, not of {VERSIONS}"
        found[version] = python
    return {**found, THIS: sys.executable}


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    """The interpreters of this machine."""
    return interpreters(os.environ.get("CLIENT_PYTHONS", ""), os.environ.get("PATH", ""))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_it_runs_on_every_python(program: Path, found: dict[str, str]) -> None:
    """Webhooks are verified without httpx, and all modules can be imported."""
    ends = {version: run(python, program, CLIENT) for version, python in found.items()}
    failures = {version: end.stderr for version, end in ends.items() if end.returncode != 0}
    assert failures == {}


@each_row("path", [*MODULES, *PROGRAMS])
def test_its_syntax_is_of_the_oldest_python(path: Path) -> None:
    """No module has syntax of a later Python, also where the oldest one is missing."""
    major, minor = VERSIONS[0].split(".")
    read = ast.parse(path.read_text("utf-8"), feature_version=(int(major), int(minor)))
    assert read.body


def test_the_oldest_python_is_the_same_everywhere() -> None:
    """pip, people and the linter take the same one; tests/test_make.py has that of mypy."""
    assert PROJECT["requires-python"] == f">={VERSIONS[0]}"
    assert CONFIGURED["tool"]["ruff"]["target-version"] == f"py{VERSIONS[0].replace('.', '')}"


def fake(path: Path, text: str) -> str:
    """A program in place of an interpreter."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_what_is_no_interpreter_is_left_out(tmp_path: Path) -> None:
    """A shim on PATH for a version that is not installed, and one of another version."""
    fake(tmp_path / "python3.10", "echo python3.10: command not found >&2; exit 127")
    fake(tmp_path / "python3.14", "echo 3.9")
    assert interpreters("", str(tmp_path)) == interpreters("", "/nowhere")


def test_the_one_that_runs_the_tests_is_always_tried() -> None:
    """Also where PATH has none."""
    assert interpreters("", "/nowhere") == {THIS: sys.executable}


@pytest.mark.parametrize("version", ["", "3.9", "2.7"])
def test_what_is_named_must_be_one(tmp_path: Path, version: str) -> None:
    """An interpreter that is named, but does not start or is of another version, fails."""
    python = fake(tmp_path / "python", f"echo {version}")
    with pytest.raises(AssertionError, match=f"CLIENT_PYTHONS: {python} is '{version}', not of"):
        interpreters(f"{sys.executable}:{python}", "")
