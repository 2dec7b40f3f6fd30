"""Every route of the example: which server gets its request, with which path, and its decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from gateway.policies.load import load
from tests.kit.tidybill import API, APP, Tidybill

pytestmark = pytest.mark.asyncio(loop_scope="session")

#: Those of the upstream `invoices`.
INVOICES = ("large", "small")
PAYMENTS, WEB = ("payments",), ("web",)
JSON = [("Content-Type", "application/json")]


@dataclass(frozen=True)
class Row:
    """A request, and what becomes of it.

    services: those of which one gets it; path: what that gets, where it is another one
    limit:    the governing one; client: the address, where the route has a list of them
    """

    route: str
    request: str
    services: tuple[str, ...]
    path: str = ""
    limit: str = "plan"
    cost: int = 1
    body: bytes | None = None
    client: str | None = None
    has_key: bool = True
    status: int = 200


def keyless(*given: Any, **more: Any) -> Row:
    return Row(*given, has_key=False, **more)


def unlimited(*given: Any, **more: Any) -> Row:
    """Of a route without limits: it reports that on failed authentications."""
    return keyless(*given, limit="failed_auth", cost=0, **more)


def created(route: str, path: str, **more: Any) -> Row:
    """A POST that has its own limit."""
    return Row(route, f"POST {API}{path}", INVOICES, limit=route, **more)


BATCH = b'{"invoices": [{}, {}, {}]}'
ROWS = [
    Row("customers", f"GET {API}/v1/customers/7?fields=name", INVOICES),
    Row("customers-write", f"PATCH {API}/v1/customers/7", INVOICES, body=b"{}"),
    Row("invoices", f"GET {API}/v1/invoices/2027-1/lines", INVOICES),
    created("invoices-create", "/v1/invoices", body=b"{}"),
    Row("invoices-change", f"DELETE {API}/v1/invoices/2027-1", INVOICES),
    created("invoices-batch", "/v1/invoices/batch", cost=3, body=BATCH),
    Row("invoices-send", f"POST {API}/v1/invoices/2027-1/send", INVOICES),
    Row(
        "invoices-pdf",
        f"GET {API}/v1/invoices/9/pdf?l=de",
        INVOICES,
        "/render/invoice/9?l=de",
        cost=5,
    ),
    Row("search", f"GET {API}/v1/search?q=paper", INVOICES, limit="search"),
    Row("reports", f"GET {API}/v1/reports/taxes/2026", INVOICES, limit="reports"),
    Row("exports-create", f"POST {API}/v1/exports", INVOICES, limit="exports-daily"),
    Row("exports", f"GET {API}/v1/exports/17", INVOICES),
    Row("imports", f"POST {API}/v1/imports", INVOICES, limit="rows", cost=1000, body=b"a;b"),
    Row("events", f"GET {API}/v1/events", INVOICES, limit="streams"),
    Row("payments", f"GET {API}/v1/payments/3", PAYMENTS, "/payments/3"),
    Row("payments-create", f"POST {API}/v1/payments", PAYMENTS, "/payments", "payments-create"),
    Row("payouts", f"POST {API}/v1/payouts", PAYMENTS, "/payouts", "payouts", client="203.0.113.5"),
    unlimited(
        "card-events",
        f"POST {API}/hooks/cards",
        PAYMENTS,
        "/incoming/cards",
        client="198.51.100.130",
    ),
    keyless("status", f"GET {API}/v1/status", INVOICES, "/healthz", "status"),
    unlimited("v0", f"GET {API}/v0/bills", (), status=410),
    unlimited("docs", f"GET {API}/", (), status=308),
    keyless("app", f"GET {APP}/invoices/new", WEB, "/tidybill/invoices/new", "pages"),
    keyless("session", f"POST {APP}/session", WEB, "/tidybill/session", "sign-ins", body=b"user=1"),
    unlimited("assets", f"GET {APP}/assets/app-1f3a.js", WEB, "/tidybill/app-1f3a.js"),
    unlimited("robots", f"GET {APP}/robots.txt", ()),
    keyless("pay", f"GET {APP}/pay/8c/card", PAYMENTS, "/checkout/8c/card", "pay"),
    keyless(
        "pay-confirm", f"POST {APP}/pay/8c/confirm", PAYMENTS, "/checkout/8c/confirm", "pay-confirm"
    ),
    keyless("live", f"GET {APP}/live", WEB, "/tidybill/live", "live"),
    unlimited(
        "statements",
        f"GET {APP}/statements/7",
        WEB,
        "/tidybill/statements/7",
        client="198.51.100.3",
    ),
]


async def test_each_route_has_a_row(tidybill: Tidybill) -> None:
    """And there are enough of them, on two hosts."""
    routes = load(tidybill.gateway.policies).routes
    assert sorted(row.route for row in ROWS) == sorted(routes)
    assert len(routes) >= 25
    assert {each.hosts for each in routes.values()} == {(API,), (APP,)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.route)
async def test_a_request_of_the_route(tidybill: Tidybill, row: Row) -> None:
    """It reaches one server of the upstream, once, with the path and the host that it knows."""
    method, url = row.request.split(" ")
    # An account whose customers and invoices the canary does not have.
    key = await tidybill.key(account="first") if row.has_key else None
    answer = await tidybill.fetch(
        url, key=key, method=method, headers=JSON, body=row.body, client=row.client
    )
    assert answer.status == row.status, answer
    received = tidybill.received(answer)
    line = await tidybill.line(answer)
    assert (line["route"], line["decision"]) == (row.route, "admitted")
    assert (line["cost"], line["limit"]) == (row.cost, row.limit)
    if row.services:
        ((service, request),) = received
        assert service in row.services
        assert request.target == (row.path or "/" + url.partition("/")[2])
        assert request.body == (row.body or b"")
        host = "payments.internal" if service == "payments" else url.partition("/")[0]
        assert request.maybe("Host").partition(":")[0] == host
        assert request.all("Authorization") == []
        assert bool(request.maybe("X-Gateway-Account")) == row.has_key
    else:
        assert received == []


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (f"GET {API}/robots.txt", 404),
        (f"GET {API}/v1/payments/3/../../../x", 404),
        (f"GET {APP}/v1/customers/7/../../../live/x", 200),
        (f"POST {APP}/v1/customers", 405),
        (f"DELETE {API}/v1/search", 405),
    ],
)
async def test_what_has_no_route(tidybill: Tidybill, request_line: str, status: int) -> None:
    """A path belongs to one host, and what is left over to none."""
    method, url = request_line.split(" ")
    answer = await tidybill.fetch(url, key=await tidybill.key(), method=method)
    assert answer.status == status
