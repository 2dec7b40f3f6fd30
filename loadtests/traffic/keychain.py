"""The keys of a run, from the environment, and their assignment to clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Final

from loadtests.traffic.truth import Witness

PLANS: Final[tuple[str, ...]] = ("free", "pro", "enterprise")


@dataclass(slots=True)
class HeldKey:
    """A key in use. text: the key; witness: checks all answers to it"""

    text: str
    witness: Witness


class Keychain:
    """The keys of one plan. Each client has its own key if there are enough."""

    def __init__(self, texts: Sequence[str], *, exclusive: bool = True) -> None:
        """exclusive: no other process uses them"""
        self.keys = [HeldKey(text, Witness(exclusive=exclusive)) for text in texts]

    def take(self) -> HeldKey:
        """Assign the key with the fewest clients."""
        key = min(self.keys, key=lambda held: held.witness.callers)
        key.witness.join()
        return key

    def give_back(self, key: HeldKey) -> None:
        key.witness.leave()


def variable(plan: str) -> str:
    """The environment variable with the keys of a plan."""
    return f"GATEWAY_KEY_{plan.upper()}"


def read_keys(environment: Mapping[str, str]) -> dict[str, list[str]]:
    """The keys of each plan that has any. One given twice is one."""
    found = {plan: read_list(environment, variable(plan)) for plan in PLANS}
    return {plan: keys for plan, keys in found.items() if keys}


def read_list(environment: Mapping[str, str], name: str) -> list[str]:
    """The values of a variable, separated by commas."""
    values = (value.strip() for value in environment.get(name, "").split(","))
    return list(dict.fromkeys(value for value in values if value))


class Turns:
    """The addresses of the gateways, one after another."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = cycle([host.rstrip("/") for host in hosts])

    def next(self) -> str:
        return next(self._hosts)
