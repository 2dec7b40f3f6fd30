"""The forms that make and change a watch, and rotate its secret, which is shown once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from aiohttp import web

from gateway.admin.console import forms
from gateway.admin.console.gate import typed
from gateway.admin.console.render import page
from gateway.admin.console.webhook_parts import (
    address_of,
    integration_of,
    see,
    trail_to,
    watch_of,
    webhooks_of,
)
from gateway.admin.console.wording import CHANGED
from gateway.admin.context import actor_of
from gateway.domain.webhooks.events import Integration
from gateway.domain.webhooks.watches import Watch
from gateway.manage.problems import Changed, Conflict, Fault, Invalid
from gateway.manage.watches import watch_version

#: The forms of the service's own signature: value -> label.
FORMS: Final = {"timed": "Of time and body", "body-only": "Of the body only, for older receivers"}
_FIELDS: Final = ("url", "events", "form", "rate")
_ROTATED: Final = (
    "the secret was rotated since this form was opened: a second time would end the overlap"
)


async def ask_new(request: web.Request) -> web.StreamResponse:
    return _new_form(request, await integration_of(request), {"form": "timed"})


async def create(request: web.Request) -> web.StreamResponse:
    """Make the watch and show its secret; or show the form again, with the faults."""
    its, fields = await integration_of(request), await typed(request)
    try:
        view, secret = await webhooks_of(request).watches.create(
            actor_of(request), its.account, its.id, _given(fields)
        )
    except Invalid as problem:
        return _new_form(request, its, fields, problem.faults)
    return _shown_once(request, its, view.watch, secret, "Watch created")


async def ask_edit(request: web.Request) -> web.StreamResponse:
    integration, its = await watch_of(request)
    watch = (await webhooks_of(request).watches.get(*its)).watch
    fields = {
        "url": watch.url,
        "events": "\n".join(watch.events),
        "form": watch.form,
        "rate": str(watch.rate or ""),
        "version": watch_version(watch),
    }
    return _edit_form(request, integration, watch, fields)


async def edit(request: web.Request) -> web.StreamResponse:
    """Change the watch; or show the form again, with the faults or after another's change."""
    integration, its = await watch_of(request)
    watches, fields = webhooks_of(request).watches, await typed(request)
    watch = (await watches.get(*its)).watch
    try:
        await watches.edit(actor_of(request), *its, _given(fields), fields.get("version", ""))
    except Invalid as problem:
        return _edit_form(request, integration, watch, fields, faults=problem.faults, status=422)
    except Changed:
        watch = (await watches.get(*its)).watch
        fields["version"] = watch_version(watch)
        return _edit_form(request, integration, watch, fields, notice=CHANGED, status=412)
    raise see(address_of(*its[1:]), "watch-saved")


async def ask_rotate(request: web.Request) -> web.StreamResponse:
    integration, its = await watch_of(request)
    watch = (await webhooks_of(request).watches.get(*its)).watch
    return page(request, "watch_rotate", watch=watch, trail=trail_to(integration, watch.id))


async def rotate(request: web.Request) -> web.StreamResponse:
    """Show the new secret. A form that is sent again, as a reload does, rotates nothing."""
    integration, its = await watch_of(request)
    watches, fields = webhooks_of(request).watches, await typed(request)
    if fields.get("version") != str((await watches.get(*its)).watch.version):
        raise Conflict(_ROTATED)
    view, secret = await watches.rotate(actor_of(request), *its)
    return _shown_once(request, integration, view.watch, secret, "Secret rotated")


def _given(fields: Mapping[str, str]) -> dict[str, object]:
    """The fields of `manage.watches`. An empty rate is none."""
    given: dict[str, object] = {
        "events": re.findall(r"[^\s,]+", fields.get("events", "")),
        "rate": fields.get("rate") or None,
    }
    for name in ("url", "form"):
        if fields.get(name):
            given[name] = fields[name]
    return {"url": "", **given}


def _new_form(
    request: web.Request,
    its: Integration,
    fields: Mapping[str, str],
    faults: tuple[Fault, ...] = (),
) -> web.StreamResponse:
    return page(
        request,
        "watch_new",
        status=422 if faults else 200,
        its=its,
        form=forms.form(fields, faults, _FIELDS),
        forms=FORMS,
        trail=trail_to(its),
    )


def _edit_form(
    request: web.Request,
    its: Integration,
    watch: Watch,
    fields: Mapping[str, str],
    *,
    faults: Iterable[Fault] = (),
    notice: str = "",
    status: int = 200,
) -> web.StreamResponse:
    return page(
        request,
        "watch_edit",
        status=status,
        watch=watch,
        form=forms.form(fields, faults, _FIELDS),
        forms=FORMS,
        notice=notice,
        trail=trail_to(its, watch.id),
    )


def _shown_once(
    request: web.Request, its: Integration, watch: Watch, secret: str, title: str
) -> web.StreamResponse:
    return page(
        request,
        "watch_once",
        watch=watch,
        secret=secret,
        title=title,
        home=address_of(its.id, watch.id),
        trail=trail_to(its, watch.id),
    )
