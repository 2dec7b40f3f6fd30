"""The history of policies: which were loaded, when, why and by which gateway.

Gateways on one store load the same change, each on its own. The history has one entry for it: that
of the first gateway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

#: Why a policy was loaded. "rollback": its files were written by `gateway policies rollback`.
Cause = Literal["start", "file change", "SIGHUP", "rollback"]
CAUSES: Final[tuple[Cause, ...]] = get_args(Cause)

#: How many entries are kept, the newest, with the texts of their policies.
MOST_KEPT: Final = 50
#: The most characters of an entry's summary, and of the names of its gateway and actor.
MOST_SUMMARY: Final = 500
MOST_LABEL: Final = 200
#: Within this time, gateways that load the same policy load the same change.
SAME_CHANGE_US: Final = 60_000_000
#: How long a rollback is noted for the gateway that loads its files.
ROLLBACK_S: Final = 600


@dataclass(frozen=True, slots=True)
class PolicyLoad:
    """One entry: a policy that was loaded.

    at_us:    Unix microseconds
    hash:     of the policy, 16 hexadecimal digits
    previous: the hash of the policy before it; "": there was none, or it is not known
    gateway:  the host and the clients' address of the gateway: "web-1 (127.0.0.1:8080)"
    summary:  what has changed, in words
    actor:    who rolled back, "anna (cli)"; "" for other causes
    """

    at_us: int
    hash: str
    previous: str
    cause: Cause
    gateway: str
    summary: str
    actor: str = ""


def is_known(load: PolicyLoad, kept: Sequence[PolicyLoad]) -> bool:
    """Does the history have an entry for this load? `stores/policies/store.py` decides the same.

    kept: the entries, newest first
    """
    if kept and kept[0].hash == load.hash:
        return True
    own = next((other for other in kept if other.gateway == load.gateway), None)
    if load.cause == "start" and own is not None and own.hash == load.hash:
        return True  # it was restarted with the policy that it had
    return any(
        other.hash == load.hash
        and other.gateway != load.gateway
        and abs(other.at_us - load.at_us) <= SAME_CHANGE_US
        for other in kept
    )
