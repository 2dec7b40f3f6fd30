"""The pages that show something: overview, keys, policies, warnings, audit log."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path
from unittest.mock import AsyncMock, patch

import pytest

from gateway.admin.console.overview_page import PlanShare, failures, plan_shares
from gateway.domain import latency
from gateway.domain.audit import Event, Trim, write_trim
from gateway.domain.latency import quantile
from gateway.domain.limits import Check
from gateway.domain.policy_files import hash_of
from gateway.domain.policy_history import PolicyLoad
from gateway.domain.ports import StoreDown, UsageBatch
from gateway.domain.usage import WINDOWS, Bucket, Counted, Measured, Measures
from gateway.domain.warnings import LimitWarning
from gateway.manage.policy_changes import compare, summary
from gateway.manage.usage_sums import UsageReport
from gateway.manage.words import seconds_words
from gateway.policies.load import load
from tests.kit.console import ANNA, Browser, Console, fill, now_us
from tests.kit.policies import mcp_routes, write_policies

HOSTILE = """<script>alert(1)</script>'"><img src=x onerror=alert(1)>"""


def text_of(page: str) -> str:
    """The text of a page: without tags, and with single blanks."""
    page = re.sub(r"(?s)<(script|style).*?</\\1>|<[^>]+>", " ", page)
    return re.sub(r"\s+", " ", page)


async def count(console: Console, counts: dict[tuple[str, str, str], int], number: int = 1) -> None:
    minute_s = now_us() // 60_000_000 * 60
    await console.stores.usage.add(UsageBatch("test", number, minute_s, counts))


# -- overview --------------------------------------------------------------------------------------


def report(_name: str, totals: dict[str, int], measures: Measures | None = None) -> UsageReport:
    """A report of one route and one step."""
    found = UsageReport(WINDOWS["1h"], 0, 3_600, (0, 3_600))
    counts = {("api", outcome): requests for outcome, requests in totals.items()}
    bucket = Bucket(0, counts, {} if measures is None else {"api": measures})
    found.count([bucket], with_measures=True)
    return found


def test_plans_are_listed_by_traffic() -> None:
    """The busiest plan comes first; one without requests is omitted."""
    plans = {
        "free": report("free", {"admitted": 3, "limited:plan": 1}),
        "pro": report("pro", {"admitted": 9}),
        "idle": report("idle", {}),
    }
    assert plan_shares(plans) == [PlanShare("pro", 9, 0), PlanShare("free", 4, 1)]


def test_failures_are_what_was_not_admitted() -> None:
    """Every outcome except admission, the most frequent first."""
    assert failures({"admitted": 9, "limited:plan": 2, "refused:x": 3, "failed:y": 0}) == [
        ("Refused", "refused:x", 3),
        ("Limited", "limited:plan", 2),
    ]


async def test_the_overview_shows_traffic_plans_keys_and_failures(
    console: Console, anna: Browser
) -> None:
    """Values of the chosen window: in total, by plan, of the busiest keys, by reason."""
    record = await console.key("Storefront", plan="pro")
    await count(
        console,
        {
            (f"key:{record.id}", "api", "admitted"): 1500,
            ("plan:pro", "api", "admitted"): 1500,
            ("plan:pro", "api", "limited:plan"): 500,
            ("plan:", "none", "refused:key_unknown"): 7,
        },
    )
    for window in WINDOWS:
        text = text_of((await anna.get(f"/console?window={window}")).text)
        assert "pro 2,000 500 25.0 %" in text
        assert "no known key 7 0 0 %" in text
        assert "Storefront its own pro 1,500" in text
        assert "refused: key unknown 7 0.3 %" in text


async def test_an_empty_overview_says_what_to_do(anna: Browser) -> None:
    """Without requests, the page links to a first key, and has no chart."""
    answer = await anna.get("/console?window=nothing")
    assert "/console/keys/new" in answer.text
    assert 'class="bars"' not in answer.text
    assert re.search(r'window=24h" aria-current="true"', answer.text)


