"""Gitea and Forgejo: https://docs.gitea.com/usage/webhooks"""

from __future__ import annotations

from typing import Any, Final

from gateway.domain.webhooks.kinds import github
from gateway.domain.webhooks.kinds.forms import package
from gateway.domain.webhooks.kinds.kind import UNKNOWN, Captured, Header, Kind, by_mac, header_id
from gateway.domain.webhooks.payload import at, moment, text

_PACKAGES: Final = {"created": "published", "deleted": "deleted"}
#: Reviews are pull requests with the action `reviewed`.
_REVIEWS: Final = frozenset(("pull_request_approved", "pull_request_rejected"))


def _normalize(header: Header, payload: Any) -> Captured:
    """As those of GitHub, with events in headers of their own, and packages of their own form."""
    event = header("x-gitea-event") or header("x-forgejo-event") or header("x-gogs-event")
    if event == "package":
        return _package(payload)
    found = github.normalize(lambda _: "pull_request" if event in _REVIEWS else event, payload)
    if found.type.startswith("pull_request."):
        repository = found.data["repository"]
        repository["name"] = repository["name"] or repository["full_name"].rpartition("/")[2]
    return found


def _package(payload: Any) -> Captured:
    action = _PACKAGES.get(text(payload, "action"))
    if action is None:
        return UNKNOWN
    its = at(payload, "package")
    version = text(its, "version")
    data = package(
        its_id=text(its, "id"),
        name=text(its, "name"),
        kind=text(its, "type"),
        version=version,
        digest=version if version.startswith("sha256:") else "",
        repository=text(payload, "repository.full_name", "package.repository.full_name"),
        url=text(its, "html_url"),
    )
    # It says nothing of when one was deleted.
    created = at(its, "created_at") if action == "published" else None
    return Captured(f"package.{action}", moment(created), data)


GITEA: Final = Kind(
    "gitea",
    by_mac("x-gitea-signature", "x-forgejo-signature"),
    header_id("x-gitea-delivery", "x-forgejo-delivery"),
    _normalize,
)
