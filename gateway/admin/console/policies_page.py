"""The loaded policy, its history, and an explanation of what would happen to a request."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiohttp import web

from gateway.admin.console import forms
from gateway.admin.console.gate import management_of, typed
from gateway.admin.console.render import page
from gateway.domain.key_format import looks_like_key, parse
from gateway.domain.policy_history import PolicyLoad
from gateway.domain.ports import CorruptRecord, StoreDown
from gateway.manage.policy_history import PolicyHistory
from gateway.manage.problems import Invalid
from gateway.observe.metrics import COMPARISONS

_FIELDS = ("method", "path", "key_id", "client_ip", "host")
#: The methods in the form.
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
#: The columns of the comparison with candidates.
OUTCOMES = {outcome: outcome.replace("_", " ").capitalize() for outcome in COMPARISONS}


async def show(request: web.Request) -> web.StreamResponse:
    key_id = request.query.get("key", "")
    fields = {
        "method": "GET",
        "key_id": "" if looks_like_key(key_id) else key_id,
        "client_ip": "127.0.0.1",
        "host": "",
    }
    return await _page(request, forms.Form(fields, {}))


async def explain(request: web.Request) -> web.StreamResponse:
    """Answer the form. It is a POST, so that a whole key, if a user types one, is in no URL."""
    typed_fields = await typed(request)
    fields = {name: typed_fields.get(name, "") for name in _FIELDS}
    key_id = fields["key_id"]
    if looks_like_key(key_id):
        # Of a whole key only the id is shown again.
        named = parse(key_id)
        fields["key_id"] = named.id if named else ""
    try:
        answer = await management_of(request).explain.ask(
            fields["method"], fields["path"], key_id or None, fields["client_ip"], fields["host"]
        )
    except Invalid as problem:
        return await _page(request, forms.form(fields, problem.faults, _FIELDS), status=422)
    return await _page(request, forms.Form(fields, {}), answer)


async def _page(
    request: web.Request,
    form: forms.Form,
    answer: Mapping[str, object] | None = None,
    status: int = 200,
) -> web.StreamResponse:
    management = management_of(request)
    policies = management.policies
    loads, unavailable = await _history(management.history)
    return page(
        request,
        "policies",
        status=status,
        # It reads files.
        shown=await asyncio.to_thread(policies.shown),
        loaded_us=policies.loaded().at_us,
        candidates=policies.candidates(),
        outcomes=OUTCOMES,
        form=form,
        answer=answer,
        methods=METHODS,
        loads=loads,
        unavailable=unavailable,
    )


async def _history(history: PolicyHistory) -> tuple[list[PolicyLoad], str]:
    """The entries; or none, and why. The rest of the page does not need the store."""
    try:
        return await history.loads(), ""
    except (StoreDown, CorruptRecord) as error:
        return [], str(error)
