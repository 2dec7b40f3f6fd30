"""The fields of what events are about."""

from __future__ import annotations

import pytest

from gateway.domain.webhooks.kinds.forms import (
    NOBODY,
    Person,
    Repository,
    Version,
    incident,
    package,
    pull_request,
    ticket,
    version_of,
)

NOOR = Person(id="31", username="noor", email="")


def test_a_pull_request() -> None:
    """The described fields, and no other."""
    repository = Repository(id="5", name="tides", full_name="lab/tides")
    found = pull_request(
        its_id="9",
        number=2,
        title="t",
        description="",
        status="open",
        repository=repository,
        author=NOOR,
    )
    assert found == {
        "id": "9",
        "number": 2,
        "title": "t",
        "description": "",
        "status": "open",
        "repository": {"id": "5", "name": "tides", "full_name": "lab/tides"},
        "author": {"id": "31", "username": "noor", "email": ""},
    }


def test_a_ticket() -> None:
    """What is not known is an empty text, never null; dates have one form."""
    found = ticket(
        its_id="9",
        key="T-1",
        title="t",
        description="",
        status="closed",
        priority="High",
        created="2026-11-23 09:00:00 UTC",
    )
    assert found == {
        "id": "9",
        "key": "T-1",
        "title": "t",
        "description": "",
        "status": "closed",
        "priority": "high",
        "reporter": NOBODY,
        "assignee": NOBODY,
        "url": "",
        "created_at": "2026-11-23T09:00:00.000Z",
        "updated_at": "",
    }


def test_an_incident() -> None:
    """Its urgency is in small letters."""
    found = incident(
        its_id="9", number=2, title="t", status="resolved", urgency="HIGH", service="s"
    )
    assert found == {
        "id": "9",
        "number": 2,
        "title": "t",
        "status": "resolved",
        "urgency": "high",
        "service": "s",
        "url": "",
        "created_at": "",
    }


def test_a_package() -> None:
    """So is its kind. The first of its versions is the one that it is about."""
    first = Version(version="1", digest="", url="https://example.org/1")
    other = Version(version="latest", digest="sha256:00", url="")
    found = package(
        its_id="9", name="n", kind="NuGet", repository="lab/tides", versions=[first, other]
    )
    assert found == {
        "id": "9",
        "name": "n",
        "kind": "nuget",
        "version": "1",
        "digest": "",
        "repository": "lab/tides",
        "url": "https://example.org/1",
        "versions": [first, other],
    }


@pytest.mark.parametrize(
    ("name", "digest", "expected"),
    [
        ("2.4.0", "", ("2.4.0", "")),
        ("2.4.0", "sha256:1f", ("2.4.0", "sha256:1f")),
        ("sha256:1f", "", ("", "sha256:1f")),
        ("sha256:1f", "sha256:1f", ("", "sha256:1f")),
        ("", "", ("", "")),
    ],
)
def test_a_version(name: str, digest: str, expected: tuple[str, str]) -> None:
    """What has no tag has its digest in the place of one."""
    found = version_of(name, digest, "u")
    assert (found["version"], found["digest"], found["url"]) == (*expected, "u")
