"""Sealed secrets: what was sealed is opened, by whoever has the master key, for its integration."""

from __future__ import annotations

import pytest

from gateway.domain.ports import CorruptRecord
from gateway.webhooks.sealing import Sealer

SEALER = Sealer(b"m" * 32)
SECRETS = ("s3cret", "user:pässword")


def test_round_trip() -> None:
    sealed = SEALER.seal("int_1", SECRETS)
    assert SEALER.open("int_1", sealed) == SECRETS
    assert sealed.isascii()
    assert "s3cret" not in sealed
    assert SEALER.seal("int_1", SECRETS) != sealed


@pytest.mark.parametrize("sealed", ["", "AAAA", "é", "A" * 100, "not base64!"])
def test_what_was_not_sealed(sealed: str) -> None:
    with pytest.raises(CorruptRecord):
        SEALER.open("int_1", sealed)


def test_of_another_one() -> None:
    """Another integration's, or of another master key, or changed in one bit."""
    sealed = SEALER.seal("int_1", SECRETS)
    flipped = ("B" if sealed[0] == "A" else "A") + sealed[1:]
    for sealer, integration, text in (
        (SEALER, "int_2", sealed),
        (Sealer(b"n" * 32), "int_1", sealed),
        (SEALER, "int_1", flipped),
    ):
        with pytest.raises(CorruptRecord):
            sealer.open(integration, text)
