"""Webhooks that are made to cost much, or to fail: what holds for each kind."""

from __future__ import annotations

import hmac
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any, Final, cast

import pytest

from gateway.domain.json_text import MOST_LEVELS
from gateway.domain.webhooks.event_types import is_type
from gateway.domain.webhooks.events import Event, Integration, NotJson, captured
from gateway.domain.webhooks.kinds.gitea import GITEA
from gateway.domain.webhooks.kinds.kind import FORM, form_payload
from gateway.domain.webhooks.kinds.table import KINDS
from gateway.domain.webhooks.payload import MOST_ITEMS
from gateway.domain.webhooks.signatures import Unverified
from tests.domain.webhooks.kinds.cases import NOW, SECRET, Case, cases, of

PROVIDERS: Final = [name for name, kind in KINDS.items() if kind.captures]
#: What JSON can have, and few expect.
ODD: Final[tuple[Any, ...]] = (
    *(None, True, -0.0, -1, 1e300, float("inf"), float("-inf"), float("nan")),
    *(10**18, 10**400),
    *("", "\ud800", "9999-99-99T99:99:99Z", "0001-01-01T00:00:00+14:00", "²", "/rest/"),
    *([], {}, [None], [[]], {"newValue": []}, {"content": [{"content": 1}]}),
)
#: More than the steps that reading the longest list takes, and less than the elements of LONG.
MOST_STEPS: Final = 200_000
LONG: Final = (
    [0] * MOST_STEPS * 2,
    [{}] * MOST_STEPS * 2,
    [{"content": [{"content": [0] * 500}] * 500}] * 500,
)


def fixtures(name: str) -> list[Case]:
    return [each.values[0] for each in cases(name.replace("-", "_"))]


def places(payload: Any) -> Iterator[tuple[Any, Any]]:
    """Each container and key in it, at any depth."""
    found = payload.items() if isinstance(payload, dict) else enumerate(payload)
    for key, value in list(found):
        yield payload, key
        if isinstance(value, dict | list):
            yield from places(value)


def changed(payload: Any, values: tuple[Any, ...]) -> Iterator[Any]:
    """The payload, with one of these values in the place of each of its values in turn."""
    for container, key in places(payload):
        kept = container[key]
        for value in values:
            container[key] = value
            yield value
        container[key] = kept


def steps(run: Callable[[], object]) -> int:
    """How many lines of Python a call takes."""
    taken = 0

    def trace(_frame: FrameType, _event: str, _argument: Any) -> Any:
        nonlocal taken
        taken += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return taken


@pytest.mark.parametrize("name", PROVIDERS)
def test_odd_values(name: str) -> None:
    """Whatever value a field has, nothing is raised, and types and ids are texts."""
    kind = KINDS[name]
    for case in fixtures(name):
        header = of(case.headers)
        payload = json.loads(case.body)
        for value in changed(payload, ODD):
            found = kind.normalize(header, payload)
            assert not found.type or is_type(found.type), value
            assert isinstance(kind.delivery_id(header, payload), str), value


@pytest.mark.parametrize("name", PROVIDERS)
def test_long_lists(name: str) -> None:
    """Wherever a list is, only its first elements are read."""
    kind = KINDS[name]
    most = 0
    for case in fixtures(name):
        header = of(case.headers)
        payload = json.loads(case.body)
        for _ in changed(payload, LONG):
            most = max(most, steps(lambda: kind.normalize(header, payload)))  # noqa: B023
    assert most < MOST_STEPS


@pytest.mark.parametrize("name", PROVIDERS)
def test_many_keys(name: str) -> None:
    """Objects are asked for the keys that are known, and not read."""
    kind = KINDS[name]
    many = {str(each): 0 for each in range(1_000)}
    for case in fixtures(name):
        header = of(case.headers)
        payload = json.loads(case.body)
        few = steps(lambda: kind.normalize(header, payload))  # noqa: B023
        for container in [payload, *(box[key] for box, key in list(places(payload)))]:
            if isinstance(container, dict):
                container.update(many)
        assert steps(lambda: kind.normalize(header, payload)) < few + 100  # noqa: B023


