"""The values of deliveries."""

from __future__ import annotations

from gateway.domain.webhooks.deliveries import SHARDS, Delivery, is_id, shard_of


def test_shards() -> None:
    """An integration is always in the same one, and all are used."""
    assert {shard_of(f"int_{number}") for number in range(1_000)} == set(range(SHARDS))
    assert shard_of("int_1") == shard_of("int_1")


def test_ids() -> None:
    """That of a delivery has those of its event and its watch."""
    delivery = Delivery("evt_1:wat_2:0", "queued", "", 1, 0, ())
    assert (delivery.event, delivery.watch) == ("evt_1", "wat_2")
    assert all(map(is_id, ("evt_1", "wat-2")))
    assert not any(map(is_id, ("", "a:b", "a b", "x" * 65)))
