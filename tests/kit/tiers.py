"""Which tests a command runs: tiers, which follow from a test's folder and fixtures.

`quick` decides in the tests' own process, with the in-process store and one real Redis, and goes
once through everything by real sockets (`tests/smoke`): `make test`. `all` adds what starts
programs, more servers and rigs, and browsers: `make test-all`. `soak` is time under load, which is
outside CI: `make soak`. Without `--tier`, pytest runs all but `soak`, and each file that is named.

A file whose folder is of another tier is not even imported. What was left out is said at the end.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Final

import hypothesis
import pytest

TESTS: Final = Path(__file__).parent.parent

#: Markers, and what their tests do.
MARKERS: Final = {
    "process": "starts gateways or other programs",
    "browser": "drives a real browser",
    "deep": "goes further than quick tests: other servers and rigs, fuzzers",
    "soak": "is about time under load",
}
#: The markers that each tier runs. Tests without a marker are in all tiers but `soak`.
TIERS: Final = {
    "quick": frozenset[str](),
    "all": frozenset({"process", "browser", "deep"}),
    "soak": frozenset({"soak"}),
}
#: The command that runs what a tier leaves out.
NEXT: Final = {"quick": "make test-all", "all": "make soak", "soak": "make test-all"}

#: The marker of a folder's or a file's tests; a file's own comes before its folder's.
PLACES: Final = {
    "admin/api/test_schemathesis.py": "deep",
    "browser": "browser",
    "client/test_distribution.py": "process",
    "client/test_gateway.py": "process",
    "client/test_readme.py": "process",
    "docs/test_answers.py": "process",
    "end_to_end": "process",
    "fuzz": "deep",
    "helm": "process",
    "hostile": "process",
    "image": "process",
    "judges": "process",
    "loadtests/test_deliver.py": "process",
    "loadtests/test_fleet_run.py": "process",
    "loadtests/test_growth_run.py": "process",
    "loadtests/test_measure_run.py": "process",
    "loadtests/test_processes.py": "process",
    "loadtests/test_traffic_run.py": "process",
    "loadtests/test_usage_run.py": "process",
    "stores/test_servers.py": "deep",
    "hostile/test_floods.py": "soak",
    "hostile/test_slow_clients.py": "soak",
    "hostile/test_store_fails.py": "soak",
}
#: The one folder whose quick tests start a gateway; other tests that do belong to another tier.
SMOKE: Final = TESTS / "smoke"
#: Commands of a gateway that runs until it is stopped.
_RUNNING: Final = frozenset({"serve", "deliver", "demo"})

#: The marker of tests that use a fixture.
FIXTURES: Final = {
    "chromium": "browser",
    "cluster": "deep",
    "other_server": "deep",
    "sentinel": "deep",
}

#: Generated examples of a property, where it does not ask for another number. The duration of an
#: example depends more on the machine than on the code, so that none has a deadline.
_EXAMPLES: Final = {"quick": 25, "all": 100, "soak": 100}
for _name, _count in _EXAMPLES.items():
    hypothesis.settings.register_profile(_name, deadline=None, max_examples=_count, print_blob=True)


def examples(most: int) -> int:
    """The `max_examples` of a property that needs `most` of them; the quick tier has a quarter."""
    return most * hypothesis.settings().max_examples // _EXAMPLES["all"]


def place_of(path: Path) -> str | None:
    """The marker that a test file has by its place."""
    if not path.is_relative_to(TESTS):
        return None
    at = path.relative_to(TESTS)
    return next(
        (PLACES[each.as_posix()] for each in (at, *at.parents) if each.as_posix() in PLACES), None
    )


def is_in(tier: str, markers: set[str]) -> bool:
    """Does a tier run a test with these markers?"""
    return bool(markers & TIERS[tier]) if tier == "soak" else markers <= TIERS[tier]


class Tiers:
    """One run's tier, and what it leaves out.

    named: files that were asked for by name, which run in any tier
    left:  tests that were left out, by marker
    """

    def __init__(self, config: pytest.Config) -> None:
        self.tier: str = config.getoption("tier")
        words = (word.partition("::")[0] for word in config.args)
        self.named = {path for word in words if (path := Path(word).resolve()).is_file()}
        self.left: Counter[str] = Counter()

    def leaves_out(self, path: Path) -> bool:
        """Is the whole file of another tier, by its place?"""
        marker = place_of(path)
        return path not in self.named and not is_in(self.tier, {marker} if marker else set())

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave out a file without importing it; None lets others decide."""
        is_test = collection_path.match("test_*.py")
        return True if is_test and self.leaves_out(collection_path) else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Mark all tests, and leave out those that are of another tier by their fixtures."""
        kept, left = list[pytest.Item](), list[pytest.Item]()
        for item in items:
            names = getattr(item, "fixturenames", ())
            markers = {FIXTURES[name] for name in names if name in FIXTURES}
            if (marker := place_of(item.path)) is not None:
                markers.add(marker)
            for marker in markers:
                item.add_marker(marker)
            if item.path in self.named or is_in(self.tier, markers):
                kept.append(item)
            else:
                left.append(item)
                self.left[min(markers)] += 1
        items[:] = kept
        if left:
            config.hook.pytest_deselected(items=left)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        yield from starts_no_gateway(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        yield from starts_no_gateway(item)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """In a process of xdist: tell the process that reports what was left out."""
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["left"] = dict(self.left)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A process of xdist ended. All of them collect the same."""
        self.left = Counter(getattr(node, "workeroutput", {}).get("left", {}))

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, config: pytest.Config
    ) -> None:
        """One line of what was left out, where nothing was named."""
        if config.args_source is config.ArgsSource.TESTPATHS:
            terminalreporter.write_line(self.summary())

    def summary(self) -> str:
        """What was left out: "left to make test-all: 60 files (browser, process)"."""
        files = [path for path in TESTS.rglob("test_*.py") if self.leaves_out(path)]
        kinds = sorted({place_of(path) or "quick" for path in files})
        parts = [f"{len(files)} files ({', '.join(kinds)})"] if files else []
        parts += [f"{count} tests ({name})" for name, count in sorted(self.left.items())]
        return f"left to {NEXT[self.tier]}: {', '.join(parts) or 'nothing'}"


#: The command lines of gateways that this process has started.
_started: list[str] = []


def _note_start(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen" and isinstance(arguments[1], Sequence):
        line = " ".join(map(str, arguments[1]))
        if any(f"-m gateway {command}" in line for command in _RUNNING):
            _started.append(line)


def starts_no_gateway(item: pytest.Item) -> Generator[None, None, None]:
    """A part of a test, which fails if it starts a gateway although the test is quick."""
    before = len(_started)
    yield
    is_quick = not any(item.get_closest_marker(name) for name in MARKERS)
    if is_quick and not item.path.is_relative_to(SMOKE):
        assert len(_started) == before, (
            f"a quick test started {_started[-1]}: found no marker, expected its folder, file or "
            f"fixture in {Path(__file__).name}"
        )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=sorted(TIERS), default="all", help="which tests to run")


def pytest_configure(config: pytest.Config) -> None:
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    if config.getoption("hypothesis_profile", None) is None:
        hypothesis.settings.load_profile(config.getoption("tier"))
    config.pluginmanager.register(Tiers(config), "tiers")
    sys.addaudithook(_note_start)
