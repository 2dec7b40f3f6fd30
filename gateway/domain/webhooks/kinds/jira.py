"""Jira Cloud and Data Center: https://developer.atlassian.com/server/jira/platform/webhooks/"""

from __future__ import annotations

from typing import Any, Final

from gateway.domain.webhooks.kinds.forms import Person, ticket
from gateway.domain.webhooks.kinds.kind import UNKNOWN, Captured, Header, Kind, by_mac, header_id
from gateway.domain.webhooks.payload import at, moment, text

_ACTIONS: Final = {
    "jira:issue_created": "created",
    "jira:issue_updated": "updated",
    "jira:issue_deleted": "deleted",
}
#: By the category of the status, as teams name their statuses as they like.
_STATUS: Final = {"new": "open", "indeterminate": "in_progress", "done": "closed"}


def _normalize(_header: Header, payload: Any) -> Captured:
    action = _ACTIONS.get(text(payload, "webhookEvent"))
    if action is None:
        return UNKNOWN
    its = at(payload, "issue")
    fields = at(its, "fields")
    status = _STATUS.get(text(fields, "status.statusCategory.key"), "open")
    if action == "updated" and status == "closed" and _has_changed(payload, "status"):
        action = "closed"
    data = ticket(
        its_id=text(its, "id"),
        key=text(its, "key"),
        title=text(fields, "summary"),
        description=text(fields, "description"),
        status=status,
        priority=text(fields, "priority.name"),
        reporter=_person(at(fields, "reporter")),
        assignee=_person(at(fields, "assignee")),
        url=_url(its),
        created=at(fields, "created"),
        updated=at(fields, "updated"),
    )
    return Captured(
        f"ticket.{action}", moment(at(payload, "timestamp")) or data["updated_at"], data
    )


def _url(its: Any) -> str:
    """The page for people; `self` is that of the API."""
    site, api, _ = text(its, "self").partition("/rest/")
    return f"{site}/browse/{text(its, 'key')}" if api else ""


def _has_changed(payload: Any, field: str) -> bool:
    items = at(payload, "changelog.items")
    return isinstance(items, list) and any(text(item, "field") == field for item in items)


def _person(its: Any) -> Person:
    email = text(its, "emailAddress")
    return Person(
        id=text(its, "accountId", "key"),
        username=text(its, "name", "displayName"),
        # Of those who hide theirs, some versions send "?".
        email=email if "@" in email else "",
    )


JIRA: Final = Kind(
    "jira",
    by_mac("x-hub-signature", prefix="sha256="),
    header_id("x-atlassian-webhook-identifier"),
    _normalize,
)
