"""GitHub: https://docs.github.com/en/webhooks/webhook-events-and-payloads"""

from __future__ import annotations

from typing import Any, Final

from gateway.domain.webhooks.kinds.forms import (
    Person,
    Repository,
    package,
    pull_request,
    ticket,
    version_of,
)
from gateway.domain.webhooks.kinds.kind import (
    UNKNOWN,
    Captured,
    Header,
    Kind,
    by_mac,
    header_id,
    read_json_or_form,
)
from gateway.domain.webhooks.payload import at, moment, number, text

#: Actions, here and of Gitea, that change something of what stays open or closed.
_UPDATES: Final = dict.fromkeys(
    ("edited", "labeled", "unlabeled", "label_updated", "label_cleared", "assigned", "unassigned")
    + ("milestoned", "demilestoned", "locked", "unlocked"),
    "updated",
)
#: By the action. One that is closed may have been merged.
_PULL_REQUESTS: Final = {
    **_UPDATES,
    **dict.fromkeys(
        ("synchronize", "synchronized", "ready_for_review", "converted_to_draft", "reviewed")
        + ("review_requested", "review_request_removed", "auto_merge_enabled")
        + ("auto_merge_disabled", "enqueued", "dequeued"),
        "updated",
    ),
    "opened": "opened",
    "reopened": "reopened",
    "closed": "closed",
    "deleted": "closed",
}
#: The action and state of a review that decides something; a comment alone does not.
_REVIEWS: Final = frozenset(
    ("submitted approved", "submitted changes_requested", "dismissed dismissed")
)
_ISSUES: Final = {
    **_UPDATES,
    **dict.fromkeys(
        ("reopened", "transferred", "pinned", "unpinned", "typed", "untyped")
        + ("field_added", "field_removed"),
        "updated",
    ),
    "opened": "created",
    "closed": "closed",
    "deleted": "deleted",
}
_PACKAGES: Final = {"published": "published", "updated": "published"}


def normalize(header: Header, payload: Any) -> Captured:
    action = text(payload, "action")
    match header("x-github-event"):
        case "pull_request" if action in _PULL_REQUESTS:
            return _pull_request(_PULL_REQUESTS[action], payload)
        case "pull_request_review" if f"{action} {text(payload, 'review.state')}" in _REVIEWS:
            return _pull_request("updated", payload)
        case "issues" if action in _ISSUES:
            return _issue(_ISSUES[action], payload)
        case "package" | "registry_package" as event if action in _PACKAGES:
            return _package(_PACKAGES[action], at(payload, event) or {}, payload)
        case _:
            return UNKNOWN


def _pull_request(action: str, payload: Any) -> Captured:
    its = at(payload, "pull_request")
    # One that was deleted has the state that it had.
    status = "closed" if text(its, "state") == "closed" or action == "closed" else "open"
    # A review says when it was merged, and not whether.
    if status == "closed" and (at(its, "merged") is True or text(its, "merged_at")):
        status = "merged"
        action = "merged" if action == "closed" else action
    repository = at(payload, "repository")
    data = pull_request(
        its_id=text(its, "id"),
        number=number(its, "number"),
        title=text(its, "title"),
        description=text(its, "body"),
        status=status,
        repository=Repository(
            id=text(repository, "id"),
            name=text(repository, "name"),
            full_name=text(repository, "full_name"),
        ),
        author=_person(at(its, "user")),
    )
    return Captured(f"pull_request.{action}", moment(at(its, "updated_at")), data)


def _issue(action: str, payload: Any) -> Captured:
    its = at(payload, "issue")
    data = ticket(
        its_id=text(its, "id"),
        key=f"{text(payload, 'repository.full_name')}#{text(its, 'number')}",
        title=text(its, "title"),
        description=text(its, "body"),
        status="closed" if text(its, "state") == "closed" or action == "closed" else "open",
        reporter=_person(at(its, "user")),
        assignee=_person(at(its, "assignee")),
        url=text(its, "html_url"),
        created=at(its, "created_at"),
        updated=at(its, "updated_at"),
    )
    return Captured(f"ticket.{action}", data["updated_at"], data)


def _package(action: str, its: Any, payload: Any) -> Captured:
    version = at(its, "package_version")
    # An image has a digest for a version; people know its tag.
    image = at(version, "container_metadata")
    data = package(
        its_id=text(its, "id"),
        name=text(its, "name"),
        kind=text(its, "package_type", "ecosystem"),
        repository=text(payload, "repository.full_name"),
        versions=[
            version_of(
                text(image, "tag.name") or text(version, "version", "name"),
                text(image, "tag.digest", "manifest.digest"),
                text(version, "html_url") or text(its, "html_url"),
            )
        ],
    )
    return Captured(f"package.{action}", moment(at(its, "updated_at")), data)


def _person(its: Any) -> Person:
    return Person(id=text(its, "id"), username=text(its, "login"), email=text(its, "email"))


GITHUB: Final = Kind(
    "github",
    by_mac("x-hub-signature-256", prefix="sha256="),
    header_id("x-github-delivery"),
    normalize,
    read=read_json_or_form,
)
