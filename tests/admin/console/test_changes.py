"""The forms that change something: create, rotate, edit, suspend and resume keys; accounts."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.domain import key_format
from gateway.domain.keys import KeyRecord
from gateway.domain.limits import Check
from gateway.policies.load import load
from tests.kit.console import ANNA, Answer, Browser, Console, now_us
from tests.kit.policies import write_policies

NEW = {"name": "ci", "plan": "free", "environment": "production", "once": "a-word"}


def secret_in(answer: Answer) -> str:
    """The key that a page shows."""
    (text,) = re.findall(r'value="(gwk_[^"]+)"', answer.text)
    return str(text)


def value_of(answer: Answer, name: str) -> str:
    """The value of a form's field."""
    found = re.search(rf'<input[^>]* name="{re.escape(name)}"[^>]*? value="([^"]*)"', answer.text)
    assert found is not None, name
    return found[1]


async def stored(console: Console, record: KeyRecord) -> KeyRecord:
    found = await console.keys.get(record.id)
    assert found is not None
    return found


# -- making ----------------------------------------------------------------------------------------


async def test_a_key_is_made_and_shown_once(console: Console, anna: Browser) -> None:
    """The answer to the form shows the key; it is valid, stored nowhere, and on no other page."""
    form = await anna.get("/console/keys/new")
    once = value_of(form, "once")
    fields = {
        **NEW,
        "once": once,
        "account": "acme",
        "scopes": "a:read\na:write",
        "permissions": "ticketing:read",
        "ip_ranges": "10.0.0.0/8",
        "expires": "30d",
        "limits.plan": "300/minute,burst=500",
    }
    answer = await anna.post("/console/keys/new", fields)
    assert (answer.status, answer.path) == (200, "/console/keys/new")
    text = secret_in(answer)
    parsed = key_format.parse(text)
    assert parsed is not None
    record = await console.keys.get(parsed.id)
    assert record is not None
    assert record.digest == key_format.digest(text.encode())
    assert (record.account, record.scopes) == ("acme", ("a:read", "a:write"))
    assert str(record.networks[0]) == "10.0.0.0/8"
    assert record.limits["plan"].burst == 500
    assert answer.headers["Cache-Control"] == "no-store"
    for path in (f"/console/keys/{parsed.id}", "/console/keys", "/console/audit"):
        assert text not in (await anna.get(path)).text


async def test_sending_the_form_again_makes_no_second_key(console: Console, anna: Browser) -> None:
    """Reloading the page that showed the key shows no key, and creates none."""
    await anna.post("/console/keys/new", NEW)
    again = await anna.post("/console/keys/new", NEW)
    assert again.status == 409
    assert "gwk_" not in again.text
    assert len(await console.keys.records()) == 1
    assert "rotate it" in again.text


async def test_every_fault_is_shown_at_its_field(console: Console, anna: Browser) -> None:
    """All faults at once, each at its field, and all typed values are kept."""
    fields = {
        **NEW,
        "name": "",
        "plan": "gold",
        "scopes": "fine",
        "permissions": "ticketing",
        "ip_ranges": "10.0.0.0/8\n10.0.0.1/8",
        "expires": "yesterday",
        "limits.plan": "many",
    }
    answer = await anna.post("/console/keys/new", fields)
    assert answer.status == 422
    for name in ("name", "plan", "permissions", "ip_ranges", "expires", "limits.plan"):
        assert re.search(rf'id="e-{re.escape(name)}"[^>]*>\s*<p>', answer.text), name
        field = rf'id="f-{re.escape(name)}"[^>]*aria-invalid="true"'
        assert re.search(field, answer.text), name
    assert not re.search(r'id="e-scopes"[^>]*>\s*<p>', answer.text)
    assert "10.0.0.0/8\n10.0.0.1/8</textarea>" in answer.text
    assert value_of(answer, "limits.plan") == "many"
    assert value_of(answer, "once") == "a-word"
    assert answer.text.count("autofocus") == 1
    assert await console.keys.records() == []


async def test_a_key_needs_a_plan_from_somewhere(console: Console, anna: Browser) -> None:
    """Without a plan the key is not created, unless its account has one."""
    await console.management.accounts.put(ANNA, "acme", {"plan": "pro"}, must_be_new=True)
    answer = await anna.post("/console/keys/new", {**NEW, "plan": ""})
    assert answer.status == 422
    assert re.search(r'id="e-plan"[^>]*>\s*<p>', answer.text)
    answer = await anna.post("/console/keys/new", {**NEW, "plan": "", "account": "acme"})
    assert answer.status == 200


