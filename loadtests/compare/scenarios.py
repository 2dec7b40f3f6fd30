"""What is measured: workloads, layers of features, and the scenarios a run is made of.

A layer has all features of the previous ones, and one more. "all" is the normal use of the gateway;
"log" is that with an access log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

Layer = Literal["proxy", "key", "process", "redis", "all", "log"]
LAYERS: Final[dict[Layer, str]] = {
    "proxy": "plain proxy",
    "key": "+ key",
    "process": "+ limit in process",
    "redis": "+ limit in Redis",
    "all": "all on",
    "log": "+ access log",
}

# fmt: off
WorkloadName = Literal[
    "small", "own", "connect", "post", "upload", "big", "refused", "unknown", "guesses", "keys",
    "limits", "present", "away",
]
# fmt: on

#: How many limits count a request of the workload "limits"; one counts all others.
LIMITS: Final = 5


@dataclass(frozen=True, slots=True)
class Workload:
    """What wrk sends. `status`: of each answer; `path`: of the upstream.

    body_bytes:   of a POST; 0 for a GET
    is_forwarded: an admitted request with one key, which a peer without rules can pass on, too
    only:         the one peer that is measured, by its name; "": all
    """

    name: WorkloadName
    title: str
    path: str
    status: int = 200
    body_bytes: int = 0
    is_forwarded: bool = False
    only: str = ""


WORKLOADS: Final = {
    workload.name: workload
    for workload in (
        Workload("small", "small GET", "/small", is_forwarded=True),
        Workload("own", "fields of their own in requests and answers", "/own", is_forwarded=True),
        Workload("connect", "a connection per request", "/small", is_forwarded=True),
        Workload("post", "4 KiB POST", "/post", body_bytes=4_096, is_forwarded=True),
        Workload("upload", "1 MiB POST", "/post", body_bytes=1_048_576, is_forwarded=True),
        Workload("big", "64 KiB answer", "/big", is_forwarded=True),
        Workload("refused", "all refused with 429", "/small", 429),
        Workload("unknown", "all refused with 401, one key", "/small", 401),
        Workload("guesses", "all refused with 401, 10,000 keys at random", "/small", 401),
        Workload("keys", "10,000 keys at random", "/small"),
        Workload("limits", f"{LIMITS} limits", "/small", only="ours"),
        Workload("present", "Redis present, in turns with away", "/small", only="ours"),
        Workload("away", "Redis away", "/small", only="ours"),
    )
}


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row of a table: everything except the peer."""

    workload: Workload
    connections: int = 64
    layer: Layer = "all"
    workers: int = 1

    @property
    def setup(self) -> tuple[Layer, int, bool]:
        """Scenarios with the same one are measured on the same running peers.

        When Redis returns it has lost its data, and a gateway reads its keys again: that is not to
        affect others.
        """
        return self.layer, self.workers, self.workload.name in ("present", "away")

    @property
    def title(self) -> str:
        """Such as "small GET, 64 connections, 1 worker, all on"."""
        return (
            f"{self.workload.title}, {self.connections} connection{'s'[: self.connections > 1]}, "
            f"{self.workers} worker{'s'[: self.workers > 1]}, {LAYERS[self.layer]}"
        )


#: The scenario of the ratios, and the only one of a quick run.
MAIN: Final = Scenario(WORKLOADS["small"])


def full() -> list[Scenario]:
    """All scenarios of a report; those of one setup are adjacent."""
    small = WORKLOADS["small"]
    return [
        MAIN,
        *(Scenario(small, connections=connections) for connections in (512, 1)),
        *(Scenario(workload) for workload in WORKLOADS.values() if workload is not small),
        Scenario(small, workers=2),
        *(Scenario(small, layer=layer) for layer in LAYERS if layer != "all"),
    ]


def read_only(words: Sequence[str], peers: Iterable[str]) -> list[tuple[str, str]]:
    """What `--only WORKLOAD/PEER` selects: pairs, "" for any. Raises ValueError."""
    known, chosen = set(peers), []
    for word in words:
        workload, _, peer = word.partition("/")
        if workload and workload not in get_args(WorkloadName):
            raise ValueError(f"no workload {workload!r}, expected {', '.join(WORKLOADS)}")
        if peer and peer not in known:
            raise ValueError(f"no peer {peer!r}, expected {', '.join(sorted(known))}")
        chosen.append((workload, peer))
    return chosen


def is_chosen(only: Sequence[tuple[str, str]], workload: str, peer: str) -> bool:
    """Is this scenario measured? Without a selection, all are."""
    return not only or any(w in ("", workload) and p in ("", peer) for w, p in only)
