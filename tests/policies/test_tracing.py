"""`tracing` in the policy files."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.domain.tracing import Tracing
from gateway.policies import tracing
from gateway.policies.faults import PolicyFaults
from gateway.policies.load import load
from tests.kit.policies import GATEWAY, write_policies


@pytest.fixture
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_is_installed", lambda: True)


def read(folder: Path, text: str) -> Tracing | None:
    return load(write_policies(folder, "http://127.0.0.1:1", gateway=GATEWAY + text)).tracing


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("tracing: {}", Tracing(0.01, False)),
        ("tracing: {sample: 0%}", Tracing(0.0)),
        ("tracing: {sample: 100%, identity: true}", Tracing(1.0, True)),
        ("tracing: {sample: 0.001%}", Tracing(0.00001)),
    ],
)
def test_valid(tmp_path: Path, text: str, expected: Tracing | None) -> None:
    assert read(tmp_path, text) == expected


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tracing: true", "expected a mapping with one of sample, identity"),
        ("tracing: {sample: 0.1}", "a percentage from 0% to 100%"),
        ("tracing: {sample: 101%}", "found '101%', expected a percentage from 0%"),
        ("tracing: {sample: -1%}", "from 0% to 100%"),
        ("tracing: {sample: 100.5%}", "from 0% to 100%"),
        ("tracing: {identity: 1}", "expected true or false"),
        ("tracing: {sampel: 1%}", "did you mean 'sample'"),
    ],
)
def test_faults(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(PolicyFaults) as caught:
        read(tmp_path, text)
    assert said in str(caught.value)


def test_the_extra_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault says what to install; policies without traces need nothing."""
    monkeypatch.setattr(tracing, "_PACKAGES", ("opentelemetry.nothing.such",))
    assert read(tmp_path, "") is None
    with pytest.raises(PolicyFaults) as caught:
        read(tmp_path, "tracing: {sample: 1%}")
    assert "tracing: " in str(caught.value)
    assert "pip install 'rate-limiting-gateway[otel]'" in str(caught.value)
