"""Access to the console's pages and forms."""

from __future__ import annotations

import logging
import re
import time
from ipaddress import ip_network

import pytest

from gateway.admin.access import WRONG_PER_ADDRESS
from gateway.admin.console.gate import local_path
from gateway.admin.sessions import IDLE_S
from gateway.domain.cookies import SESSION as COOKIE
from gateway.domain.policy import AdminProxy
from gateway.domain.ports import CorruptRecord, StoreDown
from gateway.manage.problems import Changed, Conflict, Fault, Full, Invalid, NotThere, Problem
from gateway.stores.keys.memory import MemoryKeyStore
from tests.kit.console import TOKEN, Browser, Console

PAGES = [
    "/console",
    "/console/keys",
    "/console/keys/new",
    "/console/accounts",
    "/console/policies",
    "/console/integrations",
    "/console/integrations/new",
    "/console/audit",
]


@pytest.mark.parametrize("path", [*PAGES, "/console/nothing", "/console/check/ip-ranges"])
async def test_without_a_session_one_signs_in_first(console: Console, path: str) -> None:
    """The browser is redirected to sign in, and from there to the requested page."""
    browser = console.browser()
    answer = await browser.get(path)
    assert answer.path == f"/console/sign-in?next={path}"
    assert 'name="token"' in answer.text
    answer = await browser.post(
        "/console/sign-in", {"name": "anna", "token": TOKEN, "next": f"{path}?window=7d"}
    )
    assert answer.path == f"{path}?window=7d"


async def test_the_root_leads_to_the_console(console: Console) -> None:
    """/ and /console/ redirect to the console."""
    anna = await console.signed_in()
    assert (await anna.get("/")).path == "/console"
    assert (await anna.get("/console/")).path == "/console"


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("/console/keys?text=a%20b&window=1h", "/console/keys?text=a%20b&window=1h"),
        ("/console/keys/7h3k9m2p4q6r", "/console/keys/7h3k9m2p4q6r"),
        ("", "/console"),
        ("/", "/console"),
        ("/metrics", "/console"),
        ("//evil.example/console", "/console"),
        ("/console//evil.example", "/console//evil.example"),
        ("https://evil.example/console", "/console"),
        ("/console@evil.example", "/console"),
        ("/consoles", "/console"),
        ("/console/keys\r\nSet-Cookie: a=b", "/console"),
        ("\\\\evil.example", "/console"),
        ("/console\\..\\x", "/console"),
        ("/console/sign-in?next=/console", "/console"),
        ("/console/sign-out", "/console"),
    ],
)
def test_only_pages_of_the_console_follow_a_sign_in(wanted: str, expected: str) -> None:
    """After the sign-in the browser gets a page of the console, whatever the address asked for."""
    assert local_path(wanted) == expected


async def test_a_session_skips_the_sign_in(anna: Browser) -> None:
    """With a session, the sign-in page redirects."""
    assert (await anna.get("/console/sign-in?next=/console/keys")).path == "/console/keys"


async def test_the_cookie_is_for_the_console_alone(console: Console) -> None:
    """The session's cookie is inaccessible to scripts, other sites and other paths."""
    browser = console.browser()
    async with browser.http.post(
        f"{console.url}/console/sign-in",
        data={"name": "anna", "token": TOKEN},
        allow_redirects=False,
    ) as response:
        assert response.status == 303
        cookie = response.cookies[COOKIE]
    assert cookie["httponly"] is True
    assert cookie["samesite"] == "Strict"
    assert cookie["path"] == "/console"


@pytest.mark.parametrize(
    ("name", "token", "words"),
    [
        ("anna", "wrong", "This is not the admin token"),
        ("anna", "", "This is not the admin token"),
        ("", TOKEN, "up to 64 letters"),
        ("an<na", TOKEN, "up to 64 letters"),
    ],
)
async def test_a_faulty_sign_in_is_explained(
    console: Console, name: str, token: str, words: str
) -> None:
    """The fault is shown at its field; the name is kept, the typed token is not."""
    browser = console.browser()
    answer = await browser.sign_in(name, token)
    assert answer.status == 422
    assert words in answer.text
    assert TOKEN not in answer.text
    assert "wrong" not in answer.text.replace("What is wrong", "")
    assert (await browser.get("/console")).path.startswith("/console/sign-in")


async def test_too_many_wrong_tokens_are_refused(console: Console) -> None:
    """With the time to wait; the right token signs in despite other guesses from there."""
    browser = console.browser()
    for _ in range(WRONG_PER_ADDRESS):
        assert (await browser.sign_in(token="wrong")).status == 422
    answer = await browser.sign_in(token="wrong")
    assert answer.status == 429
    assert int(answer.headers["Retry-After"]) >= 1
    assert "Too many wrong tokens" in answer.text
    assert (await browser.sign_in()).path == "/console"