@pytest.mark.parametrize("name", PROVIDERS)
@pytest.mark.parametrize("value", ["x", "v1=x", "sha256=00", "0" * 63, "v1,x", "é" * 64, "\udcff"])
def test_malformed_signatures(name: str, value: str) -> None:
    """They are refused before anything is done with the body."""

    def header(asked: str) -> str:
        return str(int(NOW)) if "timestamp" in asked else value

    with pytest.raises(Unverified):
        KINDS[name].verify(cast(bytes, None), header, [SECRET], NOW)


@pytest.mark.parametrize("name", PROVIDERS)
@pytest.mark.parametrize("text", ["%22", "%", "%2", "%zz", "%\r", "%%41", "+", "=", "&", "&a=%22"])
def test_forms_of_strangers(name: str, text: str) -> None:
    """A refusal takes as many steps for a long form as for a short one."""

    def header(asked: str) -> str:
        if asked == "content-type":
            return FORM
        if "timestamp" in asked:
            return "2026-11-23T17:00:00Z" if name == "zendesk" else str(int(NOW))
        return {"zendesk": "A" * 43 + "=", "generic": "v1=" + "0" * 64}.get(name, prefixed)

    def refuse(body: bytes) -> None:
        with pytest.raises(Unverified):
            KINDS[name].verify(body, header, [SECRET], NOW)

    for prefix in ("", "sha256=", "v1="):
        prefixed = prefix + "0" * 64
        taken = [steps(lambda: refuse(b"payload=" + text.encode() * n)) for n in (10, 10_000)]  # noqa: B023
        assert taken[1] < taken[0] + 500


def test_what_is_verified_is_what_is_read() -> None:
    """A form with escapes that are none is the same bytes to both."""
    for text in (b"%%22a%2", b"{}%", b"%\n{}", b"%zz", b"{%22a%22:1}%\r\n"):
        body = b"payload=" + text
        field = form_payload(of({"Content-Type": FORM}), body)
        assert field is not None
        mac = hmac.digest(SECRET.encode(), field, "sha256").hex()
        header = of({"Content-Type": FORM, "X-Gitea-Signature": mac})
        GITEA.verify(body, header, [SECRET], NOW)
        with suppress(ValueError):
            assert GITEA.read(header, body) == json.loads(field)


def test_bytes_of_forms() -> None:
    """Each byte is decoded as it was written, in either case, and + is a space."""
    every = bytes(range(256))
    for form in ("%%%02X", "%%%02x"):
        body = b"payload=" + "".join(form % each for each in every).encode()
        assert form_payload(of({"Content-Type": FORM}), body) == every
    assert form_payload(of({"Content-Type": FORM}), b"a=1&payload=a+b_%2B&payload=2") == b"a b_+"


def capture(kind: str, body: bytes) -> Event | None:
    """The event of a webhook of a kind that a token verifies."""
    integration = Integration("int_1", "acme", kind, "Theirs", created_us=1)
    header = of({"Authorization": SECRET})
    return captured(integration, body, header, [SECRET], 1)


@pytest.mark.parametrize("number", ["1" + "0" * 400, "1" + "0" * 5_000, "NaN", "1e400", "-1e400"])
def test_dates_that_are_none(number: str) -> None:
    """Each is an event without a date of its provider, or no JSON."""
    body = f'{{"type":"PUSH_ARTIFACT","occur_at":{number}}}'.encode()
    if len(number) > 4_300:
        with pytest.raises(NotJson):
            capture("harbor", body)
        return
    event = capture("harbor", body)
    assert event is not None
    assert json.loads(event.body)["created"] == "1970-01-01T00:00:00.000Z"


def test_depths() -> None:
    """A webhook has as many levels as any JSON, wherever they are."""
    for name in (b"a", b"event_data"):
        deep = b'{"type":"PUSH_ARTIFACT","%b":%b%b}'
        levels = MOST_LEVELS - 1
        assert capture("harbor", deep % (name, b"[" * levels, b"]" * levels)) is not None
        levels += 1
        with pytest.raises(NotJson, match="found 101 levels"):
            capture("harbor", deep % (name, b"[" * levels, b"]" * levels))


def test_most_versions() -> None:
    """As many of a package as elements of a list are read."""
    body = b'{"type":"PUSH_ARTIFACT","event_data":{"resources":[' + b"0," * 5_000 + b"0]}}"
    event = capture("harbor", body)
    assert event is not None
    assert len(json.loads(event.body)["data"]["versions"]) == MOST_ITEMS
