"""The answers of the courier's API: JSON, and errors in the gateway's form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from aiohttp import hdrs, web

from gateway.manage.refusals import Told
from gateway.manage.views import moment

#: After so many seconds a client may try again, as with the gateway's own answers.
RETRY_S: Final = 1

T = TypeVar("T")


def shown(
    body: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """An answer with a body."""
    return web.json_response(body, status=status, headers=headers)


def page_of(
    found: Sequence[T],
    limit: int,
    at_us: Callable[[T], int],
    as_json: Callable[[T], object],
    *,
    may_be_short: bool = False,
) -> web.Response:
    """A page of a list, the newest first. `next` is the `before` of the page after it.

    found:        up to one entry more than the limit, which says that there is more
    may_be_short: there may be more after fewer entries too; only after none there is nothing
    """
    entries = _whole_moments(found, limit, at_us)
    has_next = len(found) > len(entries) or (may_be_short and bool(entries))
    following = moment(at_us(entries[-1])) if has_next else None
    return shown({"items": [as_json(each) for each in entries], "next": following})


def _whole_moments(found: Sequence[T], limit: int, at_us: Callable[[T], int]) -> Sequence[T]:
    """The entries of a page: those of its last moment are on the next one if not all fit."""
    if len(found) <= limit:
        return found
    last = at_us(found[limit])
    fitting = [each for each in found[:limit] if at_us(each) > last]
    return fitting or found[:limit]


def refused(
    told: Told, request_id: str, allowed: Sequence[str] = (), retry_s: int = RETRY_S
) -> web.Response:
    """A refusal. allowed: the methods of the path, with a 405; retry_s: with a 503"""
    headers: dict[str, str] = {}
    if told.refusal.status == 401:
        headers[hdrs.WWW_AUTHENTICATE] = "Bearer"
    if told.refusal.status == 503:
        headers[hdrs.RETRY_AFTER] = str(retry_s)
    if allowed:
        headers[hdrs.ALLOW] = ", ".join(allowed)
    answer = shown(told.body(request_id), told.refusal.status, headers)
    if told.refusal.closes:
        answer.force_close()
    return answer


def as_moment(at_us: int) -> Any:
    """A time; null for 0, which is none."""
    return moment(at_us or None)