async def test_an_idle_session_ends(console: Console, anna: Browser) -> None:
    """After half an hour without a request the browser must sign in again."""
    console.later_s = IDLE_S + 1
    assert (await anna.get("/console/keys")).path == "/console/sign-in?next=/console/keys"


async def test_signing_out_ends_the_session(console: Console, anna: Browser) -> None:
    """The session ends at the gateway, not only in the browser."""
    cookie = next(iter(anna.http.cookie_jar)).value
    answer = await anna.post("/console/sign-out", {})
    assert answer.path == "/console/sign-in?done=signed-out"
    assert "You are signed out." in answer.text
    other = console.browser()
    other.http.cookie_jar.update_cookies({COOKIE: cookie})
    assert (await other.get("/console")).path.startswith("/console/sign-in")


@pytest.mark.parametrize("csrf", ["", "wrong", "ü"])
async def test_a_form_without_the_sessions_secret_is_not_taken(
    console: Console, anna: Browser, csrf: str
) -> None:
    """A form that does not belong to this session changes nothing."""
    record = await console.key()
    answer = await anna.post(f"/console/keys/{record.id}/suspend", {"csrf": csrf})
    assert answer.status == 403
    assert (await console.keys.get(record.id)) == record


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
    ],
)
async def test_a_form_of_another_site_is_not_taken(
    console: Console, anna: Browser, headers: dict[str, str]
) -> None:
    """If the browser says that a form is of another site, even its CSRF token does not help."""
    record = await console.key()
    answer = await anna.post(f"/console/keys/{record.id}/suspend", {}, headers=headers)
    assert answer.status == 403
    assert "another site" in answer.text
    assert (await console.keys.get(record.id)) == record
    answer = await console.browser().post(
        "/console/sign-in", {"name": "anna", "token": TOKEN}, headers=headers
    )
    assert answer.status == 403


async def test_under_tls_a_form_in_clear_text_is_not_taken(console: Console) -> None:
    """An attacker in the network could have written the form's page."""
    console.proxy = AdminProxy((ip_network("127.0.0.1"),), tls=True)
    host = console.url.partition("://")[2]
    for scheme, status in (("http", 403), ("https", 200)):
        headers = {"Origin": f"{scheme}://{host}"}
        answer = await console.browser().post(
            "/console/sign-in", {"name": "anna", "token": TOKEN}, headers=headers
        )
        assert answer.status == status


async def test_a_form_of_ours_is_taken(console: Console, anna: Browser) -> None:
    """The headers that a browser sends with a form of the console are accepted."""
    record = await console.key()
    headers = {"Sec-Fetch-Site": "same-origin", "Origin": console.url}
    for path, sent in [("suspend", headers), ("resume", {"Origin": console.url})]:
        answer = await anna.post(f"/console/keys/{record.id}/{path}", {}, headers=sent)
        assert answer.status == 200


async def test_a_form_without_a_session_is_not_kept_for_later(console: Console) -> None:
    """After the sign-in the earlier form is not sent; the overview is shown."""
    record = await console.key()
    answer = await console.browser().post(f"/console/keys/{record.id}/revoke", {"name": "ci"})
    assert answer.path == "/console/sign-in?next=/console"
    assert (await console.keys.get(record.id)) == record


@pytest.mark.parametrize(
    ("charset", "body"),
    [
        ("nothing", b"a=b"),
        ("utf-16", "a=b".encode("utf-16")),
        ("utf-7", b"+AGE-=b"),
        ("utf-8", b"a=\xff"),
        ("utf-8", b"a&" * 2_001),
    ],
)
async def test_a_form_that_cannot_be_read_is_refused(
    anna: Browser, charset: str, body: bytes
) -> None:
    """In another encoding, or with too many fields: refused, and not logged as a failure."""
    kind = {"Content-Type": f"application/x-www-form-urlencoded; charset={charset}"}
    async with anna.http.post(f"{anna.base}/console/keys/new", data=body, headers=kind) as response:
        assert response.status == 400


async def test_a_form_that_is_too_large_is_refused(anna: Browser) -> None:
    """A body that is larger than any form is not read."""
    answer = await anna.post("/console/keys/new", {"name": "x" * 100_000})
    assert answer.status == 413
    assert "too large" in answer.text


async def test_a_form_in_parts_is_not_read(anna: Browser) -> None:
    """No form of the console is multipart, and each file in one would become a file here."""
    body = (
        b'--b\r\nContent-Disposition: form-data; name="csrf"; filename="x"\r\n\r\n'
        + anna.csrf.encode()
        + b"\r\n--b--\r\n"
    )
    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    async with anna.http.post(f"{anna.base}/console/sign-out", data=body, headers=kind) as response:
        assert response.status == 415
    assert (await anna.get("/console/keys")).path == "/console/keys"


