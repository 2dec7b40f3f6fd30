"""Gitea and Forgejo: https://docs.gitea.com/usage/webhooks"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gateway.domain.webhooks.kinds import github
from gateway.domain.webhooks.kinds.forms import package, version_of
from gateway.domain.webhooks.kinds.kind import (
    UNKNOWN,
    Captured,
    Header,
    Kind,
    check_any,
    form_payload,
    header_id,
    macs_of,
    read_json_or_form,
    sent_mac,
)
from gateway.domain.webhooks.payload import at, moment, text

_PACKAGES: Final = {"created": "published", "deleted": "deleted"}
#: Of the bodies of pull requests; a review has the action `reviewed`.
_PULL_REQUESTS: Final = frozenset(
    ("pull_request_approved", "pull_request_rejected", "pull_request_review_request")
)
#: The event first; of some, older versions send the finer type alone.
_event: Final = header_id(
    *("x-gitea-event", "x-forgejo-event", "x-gogs-event"),
    *("x-gitea-event-type", "x-forgejo-event-type", "x-gogs-event-type"),
)


def _verify(body: bytes, header: Header, secrets: Sequence[str], _now_s: float) -> None:
    """Of a form, its JSON is signed, and not the form. One that is signed is accepted as well."""
    sent = sent_mac(header, "x-gitea-signature", "x-forgejo-signature")
    macs = macs_of(body, secrets)
    if (payload := form_payload(header, body)) is not None:
        macs += macs_of(payload, secrets)
    check_any(sent, macs)


def _normalize(header: Header, payload: Any) -> Captured:
    """As those of GitHub, with events in headers of their own, and packages of their own form."""
    event = _event(header, payload)
    if event == "package":
        return _package(payload)
    if event in _PULL_REQUESTS:
        event = "pull_request"
    found = github.normalize(lambda _: event, payload)
    if found.type.startswith("pull_request."):
        repository = found.data["repository"]
        repository["name"] = repository["name"] or repository["full_name"].rpartition("/")[2]
    return found


def _package(payload: Any) -> Captured:
    action = _PACKAGES.get(text(payload, "action"))
    if action is None:
        return UNKNOWN
    its = at(payload, "package")
    data = package(
        its_id=text(its, "id"),
        name=text(its, "name"),
        kind=text(its, "type"),
        repository=text(payload, "repository.full_name", "package.repository.full_name"),
        versions=[version_of(text(its, "version"), "", text(its, "html_url"))],
    )
    # It says nothing of when one was deleted.
    created = at(its, "created_at") if action == "published" else None
    return Captured(f"package.{action}", moment(created), data)


GITEA: Final = Kind(
    "gitea",
    _verify,
    header_id("x-gitea-delivery", "x-forgejo-delivery"),
    _normalize,
    read=read_json_or_form,
)
