"""Harbor: https://goharbor.io/docs/main/working-with-projects/project-configuration/configure-webhooks/"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any, Final

from gateway.domain.webhooks.kinds.forms import package, version_of
from gateway.domain.webhooks.kinds.kind import UNKNOWN, Captured, Header, Kind, by_token
from gateway.domain.webhooks.payload import at, items, moment, text

#: By the type: as a CloudEvent, in Harbor's own form, and in that of its first version.
_ACTIONS: Final = {
    **dict.fromkeys(("harbor.artifact.pushed", "PUSH_ARTIFACT", "pushImage"), "published"),
    **dict.fromkeys(("harbor.artifact.deleted", "DELETE_ARTIFACT", "deleteImage"), "deleted"),
}


def _delivery_id(_header: Header, payload: Any) -> str:
    """The id of a CloudEvent; in Harbor's own form the content stands for it."""
    if text(payload, "specversion"):
        return text(payload, "id")
    return sha256(json.dumps(payload, sort_keys=True).encode()).hexdigest()


def _normalize(_header: Header, payload: Any) -> Captured:
    action = _ACTIONS.get(text(payload, "type"))
    if action is None:
        return UNKNOWN
    event = at(payload, "event_data") or at(payload, "data")
    repository = at(event, "repository")
    name = text(repository, "repo_full_name", "name")
    # One for each tag of what was deleted.
    versions = [
        version_of(text(its, "tag"), text(its, "digest"), text(its, "resource_url"))
        for its in items(event, "resources") or [{}]
    ]
    data = package(
        its_id=versions[0]["digest"] or f"{name}:{versions[0]['version']}",
        name=name,
        kind="container",
        repository=text(repository, "namespace"),
        versions=versions,
    )
    created = at(payload, "occur_at") or at(payload, "time")
    return Captured(f"package.{action}", moment(created), data)


HARBOR: Final = Kind("harbor", by_token("authorization"), _delivery_id, _normalize)
