"""Errors that the user can correct."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one field. at: "ip_ranges[1]"; found: "10.0.0.0/33", without secrets"""

    at: str
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.at}: found {self.found}, expected {self.expected}"


class Problem(Exception):
    """The base class. Its text is for the user."""


class Invalid(Problem):
    """The input has faults; `faults` has all of them."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__("; ".join(map(str, faults)))
        self.faults = faults


class NotThere(Problem):
    """There is no such key, account or limit."""


class Conflict(Problem):
    """The current state does not allow it: the key was revoked, or rotated already."""


class Changed(Problem):
    """Someone else has changed it since it was read."""


class Full(Problem):
    """There is no room for it now. It may be tried again."""