async def test_a_key_for_an_account(anna: Browser) -> None:
    """The link on an account's page fills in the account."""
    assert value_of(await anna.get("/console/keys/new?account=acme"), "account") == "acme"


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("", 0),
        ("10.0.0.0/8, 2001:db8::/32\n192.0.2.1", 0),
        ("10.0.0.1/8", 1),
        ("10.0.0.0/8 nowhere 300.0.0.0", 2),
    ],
)
async def test_ranges_are_checked_while_they_are_typed(
    anna: Browser, text: str, faults: int
) -> None:
    """The page's script gets the faults of ranges, in the same words as the form."""
    answer = await anna.get("/console/check/ip-ranges", params={"text": text})
    assert answer.text.count("expected") == faults
    assert answer.headers["Content-Type"].startswith("application/json")


@pytest.mark.parametrize("overlap", ["0s", "1h", "24h", "7d"])
async def test_a_key_is_rotated(console: Console, anna: Browser, overlap: str) -> None:
    """The successor is shown once; the old key stays valid for the overlap."""
    old = await console.key()
    form = await anna.get(f"/console/keys/{old.id}/rotate")
    assert re.search(r'value="24h" checked', form.text)
    answer = await anna.post(f"/console/keys/{old.id}/rotate", {"overlap": overlap})
    parsed = key_format.parse(secret_in(answer))
    assert parsed is not None
    changed = await stored(console, old)
    assert changed.successor == parsed.id
    assert ("has expired" in answer.text) == (overlap == "0s")
    again = await anna.post(f"/console/keys/{old.id}/rotate", {"overlap": overlap})
    assert again.status == 409
    assert "gwk_" not in again.text


async def test_an_invalid_overlap_is_a_fault(console: Console, anna: Browser) -> None:
    """A form without a valid duration rotates nothing."""
    old = await console.key()
    answer = await anna.post(f"/console/keys/{old.id}/rotate", {"overlap": "soon"})
    assert answer.status == 422
    assert "expected" in answer.text
    assert (await stored(console, old)).successor is None


# -- editing ---------------------------------------------------------------------------------------


async def test_a_key_is_edited(console: Console, anna: Browser) -> None:
    """The form shows the key's fields; the sent ones replace them."""
    record = await console.key(ip_ranges=["10.0.0.0/8"], limits={"plan": "5/minute"})
    form = await anna.get(f"/console/keys/{record.id}/edit")
    assert "10.0.0.0/8</textarea>" in form.text
    fields = {
        "version": value_of(form, "version"),
        "name": "renamed",
        "plan": "pro",
        "ip_ranges": "192.0.2.0/24",
        "limits.plan": "",
    }
    answer = await anna.post(f"/console/keys/{record.id}/edit", fields)
    assert answer.path == f"/console/keys/{record.id}?done=saved"
    assert "The changes are saved" in answer.text
    changed = await stored(console, record)
    assert (changed.name, changed.plan, dict(changed.limits)) == ("renamed", "pro", {})
    assert list(map(str, changed.networks)) == ["192.0.2.0/24"]


async def test_a_conflicting_edit_is_refused_and_kept(console: Console, anna: Browser) -> None:
    """A key that changed meanwhile is not overwritten; typed values are kept, to be sent again."""
    record = await console.key()
    form = await anna.get(f"/console/keys/{record.id}/edit")
    await console.management.keys.edit(
        ANNA, record.id, console.management.keys.read_change({"name": "quicker"})
    )
    fields = {"version": value_of(form, "version"), "name": "slower", "plan": "free"}
    answer = await anna.post(f"/console/keys/{record.id}/edit", fields)
    assert answer.status == 412
    assert "Someone else changed this" in answer.text
    assert value_of(answer, "name") == "slower"
    assert (await stored(console, record)).name == "quicker"
    fields["version"] = value_of(answer, "version")
    await anna.post(f"/console/keys/{record.id}/edit", fields)
    assert (await stored(console, record)).name == "slower"


async def test_faults_of_an_edit_are_shown_at_their_fields(console: Console, anna: Browser) -> None:
    """As for a new key: the form again, with the faults and all typed values."""
    record = await console.key()
    fields = {"version": "x", "name": "", "plan": "gold", "ip_ranges": "nowhere"}
    answer = await anna.post(f"/console/keys/{record.id}/edit", fields)
    assert answer.status == 422
    assert "nowhere</textarea>" in answer.text
    assert '<option value="gold" selected>gold (not in the policies)</option>' in answer.text
    assert await stored(console, record) == record


async def test_a_revoked_key_cannot_be_edited(console: Console, anna: Browser) -> None:
    """The refusal is a page with a message."""
    record = await console.key()
    form = await anna.get(f"/console/keys/{record.id}/edit")
    revoked = await console.management.keys.revoke(ANNA, record.id)
    fields = {"version": value_of(form, "version"), "name": "x", "plan": "free"}
    answer = await anna.post(f"/console/keys/{record.id}/edit", fields)
    assert answer.status in {409, 412}
    assert await stored(console, record) == revoked


