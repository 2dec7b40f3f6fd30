"""The forms that make an integration and replace its provider's secrets."""

from __future__ import annotations

import re

import pytest

from gateway.manage.integrations import integration_version
from gateway.webhooks.sealing import Sealer
from tests.kit.console import ANNA, MASTER, Answer, Browser, Console
from tests.kit.console_webhooks import integration, webhooks_of

NEW = "/console/integrations/new"
SECRET = "a-secret-of-the-provider"
FIELDS = {"kind": "github", "account": "acme", "name": "Our code", "source": "made"}


def shown(answer: Answer) -> str:
    """The secret that a page shows."""
    (text,) = re.findall(r'id="key-text"[^>]* value="([^"]+)"', answer.text)
    return str(text)


async def stored(console: Console) -> tuple[str, ...]:
    """The secrets of the only integration."""
    (its,) = await webhooks_of(console).integrations.list()
    return tuple(Sealer(MASTER).open(its.id, its.sealed))


async def test_a_secret_is_made_and_shown_once(hooked: Console, olga: Browser) -> None:
    """With the capture address; on no other page, and not in the audit log."""
    answer = await olga.post(NEW, FIELDS)
    assert (answer.status, answer.path) == (200, NEW)
    (its,) = await webhooks_of(hooked).integrations.list()
    assert await stored(hooked) == (shown(answer),)
    assert f"/hooks/{its.capture}" in answer.text
    assert f'data-home="/console/integrations/{its.id}"' in answer.text
    assert answer.headers["Cache-Control"] == "no-store"
    for path in (f"/console/integrations/{its.id}", "/console/integrations", "/console/audit"):
        assert shown(answer) not in (await olga.get(path)).text


@pytest.mark.parametrize("source", ["given", "made"])
async def test_a_typed_secret_is_used(hooked: Console, olga: Browser, source: str) -> None:
    """Whatever was chosen: a typed secret is never passed over. No page shows it."""
    answer = await olga.post(NEW, {**FIELDS, "source": source, "secrets": SECRET})
    assert answer.path.endswith("?done=integration-created")
    assert SECRET not in answer.text
    assert await stored(hooked) == (SECRET,)


async def test_every_fault_is_shown_at_its_field(hooked: Console, olga: Browser) -> None:
    """What was typed is kept, except for the secret."""
    fields = {"kind": "cvs", "account": "a b", "name": "", "source": "given", "secrets": "short"}
    answer = await olga.post(NEW, fields)
    assert answer.status == 422
    for name in ("kind", "account", "name", "secrets"):
        assert re.search(rf'id="e-{name}"[^>]*>\s*<p>', answer.text), name
    assert 'value="a b"' in answer.text
    assert 'value="short"' not in answer.text
    assert re.search(r'value="given" checked', answer.text)
    assert await webhooks_of(hooked).integrations.list() == []


async def test_a_missing_secret_is_a_fault(hooked: Console, olga: Browser) -> None:
    """None is made instead of the one that was to be typed."""
    answer = await olga.post(NEW, {**FIELDS, "source": "given"})
    assert answer.status == 422
    assert re.search(r'id="e-secrets"[^>]*>\s*<p>', answer.text)
    assert await webhooks_of(hooked).integrations.list() == []


async def test_the_gateways_own_kinds_have_no_secret(hooked: Console, olga: Browser) -> None:
    answer = await olga.post(NEW, {**FIELDS, "kind": "operator"})
    assert answer.path.endswith("?done=integration-created")
    (its,) = await webhooks_of(hooked).integrations.list()
    answer = await olga.get(f"/console/integrations/{its.id}")
    assert f"{its.id}/secret" not in answer.text
    answer = await olga.post(f"/console/integrations/{its.id}/secret", {"source": "made"})
    assert answer.status == 409


async def test_an_account_is_filled_in(olga: Browser) -> None:
    assert 'value="acme"' in (await olga.get(f"{NEW}?account=acme")).text


