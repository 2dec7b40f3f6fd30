"""Real MCP clients work through the gateway as without it, and show why they are refused."""

from __future__ import annotations

import asyncio
import re

import pytest

from tests.judges.clients import CASES, Shown, clients, everyone
from tests.judges.environments import needs_judges
from tests.judges.tables import PAGE, clients_table

# All clients run within the first test.
pytestmark = [needs_judges(), pytest.mark.timeout(400)]

#: Lose their transport with an answer that is no 2xx, and show its status alone.
FRAGILE = {"mcp-1"}
#: Show only the status of an answer to the first request.
TERSE = {"mcp-1", "client-2-auto"}
#: Begin another session in place of one that is not known.
RENEWING = {"mcp-remote"}
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
    assert found[name]
    hung = {case: shown for case, shown in found[name].items() if "hung" in shown.outcomes}
    assert hung == {}


@by_client
@pytest.mark.parametrize("case", sorted(CASES.keys() - {"404"}))
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
@pytest.mark.parametrize("case", ["permission", "unknown"])
def test_a_tool_that_is_refused(found: dict[str, dict[str, Shown]], name: str, case: str) -> None:
    """The message says why, and the session goes on."""
    shown = found[name][case]
    assert shown.has_message(CASES[case])
    assert shown.outcomes[3:] == ["ok", "ok"]


@by_client
@pytest.mark.parametrize("case", ["401", "403", "503"])
def test_no_connection(found: dict[str, dict[str, Shown]], name: str, case: str) -> None:
    """The client does not connect, and shows the message, or at least the status."""
    shown = found[name][case]
    assert shown.has_message(CASES[case]) or (name in TERSE and case in shown.steps[0].text)


@by_client
def test_a_session_that_is_not_known(found: dict[str, dict[str, Shown]], name: str) -> None:
    """Only mcp-remote begins a new one; without sessions there is nothing to refuse."""
    shown = found[name]["404"]
    if name in RENEWING or not clients()[name].has_sessions:
        assert set(shown.outcomes) == {"ok"}
    else:
        assert shown.has_message(CASES["404"]) or name in FRAGILE
        assert not shown.goes_on(CASES["404"])


@by_client
def test_a_server_that_breaks(found: dict[str, dict[str, Shown]], name: str) -> None:
    """The call fails, and others follow."""
    shown = found[name]["502"]
    if name in FRAGILE:
        assert "502 Bad Gateway" in shown.steps[2].text
    else:
        assert shown.has_message(CASES["502"])
        assert shown.outcomes[3:] == ["ok", "ok"]


def test_the_documented_table(found: dict[str, dict[str, Shown]]) -> None:
    """The page says what this run showed; `python -m tests.judges.tables` renews it."""
    assert clients_table(found) in PAGE.read_text(encoding="utf-8")
