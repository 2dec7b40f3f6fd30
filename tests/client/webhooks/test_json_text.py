"""The client library counts the levels of JSON as the gateway does."""

from __future__ import annotations

from pathlib import Path

from gateway_client.webhooks import json_text

from gateway.domain import json_text as own


def test_the_same_module() -> None:
    """It is a copy of the gateway's, which has the tests; it is a distribution of its own."""
    copy, original = (Path(module.__file__ or "").read_bytes() for module in (json_text, own))
    assert copy == original
