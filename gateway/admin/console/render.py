"""A page out of a template. Whatever is put in is escaped; a name that is not given is an error."""

from __future__ import annotations

from typing import Final

from aiohttp import web
from jinja2 import Environment, PackageLoader, StrictUndefined

from gateway.admin.console import assets, charts, wording
from gateway.admin.console.forms import has_own_limits
from gateway.admin.context import MANAGEMENT, SESSION
from gateway.manage.views import rate_words, status_words

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
    changed=wording.changes,
    has_own_limits=has_own_limits,
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
    promise=wording.promise,
    rate=rate_words,
)


def page(
    request: web.Request, template: str, *, status: int = 200, **values: object
) -> web.Response:
    """The answer that shows a template.

    Every template also has `session` (None on the way in), `path`, `now_us`, and `done`: the
    sentence about what was done on the page before.
    """
    shown = _templates.get_template(f"{template}.html").render(
        session=request.get(SESSION),
        path=request.path,
        now_us=now_us(request),
        done=wording.DONE.get(request.query.get("done", "")),
        **values,
    )
    # A page may hold what was just made and must not be found again: it is kept nowhere.
    headers = {"Cache-Control": "no-store"}
    # Half a surrogate pair, which JSON in the store may have, is no reason to show nothing.
    body = shown.encode(errors="replace")
    return web.Response(
        body=body, content_type="text/html", charset="utf-8", status=status, headers=headers
    )


def now_us(request: web.Request) -> int:
    """Unix microseconds, by the clock that all of the management goes by; 0 where there is none."""
    management = request.app.get(MANAGEMENT)
    return management.clock_us() if management is not None else 0