# -- keys ------------------------------------------------------------------------------------------


async def test_keys_are_listed_newest_first_with_their_status(
    console: Console, anna: Browser
) -> None:
    """Each key has name, id, status as text and symbol, plan, account, environment, last use."""
    await console.management.accounts.put(ANNA, "acme", {"plan": "pro"}, must_be_new=True)
    first = await console.key("first")
    second = await console.key("second", account="acme", plan=None)
    old = await console.key("old")
    await console.keys.replace(old, replace(old, expires_us=1))
    await console.management.keys.suspend(ANNA, first.id)
    await console.keys.touch([second.id], now_us() - 120_000_000)
    text = text_of((await anna.get("/console/keys")).text)
    assert re.search(
        f"old {old.id} ○ expired free its own production never "
        f"second {second.id} ● valid pro acme production 2 min ago "
        f"first {first.id} ◐ suspended free its own production never",
        text,
    )


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("text=IMPORT", {"Acme nightly import"}),
        ("status=suspended", {"Paused partner"}),
        ("status=revoked", {"Old crawler"}),
        ("status=expired", {"Last year's test"}),
        ("status=nonsense&plan=enterprise", {"Acme storefront"}),
        ("account=acme", {"Acme storefront", "Acme nightly import"}),
        ("environment=staging", set()),
    ],
)
async def test_filters_narrow_the_list(
    console: Console, anna: Browser, query: str, expected: set[str]
) -> None:
    """Each filter shows the matching keys, and stays filled in."""
    await fill(console)
    answer = await anna.get(f"/console/keys?{query}")
    names = re.findall(r'<th scope="row"><a[^>]+>([^<]+)</a>', answer.text)
    assert {name.replace("&#39;", "'") for name in names} == expected
    if not expected:
        assert "No key matches" in answer.text


async def test_a_long_list_has_pages(console: Console, anna: Browser) -> None:
    """Fifty keys a page; the links to the next and previous page keep the filters."""
    for number in range(52):
        await console.key(f"many {number}")
    await console.key("other")
    first = (await anna.get("/console/keys?text=many")).text
    assert first.count('<th scope="row">') == 50
    found = re.search(r'href="(/console/keys\?text=many&amp;after=\w+)" rel="next"', first)
    assert found is not None
    second = (await anna.get(found[1].replace("&amp;", "&"))).text
    assert re.findall(r">(many \d+)<", second) == ["many 1", "many 0"]
    assert 'href="/console/keys?text=many"' in second
    assert 'rel="next"' not in second


async def test_an_empty_list_leads_to_the_first_key(anna: Browser) -> None:
    """Without any keys the page says what a key is and links to the form for one."""
    assert "Create the first key" in (await anna.get("/console/keys")).text


async def test_a_whole_key_is_no_search(console: Console, anna: Browser) -> None:
    """A search for a whole key redirects to its id, so that no address contains the secret."""
    record, text = await console.management.keys.create(
        ANNA, console.management.keys.read_new({"name": "found", "plan": "free"})
    )
    answer = await anna.get(f"/console/keys?text={text}&plan=free")
    assert answer.path == f"/console/keys?plan=free&text={record.id}"
    assert "found" in answer.text
    mistyped = await anna.get(f"/console/keys?account={text}x")
    assert mistyped.path == "/console/keys"
    assert text not in answer.text + mistyped.text


async def test_a_page_after_no_key_is_a_fault(anna: Browser) -> None:
    """An address with an invalid page is refused with a message."""
    assert (await anna.get("/console/keys?after=nothing")).status == 422


# -- one key ---------------------------------------------------------------------------------------


