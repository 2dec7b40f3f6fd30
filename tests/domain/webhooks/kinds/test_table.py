"""What holds for each kind of provider."""

from __future__ import annotations

import json
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.webhooks.event_types import is_type
from gateway.domain.webhooks.kinds.forms import RESOURCES
from gateway.domain.webhooks.kinds.table import KINDS
from gateway.domain.webhooks.signatures import Unverified
from tests.domain.webhooks.kinds.cases import FIXTURES

EVENTS = {
    "x-github-event": "pull_request",
    "x-gitea-event": "issues",
    "x-event-key": "pr:opened",
}
PAYLOADS: list[dict[str, Any]] = [
    {"action": "opened"},
    {"action": "published"},
    {"object_kind": "merge_request", "object_attributes": {"action": "open"}},
    {"object_kind": "issue", "object_attributes": {"action": "close"}, "assignees": [None]},
    {"eventType": "git.pullrequest.updated"},
    {"eventType": "workitem.updated", "resource": {"fields": {"System.AssignedTo": "a <b>"}}},
    {"webhookEvent": "jira:issue_updated", "changelog": {"items": [None]}},
    {"type": "Issue", "action": "update", "data": {"priority": 99}, "updatedFrom": []},
    {"type": "zen:event-type:ticket.created"},
    {"event": {"event_type": "incident.triggered"}},
    {"type": "PUSH_ARTIFACT", "event_data": {"resources": [None]}},
    {"type": "a.b", "data": {}},
]
#: What data of a type can have for its status.
STATUSES = {
    "pull_request": {"open", "closed", "merged"},
    "ticket": {"open", "in_progress", "closed"},
    "incident": {"triggered", "acknowledged", "resolved"},
}
TYPES = {
    *(f"pull_request.{did}" for did in ("opened", "updated", "closed", "merged", "reopened")),
    *(f"ticket.{did}" for did in ("created", "updated", "closed", "deleted")),
    *(f"incident.{did}" for did in ("triggered", "acknowledged", "resolved")),
    *(f"package.{did}" for did in ("published", "deleted")),
}
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("\ud800"),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
)


#: The kinds of providers: of the others, the gateway makes the events.
PROVIDERS = [name for name, kind in KINDS.items() if kind.captures]


def test_the_names() -> None:
    """Eleven, by the name that events have, and the gateway's own two."""
    assert sorted(KINDS.keys() - PROVIDERS) == ["gateway", "operator"]
    assert sorted(PROVIDERS) == [
        *("azure-devops", "bitbucket", "generic", "gitea", "github", "gitlab"),
        *("harbor", "jira", "linear", "pagerduty", "zendesk"),
    ]


def test_fixtures() -> None:
    """Each kind has some, and all types are among them."""
    events = {
        path.name: [json.loads(file.read_text())["event"]["type"] for file in path.iterdir()]
        for path in FIXTURES.iterdir()
    }
    assert sorted(name.replace("_", "-") for name in events) == sorted(PROVIDERS)
    assert {type for name, types in events.items() if name != "generic" for type in types} == {
        *TYPES,
        "",
    }


def fits(data: Any, form: Any) -> None:
    """It has exactly the fields of the form, each of its type."""
    if is_typeddict(form):
        hints = get_type_hints(form)
        assert data.keys() == hints.keys()
        for name, inner in hints.items():
            fits(data[name], inner)
    elif get_origin(form) is list:
        for each in data:
            fits(each, *get_args(form))
    else:
        assert type(data) is form


@pytest.mark.parametrize("name", KINDS)
@given(st.sampled_from(PAYLOADS), JUNK, st.sampled_from(["", *EVENTS.values(), "package"]))
def test_nothing_raises(name: str, payload: dict[str, Any], junk: Any, event: str) -> None:
    """Whatever a provider sends: a type of the service or none, and data that is JSON."""
    kind = KINDS[name]

    def header(asked: str) -> str:
        return event if asked in EVENTS else ""

    for found in (payload, {**payload, "issue": junk, "data": junk, "resource": junk}, junk):
        captured = kind.normalize(header, found)
        assert not captured.type or is_type(captured.type)
        assert isinstance(kind.delivery_id(header, found), str)
        json.dumps(captured.data)
        if captured.type and name != "generic":
            assert captured.type in TYPES
            resource = captured.type.partition(".")[0]
            fits(captured.data, RESOURCES[resource])
            assert captured.data.get("status") in STATUSES.get(resource, {None})
            json.dumps(captured.data, ensure_ascii=False).encode()


@pytest.mark.parametrize("name", KINDS)
def test_without_a_signature(name: str) -> None:
    """Each refuses what is not signed, and names the header that it expects."""
    with pytest.raises(Unverified, match="expected"):
        KINDS[name].verify(b"{}", lambda _: "", ["s" * 20], 0.0)


@pytest.mark.parametrize("name", KINDS)
def test_a_wrong_signature(name: str) -> None:
    """Each refuses it, whatever its form is."""
    for value in ("x", "sha256=00", "v1=00", "Basic eA==", "\xff", "v1=" + "0" * 64, "\udcff"):
        with pytest.raises(Unverified):
            KINDS[name].verify(b"{}", lambda _, value=value: value, ["s" * 20], 0.0)  # type: ignore[misc]