# -- one button ------------------------------------------------------------------------------------


async def test_a_key_is_suspended_and_resumed(console: Console, anna: Browser) -> None:
    """Each button reports what it did."""
    record = await console.key()
    answer = await anna.post(f"/console/keys/{record.id}/suspend", {})
    assert "The key is suspended" in answer.text
    assert (await stored(console, record)).status == "suspended"
    answer = await anna.post(f"/console/keys/{record.id}/resume", {})
    assert "valid again" in answer.text
    assert (await stored(console, record)).status == "valid"


async def test_a_revoked_key_is_not_resumed(console: Console, anna: Browser) -> None:
    """An impossible change is refused, with the reason."""
    record = await console.key()
    await console.management.keys.revoke(ANNA, record.id)
    answer = await anna.post(f"/console/keys/{record.id}/resume", {})
    assert answer.status == 409
    assert "final" in answer.text


async def test_revoking_takes_the_keys_name(console: Console, anna: Browser) -> None:
    """The key is revoked only if its name was typed, and then at once."""
    record = await console.key("Old crawler")
    assert "Old crawler" in (await anna.get(f"/console/keys/{record.id}/revoke")).text
    answer = await anna.post(f"/console/keys/{record.id}/revoke", {"name": "old crawler"})
    assert answer.status == 422
    assert "expected Old crawler" in answer.text
    assert (await stored(console, record)).status == "valid"
    answer = await anna.post(f"/console/keys/{record.id}/revoke", {"name": "Old crawler"})
    assert "The key is revoked" in answer.text
    assert (await stored(console, record)).status == "revoked"


async def test_a_counter_is_reset(console: Console, anna: Browser) -> None:
    """The counter is deleted, and the audit log has the actor."""
    record = await console.key()
    answer = await anna.post(f"/console/keys/{record.id}/limits/search/reset", {})
    assert "limit is reset" in answer.text
    assert "limit.reset" in answer.text
    for name, status in [("nothing", 404), ("mcp-connections", 409)]:
        answer = await anna.post(f"/console/keys/{record.id}/limits/{name}/reset", {})
        assert answer.status == status


async def test_the_actor_is_in_the_log(console: Console, anna: Browser) -> None:
    """The audit log has the name given at the sign-in, and the client's address."""
    record = await console.key()
    bert = console.browser()
    await bert.sign_in("Bert O'Brien")
    await bert.post(f"/console/keys/{record.id}/suspend", {})
    (entry, *_) = await console.stores.audit.entries()
    assert entry.event.actor == "Bert O'Brien (console, 127.0.0.1)"


# -- accounts --------------------------------------------------------------------------------------


async def test_an_account_is_set_up_and_changed(console: Console, anna: Browser) -> None:
    """A new account has an empty form; a saved one is in the list."""
    assert "No account exists yet" in (await anna.get("/console/accounts")).text
    form = await anna.get("/console/accounts?open=acme")
    assert form.path == "/console/accounts/acme"
    assert "This account does not exist yet" in form.text
    fields = {
        "version": value_of(form, "version"),
        "plan": "pro",
        "services": "billing\nticketing",
        "limits.search": "300/minute",
    }
    answer = await anna.post("/console/accounts/acme", fields)
    assert answer.path == "/console/accounts/acme?done=saved"
    listed = (await anna.get("/console/accounts")).text
    assert "billing, ticketing" in listed
    assert "search 300/minute" in listed
    fields = {"version": value_of(answer, "version"), "plan": ""}
    await anna.post("/console/accounts/acme", fields)
    account = await console.keys.account("acme")
    assert account is not None
    assert (account.plan, account.services, dict(account.limits)) == ("", (), {})


async def test_an_account_that_changed_meanwhile(console: Console, anna: Browser) -> None:
    """The second change is refused, whether or not the account existed before."""
    form = await anna.get("/console/accounts/acme")
    await console.management.accounts.put(ANNA, "acme", {"plan": "pro"}, must_be_new=True)
    fields = {"version": value_of(form, "version"), "plan": "free"}
    answer = await anna.post("/console/accounts/acme", fields)
    assert answer.status == 412
    fields["version"] = value_of(answer, "version")
    await console.management.accounts.put(ANNA, "acme", {"plan": "enterprise"})
    answer = await anna.post("/console/accounts/acme", fields)
    assert answer.status == 412
    fields["version"] = value_of(answer, "version")
    assert (await anna.post("/console/accounts/acme", fields)).status == 200
    account = await console.keys.account("acme")
    assert account is not None
    assert account.plan == "free"


