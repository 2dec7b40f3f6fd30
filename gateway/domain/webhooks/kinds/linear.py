"""Linear: https://linear.app/developers/webhooks"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gateway.domain.json_text import TooDeep, read_json
from gateway.domain.webhooks.kinds.forms import Person, ticket
from gateway.domain.webhooks.kinds.kind import UNKNOWN, Captured, Header, Kind, by_mac, header_id
from gateway.domain.webhooks.payload import at, moment, number, text
from gateway.domain.webhooks.signatures import TOLERANCE_S, Unverified

_STATUS: Final = {
    **dict.fromkeys(("triage", "backlog", "unstarted"), "open"),
    "started": "in_progress",
    **dict.fromkeys(("completed", "canceled", "duplicate"), "closed"),
}
_ACTIONS: Final = {"create": "created", "update": "updated", "remove": "deleted"}
_PRIORITIES: Final = ("", "urgent", "high", "medium", "low")

_by_mac: Final = by_mac("linear-signature")


def _verify(body: bytes, header: Header, secrets: Sequence[str], now_s: float) -> None:
    """The signature first: only then the time in the body is the sender's."""
    _by_mac(body, header, secrets, now_s)
    try:
        sent_s = number(read_json(body), "webhookTimestamp") / 1000
    except TooDeep as error:
        raise Unverified(str(error)) from None
    except ValueError:
        raise Unverified("the body is not valid JSON") from None
    if abs(now_s - sent_s) > TOLERANCE_S:
        raise Unverified(
            f"webhookTimestamp is {abs(now_s - sent_s):.0f} s from now, and {TOLERANCE_S} s are "
            "tolerated"
        )


def _normalize(_header: Header, payload: Any) -> Captured:
    action = _ACTIONS.get(text(payload, "action"))
    if action is None or text(payload, "type") != "Issue":
        return UNKNOWN
    its = at(payload, "data")
    status = _STATUS.get(text(its, "state.type"), "open")
    changed = at(payload, "updatedFrom")
    has_moved = isinstance(changed, dict) and "stateId" in changed
    if action == "updated" and status == "closed" and has_moved:
        action = "closed"
    priority = number(its, "priority")
    data = ticket(
        its_id=text(its, "id"),
        key=text(its, "identifier") or _key(its),
        title=text(its, "title"),
        description=text(its, "description"),
        status=status,
        priority=_PRIORITIES[priority] if 0 <= priority < len(_PRIORITIES) else "",
        reporter=_person(text(its, "creatorId"), at(its, "creator"), at(payload, "actor")),
        assignee=_person(text(its, "assigneeId"), at(its, "assignee"), at(payload, "actor")),
        url=text(payload, "url") or text(its, "url"),
        created=at(its, "createdAt"),
        updated=at(its, "updatedAt"),
    )
    return Captured(f"ticket.{action}", moment(at(payload, "createdAt")), data)


def _key(its: Any) -> str:
    """As older webhooks have it: "TID-142"."""
    parts = (text(its, "team.key"), text(its, "number"))
    return "-".join(parts) if all(parts) else ""


def _person(its_id: str, its: Any, actor: Any) -> Person:
    """`actor` is who did it, which tells more of one who is the same."""
    its_id = text(its, "id") or its_id
    known = actor if its is None and its_id and its_id == text(actor, "id") else its
    return Person(id=its_id, username=text(known, "name"), email=text(known, "email"))


LINEAR: Final = Kind("linear", _verify, header_id("linear-delivery"), _normalize)
