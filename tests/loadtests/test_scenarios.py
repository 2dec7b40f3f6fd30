"""The scenarios of a comparison."""

from __future__ import annotations

from itertools import groupby

import pytest

from loadtests.compare.peers import PEERS
from loadtests.compare.scenarios import (
    LAYERS,
    MAIN,
    WORKLOADS,
    Scenario,
    full,
    is_chosen,
    read_only,
)
from tests.kit.rows import each_row


def test_a_full_run_has_every_dimension() -> None:
    """Each workload, 1, 64 and 512 connections, 1 and 2 workers, and each layer."""
    rows = full()
    assert MAIN in rows
    assert {row.workload.name for row in rows} == set(WORKLOADS)
    assert {row.connections for row in rows} == {1, 64, 512}
    assert {row.workers for row in rows} == {1, 2}
    assert {row.layer for row in rows} == set(LAYERS)
    assert len(set(rows)) == len(rows)


def test_rows_of_one_setup_are_adjacent() -> None:
    """No peer is started twice for the same layer and number of workers."""
    setups = [setup for setup, _ in groupby(full(), key=lambda row: row.setup)]
    assert len(setups) == len(set(setups))


def test_every_layer_has_a_peer() -> None:
    """A layer that only the gateway has would compare nothing."""
    for layer in LAYERS:
        assert sum(layer in peer.layers for peer in PEERS.values()) >= 2, layer


def test_titles_count_rightly() -> None:
    """One connection and one worker are singular."""
    title = Scenario(WORKLOADS["big"], connections=1, layer="log", workers=2).title
    assert title == "64 KiB answer, 1 connection, 2 workers, + access log"


@each_row(
    ("words", "workload", "peer", "expected"),
    [
        ([], "small", "envoy", True),
        (["small/envoy"], "small", "envoy", True),
        (["small/envoy"], "small", "ours", False),
        (["small"], "small", "ours", True),
        (["small"], "post", "ours", False),
        (["/ours"], "post", "ours", True),
        (["small/ours", "post/envoy"], "post", "envoy", True),
        (["small/ours", "post/envoy"], "post", "ours", False),
    ],
)
def test_only_selects(words: list[str], workload: str, peer: str, expected: bool) -> None:
    """Either half may be empty; several selections add up; without any, all are selected."""
    assert is_chosen(read_only(words, PEERS), workload, peer) is expected


@each_row("word", ["smal", "small/enovy", "/nobody", "x/ours"])
def test_an_unknown_name_is_refused(word: str) -> None:
    """A misspelled name measures nothing; the error lists the known names."""
    with pytest.raises(ValueError, match=r"expected .*(small|ours)"):
        read_only([word], PEERS)
