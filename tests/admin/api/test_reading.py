"""How a request is parsed: parameters by their schemas, and a body that is a JSON object."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.admin.api.reading import read_value
from tests.kit.admin import AdminScene

COUNT = {"type": "integer", "minimum": 1, "maximum": 200}


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[AdminScene]:
    async with AdminScene(tmp_path) as scene:
        yield scene


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        (COUNT, "1", 1),
        (COUNT, "200", 200),
        (COUNT, "0", None),
        (COUNT, "201", None),
        (COUNT, "-1", None),
        (COUNT, "+1", None),
        (COUNT, "01", None),
        (COUNT, "1.0", None),
        (COUNT, "1_0", None),
        (COUNT, " 1", None),
        (COUNT, "٣", None),
        (COUNT, "9" * 5_000, None),
        (COUNT, "", None),
        ({"type": "string"}, "", ""),
        ({"type": "string", "maxLength": 2}, "ab", "ab"),
        ({"type": "string", "maxLength": 2}, "abc", None),
        ({"type": "string", "enum": ["a"]}, "a", "a"),
        ({"type": "string", "enum": ["a"]}, "b", None),
        ({"type": "string", "pattern": "^[a-z]+$"}, "abc", "abc"),
        ({"type": "string", "pattern": "^[a-z]+$"}, "abc\n", None),
        ({"type": "string", "pattern": "^[a-z]+$"}, "", None),
    ],
)
def test_a_text_is_read_by_its_schema(schema: dict[str, Any], text: str, value: object) -> None:
    """Anything that is not clearly valid is refused."""
    assert read_value(schema, text) == value


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 201),
        ("application/json; charset=utf-8", 201),
        ("Application/JSON", 201),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("application/jsonp", 415),
    ],
)
async def test_a_body_needs_its_content_type(
    scene: AdminScene, content_type: str, status: int
) -> None:
    """A content type that a form of another site can send is refused."""
    headers = {"Content-Type": content_type}
    body = b'{"name": "x", "plan": "free"}'
    answer = await scene.ask("POST", "/keys", data=body, headers=headers)
    assert answer.status == status, answer.json


@pytest.mark.parametrize(
    ("content_type", "found"),
    [
        ("text/plain; charset=utf-8", "the Content-Type text/plain"),
        ("application/json, text/plain", "a Content-Type that cannot be read"),
        ("application/json; a=(((", "a Content-Type that cannot be read"),
        ("application/json;a1=" + '"' * 8_000, "a Content-Type of 8020 characters, of at most 256"),
        ("application/json;a1=" + "(" * 8_000, "a Content-Type of 8020 characters, of at most 256"),
    ],
)
async def test_another_content_type_is_told(
    scene: AdminScene, content_type: str, found: str
) -> None:
    """The answer says what was found; what libraries take seconds for is not read."""
    begun_s = time.thread_time()
    answer = await scene.ask(
        "POST", "/keys", data=b'{"name": "x"}', headers={"Content-Type": content_type}
    )
    assert time.thread_time() - begun_s < 0.2
    assert (answer.status, answer.json["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE")
    assert answer.json["message"].endswith(f"'Content-Type: application/json'. Found {found}.")


async def test_a_body_that_is_too_deep(scene: AdminScene) -> None:
    """The answer says so, and where."""
    headers = {"Content-Type": "application/json"}
    answer = await scene.ask("POST", "/keys", data=b'{"name": %b' % (b"[" * 100), headers=headers)
    assert (answer.status, answer.json["code"]) == (400, "BODY_NOT_JSON")
    assert answer.json["message"].endswith(
        " Reason: found 101 levels of arrays and objects at byte 109, expected at most 100."
    )


async def test_a_missing_body_is_a_fault(scene: AdminScene) -> None:
    """Except for a rotation, which has only optional fields."""
    assert (await scene.ask("POST", "/keys")).json["code"] == "BODY_NOT_JSON"
    key = await scene.make_key()
    assert (await scene.ask("POST", f"/keys/{key['id']}/rotate")).status == 201


@pytest.mark.parametrize(
    ("query", "at"),
    [
        ("count=0", ["count"]),
        ("count=x&status=gone", ["status", "count"]),
        ("count=1&count=2", ["count"]),
        ("counts=1", ["query"]),
        ("a=1&b=2", ["query", "query"]),
        ("plan=", ["plan"]),
        ("text=" + "x" * 101, ["text"]),
    ],
)
async def test_all_faults_of_a_query_are_reported(
    scene: AdminScene, query: str, at: list[str]
) -> None:
    """An unknown parameter is a fault, too."""
    answer = await scene.ask("GET", f"/keys?{query}")
    assert answer.status == 422
    assert [fault["path"] for fault in answer.json["faults"]] == at
