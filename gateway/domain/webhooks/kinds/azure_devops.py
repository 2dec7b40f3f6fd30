"""Azure DevOps: https://learn.microsoft.com/azure/devops/service-hooks/events"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from gateway.domain.webhooks.kinds.forms import Person, Repository, pull_request, ticket
from gateway.domain.webhooks.kinds.kind import (
    UNKNOWN,
    Captured,
    Header,
    Kind,
    basic_secret,
    check_any,
)
from gateway.domain.webhooks.payload import at, moment, number, text
from gateway.domain.webhooks.signatures import Unverified

_PULL_REQUEST: Final = "git.pullrequest."
_STATUS: Final = {"active": "open", "completed": "merged", "abandoned": "closed"}
_OVER: Final = frozenset(("completed", "abandoned"))
#: States of work items in the processes that come with it. Any other is in progress.
_OPEN: Final = frozenset(("", "new", "to do", "proposed", "approved", "design", "requested"))
_CLOSED: Final = frozenset(("closed", "done", "removed", "resolved", "completed", "inactive"))
_TICKETS: Final = {
    "workitem.created": "created",
    "workitem.updated": "updated",
    "workitem.deleted": "deleted",
    "workitem.restored": "updated",
}
#: "Ann Lee <ann@example.com>", as older work items name people.
_NAMED: Final = re.compile(r"[^<]*<([^<>]*)>").fullmatch


def _verify(_body: bytes, header: Header, secrets: Sequence[str], _now_s: float) -> None:
    """By the user and password, as the secret has them: USER:PASSWORD."""
    sent = header("authorization")
    if not sent:
        raise Unverified("no signature: expected Authorization: Basic")
    try:
        check_any(basic_secret(sent), secrets)
    except Unverified as error:
        raise Unverified(
            "Authorization does not fit the secret: expected its USER:PASSWORD"
        ) from error


def _delivery_id(_header: Header, payload: Any) -> str:
    """The body's id; of a pull request that is over, how and when it ended.

    A completion is sent as `updated` and as `merged`, by two subscriptions and with two ids. They
    are one event, as is what is changed of it later.
    """
    its = at(payload, "resource")
    status, closed = text(its, "status"), text(its, "closedDate")
    is_over = text(payload, "eventType").startswith(_PULL_REQUEST) and status in _OVER and closed
    if not is_over:
        return text(payload, "id")
    return " ".join((text(its, "repository.id"), text(its, "pullRequestId"), status, closed))


def _normalize(_header: Header, payload: Any) -> Captured:
    event = text(payload, "eventType")
    if event.startswith(_PULL_REQUEST):
        return _pull_request(event.removeprefix(_PULL_REQUEST), payload)
    if event in _TICKETS:
        return _work_item(_TICKETS[event], payload)
    return UNKNOWN


def _pull_request(event: str, payload: Any) -> Captured:
    """The status decides: `updated` may be of one that was completed."""
    its = at(payload, "resource")
    status = _STATUS.get(text(its, "status"), "open")
    action = {"merged": "merged", "closed": "closed"}.get(status)
    if action is None:
        action = "opened" if event == "created" else "updated"
    repository, author = at(its, "repository"), at(its, "createdBy")
    name = text(repository, "name")
    data = pull_request(
        its_id=text(its, "pullRequestId"),
        number=number(its, "pullRequestId"),
        title=text(its, "title"),
        description=text(its, "description"),
        status=status,
        repository=Repository(
            id=text(repository, "id"),
            name=name,
            full_name="/".join(filter(None, (text(repository, "project.name"), name))),
        ),
        author=_person(author),
    )
    return Captured(f"pull_request.{action}", moment(at(payload, "createdDate")), data)


def _work_item(action: str, payload: Any) -> Captured:
    its = at(payload, "resource")
    # An update has what changed, and the whole item in its revision.
    changed = _fields(its, "fields")
    fields = _fields(its, "revision.fields") or changed
    state = _text(fields, "System.State").lower()
    status = "open" if state in _OPEN else "closed" if state in _CLOSED else "in_progress"
    if action == "updated" and status == "closed" and "System.State" in changed:
        before = text(changed["System.State"], "oldValue")
        action = "updated" if before.lower() in _CLOSED else "closed"
    # The id of an update is its number among those of the item.
    its_id = text(its, "revision.id", "workItemId", "id")
    data = ticket(
        its_id=its_id,
        key=its_id,
        title=_text(fields, "System.Title"),
        description=_text(fields, "System.Description"),
        status=status,
        priority=_text(fields, "Microsoft.VSTS.Common.Priority"),
        reporter=_person(_value(fields, "System.CreatedBy")),
        assignee=_person(_value(fields, "System.AssignedTo")),
        url=text(its, "_links.html.href", "revision._links.html.href", "revision.url", "url"),
        created=_value(fields, "System.CreatedDate"),
        updated=_value(fields, "System.ChangedDate"),
    )
    return Captured(f"ticket.{action}", moment(at(payload, "createdDate")), data)


def _fields(its: Any, path: str) -> dict[str, Any]:
    """By their names, which have dots."""
    found = at(its, path)
    return found if isinstance(found, dict) else {}


def _value(fields: dict[str, Any], name: str) -> Any:
    """Of one that changed, its new value."""
    value = fields.get(name)
    return value["newValue"] if isinstance(value, dict) and "newValue" in value else value


def _text(fields: dict[str, Any], name: str) -> str:
    return text({"it": _value(fields, name)}, "it")


def _person(its: Any) -> Person:
    """The unique name is an address, or one of a Windows domain on a server of one's own."""
    if isinstance(its, str):
        named = _NAMED(its)
        unique = text({"it": its if named is None else named[1]}, "it")
    else:
        unique = text(its, "uniqueName", "displayName")
    return Person(id=text(its, "id"), username=unique, email=unique if "@" in unique else "")


AZURE_DEVOPS: Final = Kind("azure-devops", _verify, _delivery_id, _normalize, is_basic=True)
