"""The shipped policies are found in a checkout and where the package was installed."""

from __future__ import annotations

from importlib.metadata import Distribution, PathDistribution
from pathlib import Path

import click
import pytest

import gateway
from gateway.cli import shipped


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages; this one is in it, without its shared files."""
    site = tmp_path / "lib/site-packages"
    info = site / "x-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: x\nVersion: 0.1.0\n")

    def find(name: str) -> Distribution:
        assert name == shipped.DISTRIBUTION
        return PathDistribution(info)

    monkeypatch.setattr(gateway, "__file__", str(site / "gateway/__init__.py"))
    monkeypatch.setattr(shipped, "distribution", find)
    monkeypatch.chdir(tmp_path)
    return site


def test_a_checkout() -> None:
    """They are beside the package."""
    assert shipped.find_policies() == Path(gateway.__file__).parent.parent / "policies"


def test_an_installation(site: Path, tmp_path: Path) -> None:
    """They are where the list of installed files says."""
    folder = tmp_path / "share/rate-limiting-gateway/policies"
    folder.mkdir(parents=True)
    (folder / "plans.yaml").touch()
    record = "../../share/rate-limiting-gateway/policies/plans.yaml,,\ngateway/x.yaml,,\n"
    (site / "x-0.1.0.dist-info/RECORD").write_text(record)
    assert shipped.find_policies() == folder


def test_an_installation_without_them(site: Path) -> None:
    """The error says what to do."""
    with pytest.raises(click.ClickException, match=r"lacks the shipped policies: .* --policies"):
        shipped.find_policies()
