"""Usage reports."""

from __future__ import annotations

import pytest

from gateway.domain.keys import Account
from gateway.domain.latency import count
from gateway.domain.ports import CorruptRecord, UsageBatch
from gateway.domain.usage import STATUS_CLASSES, WINDOWS, Measures
from gateway.manage.batches import AT_ONCE
from gateway.manage.problems import Conflict, Invalid, NotThere
from gateway.manage.usage_export import COLUMNS, as_csv, rows
from gateway.manage.usage_reports import (
    Busy,
    UsageBook,
    busy_as_json,
    read_span,
    read_window,
)
from gateway.manage.usage_sums import (
    busiest_routes,
    group,
    grouped,
    report_as_json,
    slowest_routes,
)
from gateway.stores.keys.memory import MemoryKeyStore
from gateway.stores.usage.memory import MemoryUsageStore
from tests.suites.keys import plain_key
from tests.suites.usage import NOW_S, Writer, of_key

KEY = "a" * 12


@pytest.fixture
async def site():
    return await Site().filled()


class Site:
    """Reports over stores in memory, 17 minutes and 40 seconds past the hour."""

    def __init__(self) -> None:
        self.keys, self.usage = MemoryKeyStore(), MemoryUsageStore()
        self.now_s = NOW_S + 17 * 60 + 40
        self.book = UsageBook(self.usage, self.keys, lambda: self.now_s * 1_000_000)

    async def filled(self):
        await self.keys.add(plain_key(KEY, name="ci", plan="pro"))
        return self


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
async def test_a_report_has_every_step(site, window):
    """A report has all steps of the window; the last one is the current one."""
    report = await site.book.of_key(KEY, window)
    assert len(report.points) == window.span_s // window.step_s
    last_s = report.points[-1].start_s
    assert last_s <= site.now_s < last_s + window.step_s
    steps = [point.start_s for point in report.points]
    assert steps == list(range(last_s - window.span_s + window.step_s, last_s + 1, window.step_s))
    assert report.totals == report.routes == {}
    assert {len(point.counts) for point in report.points} == {0}


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
async def test_a_report_adds_up(site, window):
    """Counts are in their step, the totals and their route; older ones are left out."""
    writer = Writer(site.usage)
    minute_s = NOW_S + 17 * 60
    first_s = minute_s - minute_s % window.step_s + window.step_s - window.span_s
    await writer.add({of_key(KEY): 1, of_key(KEY, "search", "limited:search"): 2}, minute_s)
    await writer.add({of_key(KEY): 4}, first_s)
    await writer.add({of_key(KEY): 8}, first_s - 60)
    report = await site.book.of_key(KEY, window)
    assert report.window is window
    assert report.totals == {"admitted": 5, "limited:search": 2}
    routes = {route: one.counts for route, one in report.routes.items()}
    assert routes == {"api": {"admitted": 5}, "search": {"limited:search": 2}}
    assert report.points[-1].counts == {"admitted": 1, "limited:search": 2}
    assert report.points[0].counts == {"admitted": 4}


async def test_a_missing_key(site):
    """The usage of a missing key is an error."""
    with pytest.raises(NotThere, match="b" * 12):
        await site.book.of_key("b" * 12, WINDOWS["1h"])


async def test_the_overview(site):
    """Every plan has a report, and so do requests without a key."""
    writer = Writer(site.usage)
    counts = {("plan:pro", "api", "admitted"): 3, ("plan:", "none", "refused:key_missing"): 2}
    await writer.add(counts, NOW_S)
    overview = await site.book.overview(WINDOWS["1h"])
    assert {plan: report.totals for plan, report in overview.items()} == {
        "": {"refused:key_missing": 2},
        "pro": {"admitted": 3},
    }
    assert (await site.book.of_plan("free", WINDOWS["1h"])).totals == {}


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
async def test_the_busiest(site, window):
    """Keys with the most requests come first, with their accounts; a deleted key has no name."""
    writer = Writer(site.usage)
    await writer.add({of_key(KEY): 3, of_key("gone"): 5, of_key("rare"): 1}, NOW_S)
    assert await site.book.busiest(window, 2) == (
        Busy("gone", "", "", "", 5),
        Busy(KEY, "ci", "acme", "pro", 3),
    )
    assert len(await site.book.busiest(window)) == 3
    site.now_s = NOW_S + window.span_s + 86_400
    assert await site.book.busiest(window) == ()


