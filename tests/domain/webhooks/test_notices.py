"""Notices as values: what they say, what they are named by, and how they are read."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.warnings import LimitWarning, values_of
from gateway.domain.webhooks.event_types import is_type
from gateway.domain.webhooks.events import Integration
from gateway.domain.webhooks.notices import (
    LIMIT_NEAR,
    LIMIT_REACHED,
    MOST_BYTES,
    WATCH_DISABLED,
    Disabled,
    disabled_notice,
    event_of,
    has_notices,
    limit_notice,
    read_disabled,
    read_warning,
)
from tests.kit.rows import each_row

TYPE_OF = {each.name: each.type for each in fields(LimitWarning)}
AT = 1_800_000_000_250_000
COUNTER = "gw:limit:{acme}:key:7h3k9m2p4q6r:search:rate:60000000"
WARNING = LimitWarning(
    *(COUNTER, 80, "search", "free", "7h3k9m2p4q6r", AT, 60_000_000),
    account="acme",
    per="key",
    amount=300,
    used=241,
    window_us=60_000_000,
    resets_us=AT + 48_000_000,
    window=30_000_000,
)
INTEGRATION = Integration("int_1", "acme", "gateway", "Our limits", 1)
NOTICE = limit_notice(WARNING)
DISABLED = Disabled("int_2", "wat_1", "it answered 410 Gone", AT)


def test_a_limit() -> None:
    """What a customer needs; no name of the store."""
    event = event_of(INTEGRATION, NOTICE)
    assert event.type == "limit.near"
    assert json.loads(event.body) == {
        "id": event.id,
        "type": "limit.near",
        "created": "2027-01-15T08:00:00.250Z",
        "integration": {"id": "int_1", "provider": "gateway", "name": "Our limits"},
        "data": {
            "account": "acme",
            "limit": "search",
            "level": 80,
            "per": "key",
            "key_id": "7h3k9m2p4q6r",
            "plan": "free",
            "amount": 300,
            "used": 241,
            "used_percent": 80,
            "window_seconds": 60,
            "resets": "2027-01-15T08:00:48.250Z",
        },
    }
    assert b"gw:" not in event.body
    assert limit_notice(replace(WARNING, level=100)).type == "limit.reached"


def test_a_watch() -> None:
    """Which one, of whom, where and why."""
    integration = Integration("int_2", "acme", "github", "Code", 1, "c" * 32, "sealed")
    event = event_of(INTEGRATION, disabled_notice(DISABLED, integration, "hook.example"))
    assert json.loads(event.body)["data"] == {
        "account": "acme",
        "watch_id": "wat_1",
        "integration_id": "int_2",
        "provider": "github",
        "host": "hook.example",
        "reason": "it answered 410 Gone",
    }
    assert event.type == "watch.disabled"


def test_as_documented() -> None:
    """The events in the documents have the same fields."""
    text = (Path(__file__).parents[3] / "docs/webhooks.md").read_text()
    blocks = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    documented = {each["type"]: each for each in map(json.loads, blocks) if "type" in each}
    for notice in (NOTICE, disabled_notice(DISABLED, INTEGRATION, "h")):
        shown, made = documented[notice.type], json.loads(event_of(INTEGRATION, notice).body)
        for part in ("integration", "data"):
            assert shown.pop(part).keys() == made.pop(part).keys()
        assert shown.keys() == made.keys()


def test_types() -> None:
    """Watches can choose them."""
    assert all(map(is_type, (LIMIT_NEAR, LIMIT_REACHED, WATCH_DISABLED)))


#: Fields of a warning which name its notice, and their other values.
NAMING = {"account": "other", "limit": "x", "counter": "gw:x", "level": 100, "window": 1}


@pytest.mark.parametrize("field", [each.name for each in fields(LimitWarning)])
def test_what_a_notice_is_named_by(field: str) -> None:
    """Account, limit, counter, level and window: workers that warn of the same make one event."""
    value = NAMING.get(field, "7" if isinstance(getattr(WARNING, field), str) else 7)
    other = limit_notice(replace(WARNING, **{field: value}))
    ids = {event_of(INTEGRATION, each).id for each in (NOTICE, other)}
    assert len(ids) == (2 if field in NAMING else 1)


def test_disabled_again() -> None:
    """Another time is another event, and each integration has its own."""
    of = replace(INTEGRATION, id="int_2")
    again = replace(DISABLED, at_us=AT + 1)
    ids = {
        event_of(to, disabled_notice(each, of, "h")).id
        for to in (INTEGRATION, replace(INTEGRATION, id="int_3"))
        for each in (DISABLED, again)
    }
    assert len(ids) == 4


def test_one_an_account() -> None:
    """Of the kind `gateway`."""
    others = [replace(INTEGRATION, kind="operator"), replace(INTEGRATION, account="other")]
    assert not has_notices("acme", others)
    assert has_notices("acme", [*others, INTEGRATION])


TEXTS = st.text(max_size=20)


@given(
    st.builds(
        LimitWarning,
        *(TEXTS if each == "str" else st.integers(0, 2**50) for each in TYPE_OF.values()),
    )
)
def test_written_and_read(warning: LimitWarning) -> None:
    """As texts, as a script writes it."""
    written = json.dumps(list(map(str, values_of(warning)))).encode()
    assert read_warning(written) == warning
    event_of(INTEGRATION, limit_notice(warning))


GOOD = list(map(str, values_of(WARNING)))


@each_row(
    "content",
    [
        *(b"", b"{}", b"1", b"[]", b"\xff", b"[" * 100_000),
        json.dumps(GOOD[:-1]).encode(),
        json.dumps([*GOOD, "1"]).encode(),
        json.dumps([*GOOD[:2], "x" * MOST_BYTES, *GOOD[3:]]).encode(),
        *(
            json.dumps([*GOOD[:at], bad, *GOOD[at + 1 :]]).encode()
            for at, kind in enumerate(TYPE_OF.values())
            for bad in [
                None,
                1,
                [],
                *(["", "-1", "1.5", "\u0666", "9" * 20, "9" * 5_000] * (kind == "int")),
            ]
        ),
    ],
)
def test_what_is_not_ours(content: bytes) -> None:
    """It is no warning, and nothing is raised."""
    assert read_warning(json.dumps(GOOD).encode()) == WARNING
    assert read_warning(content) is None


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{}", b"1", b"\xff", b"[" * 100_000, b'["a","b","c"]', b'["a","b","c",1]'),
        *(b'["a","b","c","-1"]', b'["a","b","c","1e3"]', b'["a","b","c",""]'),
        *(b'["a","b",null,"1"]', b'["a","b","c","\\u0666"]', b'["a","b","c","%s"]' % (b"9" * 5000)),
        b'["a","b","%s","1"]' % (b"x" * MOST_BYTES),
    ],
)
def test_what_is_no_disabled_watch(content: bytes) -> None:
    assert read_disabled(b'["a","b","c","1"]') == Disabled("a", "b", "c", 1)
    assert read_disabled(content) is None
