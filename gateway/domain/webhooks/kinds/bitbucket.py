"""Bitbucket Cloud and Data Center:

https://support.atlassian.com/bitbucket-cloud/docs/event-payloads/
https://confluence.atlassian.com/bitbucketserver/event-payload-938025882.html
"""

from __future__ import annotations

from typing import Any, Final

from gateway.domain.webhooks.kinds.forms import Person, Repository, pull_request
from gateway.domain.webhooks.kinds.kind import UNKNOWN, Captured, Header, Kind, by_mac, header_id
from gateway.domain.webhooks.payload import at, moment, number, text

#: By the event's name: of the cloud, and of the Data Center.
_ACTIONS: Final = {
    "pullrequest:created": "opened",
    "pullrequest:updated": "updated",
    "pullrequest:fulfilled": "merged",
    "pullrequest:rejected": "closed",
    **dict.fromkeys(
        ("pullrequest:approved", "pullrequest:unapproved", "pullrequest:push")
        + ("pullrequest:changes_request_created", "pullrequest:changes_request_removed"),
        "updated",
    ),
    "pr:opened": "opened",
    "pr:reopened": "reopened",
    "pr:merged": "merged",
    "pr:declined": "closed",
    "pr:deleted": "closed",
    **dict.fromkeys(
        ("pr:modified", "pr:from_ref_updated", "pr:to_ref_updated", "pr:reviewer:updated")
        + ("pr:reviewer:approved", "pr:reviewer:unapproved", "pr:reviewer:needs_work")
        + ("pr:reviewer:changes_requested",),
        "updated",
    ),
}
_STATUS: Final = {"OPEN": "open", "MERGED": "merged", "DECLINED": "closed", "SUPERSEDED": "closed"}


def _normalize(header: Header, payload: Any) -> Captured:
    event = header("x-event-key")
    action = _ACTIONS.get(event)
    if action is None:
        return UNKNOWN
    return _of_cloud(action, payload) if "pullrequest:" in event else _of_server(action, payload)


def _status(its: Any, action: str) -> str:
    """By the state, and by what happened if that is none of those that are known."""
    by_action = {"merged": "merged", "closed": "closed"}.get(action, "open")
    return _STATUS.get(text(its, "state"), by_action)


def _of_cloud(action: str, payload: Any) -> Captured:
    its, repository = at(payload, "pullrequest"), at(payload, "repository")
    author = at(its, "author")
    data = pull_request(
        its_id=text(its, "id"),
        number=number(its, "id"),
        title=text(its, "title"),
        description=text(its, "description", "summary.raw"),
        status=_status(its, action),
        repository=Repository(
            id=text(repository, "uuid"),
            name=text(repository, "name"),
            full_name=text(repository, "full_name"),
        ),
        author=Person(
            id=text(author, "account_id", "uuid"),
            username=text(author, "nickname", "username", "display_name"),
            email="",
        ),
    )
    return Captured(f"pull_request.{action}", moment(at(its, "updated_on")), data)


def _of_server(action: str, payload: Any) -> Captured:
    its = at(payload, "pullRequest")
    repository, author = at(its, "toRef.repository"), at(its, "author.user")
    slug = text(repository, "slug")
    data = pull_request(
        its_id=text(its, "id"),
        number=number(its, "id"),
        title=text(its, "title"),
        description=text(its, "description"),
        # One that was deleted has the state that it had.
        status="closed" if action == "closed" else _status(its, action),
        repository=Repository(
            id=text(repository, "id"),
            name=text(repository, "name") or slug,
            full_name="/".join(filter(None, (text(repository, "project.key"), slug))),
        ),
        author=Person(
            id=text(author, "id"),
            username=text(author, "name"),
            email=text(author, "emailAddress"),
        ),
    )
    return Captured(
        f"pull_request.{action}", moment(at(payload, "date") or at(its, "updatedDate")), data
    )


BITBUCKET: Final = Kind(
    "bitbucket",
    by_mac("x-hub-signature", prefix="sha256="),
    header_id("x-request-uuid", "x-request-id"),
    _normalize,
)