async def test_a_key_is_described(console: Console, anna: Browser) -> None:
    """All fields of its record, its limits now, its usage and its audit entries."""
    record = (await fill(console))["Acme nightly import"]
    answer = await anna.get(f"/console/keys/{record.id}")
    text = text_of(answer.text)
    for words in (
        record.id,
        "Acme nightly import ● valid",
        "connectors:read connectors:write",
        "ticketing:read, write",
        "192.0.2.0/24 2001:db8::/32",
        "(in 89 d)",
        "(2 min ago)",
        "plan 900/minute,burst=1500 search 120/minute",
        "900 a minute, burst 1,500, per key",
        "10,000 a day (quota), per key",
        "limited by search",
        "key.create",
    ):
        assert words in text, words
    assert f'action="/console/keys/{record.id}/limits/plan/reset"' in answer.text
    assert "limits/mcp-connections/reset" not in answer.text
    assert "digest" not in text


@pytest.mark.parametrize(
    ("name", "present", "absent"),
    [
        ("Trial of Initech", ["edit", "rotate", "suspend", "revoke"], ["resume"]),
        ("Paused partner", ["edit", "resume", "revoke"], ["suspend", "rotate"]),
        ("Old crawler", [], ["edit", "rotate", "suspend", "resume", "revoke"]),
        ("Globex mobile app", ["edit", "suspend", "revoke"], ["rotate"]),
    ],
)
async def test_only_what_can_be_done_is_offered(
    console: Console, anna: Browser, name: str, present: list[str], absent: list[str]
) -> None:
    """The buttons depend on the key's status; a rotated key names its successor."""
    record = (await fill(console))[name]
    html = (await anna.get(f"/console/keys/{record.id}")).text
    for verb in present:
        assert f'"/console/keys/{record.id}/{verb}"' in html
    for verb in absent:
        assert f'"/console/keys/{record.id}/{verb}"' not in html
    rotated = await console.keys.get(record.id)
    assert rotated is not None
    if rotated.successor:
        assert (
            f'href="/console/keys/{rotated.successor}">{rotated.successor}</a> replaces it' in html
        )
        html = (await anna.get(f"/console/keys/{rotated.successor}")).text
        assert "they share their counters" in html


async def test_names_are_text_and_nothing_else(console: Console, anna: Browser) -> None:
    """Any name of a key is shown as text on every page that has it."""
    record = await console.key(HOSTILE)
    await count(console, {(f"key:{record.id}", HOSTILE, f"refused:{HOSTILE}"): 1})
    await count(console, {(f"plan:{HOSTILE}", HOSTILE, f"limited:{HOSTILE}"): 1}, number=2)
    one = f"/console/keys/{record.id}"
    await console.stores.warnings.warn(LimitWarning(HOSTILE, 80, HOSTILE, HOSTILE, HOSTILE, 1, 1))
    pages = ["/console", "/console/keys", "/console/audit", "/console/accounts"]
    pages.append("/console/warnings")
    for path in [*pages, *(f"{one}{rest}" for rest in ("", "/edit", "/rotate", "/revoke"))]:
        answer = await anna.get(path)
        assert answer.status == 200
        assert "<script>alert" not in answer.text, path
        assert "<img src=x" not in answer.text, path
    for path in ("/console/keys", "/console/audit", "/console/accounts", "/console/warnings"):
        for name in (
            "key",
            "text",
            "account",
            "plan",
            "environment",
            "actor",
            "subject",
            "open",
            "done",
        ):
            answer = await anna.get(path, params={name: HOSTILE})
            assert "<script>alert" not in answer.text, (path, name)
            assert "<img src=x" not in answer.text, (path, name)


# -- policies --------------------------------------------------------------------------------------


async def test_policies_are_in_words(console: Console, anna: Browser) -> None:
    """Which policies are loaded, since when and from where, and whether the files have changed."""
    html = (await anna.get("/console/policies")).text
    text = text_of(html)
    for words in (
        console.loaded.policy.hash,
        "routes.yaml",
        "60/minute, burst 100, per key",
        "a key, with the scopes connectors:read",
        "mcp-daily: quota 10000/day, per key",
        "● unchanged",
    ):
        assert words in text, words
    assert '<time datetime="' in html


