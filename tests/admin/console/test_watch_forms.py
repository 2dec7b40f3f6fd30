"""The forms that make and change a watch, and rotate its secret."""

from __future__ import annotations

import re

from gateway.admin.console.webhook_parts import address_of
from gateway.domain.webhooks.watches import Watch, secret_of
from tests.admin.console.test_changes import value_of
from tests.admin.console.test_integration_forms import shown
from tests.kit.console import ANNA, MASTER, Browser, Console
from tests.kit.console_webhooks import integration, watch, webhooks_of

FIELDS = {
    "url": "https://hooks.example.com/",
    "events": "build.*\npull_request.merged, ticket.*",
    "form": "body-only",
    "rate": "600/minute",
}


async def only_watch(console: Console) -> Watch:
    (its,) = await webhooks_of(console).integrations.list()
    (view,) = await webhooks_of(console).watches.list(its.account, its.id)
    return view.watch


async def test_a_watch_is_made_and_its_secret_shown_once(hooked: Console, olga: Browser) -> None:
    """The secret is that of its deliveries, and on no other page."""
    its = await integration(hooked)
    answer = await olga.post(f"{address_of(its.id)}/watches/new", FIELDS)
    made = await only_watch(hooked)
    assert made.url == FIELDS["url"]
    assert made.events == ("build.*", "pull_request.merged", "ticket.*")
    assert (made.form, str(made.rate)) == ("body-only", "600/minute")
    assert shown(answer) == secret_of(MASTER, made.id, 1)
    home = address_of(its.id, made.id)
    assert f'data-home="{home}"' in answer.text
    for path in (home, address_of(its.id), "/console/audit"):
        assert shown(answer) not in (await olga.get(path)).text


async def test_every_fault_is_shown_at_its_field(hooked: Console, olga: Browser) -> None:
    its = await integration(hooked)
    fields = {"url": "http://10.0.0.1/", "events": "Build*", "form": "other", "rate": "1/day"}
    answer = await olga.post(f"{address_of(its.id)}/watches/new", fields)
    assert answer.status == 422
    for name in fields:
        assert re.search(rf'id="e-{name}"[^>]*>\s*<p>', answer.text), name
    assert 'value="http://10.0.0.1/"' in answer.text
    assert "Build*</textarea>" in answer.text
    answer = await olga.post(f"{address_of(its.id)}/watches/new", {})
    assert re.search(r'id="e-url"[^>]*>\s*<p>', answer.text)


async def test_a_watch_is_changed(hooked: Console, olga: Browser) -> None:
    """The form has its values; faults change nothing."""
    its = await integration(hooked)
    home = address_of(its.id, await watch(hooked, its, events=["build.*", "a.b"]))
    form = await olga.get(f"{home}/edit")
    assert "build.*\na.b</textarea>" in form.text
    assert 'value="timed" checked' in form.text
    version = value_of(form, "version")
    wrong = await olga.post(f"{home}/edit", {**FIELDS, "url": "ftp://x", "version": version})
    assert wrong.status == 422
    answer = await olga.post(f"{home}/edit", {**FIELDS, "version": version})
    assert answer.path == f"{home}?done=watch-saved"
    assert (await only_watch(hooked)).form == "body-only"
    form = await olga.get(f"{home}/edit")
    assert value_of(form, "rate") == "600/minute"
    cleared = {**FIELDS, "rate": "", "version": value_of(form, "version")}
    await olga.post(f"{home}/edit", cleared)
    assert (await only_watch(hooked)).rate is None


async def test_anothers_change_is_not_overwritten(hooked: Console, olga: Browser) -> None:
    """The form is shown again with what was typed; sent once more, it is saved."""
    its = await integration(hooked)
    made = await watch(hooked, its)
    home = address_of(its.id, made)
    version = value_of(await olga.get(f"{home}/edit"), "version")
    theirs = {"url": "https://other.example.com/"}
    await webhooks_of(hooked).watches.edit(ANNA, its.account, its.id, made, theirs)
    answer = await olga.post(f"{home}/edit", {**FIELDS, "version": version})
    assert answer.status == 412
    assert "Someone else changed this" in answer.text
    assert FIELDS["url"] in answer.text
    assert (await only_watch(hooked)).url == theirs["url"]
    await olga.post(f"{home}/edit", {**FIELDS, "version": value_of(answer, "version")})
    assert (await only_watch(hooked)).url == FIELDS["url"]


async def test_a_secret_is_rotated_once(hooked: Console, olga: Browser) -> None:
    """The same form again, as a reload sends it, would end the overlap: it rotates nothing."""
    its = await integration(hooked)
    made = await watch(hooked, its)
    home = address_of(its.id, made)
    version = value_of(await olga.get(f"{home}/rotate"), "version")
    answer = await olga.post(f"{home}/rotate", {"version": version})
    assert shown(answer) == secret_of(MASTER, made, 2)
    assert "24 hours" in answer.text
    again = await olga.post(f"{home}/rotate", {"version": version})
    assert again.status == 409
    assert (await only_watch(hooked)).version == 2
