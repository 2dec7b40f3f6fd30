"""What the `data` of events has: the same fields, whatever the provider.

What is not known is an empty text, 0 or an empty list, never null.
"""

from __future__ import annotations

from typing import Literal, TypedDict


class Person(TypedDict):
    """A person, or a bot. All are empty where nobody is known, as of a deleted account.

    id:       the provider's
    username: the login, or the name where the provider has no logins
    email:    only where the provider sends it
    """

    id: str
    username: str
    email: str


class Repository(TypedDict):
    """A repository of code.

    id:        the provider's
    name:      without its owner
    full_name: with its owner, group or project: "lab/tides"
    """

    id: str
    name: str
    full_name: str


class PullRequest(TypedDict):
    """A pull request or merge request.

    id:          the provider's
    number:      within its repository
    description: as the provider keeps it: Markdown or HTML
    repository:  the one that it is to be merged into
    author:      whoever opened it
    """

    id: str
    number: int
    title: str
    description: str
    status: Literal["open", "closed", "merged"]
    repository: Repository
    author: Person


class Ticket(TypedDict):
    """An issue, work item or ticket.

    id:          the provider's
    key:         as people write it: "ABC-12", "lab/tides#7", "5158"
    description: as the provider keeps it: text, Markdown or HTML
    priority:    the provider's word in small letters: "high"; or its number: "2"
    reporter:    whoever made it
    assignee:    the first, where there are several
    url:         its page, or where the provider's API has it
    created_at, updated_at: as `read_date` reads
    """

    id: str
    key: str
    title: str
    description: str
    status: Literal["open", "in_progress", "closed"]
    priority: str
    reporter: Person
    assignee: Person
    url: str
    created_at: str
    updated_at: str


class Incident(TypedDict):
    """An incident.

    id:         the provider's
    number:     as people know it
    urgency:    "high" or "low"
    service:    the name of what it is about
    url:        its page
    created_at: as `read_date` reads
    """

    id: str
    number: int
    title: str
    status: Literal["triggered", "acknowledged", "resolved"]
    urgency: str
    service: str
    url: str
    created_at: str


class Version(TypedDict):
    """A version of a package.

    version: its number, or the tag of an image; "": it has none
    digest:  "sha256:…"
    url:     its page, or what to pull
    """

    version: str
    digest: str
    url: str


class Package(TypedDict):
    """A package or container image.

    id:         the provider's; the digest where it has none
    kind:       "container", "npm", "maven", …
    version, digest, url: of the first of `versions`
    repository: the repository or project that it belongs to
    versions:   those that the provider names, up to 1,000
    """

    id: str
    name: str
    kind: str
    version: str
    digest: str
    repository: str
    url: str
    versions: list[Version]