async def test_candidates_are_compared(tmp_path: Path) -> None:
    """A table has both values and the counts; without candidates there is none."""
    plans = "plans: {free: {rate: 60/minute, candidate: {rate: 50/minute, burst: 80}}}"
    folder = write_policies(tmp_path, "http://127.0.0.1:9", plans=plans)
    async with Console(policies=folder) as console:
        console.metrics.compared("plan", "both_admit")
        anna = await console.signed_in()
        text = text_of((await anna.get("/console/policies")).text)
        assert "plan plan free 60/minute 50/minute, burst 80 1 0 0 0" in text
        write_policies(folder, "http://127.0.0.1:9")
        console.loaded = replace(console.loaded, policy=load(folder))
        assert "Candidates" not in text_of((await anna.get("/console/policies")).text)


async def test_files_that_changed_are_seen(tmp_path: Path) -> None:
    """The page distinguishes files that will be loaded from faulty ones."""
    folder = write_policies(tmp_path, "http://127.0.0.1:9")
    async with Console(policies=folder) as console:
        anna = await console.signed_in()
        plans = (folder / "plans.yaml").read_text()
        (folder / "plans.yaml").write_text(plans.replace("60/minute", "61/minute"))
        assert "about to be loaded" in (await anna.get("/console/policies")).text
        (folder / "plans.yaml").write_text("plans: {free: {rate: <b>}}")
        html = (await anna.get("/console/policies")).text
        assert "has faults" in html
        assert "plans.yaml:1" in html
        assert "<b>}" not in html


async def test_the_history_of_policies(tmp_path: Path) -> None:
    """When, why and by which gateway each was loaded, with a link to what has changed."""
    folder = write_policies(tmp_path, "http://127.0.0.1:9")
    async with Console(policies=folder) as console:
        anna = await console.signed_in()
        assert "No policy has been recorded yet." in (await anna.get("/console/policies")).text
        first, second = await load_two(console, folder)
        html = (await anna.get("/console/policies")).text
        for words in ("rollback by &lt;b&gt;anna", "web-1 127.0.0.1:8080", "counters are kept"):
            assert words in html, words
        assert "<b>anna" not in html
        address = f"/console/policies/{second}?since={first}"
        assert address in html
        html = (await anna.get(address)).text
        text = text_of(html)
        assert "limit: plan, plan free: 60/minute, burst 100, per key → 61/minute" in text
        assert "- free: {rate: 60/minute, burst: 100} # &lt;b&gt;" in text
        assert "+ free: {rate: 61/minute, burst: 100} # &lt;b&gt;" in text
        assert f"gateway policies rollback {second} DIR" in text
        assert "<b>" not in html
        text = text_of((await anna.get(f"/console/policies/{first}")).text)
        assert "It is not known which policy was loaded before it." in text
        text = text_of((await anna.get(f"/console/policies/{second}?since={'0' * 16}")).text)
        assert f"The history has no files of a policy {'0' * 16}." in text
        assert (await anna.get(f"/console/policies/{'0' * 16}")).status == 404
        audit = (await anna.get("/console/audit?action=policy")).text
        assert f'href="/console/policies/{second}"' in audit


async def test_a_version_that_has_faults_now(tmp_path: Path) -> None:
    """Its files are shown and compared; what they mean is not known."""
    folder = write_policies(tmp_path, "http://127.0.0.1:9")
    async with Console(policies=folder) as console:
        anna = await console.signed_in()
        first, _ = await load_two(console, folder)
        texts = {"a.yaml": "<script>"}
        faulty = PolicyLoad(3, hash_of(texts), first, "start", "web-1", "")
        await console.stores.policies.add(faulty, texts)
        html = (await anna.get(f"/console/policies/{faulty.hash}")).text
        assert f"The policy {faulty.hash} has faults now" in html
        assert "+&lt;script&gt;" in html
        assert "<script>" not in html


