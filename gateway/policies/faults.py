"""Faults in policy files: where, what was found, what was expected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import Final

#: The most faults in one report: an invalid file may have one for each of its values.
MAX_FAULTS: Final = 1_000
#: Longer quotations are truncated.
_MAX_QUOTED: Final = 60
#: Comparing two words takes 12 us, and there may be thousands of them.
_MAX_COMPARED: Final = 200


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault in the policy files.

    file:     "policies/routes.yaml"; the folder, if it is not about one file
    line:     from 1; 0 if it is not about one line
    path:     "routes.search.rate"; "" if it is about the whole file
    found:    "'30/minut'"
    expected: "a rate such as 30/minute (units: second, minute, hour, day)"
    """

    file: str
    line: int
    path: str
    found: str
    expected: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        subject = f"{self.path}: " if self.path else ""
        return f"{place}: {subject}found {self.found}, expected {self.expected}"


class PolicyFaults(Exception):
    """The policy files cannot be used.

    faults: all their faults, by file and line; used: the other files that they refer to
    """

    def __init__(self, faults: Sequence[Fault], used: Sequence[str] = ()) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = tuple(faults)
        self.used = tuple(used)

    def brief(self, where: str = "") -> str:
        """The first fault, and how many more there are. where: the others are to be seen there"""
        more = len(self.faults) - 1
        return f"{self.faults[0]}{f' (and {more} more{where})' if more else ''}"


class TooManyFaults(Exception):
    """There are MAX_FAULTS faults; the rest of the files is not checked."""


def note(faults: list[Fault], fault: Fault) -> None:
    """Add a fault. Raises TooManyFaults when there are MAX_FAULTS."""
    faults.append(fault)
    if len(faults) >= MAX_FAULTS:
        raise TooManyFaults


def quoted(text: str) -> str:
    """A text of a file for a message: on one line, of bounded length."""
    return repr(text if len(text) <= _MAX_QUOTED else text[: _MAX_QUOTED - 1] + "…")


def escaped(text: str) -> str:
    """A text made from parts of a file, for a message: without control characters."""
    return repr(text)[1:-1]


def one_of(known: Iterable[str]) -> str:
    """The expected values as a text: "one of a, b, c"."""
    names = list(known)
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return f"one of {', '.join(names[:20])}{more}" if names else "none, as there are none"


def suggestion(word: str, known: Iterable[str]) -> str:
    """The most similar known word as a question to append, or ""."""
    near = get_close_matches(word[:_MAX_QUOTED], list(islice(known, _MAX_COMPARED)), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
