"""Why an operation is not carried out, in words for the user."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one field. at: "ip_ranges[1]"; found: "10.0.0.0/33", as it may be shown"""

    at: str
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.at}: found {self.found}, expected {self.expected}"


class Problem(Exception):
    """The base of all. Its text is a sentence for people."""


class Invalid(Problem):
    """The input has faults; all of them at once."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__("; ".join(map(str, faults)))
        self.faults = faults


class NotThere(Problem):
    """There is no such key, account, limit."""


class Conflict(Problem):
    """It cannot be done with what is there: the key was revoked, was rotated already."""


class Changed(Problem):
    """Someone else has changed it since it was read."""