async def test_a_header_with_the_id(hooked: Console, olga: Browser) -> None:
    """Typed where an integration of the kind generic is made or edited, and shown on its page."""
    fields = {**FIELDS, "kind": "generic", "id_header": "X-Delivery-Id"}
    await olga.post(NEW, fields)
    (its,) = await webhooks_of(hooked).integrations.list()
    assert its.id_header == "x-delivery-id"
    home = f"/console/integrations/{its.id}"
    assert "<code>x-delivery-id</code>" in (await olga.get(home)).text
    assert 'value="x-delivery-id"' in (await olga.get(f"{home}/edit")).text
    for wrong in ({**fields, "id_header": "host"}, {**fields, "kind": "github"}):
        answer = await olga.post(NEW, wrong)
        assert answer.status == 422
        assert re.search(r'id="e-id_header"[^>]*>\s*<p>', answer.text)


async def test_an_integration_is_edited(hooked: Console, olga: Browser) -> None:
    """Its name, and the header with the id, which an empty field removes."""
    its = await integration(hooked, kind="generic", id_header="x-id")
    path = f"/console/integrations/{its.id}/edit"

    async def edit(name: str, id_header: str) -> Answer:
        known = await webhooks_of(hooked).integrations.get(its.id)
        given = {"name": name, "id_header": id_header, "version": integration_version(known)}
        return await olga.post(path, given)

    answer = await edit("Builds", "x-other")
    assert answer.path == f"/console/integrations/{its.id}?done=integration-saved"
    changed = await webhooks_of(hooked).integrations.get(its.id)
    assert (changed.name, changed.id_header) == ("Builds", "x-other")
    answer = await edit("", "Content-Type")
    assert answer.status == 422
    for name in ("name", "id_header"):
        assert re.search(rf'id="e-{name}"[^>]*>\s*<p>', answer.text), name
    assert 'value="Content-Type"' in answer.text
    await edit("Builds", "")
    assert (await webhooks_of(hooked).integrations.get(its.id)).id_header == ""


async def test_a_form_that_is_older_than_a_change(hooked: Console, olga: Browser) -> None:
    """What was typed is shown again, and saved by a second time."""
    its = await integration(hooked)
    path = f"/console/integrations/{its.id}/edit"
    page = (await olga.get(path)).text
    assert "f-id_header" not in page, "of a kind that has none"
    (version,) = re.findall(r'name="version" value="([^"]+)"', page)
    await webhooks_of(hooked).integrations.edit(ANNA, its.id, {"name": "Theirs"})
    answer = await olga.post(path, {"name": "Mine", "version": version})
    assert answer.status == 412
    assert "Someone else changed this" in answer.text
    assert 'value="Mine"' in answer.text
    (version,) = re.findall(r'name="version" value="([^"]+)"', answer.text)
    await olga.post(path, {"name": "Mine", "version": version})
    assert (await webhooks_of(hooked).integrations.get(its.id)).name == "Mine"


async def test_secrets_are_replaced(hooked: Console, olga: Browser) -> None:
    """By one that is made, or typed; by the one before only beside one that is typed."""
    its = await integration(hooked)
    path = f"/console/integrations/{its.id}/secret"
    assert (await olga.get(path)).status == 200
    made = shown(await olga.post(path, {"source": "made"}))
    assert await stored(hooked) == (made,)
    answer = await olga.post(path, {"source": "given", "secrets": SECRET, "before": made})
    assert answer.path.endswith("?done=secret-set")
    assert await stored(hooked) == (SECRET, made)
    answer = await olga.post(path, {"source": "given", "secrets": f"{SECRET} x"})
    assert answer.status == 422
    assert SECRET not in answer.text
    for source in ("given", "made"):
        answer = await olga.post(path, {"source": source, "before": made})
        assert answer.status == 422
    assert await stored(hooked) == (SECRET, made)
    assert SECRET not in (await olga.get("/console/audit")).text
