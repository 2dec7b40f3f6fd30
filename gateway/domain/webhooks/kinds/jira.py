"""Jira Cloud and Data Center: https://developer.atlassian.com/server/jira/platform/webhooks/"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gateway.domain.webhooks.kinds.forms import Person, ticket
from gateway.domain.webhooks.kinds.kind import UNKNOWN, Captured, Header, Kind, by_mac, header_id
from gateway.domain.webhooks.payload import at, items, moment, text

_ACTIONS: Final = {
    "jira:issue_created": "created",
    "jira:issue_updated": "updated",
    "jira:issue_deleted": "deleted",
}
#: By the category of the status, as teams name their statuses as they like.
_STATUS: Final = {"new": "open", "indeterminate": "in_progress", "done": "closed"}
#: By the name, of versions before there were categories.
_BY_NAME: Final = {
    "in progress": "in_progress",
    **dict.fromkeys(("done", "resolved", "closed"), "closed"),
}
#: Nodes of a document whose content is one line.
_LINES: Final = frozenset(("paragraph", "heading", "codeBlock", "taskItem", "decisionItem"))
#: No document is deeper. Jira keeps 32,767 characters of its JSON, which have fewer nodes.
_MOST_DEPTH: Final = 64
_MOST_NODES: Final = 2_000


def _normalize(_header: Header, payload: Any) -> Captured:
    action = _ACTIONS.get(text(payload, "webhookEvent"))
    if action is None:
        return UNKNOWN
    its = at(payload, "issue")
    fields = at(its, "fields")
    by_name = _BY_NAME.get(text(fields, "status.name").lower(), "open")
    status = _STATUS.get(text(fields, "status.statusCategory.key"), by_name)
    if action == "updated" and status == "closed" and _has_changed(payload, "status"):
        action = "closed"
    data = ticket(
        its_id=text(its, "id"),
        key=text(its, "key"),
        title=text(fields, "summary"),
        description=_description(at(fields, "description")),
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


def _description(its: Any) -> str:
    """A text, or the texts of a document in Atlassian's format, with a line for each block."""
    if isinstance(its, str):
        return text({"it": its}, "it")
    return _of_node(its, 0, iter(range(_MOST_NODES)))


def _of_node(its: Any, depth: int, left: Iterator[int]) -> str:
    """left: one for each further node that is read"""
    if isinstance(its, str):
        return text({"it": its}, "it")
    if text(its, "type") == "hardBreak":
        return "\n"
    if not isinstance(at(its, "content"), list) or depth > _MOST_DEPTH:
        return text(its, "text", "attrs.text", "attrs.shortName", "attrs.url")
    blocks = text(its, "type") not in _LINES
    content = zip(items(its, "content", _MOST_NODES), left, strict=False)
    parts = [_of_node(each, depth + 1, left) for each, _ in content]
    return "\n".join(filter(None, parts)) if blocks else "".join(parts)


def _url(its: Any) -> str:
    """The page for people; `self` is that of the API."""
    site, api, _ = text(its, "self").partition("/rest/")
    return f"{site}/browse/{text(its, 'key')}" if api else ""


def _has_changed(payload: Any, field: str) -> bool:
    return any(text(each, "field") == field for each in items(payload, "changelog.items"))


def _person(its: Any) -> Person:
    email = text(its, "emailAddress")
    return Person(
        id=text(its, "accountId", "key", "name"),
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
