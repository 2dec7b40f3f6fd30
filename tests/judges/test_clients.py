"""Real MCP clients work through the gateway as without it, and show why they are refused."""

from __future__ import annotations

import asyncio
import re

import pytest

from tests.judges.clients import CASES, Shown, clients, everyone
from tests.judges.environments import needs_judges

pytestmark = needs_judges()

#: Lose their transport with an answer that is no 2xx, and show its status alone.
FRAGILE = {"mcp-1"}
#: Show only the status of an answer to the first request.
TERSE = {"mcp-1", "client-2-auto"}
SECONDS = re.compile(
    r"Rate limit exceeded: 1 request per hour \([\w/-]+\)\. Try again in \d+ second"
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Shown]]:
    """What each client did in each case."""
    return asyncio.run(everyone(tmp_path_factory.mktemp("clients")))


by_client = pytest.mark.parametrize("name", clients())


@by_client
def test_it_works_as_without_the_gateway(found: dict[str, dict[str, Shown]], name: str) -> None:
    """Calls, progress, log messages, questions to the client, a resumed stream, the end."""
    direct, gateway = found[name]["direct"], found[name]["gateway"]
    assert gateway.events == direct.events
    for one, other in zip(direct.steps, gateway.steps, strict=True):
        if one.step == "list":
            # The list is filtered.
            hidden = {"test_audio_content", "test_embedded_resource"}
            tools = [tool for tool in one.text.split(",") if tool not in hidden]
            assert other.text == ",".join(tools)
        else:
            assert other == one
    assert direct.steps[-1].step == "close"
    # A question is asked within a call up to 2025-11-25, and by a result after that: one of them
    # does not work with each client.
    assert sorted(set(direct.outcomes)) == ["error", "ok", "result"]
    assert direct.outcomes.count("error") == 1


@by_client
def test_nothing_hangs(found: dict[str, dict[str, Shown]], name: str) -> None:
    """Whatever is refused: the client says so at once."""
    for case, shown in found[name].items():
        assert "hung" not in shown.outcomes, (case, shown)


@by_client
@pytest.mark.parametrize("case", CASES)
def test_what_is_refused_fails(found: dict[str, dict[str, Shown]], name: str, case: str) -> None:
    """The step that is refused fails, none before it, and it says something."""
    outcomes = found[name][case].outcomes
    at = CASES[case].at
    assert outcomes[:at] == ["ok"] * at
    assert outcomes[at] in {"error", "result"}
    assert found[name][case].steps[at].text


@by_client
@pytest.mark.parametrize("case", ["429", "result", "list", "list-result"])
def test_a_limit(found: dict[str, dict[str, Shown]], name: str, case: str) -> None:
    """The message with the seconds is shown, and the session goes on.

    A client that loses its transport with a 429 needs `limited_calls: result`.
    """
    shown, at = found[name][case], CASES[case].at
    if name in FRAGILE and case in {"429", "list"}:
        assert "429 Too Many Requests" in shown.steps[at].text
        assert shown.outcomes[at + 1] == "lost"
        return
    assert SECONDS.search(shown.steps[at].text), shown.steps[at]
    if case == "result":
        assert shown.outcomes[at] == "result"
    if case.startswith("list"):
        # Refused again, which only one that goes on can be.
        assert SECONDS.search(shown.steps[at + 1].text)
        assert shown.outcomes[at + 2] == "ok"
    else:
        assert shown.outcomes[at + 1 :] == ["ok", "ok"]


@by_client
@pytest.mark.parametrize(
    ("case", "words"),
    [("permission", "Needed: scm:read."), ("unknown", "Unknown tool: test_embedded_resource.")],
)
def test_a_tool_that_is_refused(
    found: dict[str, dict[str, Shown]], name: str, case: str, words: str
) -> None:
    """The message says why, and the session goes on."""
    shown = found[name][case]
    assert words in shown.steps[2].text
    assert shown.outcomes[3:] == ["ok", "ok"]


@by_client
@pytest.mark.parametrize(
    ("case", "words", "status"),
    [
        ("401", "API key", "401"),
        ("403", "Needed: tools:admin.", "403"),
        ("503", "No healthy upstream server. Try again shortly.", "503"),
    ],
)
def test_no_connection(
    found: dict[str, dict[str, Shown]], name: str, case: str, words: str, status: str
) -> None:
    """The client does not connect, and shows the message, or at least the status."""
    assert (status if name in TERSE else words) in found[name][case].steps[0].text


@by_client
def test_a_server_that_breaks(found: dict[str, dict[str, Shown]], name: str) -> None:
    """The call fails, and others follow."""
    shown = found[name]["502"]
    if name in FRAGILE:
        assert "502 Bad Gateway" in shown.steps[2].text
    else:
        assert "closed the connection before it responded" in shown.steps[2].text
        assert shown.outcomes[3:] == ["ok", "ok"]
