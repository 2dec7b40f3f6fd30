"""The header with the id of a webhook: which may be one, and what it may have."""

from __future__ import annotations

import pytest

from gateway.domain.webhooks.id_headers import MOST_NAME, MOST_VALUE, id_in, is_id_header
from gateway.domain.webhooks.kinds.table import KINDS
from gateway.domain.webhooks.signatures import DEFAULT_NAMES, STANDARD_HEADERS


@pytest.mark.parametrize(
    "name", ["x-delivery-id", "idempotency-key", "x", "x.y_z~1", "ce-id", "x" * MOST_NAME]
)
def test_names(name: str) -> None:
    assert is_id_header(name)


@pytest.mark.parametrize(
    "name",
    [
        # No name, or none in lower case.
        *("", "x y", "x:", "x\n", "x\r\ny: z", "é", "\ud800", "x" * (MOST_NAME + 1), "X-Delivery"),
        "x" * 10_000,
        # Credentials, and what is the same in all webhooks of a sender.
        *("authorization", "proxy-authorization", "apikey", "cookie", "host", "user-agent"),
        *("content-type", "content-length", "content-", "accept", "accept-language"),
        # What the gateway reads or sets itself.
        *("x-request-id", "x-gateway-account", "x-forwarded-for", "x-forwarded-host", "via"),
        *("transfer-encoding", "x_request_id"),
        # Those of the signature.
        *(*STANDARD_HEADERS, DEFAULT_NAMES.timestamp, DEFAULT_NAMES.signature),
    ],
)
def test_no_names(name: str) -> None:
    assert not is_id_header(name)


@pytest.mark.parametrize("value", ["1", "d-81", "!~", "7f1c8a60-d3b2-479e", "x" * MOST_VALUE])
def test_ids(value: str) -> None:
    assert id_in(value) == value


@pytest.mark.parametrize(
    "value",
    ["", " ", "a b", "a, b", "a\t", "a\n", "\x7f", "é", "\udcff", "x" * (MOST_VALUE + 1)],
)
def test_no_ids(value: str) -> None:
    """Two headers are one value with a space."""
    assert id_in(value) == ""


def test_kinds() -> None:
    """Providers have a header of their own, or none."""
    assert [name for name, kind in KINDS.items() if kind.takes_id_header] == ["generic"]