async def test_a_busy_key_is_shown_with_the_plan_that_holds(site):
    """A key without its own plan is shown with its account's, if there is one."""
    await site.keys.add(plain_key("b" * 12, account="globex", plan=""))
    await Writer(site.usage).add({of_key("b" * 12): 1}, NOW_S)
    window = WINDOWS["1h"]
    assert [one.plan for one in await site.book.busiest(window)] == [""]
    await site.keys.put_account(Account("globex", plan="free"))
    assert [one.plan for one in await site.book.busiest(window)] == ["free"]


def test_windows_are_read():
    """A window has a name; an unknown name is a fault that lists the known ones."""
    assert read_window("7d") is WINDOWS["7d"]
    with pytest.raises(Invalid) as raised:
        read_window("gwk_production_7h3k9m2p4q6r_secret")
    assert str(raised.value) == ("window: found 'gwk_producti…', expected one of 1h, 24h, 7d, 30d")


def test_groups():
    """Every outcome belongs to one of four groups; a group is the sum of its outcomes."""
    assert [group(outcome) for outcome in ("admitted", "limited:a", "refused:b", "failed:c")] == [
        "admitted",
        "limited",
        "refused",
        "failed",
    ]
    assert group("of another version") == "failed"
    assert grouped({"limited:a": 1, "limited:b": 2, "admitted": 3}) == {
        "admitted": 3,
        "limited": 3,
        "refused": 0,
        "failed": 0,
    }


async def test_as_json(site):
    """A report and a busy key as the API shows them."""
    await site.usage.add(UsageBatch("w", 1, NOW_S + 17 * 60, {of_key(KEY): 3}))
    shown = report_as_json(await site.book.of_key(KEY, WINDOWS["1h"]))
    points, measures = shown.pop("points"), shown.pop("measures")
    assert (shown.pop("from"), shown.pop("to")) == (
        "2027-01-15T07:18:00Z",
        "2027-01-15T08:18:00Z",
    )
    assert shown.pop("statuses") == dict.fromkeys(STATUS_CLASSES, 0)
    assert measures == {
        "from": "2027-01-15T00:00:00Z",
        "to": "2027-01-16T00:00:00Z",
        "bytes_in": None,
        "bytes_out": None,
        "latency_ms": {"p50": None, "p95": None, "p99": None},
    }
    assert shown == {
        "window": "1h",
        "step_seconds": 60,
        "requests": 3,
        "totals": {"admitted": 3},
        "groups": {"admitted": 3, "limited": 0, "refused": 0, "failed": 0},
        "routes": {"api": {"admitted": 3}},
    }
    assert len(points) == 60
    assert points[0] == {"start": "2027-01-15T07:18:00Z", "counts": {}}
    assert points[-1] == {"start": "2027-01-15T08:17:00Z", "counts": {"admitted": 3}}
    assert busy_as_json(Busy(KEY, "ci", "acme", "pro", 3)) == {
        "id": KEY,
        "name": "ci",
        "account": "acme",
        "plan": "pro",
        "requests": 3,
    }


async def test_many_unknown_plans(site):
    """The overview has all used plans of the policies, and a bounded number of others."""
    book = UsageBook(site.usage, site.keys, lambda: site.now_s * 1_000_000, lambda: ("zzz", "idle"))
    writer = Writer(site.usage)
    await writer.add({("plan:", "api", "refused"): 1, ("plan:zzz", "api", "admitted"): 2})
    await writer.add({(f"plan:p{at:05}", "api", "admitted"): 1 for at in range(10_000)})
    await writer.add({("plan:\x1b[2J", "api", "admitted"): 1})
    found = await book.overview(WINDOWS["1h"])
    assert len(found) == 102
    assert list(found)[0::101] == ["", "zzz"]
    assert "\x1b[2J" not in found


