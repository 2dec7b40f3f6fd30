"""GitLab: https://docs.gitlab.com/user/project/integrations/webhook_events/"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gateway.domain.webhooks.kinds.forms import NOBODY, Person, Repository, pull_request, ticket
from gateway.domain.webhooks.kinds.kind import (
    UNKNOWN,
    Captured,
    Header,
    Kind,
    by_token,
    header_id,
)
from gateway.domain.webhooks.payload import at, items, moment, number, text
from gateway.domain.webhooks.signatures import STANDARD_HEADERS, verify

_ACTIONS: Final = {
    "open": "opened",
    "reopen": "reopened",
    "close": "closed",
    "merge": "merged",
    **dict.fromkeys(("update", "approved", "unapproved", "approval", "unapproval"), "updated"),
}
_TICKETS: Final = {"open": "created", "close": "closed", "update": "updated", "reopen": "updated"}
_STATUS: Final = {"opened": "open", "locked": "open", "closed": "closed", "merged": "merged"}

_by_token: Final = by_token("x-gitlab-token")


def _verify(body: bytes, header: Header, secrets: Sequence[str], now_s: float) -> None:
    """By Standard Webhooks where it is signed so, else by the token."""
    if header("webhook-signature"):
        found = {name: value for name in STANDARD_HEADERS if (value := header(name))}
        verify(body, found, secrets, now_s=now_s, forms=("standard",))
    else:
        _by_token(body, header, secrets, now_s)


def _normalize(_header: Header, payload: Any) -> Captured:
    its = at(payload, "object_attributes")
    action = text(its, "action")
    match text(payload, "object_kind"):
        case "merge_request" if action in _ACTIONS:
            return _merge_request(_ACTIONS[action], its, payload)
        case "issue" | "work_item" if action in _TICKETS:
            return _issue(_TICKETS[action], its, payload)
        case _:
            return UNKNOWN


def _merge_request(action: str, its: Any, payload: Any) -> Captured:
    project = at(payload, "project")
    by_action = {"merged": "merged", "closed": "closed"}.get(action, "open")
    data = pull_request(
        its_id=text(its, "id"),
        number=number(its, "iid"),
        title=text(its, "title"),
        description=text(its, "description"),
        status=_STATUS.get(text(its, "state"), by_action),
        repository=Repository(
            id=text(project, "id"),
            name=text(project, "name"),
            full_name=text(project, "path_with_namespace"),
        ),
        author=_author(its, payload),
    )
    return Captured(f"pull_request.{action}", moment(at(its, "updated_at")), data)


def _issue(action: str, its: Any, payload: Any) -> Captured:
    # Some types of work items are closed by an update.
    has_moved = at(payload, "changes.state_id") is not None
    if action == "updated" and text(its, "state") == "closed" and has_moved:
        action = "closed"
    severity = text(its, "severity")
    assignees = items(payload, "assignees")
    data = ticket(
        its_id=text(its, "id"),
        key=f"{_path(its, payload)}#{text(its, 'iid')}",
        title=text(its, "title"),
        description=text(its, "description"),
        status="closed" if text(its, "state") == "closed" else "open",
        priority="" if severity == "unknown" else severity,
        reporter=_author(its, payload),
        assignee=_assignee(its, assignees),
        url=text(its, "url"),
        created=at(its, "created_at"),
        updated=at(its, "updated_at"),
    )
    return Captured(f"ticket.{action}", data["updated_at"], data)


def _path(its: Any, payload: Any) -> str:
    """Of the project, or of the group that an epic belongs to, which only its page names."""
    group = text(its, "url").partition("/-/")[0].partition("/groups/")[2]
    return text(payload, "project.path_with_namespace") or group


def _author(its: Any, payload: Any) -> Person:
    """`user` is who did it, who need not be the author: of that one, only the id is sure."""
    author_id = text(its, "author_id")
    actor = at(payload, "user")
    if text(its, "action") == "open" and not text(actor, "id"):
        # Older versions send no id. Who opens it is the author.
        return Person(id=author_id, username=text(actor, "username"), email="")
    people = [actor, *items(payload, "assignees"), *items(payload, "reviewers")]
    of_author = (each for each in people if author_id and author_id == text(each, "id"))
    return _person(next(of_author, {"id": author_id}))


def _assignee(its: Any, assignees: list[Any]) -> Person:
    """The first. Older versions send its id elsewhere, which is sure where it is the only one."""
    if not assignees:
        return NOBODY
    first = _person(assignees[0])
    only = text(its, "assignee_id") if len(assignees) == 1 else ""
    return Person(id=first["id"] or only, username=first["username"], email=first["email"])


def _person(its: Any) -> Person:
    email = text(its, "email")
    # GitLab writes this for those who hide theirs.
    hidden = email == "[REDACTED]"
    return Person(id=text(its, "id"), username=text(its, "username"), email="" if hidden else email)


GITLAB: Final = Kind(
    "gitlab",
    _verify,
    header_id("webhook-id", "idempotency-key", "x-gitlab-event-uuid"),
    _normalize,
)