async def test_an_outage_hides_only_the_history(console: Console, anna: Browser) -> None:
    """The rest of the page does not need the store."""
    down = AsyncMock(side_effect=StoreDown("the store is unavailable: refused"))
    with patch.object(console.stores.policies, "loads", down):
        text = text_of((await anna.get("/console/policies")).text)
    assert "The store is unavailable: refused." in text
    assert "60/minute, burst 100, per key" in text


async def load_two(console: Console, folder: Path) -> tuple[str, str]:
    """Record a policy and a change of it, as a gateway does; the hashes of both."""
    history, plans, loaded = console.management.history, folder / "plans.yaml", []
    text = plans.read_text().replace("burst: 100}", "burst: 100} # <b>")
    for number, amount in enumerate(("60", "61")):
        plans.write_text(text.replace("60/minute", f"{amount}/minute"))
        loaded.append(load(folder))
        previous = loaded[0].hash if number else ""
        words = summary(compare(loaded[0], loaded[-1]), 500)
        if number:
            await console.stores.policies.note_rollback(loaded[1].hash, "<b>anna (cli)")
        entry = PolicyLoad(
            number, loaded[-1].hash, previous, "SIGHUP", "web-1 127.0.0.1:8080", words
        )
        await history.record(entry, loaded[-1])
    return loaded[0].hash, loaded[1].hash


ASK = {"method": "GET", "path": "/api/search/x", "key_id": "", "client_ip": "127.0.0.1"}


async def test_a_refusal_is_explained(console: Console, anna: Browser) -> None:
    """A key's request is decided as now, with the reason, and counts nothing."""
    record = await console.key(ip_ranges=["192.0.2.0/24"])
    answer = await anna.post("/console/policies", {**ASK, "key_id": record.id})
    text = text_of(answer.text)
    assert "Refused: 403 IP_NOT_ALLOWED" in text
    assert "search (GET /api/search/**, routes.yaml" in text
    answer = await anna.post(
        "/console/policies", {**ASK, "key_id": record.id, "client_ip": "192.0.2.9"}
    )
    assert '<h2 id="answer">Admitted.</h2>' in answer.text
    assert f'value="{record.id}"' in answer.text


async def test_the_rules_need_no_key(anna: Browser) -> None:
    """Without a key only the rules are shown."""
    text = text_of((await anna.post("/console/policies", ASK)).text)
    assert "plan enterprise 6000/minute" in text
    assert "Refused: 401" in text


async def test_of_a_whole_key_only_the_id_is_used(console: Console, anna: Browser) -> None:
    """A whole key is accepted, but not shown again."""
    record, text = await console.management.keys.create(
        ANNA, console.management.keys.read_new({"name": "ci", "plan": "free"})
    )
    answer = await anna.post("/console/policies", {**ASK, "key_id": text})
    assert f'value="{record.id}"' in answer.text
    mistyped = await anna.post("/console/policies", {**ASK, "key_id": f"{text}x"})
    assert mistyped.status == 422
    shown = await anna.get(f"/console/policies?key={text}")
    for page in (answer, mistyped, shown):
        assert text not in page.text


@pytest.mark.parametrize(
    ("field", "value"), [("client_ip", "nowhere"), ("path", "x y"), ("key_id", "no id")]
)
async def test_an_invalid_question_keeps_what_was_typed(
    anna: Browser, field: str, value: str
) -> None:
    """The fault is shown at its field."""
    answer = await anna.post("/console/policies", {**ASK, field: value})
    assert answer.status == 422
    assert f'value="{value}"' in answer.text
    assert re.search(rf'id="e-{field}"[^>]*>\s*<p>Found', answer.text)


# -- warnings --------------------------------------------------------------------------------------