async def test_an_account_is_suspended_and_deleted(console: Console, anna: Browser) -> None:
    """Its page has its keys and limits; deleting needs its name, and revoking if it has keys."""
    key = await console.key(account="acme", plan="pro")
    shown = await anna.get("/console/accounts/acme")
    assert "has keys but no record" in shown.text
    assert key.id in shown.text
    assert "Limits of its keys" in shown.text
    assert "no record" in (await anna.get("/console/accounts")).text
    answer = await anna.post("/console/accounts/acme/suspend", {})
    assert "The account is suspended" in answer.text
    assert "status-suspended" in answer.text
    answer = await anna.post("/console/accounts/acme/resume", {})
    assert "no longer suspended" in answer.text
    assert "Revoke its 1 key permanently" in (await anna.get("/console/accounts/acme/delete")).text
    path = "/console/accounts/acme/delete"
    for fields in ({"name": "acm", "revoke": "yes"}, {"name": "acme"}):
        answer = await anna.post(path, fields)
        assert answer.status == 422
    assert "valid keys or integrations" in answer.text
    assert (await stored(console, key)).status == "valid"
    answer = await anna.post(path, {"name": "acme", "revoke": "yes"})
    assert answer.path == "/console/accounts?done=account-deleted"
    assert (await stored(console, key)).status == "revoked"
    assert await console.keys.account("acme") is None
    assert (await anna.get("/console/accounts/nobody/delete")).status == 404


async def test_faults_of_an_account_are_shown(anna: Browser) -> None:
    """Its form keeps the typed values, too."""
    fields = {"version": "", "plan": "gold", "services": "bad service!", "limits.plan": "x"}
    answer = await anna.post("/console/accounts/acme", fields)
    assert answer.status == 422
    for name in ("plan", "services", "limits.plan"):
        assert re.search(rf'id="e-{re.escape(name)}"[^>]*>\s*<p>', answer.text), name


@pytest.mark.parametrize("name", ["a b", "-a", "x" * 65])
async def test_an_invalid_name_opens_no_account(anna: Browser, name: str) -> None:
    """A name that no account can have is a fault at the field, and has no page."""
    answer = await anna.get("/console/accounts", params={"open": name})
    assert answer.path.startswith("/console/accounts?open=")
    assert "beginning with a letter or digit" in answer.text
    assert (await anna.get(f"/console/accounts/{name}")).status == 404


async def test_many_accounts_have_pages(console: Console, anna: Browser) -> None:
    """Fifty a page, by name, filtered by a part of it."""
    for number in range(53):
        await console.management.accounts.put(ANNA, f"a{number:02}", {}, must_be_new=True)
    html = (await anna.get("/console/accounts?text=a")).text
    found = re.search(r'href="([^"]+)" rel="next"', html)
    assert found is not None
    html = (await anna.get(found[1].replace("&amp;", "&"))).text
    assert re.findall(r'accounts/(a\d\d)"', html) == ["a50", "a51", "a52"]
    assert "No account name contains this" in (await anna.get("/console/accounts?text=zz")).text


async def test_an_expired_key_can_be_edited(console: Console, anna: Browser) -> None:
    """An expiry in the past that is left unchanged does not prevent other changes."""
    record = await console.key()
    past = replace(record, expires_us=now_us() - 1_000_000)
    await console.keys.replace(record, past)
    form = await anna.get(f"/console/keys/{record.id}/edit")
    fields = {
        "version": value_of(form, "version"),
        "name": "renamed",
        "plan": "free",
        "expires": value_of(form, "expires"),
    }
    answer = await anna.post(f"/console/keys/{record.id}/edit", fields)
    assert answer.status == 200
    assert await stored(console, record) == replace(past, name="renamed")


async def test_the_limit_of_a_tool_is_reset(
    console: Console, anna: Browser, tmp_path: Path
) -> None:
    """By its button: its name has a slash."""
    routes = """
    routes:
      mcp: {match: "* /mcp/**", upstream: api, mcp: {tools: {a/search: {rate: 3/minute}}}}
    """
    policy = load(write_policies(tmp_path, "http://127.0.0.1:9", routes=routes))
    console.loaded = replace(console.loaded, policy=policy)
    record = await console.key("agent")
    (met,) = [
        one for one in await console.management.limits._met(record.id) if "/" in one.limit.name
    ]
    for _ in range(3):
        console.limiter.decide_now(Check((met.limit,), (met.counter,)))
    page = (await anna.get(f"/console/keys/{record.id}")).text
    found = re.search(r'action="([^"]+search/reset)"', page)
    assert found is not None
    assert (await anna.post(found[1], {})).path.endswith("?done=reset")
    assert console.limiter.decide_now(Check((met.limit,), (met.counter,))).allowed
