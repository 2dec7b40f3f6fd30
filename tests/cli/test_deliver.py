"""What `gateway deliver` and the options for couriers refuse before anything starts."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gateway.cli.main import cli
from gateway.cli.options import read_courier_url
from gateway.cli.serve import serve
from gateway.domain.upstreams import Server
from tests.kit.policies import write_policies


def test_memory_has_no_couriers(tmp_path: Path) -> None:
    """A usage error: nothing of it could be shared with a gateway."""
    words = ["deliver", "--policies", str(tmp_path), "--store", "memory://"]
    refused = CliRunner().invoke(cli, words)
    assert refused.exit_code == 2
    assert "--store: memory:// is inside one gateway" in refused.output


@pytest.mark.parametrize("command", ["deliver", "serve"])
def test_a_weak_key(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing starts with a webhook key that can be guessed; the key is in no message."""
    monkeypatch.setenv("GATEWAY_WEBHOOK_KEY", "hunter2")
    policies = write_policies(tmp_path / "policies", "http://127.0.0.1:9")
    listening = ("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", str(tmp_path))
    words = [command, "--policies", str(policies), "--store", "redis://127.0.0.1:1", *listening]
    refused = CliRunner().invoke(cli, words)
    assert refused.exit_code == 1
    assert "GATEWAY_WEBHOOK_KEY: found 7 characters, expected a webhook key" in refused.output
    assert "hunter2" not in refused.output


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("http://couriers:8081", Server("http", "couriers", 8081)),
        ("https://couriers/", Server("https", "couriers", 443)),
        ("http://[::1]:80", Server("http", "::1", 80)),
        ("", None),
    ],
)
def test_where_couriers_are(text: str, server: Server | None) -> None:
    """A URL without anything behind the port."""
    assert read_courier_url(click.Context(serve), serve.params[0], text) == server


@pytest.mark.parametrize(
    "text", ["couriers:8081", "http://", "http://a/b", "http://u@a", "http://a:99999", "ftp://a"]
)
def test_where_no_couriers_are(text: str) -> None:
    """A usage error that quotes it."""
    with pytest.raises(click.BadParameter, match="expected a URL such as http://couriers:8081"):
        read_courier_url(click.Context(serve), serve.params[0], text)