async def test_warnings_are_listed(console: Console, anna: Browser) -> None:
    """Warnings newest first, with a link to the key; those of one key from its page."""
    made = await fill(console)
    storefront = made["Acme storefront"]
    html = (await anna.get("/console/warnings")).text
    text = text_of(html)
    assert re.findall(r"(\d+) %", text.partition("Level")[2]) == ["100", "80"]
    assert f'href="/console/keys/{storefront.id}"><code>{storefront.id}' in html
    assert (
        f"/console/warnings?key={storefront.id}"
        in (await anna.get(f"/console/keys/{storefront.id}")).text
    )
    assert "No warning matches" in (await anna.get("/console/warnings?key=other")).text


async def test_many_warnings_have_pages(console: Console, anna: Browser) -> None:
    """Fifty a page; an invalid id gives the first page."""
    for number in range(52):
        await console.stores.warnings.warn(
            LimitWarning(str(number), 80, "search", "free", "a" * 12, 1, 60_000_000)
        )
    first = (await anna.get(f"/console/warnings?before=junk&key={'a' * 12}")).text
    found = re.search(r'href="(/console/warnings\?key=a{12}&amp;before=3-0)" rel="next"', first)
    assert found is not None
    second = (await anna.get(found[1].replace("&amp;", "&"))).text
    assert second.count("<time datetime") == 2
    assert 'rel="next"' not in second


async def test_no_warning_yet(anna: Browser) -> None:
    """Before the first warning, the page says so."""
    assert "No warnings yet" in (await anna.get("/console/warnings")).text


# -- audit -----------------------------------------------------------------------------------------


async def test_the_log_says_who_changed_what(console: Console, anna: Browser) -> None:
    """Entries newest first, with the values before and after, and links to their subjects."""
    record = await console.key("ci")
    await console.management.keys.suspend(ANNA, record.id)
    html = (await anna.get("/console/audit")).text
    text = text_of(html)
    assert text.index("key.suspend") < text.index("key.create")
    assert "anna (console, 127.0.0.1)" in text
    assert "<dt>status</dt>" in html
    assert "<del>valid</del> <ins>suspended</ins>" in html
    assert f'href="/console/keys/{record.id}">key:{record.id}' in html


@pytest.mark.parametrize(
    ("query", "entries"),
    [
        ("action=key", 12),
        ("action=key.revoke", 1),
        ("actor=ANNA", 12),
        ("subject=acme", 1),
        ("action=account&actor=anna", 2),
        ("actor=nobody", 0),
    ],
)
async def test_the_log_can_be_narrowed(
    console: Console, anna: Browser, query: str, entries: int
) -> None:
    """By action, actor and subject."""
    await fill(console)
    html = (await anna.get(f"/console/audit?{query}")).text
    found = html.count("<time datetime")
    assert found == entries if entries < 12 else found >= 10
    assert ("No entry matches" in html) == (not entries)


async def test_a_long_log_has_pages(console: Console, anna: Browser) -> None:
    """Fifty entries a page; an invalid number gives the first page."""
    for number in range(52):
        await console.key(f"key {number}")
    first = (await anna.get("/console/audit?before=junk&action=key")).text
    found = re.search(r'href="(/console/audit\?action=key&amp;before=3)" rel="next"', first)
    assert found is not None
    second = (await anna.get(found[1].replace("&amp;", "&"))).text
    assert second.count("<time datetime") == 2
    assert 'rel="next"' not in second


async def test_the_chain_is_verified_on_demand(console: Console, anna: Browser) -> None:
    """An intact log is reported with its last hash, a changed entry with its number."""
    await fill(console)
    _, head = await console.stores.audit.head()
    html = (await anna.get("/console/audit?verify=now")).text
    assert "verified" in html
    assert head in html
    entries = console.stores.audit._entries  # type: ignore[attr-defined]
    entries[3] = replace(entries[3], event=replace(entries[3].event, actor="nobody"))
    html = (await anna.get("/console/audit?verify=now")).text
    assert "The chain is broken" in html
    assert "Entry 4: was changed" in html


