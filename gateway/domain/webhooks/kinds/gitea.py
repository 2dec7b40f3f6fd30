"""Gitea and Forgejo: https://docs.gitea.com/usage/webhooks"""

from __future__ import annotations

from typing import Any, Final

from gateway.domain.webhooks.kinds import github
from gateway.domain.webhooks.kinds.kind import Captured, Header, Kind, by_mac, header_id


def _normalize(header: Header, payload: Any) -> Captured:
    """Their payloads are those of GitHub, with events in headers of their own."""
    event = header("x-gitea-event") or header("x-forgejo-event") or header("x-gogs-event")
    found = github.normalize(lambda _: event, payload)
    if found.type.startswith("pull_request."):
        repository = found.data["repository"]
        repository["name"] = repository["name"] or repository["full_name"].rpartition("/")[2]
    return found


GITEA: Final = Kind(
    "gitea",
    by_mac("x-gitea-signature"),
    header_id("x-gitea-delivery", "x-forgejo-delivery"),
    _normalize,
)
