"""The service's form of what events are about: the same fields, whatever the provider.

What is not known is an empty text, 0 or an empty list, never null. The tables in
docs/webhooks-kinds.md are made of these classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

from gateway.domain.webhooks.payload import moment

_DIGEST = "sha256:"


class Person(TypedDict):
    """A person, or a bot. All are empty where nobody is known, as of a deleted account."""

    id: Annotated[str, "the provider's"]
    username: Annotated[str, "the login, or the name where the provider has no logins"]
    email: Annotated[str, "only where the provider sends it"]


class Repository(TypedDict):
    """A repository of code."""

    id: Annotated[str, "the provider's"]
    name: Annotated[str, "without its owner"]
    full_name: Annotated[str, "with its owner, group or project: `lab/tides`"]


class PullRequest(TypedDict):
    """A pull request or merge request."""

    id: Annotated[str, "the provider's"]
    number: Annotated[int, "within its repository"]
    title: Annotated[str, ""]
    description: Annotated[str, "as the provider keeps it: Markdown or HTML"]
    status: Annotated[str, "`open`, `closed` or `merged`"]
    repository: Annotated[Repository, "the one that it is to be merged into"]
    author: Annotated[Person, "whoever opened it"]


class Ticket(TypedDict):
    """An issue, work item or ticket."""

    id: Annotated[str, "the provider's"]
    key: Annotated[str, "as people write it: `ABC-12`, `lab/tides#7`, `5158`"]
    title: Annotated[str, ""]
    description: Annotated[str, "as the provider keeps it: text, Markdown or HTML"]
    status: Annotated[str, "`open`, `in_progress` or `closed`"]
    priority: Annotated[str, "the provider's word in small letters: `high`; or its number: `2`"]
    reporter: Annotated[Person, "whoever made it"]
    assignee: Annotated[Person, "the first, where there are several"]
    url: Annotated[str, "its page, or where the provider's API has it"]
    created_at: Annotated[str, "a date as `2026-11-23T16:43:58.446Z`"]
    updated_at: Annotated[str, "the same"]


class Incident(TypedDict):
    """An incident."""

    id: Annotated[str, "the provider's"]
    number: Annotated[int, "as people know it"]
    title: Annotated[str, ""]
    status: Annotated[str, "`triggered`, `acknowledged` or `resolved`"]
    urgency: Annotated[str, "`high` or `low`"]
    service: Annotated[str, "the name of what it is about"]
    url: Annotated[str, "its page"]
    created_at: Annotated[str, "a date as `2026-11-23T16:43:58.446Z`"]


class Version(TypedDict):
    """A version of a package."""

    version: Annotated[str, "its number, or the tag of an image; empty: it has none"]
    digest: Annotated[str, "`sha256:…`"]
    url: Annotated[str, "its page, or what to pull"]


class Package(TypedDict):
    """A package or container image."""

    id: Annotated[str, "the provider's; the digest where it has none"]
    name: Annotated[str, ""]
    kind: Annotated[str, "`container`, `npm`, `maven`, …"]
    version: Annotated[str, "its number, or the tag of an image; empty: it has none"]
    digest: Annotated[str, "`sha256:…`"]
    repository: Annotated[str, "the repository or project that it belongs to"]
    url: Annotated[str, "its page, or what to pull"]
    versions: Annotated[
        list[Version], "those that the webhook names, up to 1,000; the first is the one above"
    ]


#: By what the types of their events begin with.
RESOURCES = {
    "pull_request": PullRequest,
    "ticket": Ticket,
    "incident": Incident,
    "package": Package,
}
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
) -> PullRequest:
    return PullRequest(
        id=its_id,
        number=number,
        title=title,
        description=description,
        status=status,
        repository=repository,
        author=author,
    )


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
) -> Ticket:
    """created, updated: as `payload.moment` reads"""
    return Ticket(
        id=its_id,
        key=key,
        title=title,
        description=description,
        status=status,
        priority=priority.lower(),
        reporter=reporter,
        assignee=assignee,
        url=url,
        created_at=moment(created),
        updated_at=moment(updated),
    )


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
) -> Incident:
    """created: as `payload.moment` reads"""
    return Incident(
        id=its_id,
        number=number,
        title=title,
        status=status,
        urgency=urgency.lower(),
        service=service,
        url=url,
        created_at=moment(created),
    )


def version_of(name: str, digest: str, url: str) -> Version:
    """name: a number or tag. What has none may have its digest in its place."""
    if name.startswith(_DIGEST):
        name, digest = "", digest or name
    return Version(version=name, digest=digest, url=url)


def package(
    *, its_id: str, name: str, kind: str, repository: str, versions: Sequence[Version]
) -> Package:
    """versions: at least one"""
    return Package(
        id=its_id,
        name=name,
        kind=kind.lower(),
        version=versions[0]["version"],
        digest=versions[0]["digest"],
        repository=repository,
        url=versions[0]["url"],
        versions=list(versions),
    )
