"""Renders a page from a template. All values are escaped; a missing value is an error."""

from __future__ import annotations

from typing import Final

from aiohttp import web
from jinja2 import Environment, PackageLoader, StrictUndefined

from gateway.admin.console import assets, charts, wording
from gateway.admin.console.forms import has_limit_overrides
from gateway.admin.context import MANAGEMENT, SESSION
from gateway.domain.patterns import printable
from gateway.domain.usage import STATUS_CLASSES
from gateway.manage.deliveries import delivery_states
from gateway.manage.views import rate_words, status_words
from gateway.manage.words import bytes_words, seconds_words

_templates: Final = Environment(
    loader=PackageLoader("gateway.admin.console"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.globals.update(
    static=assets.address_of,
    groups=wording.GROUPS,
    width=charts.WIDTH,
    height=charts.HEIGHT,
    left=charts.LEFT,
    right=charts.RIGHT,
    shapes=wording.SHAPES,
    share=wording.share,
    status_classes=STATUS_CLASSES[1:],
    changed=wording.changes,
    delivery_states=delivery_states,
    has_limit_overrides=has_limit_overrides,
    status_words=status_words,
)
_templates.filters.update(
    moment=wording.moment,
    spelled=wording.spelled,
    ago=wording.ago,
    number=wording.number,
    duration=wording.duration,
    outcome=wording.outcome,
    sentence=wording.sentence,
    printable=printable,
    limit_text=wording.limit_text,
    rate=rate_words,
    seconds=seconds_words,
    bytes=bytes_words,
)


def page(
    request: web.Request, template: str, *, status: int = 200, **values: object
) -> web.Response:
    """The answer that shows a template.

    Every template also has `session` (None at the sign-in), `path`, `now_us`, `has_mcp`: there are
    routes to MCP servers, `has_webhooks`: they can be managed here, and `done`: the message about
    the change made on the previous page.
    """
    management = request.app.get(MANAGEMENT)
    shown = _templates.get_template(f"{template}.html").render(
        session=request.get(SESSION),
        path=request.path,
        now_us=now_us(request),
        has_mcp=management is not None and management.policies.loaded().policy.has_mcp,
        has_webhooks=management is not None and management.webhooks is not None,
        done=wording.DONE.get(request.query.get("done", "")),
        **values,
    )
    # A page may show a new key, so no cache may store it.
    headers = {"Cache-Control": "no-store"}
    # JSON in the store may have lone surrogates, which must not prevent showing the page.
    body = shown.encode(errors="replace")
    return web.Response(
        body=body, content_type="text/html", charset="utf-8", status=status, headers=headers
    )


def now_us(request: web.Request) -> int:
    """Unix microseconds, by the clock of the management; 0 if there is none."""
    management = request.app.get(MANAGEMENT)
    return management.clock_us() if management is not None else 0
