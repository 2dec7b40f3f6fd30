"""Puts what people do at the end of the audit log.

The change comes first, then its entry. Where the entry cannot be written the change stays, and the
gateway's own log says so: whoever made it has to hear of it, most of all of a key that nobody can
be shown again.
"""

from __future__ import annotations

import logging

from gateway.domain.audit import Event
from gateway.domain.ports import AuditStore

_log = logging.getLogger("gateway")


async def note(audit: AuditStore, event: Event) -> None:
    """Put an event at the end of the log; never fails."""
    try:
        await audit.append(event)
    except Exception as error:
        _log.error(
            "the audit log has no entry of %s of %s by %s: %s",
            *(event.action, event.subject, event.actor, error),
        )
