"""The console's cookie: its name, and the cookies that are accepted."""

from __future__ import annotations

import re
from http.cookies import Morsel, SimpleCookie
from ipaddress import ip_network

import aiohttp
import pytest

from gateway.admin.sessions import IDLE_S, RENEW_S
from gateway.domain.cookies import SECURE_SESSION as SECURE
from gateway.domain.cookies import SESSION as PLAIN
from gateway.domain.policy import AdminProxy
from gateway.domain.ports import StoreDown
from gateway.stores.admin import MemoryAdminStore
from tests.kit.admin import Failing
from tests.kit.console import TOKEN, Browser, Console

BEHIND_TLS = AdminProxy((ip_network("127.0.0.1"),), tls=True)
AGENT = {"User-Agent": "Mozilla/5.0"}


async def signed_in(console: Console, **headers: str) -> Morsel[str]:
    """The cookie of a new session."""
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as client,
        client.post(
            f"{console.url}/console/sign-in",
            data={"name": "anna", "token": TOKEN},
            headers={**AGENT, **headers},
            allow_redirects=False,
        ) as answer,
    ):
        assert answer.status == 303
        (cookie,) = answer.cookies.values()
        return cookie


async def opens(console: Console, cookies: str, **headers: str) -> bool:
    """Can a browser with these cookies open a page of the console?"""
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as client,
        client.get(
            f"{console.url}/console/policies",
            headers={**AGENT, "Cookie": cookies, **headers},
            allow_redirects=False,
        ) as answer,
    ):
        assert answer.status in {200, 303}
        return answer.status == 200


async def test_under_tls_it_is_bound_to_the_host() -> None:
    """By the prefix, the browser accepts it only over TLS, for this host and all paths."""
    async with Console(proxy=BEHIND_TLS) as console:
        cookie = await signed_in(console)
        assert cookie.key == SECURE == "__Host-gateway_session"
        assert cookie["secure"] is True
        assert cookie["path"] == "/"
        assert cookie["domain"] == ""
        assert (cookie["httponly"], cookie["samesite"]) == (True, "Strict")
        assert await opens(console, f"{SECURE}={cookie.value}")


async def test_under_tls_the_plain_name_is_not_accepted() -> None:
    """A subdomain, or an answer in clear text, could have set it."""
    async with Console(proxy=BEHIND_TLS) as console:
        cookie = await signed_in(console)
        assert not await opens(console, f"{PLAIN}={cookie.value}")


async def test_a_session_of_clear_text_is_none_under_tls() -> None:
    """A cookie intercepted in clear text is refused under TLS, and the reverse."""
    async with Console() as console:
        clear = await signed_in(console)
        assert clear.key == PLAIN == "gateway_session"
        assert not clear["secure"]
        console.proxy = BEHIND_TLS
        assert not await opens(console, f"{SECURE}={clear.value}")
        secure = await signed_in(console)
        console.proxy = AdminProxy()
        assert not await opens(console, f"{PLAIN}={secure.value}")
        assert await opens(console, f"{PLAIN}={clear.value}")


async def test_cookies_of_other_servers_lock_no_user_out(console: Console) -> None:
    """Cookies ignore ports: another server on the host may set one of the same name."""
    cookie = await signed_in(console)
    ours = f"{PLAIN}={cookie.value}"
    for tossed in (f"{PLAIN}=evil; ", f"{PLAIN}=; a=b; ", f"{PLAIN}=evil; " * 7):
        assert await opens(console, tossed + ours)
        assert await opens(console, f"{ours}; {tossed}")
    assert await opens(console, f'a="b; {ours}')


async def test_checked_cookies_are_bounded(console: Console) -> None:
    """Each check costs time, and a client may send hundreds of cookies."""
    cookie = await signed_in(console)
    assert not await opens(console, f"{PLAIN}=evil; " * 8 + f"{PLAIN}={cookie.value}")


async def test_another_browser_cannot_use_it(console: Console) -> None:
    """A cookie that leaked into a log or to an upstream does not open the console elsewhere."""
    cookie = await signed_in(console)
    ours = f"{PLAIN}={cookie.value}"
    assert await opens(console, ours)
    assert not await opens(console, ours, **{"User-Agent": "curl/8"})


async def test_another_address_does_not_end_it() -> None:
    """Users change networks, and between IPv6 and IPv4; behind an ingress all have one address."""
    async with Console(proxy=AdminProxy((ip_network("127.0.0.1"),))) as console:
        cookie = await signed_in(console, **{"X-Forwarded-For": "192.0.2.7"})
        assert await opens(console, f"{PLAIN}={cookie.value}", **{"X-Forwarded-For": "2001:db8::1"})


