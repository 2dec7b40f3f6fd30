"""Reads table.toml: the mutants, by the file that each one changes."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

TABLE: Final = Path(__file__).with_name("table.toml")
ROOT: Final = Path(__file__).parents[2]
_FILE_FIELDS: Final = frozenset({"path", "tests", "mutant"})
_FIELDS: Final = frozenset({"what", "old", "new", "tests"})


class Unusable(Exception):
    """The table does not fit the code: all its faults, a line each."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file.

    number: its place in the table, from 1
    file:   the file, from the root of the checkout: "gateway/limiting/owed.py"
    what:   what goes wrong with the change, in a sentence
    old:    the text that it replaces, which the file has exactly once; new: what replaces it
    tests:  the paths of tests, at least one of which has to fail
    """

    number: int
    file: str
    what: str
    old: str
    new: str
    tests: tuple[str, ...]

    def apply(self, text: str) -> str:
        """The text of the file with the change."""
        return text.replace(self.old, self.new)


def read_table(path: Path = TABLE, root: Path = ROOT) -> list[Mutant]:
    """All mutants, in order. Raises Unusable if the table does not fit the code in `root`."""
    mutants: list[Mutant] = []
    faults: list[str] = []
    for file in tomllib.loads(path.read_text("utf-8"))["file"]:
        _check_fields(file, _FILE_FIELDS, file["path"], faults)
        for entry in file["mutant"]:
            number = len(mutants) + 1
            _check_fields(entry, _FIELDS, f"mutant {number}", faults)
            tests = tuple(entry.get("tests") or file["tests"])
            mutants.append(
                Mutant(number, file["path"], entry["what"], entry["old"], entry["new"], tests)
            )
    faults += [fault for mutant in mutants for fault in _faults(mutant, root)]
    if faults:
        raise Unusable("\n".join(faults))
    return mutants


def chosen(mutants: Sequence[Mutant], words: Sequence[str]) -> list[Mutant]:
    """Those with one of these numbers, or one of these texts in their path; all without words."""
    return [
        mutant
        for mutant in mutants
        if not words
        or any(
            int(word) == mutant.number if word.isdigit() else word in mutant.file for word in words
        )
    ]


def _check_fields(
    entry: Mapping[str, Any], known: frozenset[str], where: str, faults: list[str]
) -> None:
    if unknown := sorted(set(entry) - known):
        faults.append(f"{where}: unknown fields: {', '.join(unknown)}")


def _faults(mutant: Mutant, root: Path) -> list[str]:
    """Why the mutant does not fit the code."""
    where = f"mutant {mutant.number} ({mutant.file}: {mutant.what})"
    path = root / mutant.file
    if not path.is_file():
        return [f"{where}: the file is missing"]
    faults = []
    found = path.read_text("utf-8").count(mutant.old)
    if found != 1:
        faults.append(f"{where}: found its old text {found} times, expected it once")
    if mutant.old == mutant.new:
        faults.append(f"{where}: its old and its new text are the same")
    for test in mutant.tests:
        if not (root / test.partition("::")[0]).exists():
            faults.append(f"{where}: {test} is missing")
    return faults
