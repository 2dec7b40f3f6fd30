"""The numbers that docs/webhooks.md promises are those of the program."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from gateway.domain.webhooks import id_headers, schedule
from gateway.domain.webhooks.events import MOST_EVENT
from gateway.domain.webhooks.settings import WebhookSettings
from gateway.domain.webhooks.signatures import TOLERANCE_S, sign
from gateway.domain.webhooks.watches import MOST_PATTERNS, MOST_WATCHES, OVERLAP_US
from gateway.manage.deliveries import MOST_REPLAY
from gateway.stores.webhooks import queue
from gateway.stores.webhooks.budget import MOST_SHARE
from gateway.webhooks import bodies, changes, courier, listener, turns
from gateway.webhooks.endpoint import MOST_READ
from gateway.webhooks.requests import BODY_S, DEFAULT_LIMIT, MOST_BODY, MOST_LIMIT
from gateway.webhooks.sender import CONNECT_S, TOTAL_S
from gateway.webhooks.tester import MOST_OF_ACCOUNT, MOST_TESTS
from tests.docs.pages import ROOT, page
from tests.kit.rows import each_row

_KIB, _MIB = 1024, 1024**2
_DAY_S, _HOUR_S = 86_400, 3_600
_WORDS = {1: "a", 4: "four", 5: "five", 6: "six", 8: "eight", 10: "ten", 16: "sixteen"}
#: A share, in words.
_SHARES = {0.25: "a quarter"}


def in_lua(file: str, pattern: str) -> int:
    """A number that only a script has."""
    text = (ROOT / "gateway/stores/webhooks/lua" / file).read_text()
    found = re.search(pattern, text)
    assert found is not None, pattern
    return int(found[1])


def steps() -> str:
    """The waits before each attempt."""
    seconds, minutes = schedule.STEPS_S[1], [each // 60 for each in schedule.STEPS_S[2:4]]
    *hours, last = (each // _HOUR_S for each in schedule.STEPS_S[4:])
    return (
        f"at once, after {seconds} s, {minutes[0]} min, {minutes[1]} min, and then "
        f"{', '.join(map(str, hours))} and {last} h, each \u00b1{schedule.JITTER:.0%}"
    ).replace("%", " %")


SLOW_MS = in_lua("common.lua", r"health\.ms\) or 0\) <= (\d+)")
AGAIN = in_lua("common.lua", r"MOST_AGAIN = (\d+)")
SLACK_US = in_lua("common.lua", r"SLACK = (\d+)")
SEEN = in_lua("accept.lua", r"MOST_SEEN = (\d+)")
PROMISED, WATCH = "What is promised", "A watch"
PHRASES = [
    (PROMISED, f"for {queue.SEEN_S // _DAY_S} days, or until {SEEN:,} newer"),
    (PROMISED, f"a {_WORDS[queue.SHARDS]}th of the integrations"),
    (PROMISED, steps()),
    (PROMISED, f"honoured up to {schedule.MOST_WAIT_S // _HOUR_S} h"),
    (
        PROMISED,
        f"After {_WORDS[len(schedule.STEPS_S)]} attempts or "
        f"{_WORDS[schedule.EXPIRY_S // _DAY_S]} days a delivery is a dead letter",
    ),
    (PROMISED, f"An attempt has {TOTAL_S:g} s, of which a connection may take {CONNECT_S:g} s"),
    (PROMISED, f"up to {MOST_READ // _KIB} KiB of it"),
    (
        PROMISED,
        f"after {_WORDS[schedule.SILENT_ATTEMPTS]} attempts over "
        f"{_WORDS[schedule.SILENT_S // _DAY_S]} days without a success",
    ),
    (PROMISED, f"at most {_WORDS[WebhookSettings().per_watch]} deliveries are in flight"),
    (PROMISED, f"slow (above {SLOW_MS // 1000} s on average)"),
    (PROMISED, f"share {_SHARES[courier.OTHERS]} of a courier's slots"),
    (PROMISED, f"longer than {_WORDS[int(courier.GIVES_BACK_S)]} second gives its slot"),
    (
        PROMISED,
        f"over the period and {SLACK_US // 1000} ms: at `10/second` one begins each "
        f"{(1_000_000 + SLACK_US) // 10_000} ms",
    ),
    (PROMISED, f"after {_WORDS[schedule.FAILURES]} failures in a row"),
    (
        PROMISED,
        f"after {schedule.PROBE_S:g} s and up to {schedule.MOST_PROBE_S / 60:g} minutes",
    ),
    (PROMISED, f"of one account take {_SHARES[MOST_SHARE]} of it"),
    (PROMISED, f"being received have {bodies.MOST_CAPTURED // _MIB} MiB"),
    (PROMISED, f"counts as {bodies.LEAST // _KIB} KiB at least"),
    (PROMISED, f"of customers have {bodies.MOST_ASKED // _MIB} MiB"),
    (PROMISED, f"end after {listener.STRANGER_S:g} seconds"),
    (PROMISED, f"Beyond {listener.MOST_STRANGERS} of them"),
    ("What is captured", f"takes more than {BODY_S:g} seconds"),
    ("Receive webhooks", f"may be {TOLERANCE_S} s from"),
    (WATCH, f"has 1 to {MOST_PATTERNS} types"),
    (WATCH, f"at most {MOST_WATCHES} watches"),
    ("Lists", f"1 to {MOST_LIMIT} (default {DEFAULT_LIMIT})"),
    (
        "Lists",
        f"serves {_WORDS[turns.OF_ACCOUNT]} requests at once, beside tests; "
        f"{turns.MOST_OF_ACCOUNT - turns.OF_ACCOUNT} more wait",
    ),
    ("Lists", f"next {queue.LOOKED_AT} entries"),
    ("Send again", f"One replay sends {MOST_REPLAY:,} events at most"),
    ("Send again", f"again {AGAIN} times at most"),
    (
        "Test a watch",
        f"{_WORDS[MOST_TESTS]} tests at a time, {_WORDS[MOST_OF_ACCOUNT]} of one account",
    ),
    ("Errors of the API", f"at most {MOST_BODY // _KIB} KiB"),
    ("Change and remove", f"for {OVERLAP_US // (_HOUR_S * 1_000_000)} hours both secrets sign"),
]


@each_row(("heading", "phrase"), PHRASES)
def test_numbers(heading: str, phrase: str) -> None:
    """A number that changes needs another sentence."""
    assert phrase in " ".join(page("docs/webhooks.md").section(heading).split())


def test_numbers_of_other_pages() -> None:
    """The defaults of settings, and the bound of the log of customers."""
    settings = " ".join(page("docs/policies.md").section("webhooks").split())
    defaults = WebhookSettings()
    for name, default in (
        ("slots", f"{defaults.slots}"),
        ("per_watch", f"{defaults.per_watch}"),
        ("budget", f"{defaults.budget_bytes // _MIB}MiB"),
        ("spool", f"{defaults.spool_bytes // _MIB}MiB"),
        ("max_event", f"{MOST_EVENT // _MIB}MiB"),
    ):
        assert re.search(rf"`webhooks\.{name}` \| [^|]+ \| `{default}`", settings), name
    log = " ".join(page("docs/admin.md").section("Audit log").split())
    assert f"at most {changes.MOST_AN_HOUR} entries an hour" in log


def test_numbers_of_kinds() -> None:
    """The bounds of a header with the id of a webhook, and how long its signature lasts."""
    text = " ".join(page("docs/webhooks-kinds.md").section("Any other").split())
    assert f"up to {id_headers.MOST_NAME} characters" in text
    assert f"1 to {id_headers.MOST_VALUE} visible ASCII characters" in text
    assert f"the {TOLERANCE_S} s of its timestamp" in text


def test_receivers() -> None:
    """Both ways to verify, as the page has them, accept what is delivered and nothing else."""
    names: dict[str, Any] = {"secret": "whsec_" + "QUJD" * 8, "queue": []}
    for example in page("docs/webhooks.md").examples("python"):
        if "def receive" in example.text or "def is_genuine" in example.text:
            exec(compile(example.text, example.where, "exec"), names)
    body = json.dumps(
        {
            "id": "evt_1",
            "type": "pull_request.opened",
            "created": "2026-11-23T16:43:58.446Z",
            "integration": {"id": "int_1", "provider": "github", "name": "Code"},
            "data": {},
        }
    ).encode()
    headers = sign(body, [names["secret"]], event_id="evt_1", now_s=int(time.time()))
    assert names["receive"](body, headers) == 202
    assert [event.id for event in names["queue"]] == ["evt_1"]
    assert names["is_genuine"](names["secret"], body, headers)
    assert names["receive"](body + b" ", headers) == 401
    assert not names["is_genuine"](names["secret"], body + b" ", headers)