async def test_use_renews_it(console: Console, anna: Browser) -> None:
    """Once a minute, so that it does not expire during work, and most pages do not set it."""
    assert "Set-Cookie" not in (await anna.get("/console/policies")).headers
    for _ in range(4):
        console.later_s += IDLE_S - RENEW_S
        answer = await anna.get("/console/policies")
        assert answer.path == "/console/policies"
        cookie = SimpleCookie(answer.headers["Set-Cookie"])[PLAIN]
        assert cookie["httponly"] is True
        assert "Set-Cookie" not in (await anna.get("/console/policies")).headers


async def test_a_form_renews_it_too(console: Console, anna: Browser) -> None:
    """Also if the answer is a redirect."""
    record = await console.key()
    console.later_s += RENEW_S
    await anna.post(f"/console/keys/{record.id}/suspend", {}, allow_redirects=False)
    console.later_s += IDLE_S - RENEW_S
    assert (await anna.get("/console/policies")).path == "/console/policies"


async def test_signing_out_is_not_undone_by_renewal(console: Console, anna: Browser) -> None:
    """The answer that deletes the cookie does not set it again."""
    console.later_s += RENEW_S
    answer = await anna.post("/console/sign-out", {}, allow_redirects=False)
    cookie = SimpleCookie(answer.headers["Set-Cookie"])[PLAIN]
    assert cookie.value == ""
    assert cookie["max-age"] == "0"


async def test_signing_in_anew_ends_the_session_before(console: Console, anna: Browser) -> None:
    """A new session is created: a cookie that someone else knew is useless."""
    before = next(iter(anna.http.cookie_jar)).value
    await anna.sign_in("ben")
    after = next(iter(anna.http.cookie_jar)).value
    assert before != after
    assert not await opens(console, f"{PLAIN}={before}", **agent_of(anna))
    assert await opens(console, f"{PLAIN}={after}", **agent_of(anna))


async def test_gateways_that_share_a_store_share_sessions() -> None:
    """A sign-in at one is valid at the other, for forms too, and so is a sign-out."""
    store = MemoryAdminStore()
    async with Console(admin=store) as one, Console(admin=store) as other:
        anna = await one.signed_in()
        anna.base = other.url
        record = await other.key()
        page = await anna.get(f"/console/keys/{record.id}")
        csrf = re.search(r'name="csrf" value="([^"]+)"', page.text)
        assert csrf is not None
        assert csrf[1] == anna.csrf
        await anna.post(f"/console/keys/{record.id}/suspend", {})
        found = await other.keys.get(record.id)
        assert found is not None
        assert found.status == "suspended"
        await anna.post("/console/sign-out", {}, allow_redirects=False)
        cookie = next(iter((await one.signed_in()).http.cookie_jar))
        anna.http.cookie_jar.clear()
        assert cookie.value
        assert (await anna.get("/console")).path.startswith("/console/sign-in")


async def test_a_session_that_ended_elsewhere_has_ended(console: Console) -> None:
    """Even if the browser still has the cookie."""
    other = Console(admin=console.admin)
    async with other:
        anna = await console.signed_in()
        held = next(iter(anna.http.cookie_jar)).value
        anna.base = other.url
        await anna.post("/console/sign-out", {}, allow_redirects=False)
        assert not await opens(console, f"{PLAIN}={held}", **agent_of(anna))


async def test_without_the_store_the_console_says_so() -> None:
    """Whether the session has ended is unknown: the page shows the outage and a sign-out only."""
    failing = Failing(MemoryAdminStore())
    async with Console(admin=failing) as console:  # type: ignore[arg-type]
        anna = await console.signed_in()
        failing.failure = StoreDown("redis.internal:6379 refused")
        answer = await anna.get("/console/policies")
        assert answer.status == 503
        assert "The store cannot be reached" in answer.text
        assert "redis.internal" not in answer.text
        answer = await anna.post("/console/sign-out", {}, allow_redirects=False)
        assert answer.status == 303
        failing.failure = None
        assert (await anna.get("/console")).path.startswith("/console/sign-in")


async def test_without_the_store_one_can_sign_in_to_read_why() -> None:
    """A browser that is not signed in is still asked for the token."""
    failing = Failing(MemoryAdminStore())
    failing.failure = StoreDown("refused")
    async with Console(admin=failing) as console:  # type: ignore[arg-type]
        anna = console.browser()
        assert (await anna.get("/console")).path == "/console/sign-in?next=/console"
        answer = await anna.sign_in()
        assert (answer.status, answer.path) == (503, "/console")


@pytest.mark.parametrize("path", ["/console/static/console.css", "/console/static/nothing"])
async def test_styles_and_scripts_need_no_store(path: str) -> None:
    """Static files need no request to the store."""
    failing = Failing(MemoryAdminStore())
    async with Console(admin=failing) as console:  # type: ignore[arg-type]
        anna = await console.signed_in()
        failing.failure = AssertionError("the store was asked")
        assert (await anna.get(path)).status in {200, 404}


def agent_of(browser: Browser) -> dict[str, str]:
    """The User-Agent, to which the browser's sessions are bound."""
    return {"User-Agent": str(aiohttp.http.SERVER_SOFTWARE)}
