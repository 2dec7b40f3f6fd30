"""Complaints about policy files: where, what was found, what was expected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import Final

#: Nobody reads more at once, and a file of junk has a fault for each of its values.
MAX_FAULTS: Final = 1_000
#: Longer quotations of what was found are cut.
_MAX_QUOTED: Final = 60
#: Comparing a word with another takes 12 us, and there may be a thousand words to compare.
_MAX_COMPARED: Final = 200


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong in the policy files.

    file:     "policies/routes.yaml"; the folder, where it is not about one file
    line:     from 1; 0 where it is not about one line
    path:     "routes.search.rate"; "" where it is about the file
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
    """The policy files cannot be used. faults: all that is wrong with them, in reading order."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = tuple(faults)


class TooManyFaults(Exception):
    """There are MAX_FAULTS of them, and the rest is not looked at."""


def note(faults: list[Fault], fault: Fault) -> None:
    """Add a fault to those found before. Raises TooManyFaults once there are enough."""
    faults.append(fault)
    if len(faults) >= MAX_FAULTS:
        raise TooManyFaults


def quoted(text: str) -> str:
    """A piece of a file inside a message: on one line, of bounded length."""
    return repr(text if len(text) <= _MAX_QUOTED else text[: _MAX_QUOTED - 1] + "…")


def one_of(known: Iterable[str]) -> str:
    """An expectation that lists what there is: "one of a, b, c"."""
    names = list(known)
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return f"one of {', '.join(names[:20])}{more}" if names else "none, as there are none"


def suggestion(word: str, known: Iterable[str]) -> str:
    """The nearest of the known words as a question to append, or nothing."""
    near = get_close_matches(word[:_MAX_QUOTED], list(islice(known, _MAX_COMPARED)), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
