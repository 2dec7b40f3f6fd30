"""Accounts: their list, the page of one with its form, and its buttons."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, urlencode

from aiohttp import web

from gateway.admin.console import forms
from gateway.admin.console.charts import chart
from gateway.admin.console.gate import management_of, typed
from gateway.admin.console.key_pages import plan_names
from gateway.admin.console.render import page
from gateway.admin.console.usage_span import a_file, format_of, span_of
from gateway.admin.console.wording import CHANGED, WINDOWS
from gateway.admin.context import actor_of
from gateway.domain.keys import Account
from gateway.domain.patterns import NAME
from gateway.domain.ports import KeyFilter
from gateway.domain.usage import Window
from gateway.manage.account_removal import remove_account
from gateway.manage.accounts import AccountView
from gateway.manage.management import Management
from gateway.manage.problems import Changed, Conflict, Fault, Invalid, NotThere
from gateway.manage.usage_export import account_as_csv
from gateway.manage.usage_sums import UsageReport, account_usage_as_json, busiest_routes
from gateway.manage.views import account_as_json, version_of

_NAME_WORDS = (
    "Expected up to 64 letters, digits, '.', '_' and '-', beginning with a letter or digit."
)


async def show_all(request: web.Request) -> web.StreamResponse:
    """Accounts by name; `open` redirects to an account, also to one that does not exist."""
    opened = request.query.get("open", "").strip()
    if re.fullmatch(NAME, opened):
        raise web.HTTPSeeOther(f"/console/accounts/{quote(opened)}")
    text = request.query.get("text", "").strip()
    found = await management_of(request).accounts.page(
        request.query.get("after") or None, text=text or None, implicit="named"
    )
    query = {"text": text, "after": found.next or ""}
    return page(
        request,
        "accounts",
        accounts=found.accounts,
        text=text,
        form=forms.Form({"open": opened}, {"open": (_NAME_WORDS,)} if opened else {}),
        next=f"/console/accounts?{urlencode(query)}" if found.next else None,
    )


async def ask(request: web.Request) -> web.StreamResponse:
    """The form of an account; an empty one if it does not exist yet. Or its usage, as a file."""
    account = await _maybe_account(request)
    if file := await _file(request):
        return file
    fields = forms.of_account(account) if account else {}
    return await _form(request, account, {**fields, "version": _version(account)})


async def put(request: web.Request) -> web.StreamResponse:
    """Create or change the account; or show the form again, with the faults."""
    name = request.match_info["name"]
    fields = await typed(request)
    version = fields.get("version", "")
    try:
        await management_of(request).accounts.put(
            actor_of(request),
            name,
            forms.account_change(fields),
            version or None,
            must_be_new=not version,
        )
    except Invalid as problem:
        account = await _maybe_account(request)
        return await _form(request, account, fields, faults=problem.faults, status=422)
    except Changed:
        account = await _maybe_account(request)
        fields["version"] = _version(account)
        return await _form(request, account, fields, notice=CHANGED, status=412)
    raise web.HTTPSeeOther(f"/console/accounts/{quote(name)}?done=saved")


async def suspend(request: web.Request) -> web.StreamResponse:
    name = request.match_info["name"]
    await management_of(request).accounts.suspend(actor_of(request), name)
    raise web.HTTPSeeOther(f"/console/accounts/{quote(name)}?done=account-suspended")


async def resume(request: web.Request) -> web.StreamResponse:
    name = request.match_info["name"]
    await management_of(request).accounts.resume(actor_of(request), name)
    raise web.HTTPSeeOther(f"/console/accounts/{quote(name)}?done=account-resumed")


async def ask_delete(request: web.Request) -> web.StreamResponse:
    """Deleting is final, so the user types the account's name."""
    view = await management_of(request).accounts.view(request.match_info["name"])
    return await _delete_form(request, view, forms.Form({}, {}))


async def delete(request: web.Request) -> web.StreamResponse:
    """Delete the account, if its name was typed; with its keys, if that was chosen."""
    management = management_of(request)
    view = await management.accounts.view(request.match_info["name"])
    fields = await typed(request)
    if fields.get("name", "") != view.name:
        fault = f"Found another name, expected {view.name}."
        return await _delete_form(request, view, forms.Form(fields, {"name": (fault,)}))
    revokes = fields.get("revoke") == "yes"
    try:
        await remove_account(
            management.accounts, management.keys, actor_of(request), view.name, revokes=revokes
        )
    except Conflict:
        fault = "It has valid keys or integrations. Choose to end them, or do it before."
        return await _delete_form(request, view, forms.Form(fields, {"revoke": (fault,)}))
    raise web.HTTPSeeOther("/console/accounts?done=account-deleted")


async def _delete_form(
    request: web.Request, view: AccountView, form: forms.Form
) -> web.StreamResponse:
    status, hooks = 422 if form.faults else 200, management_of(request).accounts.hooks
    its = 0 if hooks is None else await hooks.count(view.name)
    return page(request, "account_delete", status=status, form=form, view=view, integrations=its)


async def _maybe_account(request: web.Request) -> Account | None:
    """None: it was never created. Raises HTTPNotFound for an invalid name."""
    name = request.match_info["name"]
    if not re.fullmatch(NAME, name):
        raise web.HTTPNotFound
    try:
        return await management_of(request).accounts.get(name)
    except NotThere:
        return None


def _version(account: Account | None) -> str:
    return version_of(account_as_json(account)) if account else ""


async def _form(
    request: web.Request,
    account: Account | None,
    fields: Mapping[str, str],
    *,
    faults: Iterable[Fault] = (),
    notice: str = "",
    status: int = 200,
) -> web.StreamResponse:
    management, name = management_of(request), request.match_info["name"]
    found = await management.keys.page(KeyFilter(account=name))
    span = span_of(request)
    usage, too_many = await _usage(management, name, span.window)
    own = account.limits if account else ()
    limits = forms.limit_names(management.policies.loaded().policy, own)
    shown = (*forms.ACCOUNT_FIELDS, *(f"{forms.LIMIT}{name}" for name in limits))
    return page(
        request,
        "account",
        status=status,
        name=name,
        account=account,
        is_new=account is None,
        keys=found.keys,
        more_keys=found.next is not None,
        span=span,
        windows=WINDOWS,
        report=usage,
        routes=busiest_routes(usage) if usage else [],
        chart=chart("usage", span.window, usage.points) if usage else None,
        too_many=too_many,
        effective=await management.limits.of_account(name),
        form=forms.form(fields, faults, shown),
        notice=notice,
        plans=plan_names(management),
        limits=limits,
    )


async def _file(request: web.Request) -> web.Response | None:
    """The usage of the account, if a file of it is asked for."""
    span = span_of(request)
    form = format_of(request, span)
    book, name = management_of(request).usage, request.match_info["name"]
    if form == "csv":
        return a_file(form, await account_as_csv(book, name, span.window))
    if form == "json":
        usage = await book.of_account(name, span.window)
        return a_file(form, account_usage_as_json(name, *usage))
    return None


async def _usage(
    management: Management, name: str, window: Window
) -> tuple[UsageReport | None, str]:
    """The usage of all keys of an account, or why it is not shown. None: it has no keys."""
    try:
        return (await management.usage.of_account(name, window))[1], ""
    except NotThere:
        return None, ""
    except Conflict as problem:
        return None, str(problem)
