"""The answers of the courier's API: JSON, and errors in the gateway's form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from aiohttp import hdrs, web

from gateway.domain.webhooks.deliveries import Page
from gateway.domain.webhooks.raw_bodies import written
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


def shown_page(page: Page[T], as_json: Callable[[T], object]) -> web.Response:
    """A page of a list. `next` is the `before` of the page after it; null: there is none."""
    return shown(page_as_json(page, as_json))


def page_as_json(page: Page[T], as_json: Callable[[T], object]) -> dict[str, object]:
    return {"items": [as_json(each) for each in page], "next": moment(page.next_us or None)}


def shown_as_kept(body: object) -> web.Response:
    """An answer with events whose bodies are of `as_kept`."""
    return web.Response(body=written(body), content_type="application/json")


def page_of(found: Sequence[T], limit: int, at_us: Callable[[T], int]) -> Page[T]:
    """The first page of these, the newest first.

    Those of its last moment are on the next one if not all fit.
    """
    if len(found) <= limit:
        return Page(found)
    last = at_us(found[limit])
    entries = [each for each in found[:limit] if at_us(each) > last] or found[:limit]
    return Page(entries, at_us(entries[-1]))


def refused(
    told: Told, request_id: str, allowed: Sequence[str] = (), retry_s: int = RETRY_S
) -> web.Response:
    """A refusal.

    allowed: the methods of the path, with a 405
    retry_s: with a 429 or 503 that has no time of its own
    """
    headers: dict[str, str] = {}
    if told.refusal.status == 401:
        headers[hdrs.WWW_AUTHENTICATE] = "Bearer"
    if told.refusal.status in (429, 503):
        headers[hdrs.RETRY_AFTER] = str(told.retry_s or retry_s)
    if allowed:
        headers[hdrs.ALLOW] = ", ".join(allowed)
    answer = shown(told.body(request_id), told.refusal.status, headers)
    if told.refusal.closes:
        answer.force_close()
    return answer