@pytest.mark.parametrize("char", ['"', "(", ";", "a=b;", " ", "\\"])
async def test_a_content_type_that_takes_long(
    console: Console, caplog: pytest.LogCaptureFixture, char: str
) -> None:
    """A stranger's media type is not read beyond its bound: 415, which says so, and no traceback.

    aiohttp takes 0.6 s for 8,000 quotes, and fails with as many brackets.
    """
    browser = console.browser()
    kind = {"Content-Type": f"a/b;a1={char * (8_000 // len(char))}x"}
    begun_s = time.thread_time()
    async with browser.http.post(
        f"{browser.base}/console/sign-in", data=b"name=x&token=y", headers=kind
    ) as response:
        text = await response.text()
    assert time.thread_time() - begun_s < 0.3
    assert response.status == 415
    assert "a Content-Type of 8" in text
    assert "expected application/x-www-form-urlencoded" in text
    assert not [record for record in caplog.records if record.exc_info]


async def test_an_unknown_page_says_so(anna: Browser) -> None:
    """An unknown page is a page with a message and a link; so is a wrong method."""
    answer = await anna.get("/console/nothing")
    assert (answer.status, "Not found" in answer.text) == (404, True)
    assert (await anna.get("/console/keys/222222222222")).status == 404
    assert (await anna.post("/console/keys", {})).status == 405


@pytest.mark.parametrize("path", PAGES)
async def test_without_a_store_the_pages_say_why(path: str) -> None:
    """Without a store to manage, every page says what to do about it."""
    async with Console(is_managed=False) as console:
        answer = await (await console.signed_in()).get(path)
    assert answer.status == 503
    assert "--store" in answer.text


class Failing(MemoryKeyStore):
    """A store of keys of which every call raises an exception."""

    failure: Exception = StoreDown("redis.internal:6379 refused")

    async def page(self, *_args: object, **_options: object) -> list[object]:  # type: ignore[override]
        raise self.failure


async def test_an_outage_of_the_store_is_reported() -> None:
    """During an outage, pages say so, without the store's address."""
    async with Console(keys=Failing()) as console:
        answer = await (await console.signed_in()).get("/console/keys")
    assert answer.status == 503
    assert "cannot be reached" in answer.text
    assert "redis.internal" not in answer.text


@pytest.mark.parametrize(
    ("problem", "status"),
    [
        (Invalid(Fault("name", "nothing", "a name")), 422),
        (NotThere("it is not there"), 404),
        (Conflict("it is so"), 409),
        (Changed("it was changed"), 412),
        (Full("it is full"), 503),
    ],
)
async def test_every_problem_has_its_page(problem: Problem, status: int) -> None:
    """With its text, also where a page does not show it beside a field."""
    keys = Failing()
    keys.failure = problem
    async with Console(keys=keys) as console:
        answer = await (await console.signed_in()).get("/console/keys")
    assert answer.status == status
    assert str(problem)[1:] in answer.text


async def test_a_record_that_cannot_be_read_is_named() -> None:
    """The page names the record."""
    keys = Failing()
    keys.failure = CorruptRecord("account", "acme")
    async with Console(keys=keys) as console:
        answer = await (await console.signed_in()).get("/console/keys")
    assert answer.status == 500
    assert "record of account acme cannot be read" in answer.text


async def test_an_unexpected_failure_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """An unexpected failure is a page without the cause, which is in the log."""
    keys = Failing()
    keys.failure = RuntimeError("inner workings")
    async with Console(keys=keys) as console:
        with caplog.at_level(logging.ERROR):
            answer = await (await console.signed_in()).get("/console/keys")
    assert answer.status == 500
    assert "inner workings" not in answer.text
    assert "inner workings" in caplog.text


@pytest.mark.parametrize("path", [*PAGES, "/console/sign-in", "/console/nothing"])
async def test_pages_are_kept_nowhere_and_take_nothing_from_elsewhere(
    console: Console, path: str
) -> None:
    """No page is cached; its policy permits loading from the gateway only, and no framing."""
    answer = await (await console.signed_in()).get(path)
    assert answer.headers["Cache-Control"] == "no-store"
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'self'")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"https?://(?!www\.w3\.org)", answer.text.replace("http://127", ""))


async def test_a_page_that_was_wanted_survives_its_query(console: Console) -> None:
    """The redirect to the sign-in keeps the filters of the requested page."""
    answer = await console.browser().get("/console/keys?status=revoked&plan=pro")
    assert 'name="next" value="/console/keys?status=revoked&amp;plan=pro"' in answer.text


async def test_the_page_of_a_file_is_shown_after_a_sign_in(console: Console) -> None:
    """A file alone would leave the browser at the sign-in."""
    answer = await console.browser().get("/console?from=2026-07-01&format=csv")
    assert 'name="next" value="/console?from=2026-07-01"' in answer.text
