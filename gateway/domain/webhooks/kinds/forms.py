"""The service's form of what events are about: the same fields, whatever the provider."""

from __future__ import annotations

from typing import Any, TypedDict

from gateway.domain.webhooks.payload import moment


class Person(TypedDict):
    id: str
    username: str
    email: str


class Repository(TypedDict):
    id: str
    name: str
    full_name: str


#: Of whom nothing is known.
NOBODY = Person(id="", username="", email="")


def pull_request(
    *,
    its_id: str,
    number: int,
    title: str,
    description: str,
    status: str,
    repository: Repository,
    author: Person,
) -> dict[str, Any]:
    """A pull request. status: open, closed or merged"""
    return {
        "id": its_id,
        "number": number,
        "title": title,
        "description": description,
        "status": status,
        "repository": repository,
        "author": author,
    }


def ticket(
    *,
    its_id: str,
    key: str,
    title: str,
    description: str,
    status: str,
    priority: str = "",
    reporter: Person = NOBODY,
    assignee: Person = NOBODY,
    url: str = "",
    created: Any = None,
    updated: Any = None,
) -> dict[str, Any]:
    """A ticket.

    key:              as people write it: "ABC-12"
    status:           open, in_progress or closed
    created, updated: as `payload.moment` reads
    """
    return {
        "id": its_id,
        "key": key,
        "title": title,
        "description": description,
        "status": status,
        "priority": priority.lower(),
        "reporter": reporter,
        "assignee": assignee,
        "url": url,
        "created_at": moment(created),
        "updated_at": moment(updated),
    }


def incident(
    *,
    its_id: str,
    number: int,
    title: str,
    status: str,
    urgency: str,
    service: str,
    url: str = "",
    created: Any = None,
) -> dict[str, Any]:
    """An incident. status: triggered, acknowledged or resolved"""
    return {
        "id": its_id,
        "number": number,
        "title": title,
        "status": status,
        "urgency": urgency.lower(),
        "service": service,
        "url": url,
        "created_at": moment(created),
    }


def package(
    *, its_id: str, name: str, kind: str, version: str, digest: str, repository: str, url: str = ""
) -> dict[str, Any]:
    """A package or container image. digest: "sha256:…"; "": unknown."""
    return {
        "id": its_id,
        "name": name,
        "kind": kind.lower(),
        "version": version,
        "digest": digest,
        "repository": repository,
        "url": url,
    }
