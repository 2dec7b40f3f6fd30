"""Secrets of watches: derived, and two of them for a while after a rotation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.domain.webhooks.signatures import sign, verify
from gateway.domain.webhooks.watches import OVERLAP_US, Rate, Watch, secret_of
from gateway.policies.fields import read_delivery_rate

MASTER = b"m" * 32
WATCH = Watch("w1", "int_1", "https://hook.example/", ("a.*",), created_us=1)
NOW_US = 1_800_000_000_000_000


def test_secrets_differ() -> None:
    """By watch, by version and by master key; the same ones give the same."""
    made = [
        secret_of(master, watch, version)
        for master in (MASTER, b"n" * 32)
        for watch in ("w1", "w11")
        for version in (1, 2, 11)
    ]
    assert len(set(made)) == len(made)
    assert secret_of(MASTER, "w1", 1) == made[0]
    assert made[0].startswith("whsec_")


@pytest.mark.parametrize(("age_us", "count"), [(0, 2), (OVERLAP_US - 1, 2), (OVERLAP_US, 1)])
def test_after_a_rotation(age_us: int, count: int) -> None:
    """What is signed is verified by the new secret, and for a day by the one before."""
    rotated = replace(WATCH, version=2, rotated_us=NOW_US - age_us)
    secrets = rotated.secrets(MASTER, NOW_US)
    assert len(secrets) == count
    headers = sign(b"{}", secrets, event_id="evt", now_s=NOW_US // 1_000_000)
    for secret in secrets:
        now_s = NOW_US / 1_000_000
        assert verify(b"{}", headers, [secret], now_s=now_s, forms=["standard"]) == "standard"
    assert secrets[0] == secret_of(MASTER, "w1", 2)


def test_the_first_secret_is_alone() -> None:
    assert WATCH.secrets(MASTER, NOW_US) == (secret_of(MASTER, "w1", 1),)


@pytest.mark.parametrize("text", ["1/second", "600/minute", "4294967295/hour"])
def test_a_rate(text: str) -> None:
    """It is written as it is read."""
    assert str(Rate(*read_delivery_rate(text))) == text
