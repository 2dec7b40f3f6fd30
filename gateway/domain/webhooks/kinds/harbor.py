"""Harbor: https://goharbor.io/docs/main/working-with-projects/project-configuration/configure-webhooks/"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any, Final

from gateway.domain.webhooks.kinds.forms import package
from gateway.domain.webhooks.kinds.kind import UNKNOWN, Captured, Header, Kind, by_token
from gateway.domain.webhooks.payload import at, moment, text

_ACTIONS: Final = {
    **dict.fromkeys(("PUSH_ARTIFACT", "pushImage"), "published"),
    **dict.fromkeys(("DELETE_ARTIFACT", "deleteImage"), "deleted"),
}


def _delivery_id(_header: Header, payload: Any) -> str:
    """It names none: the content stands for it."""
    return sha256(json.dumps(payload, sort_keys=True).encode()).hexdigest()


def _normalize(_header: Header, payload: Any) -> Captured:
    action = _ACTIONS.get(text(payload, "type"))
    if action is None:
        return UNKNOWN
    resources = at(payload, "event_data.resources")
    its = resources[0] if isinstance(resources, list) and resources else {}
    repository = at(payload, "event_data.repository")
    name = text(repository, "repo_full_name", "name")
    data = package(
        its_id=text(its, "digest") or f"{name}:{text(its, 'tag')}",
        name=name,
        kind="container",
        version=text(its, "tag"),
        digest=text(its, "digest"),
        repository=text(repository, "namespace"),
        url=text(its, "resource_url"),
    )
    return Captured(f"package.{action}", moment(at(payload, "occur_at")), data)


HARBOR: Final = Kind("harbor", by_token("authorization"), _delivery_id, _normalize)
