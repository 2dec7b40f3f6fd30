"""No spelling of a path evades the limit or the scope of its route."""

from __future__ import annotations

import pytest

from tests.end_to_end.conftest import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")

SEARCHES = [
    "//api/search/x",
    "/api//search/x",
    "/api/search//x",
    "/./api/search/x",
    "/api/./search/x",
    "/x/../api/search/x",
    "/api/y/../search/x",
    "/api/search/y/../x",
    "/api/%73earch/x",
    "/%61%70%69/search/x",
    "/api/%2e/search/x",
    "/api/y/%2e%2e/search/x",
    "/api/y/.%2E/search/x",
    "/api/search/x/",
    "/api/search/",
    "/api/search",
    "/api/search/x?y=/api/other",
    "http://gateway.test/api/search/x",
    "http://gateway.test//api/%73earch/x",
    "/API/Search/x",
    "/api/SEARCH",
    "/%41pi/search/x",
]

AMBIGUOUS = [
    "/../api/search/x",
    "/api/../../api/search/x",
    "/api%2fsearch/x",
    "/api/search%2Fx",
    "/api%5csearch/x",
    "/api\\search/x",
    "/api/search;v=1/x",
    "/api;/search/x",
    "/api/search/x;y",
    "/api/%3b/search/x",
    "/api/%2573earch/x",
    "/api/%252e%252e/search/x",
    "/api/search%00/x",
    "/api/%zz/x",
    "/api/%7",
    "/api/search/x#y",
    "api/search/x",
    "/api/search.",
    "/api/search%20",
    "/api/search%3fx",
    "/api/search%23/x",
    "/api/..%20/search/x",
]


@pytest.mark.parametrize("target", SEARCHES)
async def test_a_spelling_of_search_is_search(site: Site, target: str) -> None:
    """The spelling counts for the limit of search, and is forwarded in canonical form."""
    answer = await site.gateway.fetch(target, key=await site.key())
    assert (answer.status, answer["X-RateLimit-Limit"]) == (200, "30")
    forwarded = site.upstream.requests[-1].target.partition("?")[0]
    assert forwarded.rstrip("/").lower() in ("/api/search/x", "/api/search")


@pytest.mark.parametrize("target", AMBIGUOUS)
async def test_an_ambiguous_spelling_is_refused(site: Site, target: str) -> None:
    """A path that servers read in different ways is a 400 and is not forwarded."""
    answer = await site.gateway.fetch(target, key=await site.key())
    assert answer.status == 400
    assert site.upstream.requests == []


@pytest.mark.parametrize(
    "target",
    ["//v1/connectors", "/v1//connectors", "/v1/./connectors", "/v1/%63onnectors",
     "/v1/x/../connectors", "/v1/connectors/", "/v1%2fconnectors", "/v1/connectors;x",
     "/v1/connectors/.", "/v1/connectors?scope=connectors:read", "/V1/Connectors",
     "/v1/connector%C5%BF", "/v1/connectors.", "/v1/connectors%20", "/v1/connectors%3F",
     "/v1/connectors%23/x", "/V1/connectorS.%3Fx"],
)  # fmt: skip
async def test_no_spelling_escapes_the_scope(site: Site, target: str) -> None:
    """Without the scope, no other spelling of the path reaches the connectors."""
    answer = await site.gateway.fetch(target, key=await site.key())
    assert answer.status in (400, 403)
    assert site.upstream.requests == []


async def test_no_spelling_of_health_reaches_the_upstream(site: Site) -> None:
    """The gateway's own paths are never forwarded, in any spelling."""
    key = await site.key()
    for target in ("//health", "/v1/./health", "/v1/auth//verify", "/v1/%68ealth", "/V1/Health"):
        assert (await site.gateway.fetch(target, key=key)).status == 200
    assert site.upstream.requests == []
