"""The headers of a delivery: what it is, and the signatures of its watch."""

from __future__ import annotations

from typing import Final

from gateway.domain.webhooks.signatures import Names, sign
from gateway.domain.webhooks.watches import Watch

_AGENT: Final = "rate-limiting-gateway-webhooks"


def headers_of(
    watch: Watch, event: str, body: bytes, master: bytes, names: Names, now_us: int
) -> dict[str, str]:
    """The headers of one attempt, whose timestamp is now.

    event: its id; master: the key of which secrets are derived
    """
    signatures = sign(
        body,
        watch.secrets(master, now_us),
        event_id=event,
        now_s=now_us // 1_000_000,
        names=names,
        form=watch.form,
    )
    return {"Content-Type": "application/json", "User-Agent": _AGENT, **signatures}
