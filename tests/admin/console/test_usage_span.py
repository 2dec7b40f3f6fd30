"""Ranges of dates on the pages with usage, and usage as files."""

from __future__ import annotations

import csv
import html
import json
import re
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest

from gateway.domain.ports import UsageBatch
from tests.kit.console import Browser, Console, now_us


async def test_dates_and_files_of_usage(console: Console, anna: Browser) -> None:
    """A range of dates is shown on each page with usage, and is had as CSV and JSON."""
    record = await console.key("=cmd()", account="acme", plan="pro")
    subjects = (f"key:{record.id}", "plan:pro")
    counts = {(subject, "api", "admitted:2xx"): 1_234 for subject in subjects}
    minute_s = now_us() // 60_000_000 * 60
    await console.stores.usage.add(UsageBatch("test", 1, minute_s, counts))
    yesterday = f"{datetime.fromtimestamp(now_us() / 1e6, UTC) - timedelta(days=1):%Y-%m-%d}"
    pages = ("/console", f"/console/keys/{record.id}", "/console/accounts/acme")
    for page in pages:
        for query, words in ((f"from={yesterday}", f"from {yesterday}"), ("", "last 24 hours")):
            shown = (await anna.get(f"{page}?{query}")).text
            assert f", {words}" in shown
            assert "1,234" in shown
            (found,) = re.findall(r'href="\?([^"]+)&amp;format=csv"', shown)
            table = await anna.get(f"{page}?{html.unescape(found)}&format=csv")
            assert table.headers["Content-Type"] == "text/csv; charset=utf-8"
            assert table.headers["Content-Disposition"] == 'attachment; filename="usage.csv"'
            rows = [row for row in csv.DictReader(StringIO(table.text)) if row["route"] == "api"]
            assert [row["requests"] for row in rows] == ["1234"]
            assert rows[0]["key_name"] == ("" if page == "/console" else "'=cmd()")
            file = await anna.get(f"{page}?{html.unescape(found)}&format=json")
            assert json.loads(file.text)["requests"] == 1_234


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("from=soon", "From: found &#39;soon&#39;, expected a date such as 2026-07-01, in UTC"),
        ("from=2026-07-02&to=2026-07-02", "To: found 2026-07-02, expected a date after from"),
        ("to=2026-07-02", "From: found nothing, with to, expected a date"),
        ("window=99d", "Window: found &#39;99d&#39;, expected one of 1h, 24h, 7d, 30d"),
    ],
)
async def test_dates_that_cannot_be_read(anna: Browser, query: str, fault: str) -> None:
    """The page says why, and shows the last day. There is no file: it would be of other dates."""
    for form in ("", "&format=csv", "&format=json"):
        answer = await anna.get(f"/console?{query}{form}")
        assert "Content-Disposition" not in answer.headers
        assert fault in answer.text
        assert ", last 24 hours" in answer.text or "Requests appear here" in answer.text


async def test_the_busiest_keys_of_a_year_are_not_known(anna: Browser) -> None:
    """They are kept for a month; the rest of the page is shown."""
    assert "kept for 30 days" in (await anna.get("/console?from=2026-01-01&to=2026-12-31")).text


async def test_a_file_of_no_account(anna: Browser) -> None:
    assert (await anna.get("/console/accounts/nobody?format=csv")).status == 404
