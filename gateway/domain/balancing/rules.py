"""The table of rules: a new one is its module and its line here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from gateway.domain.balancing import by_hash, by_turns, least_busy, uniform
from gateway.domain.balancing.rule import Build


class Rule(NamedTuple):
    """words: what it does, for the policies' reference; goes_by: it needs a subject to go by"""

    build: Build
    words: str
    goes_by: bool = False


#: By its name in policies.
RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "least_busy": Rule(least_busy.build, "the less busy of two picked at random"),
        "round_robin": Rule(by_turns.build, "each in turn"),
        "random": Rule(uniform.build, "any"),
        "hash": Rule(by_hash.build, "the same for requests of the same subject", goes_by=True),
    }
)
