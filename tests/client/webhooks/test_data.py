"""The fields of data are those that the gateway sends, and as its reference says."""

from __future__ import annotations

import json
import re
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from gateway_client.webhooks import data
from gateway_client.webhooks.events import Event, read_event

from gateway.domain.webhooks.kinds import forms
from tests.client.webhooks.samples import body_of
from tests.docs.pages import page, rows
from tests.domain.webhooks.kinds.cases import FIXTURES

NAMES = ["Person", "Repository", "PullRequest", "Ticket", "Incident", "Version", "Package"]
REFERENCE = page("docs/webhooks-kinds.md")


def plain(hint: Any) -> Any:
    """The type of a field, whatever its literals and wherever its class is."""
    if get_origin(hint) is Literal:
        return "str"
    if get_origin(hint) is list:
        return list, plain(get_args(hint)[0])
    return getattr(hint, "__name__", hint)


@pytest.mark.parametrize("name", NAMES)
def test_the_fields_are_those_of_the_gateway(name: str) -> None:
    """Each class has the fields of the gateway's, in their order, with their types."""
    ours, theirs = (get_type_hints(getattr(module, name)) for module in (data, forms))
    named = [(key, str(plain(hint))) for key, hint in theirs.items()]
    found = [(key, str(plain(hint))) for key, hint in ours.items()]
    assert found == named


@pytest.mark.parametrize(
    ("heading", "name"),
    [("pull_request", "PullRequest"), ("ticket", "Ticket"), ("incident", "Incident")]
    + [("package", "Package"), *((name, name) for name in ("Person", "Repository", "Version"))],
)
def test_the_reference(heading: str, name: str) -> None:
    """The tables have the same fields, and a status the same values."""
    hints = get_type_hints(getattr(data, name))
    table = rows(REFERENCE.section(heading))
    assert [row[0].strip("`") for row in table] == [*hints]
    for key, _, words in table:
        if key == "`status`":
            assert re.findall(r"`(\w+)`", words) == [*get_args(hints["status"])]


def fits(value: Any, hint: Any) -> bool:
    """Is a value of a type of a field? A class of `data` has all its fields, and no others."""
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) is list:
        return all(fits(item, get_args(hint)[0]) for item in value)
    if hint in {str, int}:
        return type(value) is hint
    hints = get_type_hints(hint)
    return value.keys() == hints.keys() and all(fits(value[key], hints[key]) for key in hints)


@pytest.mark.parametrize("kind", sorted({path.name for path in FIXTURES.iterdir()} - {"generic"}))
def test_what_webhooks_become(kind: str) -> None:
    """The data of the events of all fixtures of a provider is of the class of its type."""
    classes = [
        ("pull_request.*", Event.as_pull_request, data.PullRequest),
        ("ticket.*", Event.as_ticket, data.Ticket),
        ("incident.*", Event.as_incident, data.Incident),
        ("package.*", Event.as_package, data.Package),
    ]
    events = {
        file.name: json.loads(file.read_text("utf-8"))["event"]
        for file in FIXTURES.joinpath(kind).glob("*.json")
    }
    assert any(found["type"] for found in events.values())
    for name, found in events.items():
        if found["type"]:
            event = read_event(body_of(type=found["type"], data=found["data"]))
            ((read, shape),) = [each[1:] for each in classes if event.is_a(each[0])]
            assert fits(read(event), shape), name
