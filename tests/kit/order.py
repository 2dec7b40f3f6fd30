"""The order of test files: those that take long come first.

At the end only short files are left, so that all processes finish at about the same time. How long
a file takes is in `tests/durations.json`, which `--record-durations` renews (`make durations`).
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parent.parent
RECORD: Final = TESTS / "durations.json"
#: Shorter files are not recorded: their order is of no consequence.
_SHORT_S: Final = 0.5


class Order:
    """Sorts files by their recorded durations, in seconds."""

    def __init__(self, record: Path = RECORD) -> None:
        found = json.loads(record.read_text()) if record.is_file() else {}
        self._seconds: dict[str, float] = {"": _SHORT_S, **found}

    def rank(self, path: Path) -> int:
        """Smaller for longer files. Files that take about as long have the same rank.

        So they keep their random order.
        """
        name = path.relative_to(TESTS).as_posix() if path.is_relative_to(TESTS) else ""
        return -int(self._seconds.get(name, _SHORT_S)).bit_length()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: self.rank(item.path))


class Recorder:
    """Sums the durations of a file's tests, and writes them at the end."""

    def __init__(self, record: Path = RECORD) -> None:
        self._record = record
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.partition("::")[0].removeprefix(f"{TESTS.name}/")
        self._seconds[name] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Files that did not run keep what was recorded, if they still exist."""
        before = json.loads(self._record.read_text()) if self._record.is_file() else {}
        now = {name: round(seconds, 1) for name, seconds in self._seconds.items()}
        kept = {
            name: seconds
            for name, seconds in sorted({**before, **now}.items())
            if seconds >= _SHORT_S and (TESTS / name).is_file()
        }
        self._record.write_text(json.dumps(kept, indent=0) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-durations", action="store_true", help=f"renew {RECORD.name}")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Order(), "order")
    if config.getoption("record_durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(), "recorder")