async def test_a_record_that_cannot_be_read_is_among_the_busiest(site, monkeypatch):
    """It is shown with its id and requests, and the others are shown as well."""
    other, gone = "b" * 12, "c" * 12
    await site.keys.add(plain_key(other, name="nightly", account="acme", plan=""))
    writer = Writer(site.usage)
    await writer.add({of_key(KEY): 3, of_key(other): 2, of_key(gone): 1})
    get = site.keys.get

    async def unreadable(name):
        raise CorruptRecord("account", name)

    async def get_others(key_id):
        if key_id == KEY:
            raise CorruptRecord("key", key_id)
        return await get(key_id)

    monkeypatch.setattr(site.keys, "get", get_others)
    monkeypatch.setattr(site.keys, "account", unreadable)
    assert await site.book.busiest(WINDOWS["1h"]) == (
        Busy(KEY, "(unreadable)", "", "", 3),
        Busy(other, "nightly", "acme", "", 2),
        Busy(gone, "", "", "", 1),
    )


DAY_S = 86_400
#: The midnight before NOW_S.
TODAY_S = NOW_S - NOW_S % DAY_S


async def measured(site, at_s=NOW_S, key_id=KEY, seconds=0.1):
    """Three answers of a key, one of them a 5xx, and a refusal."""
    counts, measures = {}, {}
    for subject in (f"key:{key_id}", "plan:pro"):
        counts[subject, "api", "admitted:2xx"] = 2
        counts[subject, "api", "failed:5xx"] = 1
        counts[subject, "search", "limited:plan"] = 1
        measures[subject, "api"] = Measures(10, 2_000, count([seconds] * 3))
    site.batches = getattr(site, "batches", 0) + 1
    batch = UsageBatch("measured", site.batches, at_s, counts, measures)
    await site.usage.add(batch)


async def test_a_range_of_dates(site):
    """From a day, included, to another one, excluded; with the measures of each day."""
    for days in range(4):
        await measured(site, TODAY_S - days * DAY_S)
    window = read_span(None, "2027-01-13", "2027-01-15", NOW_S * 1_000_000)
    report = await site.book.of_key(KEY, window)
    assert [sum(point.counts.values()) for point in report.points] == [4, 4]
    assert report.total.statuses == {"2xx": 4, "5xx": 2}
    assert report.total.groups == {"admitted": 4, "limited": 2, "refused": 0, "failed": 2}
    assert report.total.measures == Measures(20, 4_000, count([0.1] * 6))
    assert report.measured_s == (TODAY_S - 2 * DAY_S, TODAY_S)
    open_end = await site.book.of_key(KEY, read_span(None, "2027-01-15", None, NOW_S * 1_000_000))
    assert [sum(point.counts.values()) for point in open_end.points] == [4]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((None, "2027-13-01", None), "from: found '2027-13-01', expected a date"),
        ((None, "1969-12-31", "1970-01-02"), "from: found '1969-12-31', expected a date"),
        ((None, "20270101", None), "from: found '20270101', expected a date"),
        ((None, "2027-01-01", "x" * 50), "to: found 'xxxxxxxxxxxx…', expected a date"),
        ((None, "2027-01-02", "2027-01-02"), "to: found 2027-01-02, expected a date after from"),
        ((None, "2028-01-02", None), "to: found tomorrow, expected a date after from"),
        ((None, None, "2027-01-02"), "from: found nothing, with to, expected a date"),
        (("7d", "2027-01-02", None), "window: found from or to as well"),
        ((None, "2020-01-02", "2027-01-02"), "from: found 2020-01-02, expected at most 400 days"),
        (("1y", None, None), "window: found '1y'"),
    ],
)
def test_bad_ranges(given, words):
    """Each fault says what was found and what was expected."""
    with pytest.raises(Invalid) as raised:
        read_span(*given, NOW_S * 1_000_000)
    assert words in str(raised.value)


