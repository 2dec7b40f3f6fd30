"""Routes that receive webhooks, over real sockets: nothing is forwarded before it is verified."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.domain.webhooks.signatures import sign
from tests.kit.wire import Header, Response, Wire, build_request
from tests.proxy.conftest import Bench, Start

SECRET, NEXT = "s" * 20, "n" * 20
ROUTES = """
routes:
  hooks: {match: "POST /hooks", upstream: api, auth: none, verify_signature: partner}
  keyed: {match: "* /keyed", upstream: api, verify_signature: partner, rate: 20/minute}
  plain: {match: "* /plain", upstream: api, rate: 20/minute}
  cost:
    match: "* /cost"
    upstream: api
    verify_signature: partner
    rate: 20/minute
    cost: {json: ., max: 10}
"""
PLANS = "plans:\n  enterprise: {rate: 6000/minute, burst: 10000}\n"
BODY = b'["a", "b", "c"]'
JSON: Header = ("Content-Type", "application/json")


@pytest.fixture
async def bench(start: Start, tmp_path: Path) -> Bench:
    secrets = tmp_path / "webhook-secrets.txt"
    secrets.write_text(f"{SECRET}\n{NEXT}\n")
    signatures = f"signatures: {{partner: {{secrets: {secrets}, max_body: 64KiB}}}}\n"
    gateway = "failed_auth: {rate: 20/minute}\n"
    return await start(files={"routes": ROUTES + signatures, "plans": PLANS, "gateway": gateway})


def signed(body: bytes = BODY, secret: str = SECRET, at_s: float = 0.0) -> list[Header]:
    made = sign(body, [secret], event_id="evt_1", now_s=int(at_s or time.time()))
    return [JSON, *made.items()]


def unsigned() -> list[Header]:
    return [JSON]


def old() -> list[Header]:
    return signed(at_s=time.time() - 10_000)


async def sent(
    bench: Bench, headers: list[Header], body: bytes = BODY, path: str = "/hooks"
) -> Response:
    async with await bench.connect() as wire:
        return await wire.request("POST", path, headers, body)


@pytest.mark.parametrize("secret", [SECRET, NEXT])
async def test_a_right_signature(bench: Bench, secret: str) -> None:
    """The bytes that were verified are forwarded, with their headers."""
    assert (await sent(bench, signed(secret=secret))).status == 200
    (request,) = bench.upstream.requests
    assert request.body == BODY
    assert request.maybe("webhook-id") == "evt_1"


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (unsigned, "no signature: expected x-service-timestamp"),
        (lambda: signed(BODY + b" "), "does not fit"),
        (lambda: signed(secret="o" * 20), "does not fit"),
        (old, "s old, and 300 s are tolerated"),
        (lambda: [*signed(), ("X-Service-Timestamp", "now")], None),
    ],
)
async def test_a_wrong_one(
    bench: Bench, made: Callable[[], list[Header]], words: str | None
) -> None:
    """401, and nothing reaches the upstream; a header that comes twice is refused as everywhere."""
    response = await sent(bench, made())
    if words is None:
        assert response.status == 400
    else:
        assert (response.status, response.json()["code"]) == (401, "INVALID_SIGNATURE")
        assert words in response.json()["message"]
        assert SECRET not in response.body.decode()
    assert bench.upstream.requests == []


@pytest.mark.parametrize("made", [unsigned, old])
async def test_a_body_that_cannot_help(bench: Bench, made: Callable[[], list[Header]]) -> None:
    """What is refused by its headers alone is refused before its body arrives."""
    async with await bench.connect() as wire:
        length: Header = ("Content-Length", "60000")
        await wire.send(build_request("POST", "/hooks", [*made(), length]))
        assert (await wire.read_response("POST")).status == 401


async def test_failures_count_for_the_address(bench: Bench) -> None:
    """As keys that are not valid do: guesses end at the limit."""
    async with await bench.connect() as wire:
        statuses = [(await wire.request("POST", "/hooks", [JSON], BODY)).status for _ in range(30)]
    assert set(statuses) == {401, 429}
    assert statuses[-1] == 429


async def test_with_a_key(bench: Bench) -> None:
    """Both are needed; a refused signature uses nothing of the key's limit, and other routes with
    the same limits need none.
    """
    assert (await sent(bench, signed(), path="/keyed")).status == 401
    response = await sent(bench, [*bench.auth, JSON], path="/keyed")
    assert (response.status, response.json()["code"]) == (401, "INVALID_SIGNATURE")
    response = await sent(bench, [*bench.auth, *signed()], path="/keyed")
    assert (response.status, response["X-RateLimit-Remaining"]) == (200, "19")
    assert (await sent(bench, [*bench.auth, JSON], path="/plain")).status == 200
    assert (await sent(bench, [*bench.auth, JSON], path="/keyed")).status == 401


async def test_with_a_cost(bench: Bench) -> None:
    """The body is verified, then counted."""
    assert (await sent(bench, [*bench.auth, JSON], path="/cost")).status == 401
    response = await sent(bench, [*bench.auth, *signed()], path="/cost")
    assert (response.status, response["X-RateLimit-Remaining"]) == (200, "17")


@pytest.mark.parametrize("size", [64 * 1024, 64 * 1024 + 1])
async def test_the_largest_body(bench: Bench, size: int) -> None:
    """One that is larger is not kept."""
    body = b"x" * size
    response = await sent(bench, signed(body), body)
    assert response.status == (200 if size == 64 * 1024 else 413)


async def test_however_it_arrives(bench: Bench) -> None:
    """In one read, byte by byte, or in chunks."""
    whole = build_request("POST", "/hooks", signed(), BODY)
    async with await bench.connect() as wire:
        for parts in ([whole], [whole[at : at + 1] for at in range(len(whole))]):
            for part in parts:
                await wire.send(part)
            assert (await wire.read_response("POST")).status == 200
        await _send_in_chunks(wire, signed(), BODY)
        assert (await wire.read_response("POST")).status == 200
    assert [request.body for request in bench.upstream.requests] == [BODY] * 3


async def _send_in_chunks(wire: Wire, headers: list[Header], body: bytes) -> None:
    await wire.send(build_request("POST", "/hooks", [*headers, ("Transfer-Encoding", "chunked")]))
    for at in range(len(body)):
        await wire.send(b"1\r\n%b\r\n" % body[at : at + 1])
    await wire.send(b"0\r\n\r\n")
