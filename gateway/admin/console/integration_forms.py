"""The forms that make an integration, change it, and replace its provider's secrets.

A secret that is made is only in the answer to the form. One that is typed is on no page, also not
on the form that is shown again with faults.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    webhooks_of,
)
from gateway.admin.console.wording import CHANGED
from gateway.admin.context import actor_of
from gateway.domain.webhooks.events import Integration
from gateway.domain.webhooks.kinds.table import KINDS
from gateway.manage.integrations import integration_version
from gateway.manage.problems import Changed, Fault, Invalid

#: Where the secret comes from: value -> label of the form.
SOURCES: Final = {"made": "Make one, and show it once", "given": "Use the one that I type"}
_SECRET_FIELDS: Final = ("source", "secrets")
_EDIT_FIELDS: Final = ("name", "id_header")
_NEW_FIELDS: Final = ("kind", "account", *_EDIT_FIELDS, *_SECRET_FIELDS)


async def ask_new(request: web.Request) -> web.StreamResponse:
    """The form for a new integration; ?account= fills in the account."""
    webhooks_of(request)
    return _new_form(request, {"account": request.query.get("account", ""), "source": "made"})


async def create(request: web.Request) -> web.StreamResponse:
    """Make it and show its secret, if one was made; or show the form again, with the faults."""
    fields = await typed(request)
    given = {name: fields[name] for name in ("kind", "account", *_EDIT_FIELDS) if fields.get(name)}
    try:
        its, shown = await webhooks_of(request).integrations.create(
            actor_of(request), {**given, **_secrets(fields)}
        )
    except Invalid as problem:
        return _new_form(request, _shown_again(fields), problem.faults)
    if shown.made is None:
        raise see(address_of(its.id), "integration-created")
    return _shown_once(request, its, shown.made, "Integration created")


async def ask_edit(request: web.Request) -> web.StreamResponse:
    its = await integration_of(request)
    fields = {
        "name": its.name,
        "id_header": its.id_header,
        "version": integration_version(its),
    }
    return _edit_form(request, its, fields)


async def edit(request: web.Request) -> web.StreamResponse:
    """Change it; or show the form again, with the faults or after another's change."""
    its, fields = await integration_of(request), await typed(request)
    integrations = webhooks_of(request).integrations
    given = {"name": fields.get("name", ""), "id_header": fields.get("id_header") or None}
    try:
        await integrations.edit(actor_of(request), its.id, given, fields.get("version", ""))
    except Invalid as problem:
        return _edit_form(request, its, fields, faults=problem.faults, status=422)
    except Changed:
        its = await integrations.get(its.id)
        fields["version"] = integration_version(its)
        return _edit_form(request, its, fields, notice=CHANGED, status=412)
    raise see(address_of(its.id), "integration-saved")


async def ask_secret(request: web.Request) -> web.StreamResponse:
    return _secret_form(request, await integration_of(request), {"source": "made"})


async def set_secret(request: web.Request) -> web.StreamResponse:
    """Replace the secrets, and show one that was made; or show the form again."""
    its, fields = await integration_of(request), await typed(request)
    try:
        its, shown = await webhooks_of(request).integrations.set_secrets(
            actor_of(request), its.id, _secrets(fields)
        )
    except Invalid as problem:
        return _secret_form(request, its, _shown_again(fields), problem.faults)
    if shown.made is None:
        raise see(address_of(its.id), "secret-set")
    return _shown_once(request, its, shown.made, "Secret replaced")


def _secrets(fields: Mapping[str, str]) -> dict[str, object]:
    """The field of `manage.integrations`: none, for one that is made."""
    secret, before = fields.get("secrets", ""), fields.get("before", "")
    if not secret and not before and fields.get("source") != "given":
        return {}
    return {"secrets": [secret, before] if before else [secret]}


def _shown_again(fields: Mapping[str, str]) -> dict[str, str]:
    """Typed secrets are not shown again, but that they were typed is."""
    source = "given" if _secrets(fields) else "made"
    return {**fields, "source": source}


def _new_form(
    request: web.Request, fields: Mapping[str, str], faults: tuple[Fault, ...] = ()
) -> web.StreamResponse:
    return page(
        request,
        "integration_new",
        status=422 if faults else 200,
        form=forms.form(fields, faults, _NEW_FIELDS),
        kinds=tuple(KINDS),
        sources=SOURCES,
    )


def _edit_form(
    request: web.Request,
    its: Integration,
    fields: Mapping[str, str],
    *,
    faults: tuple[Fault, ...] = (),
    notice: str = "",
    status: int = 200,
) -> web.StreamResponse:
    return page(
        request,
        "integration_edit",
        status=status,
        its=its,
        form=forms.form(fields, faults, _EDIT_FIELDS),
        takes_id_header=KINDS[its.kind].takes_id_header,
        notice=notice,
        trail=trail_to(its),
    )


def _secret_form(
    request: web.Request,
    its: Integration,
    fields: Mapping[str, str],
    faults: tuple[Fault, ...] = (),
) -> web.StreamResponse:
    return page(
        request,
        "integration_secret",
        status=422 if faults else 200,
        its=its,
        form=forms.form(fields, faults, _SECRET_FIELDS),
        sources=SOURCES,
        trail=trail_to(its),
    )


def _shown_once(
    request: web.Request, its: Integration, secret: str, title: str
) -> web.StreamResponse:
    return page(
        request,
        "integration_once",
        its=its,
        secret=secret,
        title=title,
        home=address_of(its.id),
        trail=trail_to(its),
    )