async def test_the_usage_of_an_account(site):
    """It is the sum of its keys, revoked ones too; another account's keys are not in it."""
    await site.keys.add(plain_key("b" * 12, account="acme", status="revoked"))
    await site.keys.add(plain_key("c" * 12, account="globex"))
    for key_id in (KEY, "b" * 12, "c" * 12):
        await measured(site, key_id=key_id)
    window = WINDOWS["24h"]
    keys, whole = await site.book.of_account("acme", window)
    assert {record.id: one.requests for record, one in keys} == {KEY: 4, "b" * 12: 4}
    assert whole.total.requests == 8
    assert whole.measured_s == (await site.book.of_key(KEY, window)).measured_s
    assert (await site.book.of_account("acme", window, "search"))[1].total.requests == 2
    assert whole.routes["api"].measures == Measures(20, 4_000, count([0.1] * 6))
    with pytest.raises(NotThere, match="initech"):
        await site.book.of_account("initech", window)


async def test_few_reports_of_an_account_are_in_memory(site, monkeypatch):
    """The next keys are read when the first ones were handled: a year of a key takes 1 MB."""
    for number in range(20):
        await site.keys.add(plain_key(f"{number:012}", account="acme"))
    read = []
    report = site.book._report

    async def noted(subject, window):
        read.append(subject)
        return await report(subject, window)

    monkeypatch.setattr(site.book, "_report", noted)
    handled = 0
    async for _ in site.book.each_key("acme", WINDOWS["1h"]):
        handled += 1
        assert len(read) < handled + AT_ONCE
    assert handled == len(read) == 21


async def test_an_account_with_too_many_keys(site, monkeypatch):
    """It is an error, and no sum of some of them."""
    monkeypatch.setattr("gateway.manage.usage_reports.MOST_KEYS", 1)
    await site.keys.add(plain_key("b" * 12, account="acme"))
    with pytest.raises(Conflict, match="more than 1 keys"):
        await site.book.of_account("acme", WINDOWS["1h"])


async def test_routes_by_traffic_and_by_latency(site):
    """The measures of all requests are those of whole hours."""
    await measured(site)
    whole = await site.book.of_all(WINDOWS["1h"])
    assert [route for route, _ in busiest_routes(whole)] == ["api", "search"]
    assert [route for route, _ in slowest_routes(whole)] == ["api"]
    assert whole.routes["api"].latency("p95") == pytest.approx(0.1, rel=0.1)
    assert whole.measured_s == (NOW_S - 3_600, NOW_S + 3_600)
    assert whole.of_route("search").total.counts == {"limited:plan": 1}


async def test_csv(site):
    """A row for each step and route; unknown values are empty, and no text is a formula."""
    await measured(site)
    report = await site.book.of_key(KEY, read_span(None, "2027-01-15", None, NOW_S * 1_000_000))
    about = {"account": "=1+1", "key_id": KEY, "key_name": ' @SUM("a")', "plan": "pro"}
    head, first, second, end = as_csv(rows(report, about)).split("\r\n")
    assert head == ",".join(COLUMNS)
    begin = f'2027-01-15T00:00:00Z,\'=1+1,{KEY},"\' @SUM(""a"")",pro'
    assert first == f"{begin},api,3,2,0,0,1,0,2,0,0,1,10,2000,100.0,100.0,100.0"
    assert second == f"{begin},search,1,0,1,0,0,0,0,0,0,0,,,,,"
    assert end == ""


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("-1", "'-1"),
        ("\uff1d1+1", "'\uff1d1+1"),
        ("\r=1", "?=1"),
        ("\x1b]0;x\x07", "?]0;x?"),
        ("a\u202eb", "a?b"),
        ("1-1", "1-1"),
    ],
)
def test_a_cell_of_csv_is_a_text(text, cell):
    """Neither a spreadsheet nor a terminal executes what is in it."""
    assert as_csv([dict.fromkeys(COLUMNS) | {"route": text}]).split("\r\n")[1] == (
        f",,,,,{cell}" + "," * 15
    )