async def test_a_log_whose_beginning_was_dropped(console: Console, anna: Browser) -> None:
    """The result and the log show that old entries were dropped."""
    for number in range(3):
        await console.key(f"key {number}")
    last = (await console.stores.audit.oldest(count=2))[1]
    event = write_trim(Trim(2, last.hash, True), now_us())
    await console.stores.audit.append(event, drop_to=2)
    text = text_of((await anna.get("/console/audit?verify=now")).text)
    assert (
        "2 entries, each chained to the previous one (those up to number 2 were deleted by age)"
        in text
    )
    assert "audit.trim" in text


async def test_a_text_that_is_no_unicode_hides_nothing(console: Console, anna: Browser) -> None:
    """Half a surrogate pair in an entry is shown as a question mark, and the rest as it is."""
    key = await console.key("ci")
    event = Event(now_us(), "root (cli)", "key.edit", f"key:{key.id}", after={"name": "a\ud800b"})
    await console.stores.audit.append(event)
    text = text_of((await anna.get("/console/audit")).text)
    assert "a?b" in text
    assert "key.create" in text


async def test_an_empty_log_says_what_will_be_in_it(anna: Browser) -> None:
    """Before the first change, the page says what the log is for."""
    assert "No changes yet" in (await anna.get("/console/audit")).text


async def test_statuses_latencies_and_bytes_are_shown(console: Console, anna: Browser) -> None:
    """On the pages of a key and its account, by route; the overview has errors and slow routes."""
    record = await console.key(account="acme")
    minute_s = now_us() // 60_000_000 * 60
    slow, fast = (
        Measures(0, 2_400, latency.count([1.0] * 3)),
        Measures(5, 310, latency.count([0.01])),
    )
    counts, measures = dict[Counted, int](), dict[Measured, Measures]()
    for subject in (f"key:{record.id}", "plan:free"):
        counts[subject, "report", "admitted:2xx"] = 2
        counts[subject, "report", "failed:5xx"] = 1
        counts[subject, "search", "admitted:4xx"] = 1
        measures |= {(subject, "report"): slow, (subject, "search"): fast}
    await console.stores.usage.add(UsageBatch("w", 1, minute_s, counts, measures))
    for page in (f"/console/keys/{record.id}", "/console/accounts/acme", "/console"):
        shown = (await anna.get(page)).text
        assert "2.4 kB" in shown
        assert "310 B" in shown
        assert seconds_words(quantile(slow.latencies, 0.95)) in shown
    assert "1 of 4 requests were answered with a 5xx: <strong>25.0 %</strong>" in shown
    slowest = shown[shown.index("Slowest routes") : shown.index("Busiest routes")]
    assert slowest.index(">report<") < slowest.index(">search<")


# -- MCP servers -----------------------------------------------------------------------------------

MCP_ROUTES = mcp_routes(
    "{name: sessions, concurrency: 5, of: connections}",
    "{name: shared, concurrency: 50, of: connections, per: account}",
)


@pytest.fixture
def with_mcp(console: Console, tmp_path: Path) -> Console:
    """The console of a gateway with a route to an MCP server."""
    folder = write_policies(tmp_path / "mcp", "http://127.0.0.1:9", routes=MCP_ROUTES)
    console.loaded = replace(console.loaded, policy=load(folder), folder=folder)
    return console


async def hold(console: Console, key_id: str, leases: int) -> None:
    """Open connections with a key."""
    for met in await console.management.limits._met(key_id):
        for lease in range(1, leases + 1) if met.limit.rules.shared else ():
            check = Check((met.limit,), (met.counter,)).leased(lease)
            assert console.limiter.decide_now(check).allowed


async def test_open_connections_and_calls_are_shown(with_mcp: Console, anna: Browser) -> None:
    """Of how many each key may have; and by tool, with the reasons of refusals."""
    record = await with_mcp.key("Storefront", account="acme")
    other = await with_mcp.key("Idle")
    await hold(with_mcp, record.id, 2)
    await with_mcp.stores.connections.report("w", {record.id: 2, other.id: 1, "z" * 12: 1})
    await count(
        with_mcp,
        {
            ("mcp:mcp", "search", "admitted:2xx"): 1_500,
            ("mcp:mcp", "search", "limited:mcp/search"): 20,
            ("mcp:mcp", "search", "refused:tool_not_permitted"): 3,
            ("mcp:mcp", "other", "admitted:4xx"): 1,
        },
    )
    text = text_of((await anna.get("/console/mcp")).text)
    assert "Storefront 2 of 5 sessions 2 of 50 shared, per account acme free" in text
    assert "Idle 0 of 5 sessions 0 of 50 shared, per account its own free" in text
    assert f"{'z' * 12} 1 no limit" in text
    assert "search mcp 1,523 1,500 20 3 0" in text
    assert "limited by mcp/search 20 refused: tool not permitted 3" in text
    assert "other mcp 1 1 0 0 0 -" in text
    assert "No route has" not in text
    key = text_of((await anna.get(f"/console/keys/{record.id}")).text)
    assert "sessions 2 of 5 connections open, per key" in key


async def test_mcp_without_traffic(with_mcp: Console, anna: Browser) -> None:
    """It says so, and is in the navigation."""
    page = (await anna.get("/console/mcp")).text
    assert "No key has a connection open." in page
    assert "No tool was called in this window." in page
    assert '<a href="/console/mcp" aria-current="page">MCP</a>' in page


async def test_mcp_without_a_route(console: Console, anna: Browser, tmp_path: Path) -> None:
    """The page says how to begin, and what was called before; no other page links to it."""
    plain = 'routes: {api: {match: "* /**", upstream: api}}'
    policy = load(write_policies(tmp_path / "plain", "http://127.0.0.1:9", routes=plain))
    console.loaded = replace(console.loaded, policy=policy)
    page = (await anna.get("/console/mcp")).text
    assert "No route has an <code>mcp</code> section." in page
    assert "Open connections" not in page
    assert '"/console/mcp"' not in (await anna.get("/console")).text
    example = re.search(r"(?s)<pre[^>]*><code>(.*?)</code>", page)
    assert example is not None
    lines = html.unescape(example[1]).replace("upstream: tools", "upstream: api")
    routes = "routes:\n" + "".join(f"  {line}\n" for line in lines.splitlines())
    assert (
        load(write_policies(tmp_path / "begun", "http://127.0.0.1:9", routes=routes))
        .routes["mcp"]
        .mcp
    )
    await count(console, {("mcp:mcp", "search", "admitted:2xx"): 1})
    page = (await anna.get("/console/mcp")).text
    assert "No route has" in page
    assert "search mcp 1 1 0 0 0 -" in text_of(page)


async def test_hostile_names_of_tools_are_escaped(with_mcp: Console, anna: Browser) -> None:
    """Others may write to the store: routes, tools, outcomes and ids are texts."""
    await with_mcp.stores.connections.report("w", {HOSTILE: 1})
    await count(with_mcp, {(f"mcp:{HOSTILE}", HOSTILE, f"limited:{HOSTILE}"): 1})
    page = (await anna.get("/console/mcp")).text
    assert "<script>alert" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 4
    assert re.search(r'href="/console/keys/%3Cscript%3E', page)


async def test_many_keys_with_connections(with_mcp: Console, anna: Browser) -> None:
    """Those with the most are listed, and how many there are."""
    await with_mcp.stores.connections.report(
        "w", {f"{number:012}": number for number in range(1, 31)}
    )
    page = (await anna.get("/console/mcp")).text
    assert "The 20 keys with the most connections, of 30." in page
    assert "000000000030" in page
    assert "000000000010" not in page
