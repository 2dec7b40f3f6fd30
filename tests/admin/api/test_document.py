"""The OpenAPI document: complete, valid, and with exactly the operations that are served."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gateway.admin.api.operations import BASE
from gateway.admin.api.reading import read_value
from gateway.admin.api.routes import OPERATIONS, document
from gateway.admin.api.schemas import SCHEMAS
from tests.kit.admin import AdminScene
from tests.kit.rows import each_row

DOCUMENT = document()


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object within the value."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            yield from objects(each)


async def test_it_is_served_as_it_is_built(tmp_path: Path) -> None:
    """Only with the token."""
    async with AdminScene(tmp_path) as scene:
        answer = await scene.ask("GET", "/openapi.json")
        assert answer.json == json.loads(json.dumps(DOCUMENT))
        assert (await scene.ask("GET", "/openapi.json", token=None)).status == 401


async def test_it_lists_exactly_the_served_operations(tmp_path: Path) -> None:
    """Routes and document are built from one table; no other route is served."""
    async with AdminScene(tmp_path) as scene:
        served = {
            (route.method, route.resource.canonical)
            for route in scene.server._runner.app.router.routes()
            if route.resource is not None and route.resource.canonical.startswith("/admin")
        }
    described = {
        (method.upper(), BASE + path)
        for path, methods in DOCUMENT["paths"].items()
        for method in methods
    }
    assert served - {("HEAD", path) for _, path in served} == described


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Transfer-Encoding": "8z$V"}, 400),
        ({"Expect": "nothing"}, 417),
        ({f"X-{number}": "x" * 8_000 for number in range(5)}, 431),
    ],
)
async def test_refusals_of_heads_are_described(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    """For every operation, as a client may send such a head with any of them."""
    async with AdminScene(tmp_path) as scene:
        answer = await scene.ask("GET", "/usage/routes", headers=headers)
    assert answer.status == status
    for methods in DOCUMENT["paths"].values():
        assert all(str(status) in operation["responses"] for operation in methods.values())


def test_every_schema_is_valid() -> None:
    """JSON Schema 2020-12, which OpenAPI 3.1 uses; every reference has a target."""
    for schema in SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    for found in objects(DOCUMENT):
        if isinstance(reference := found.get("$ref"), str):
            assert reference.removeprefix("#/components/schemas/") in SCHEMAS


def test_every_schema_is_used() -> None:
    """Every schema is that of a request or a response."""
    used = {str(found["$ref"]).rpartition("/")[2] for found in objects(DOCUMENT) if "$ref" in found}
    assert used == set(SCHEMAS)


def test_every_example_is_valid() -> None:
    """Each is valid by its schema."""
    count = 0
    for found in objects(DOCUMENT["components"]):
        for example in found.get("examples", ()) if "type" in found or "enum" in found else ():
            schema = {**found, "components": DOCUMENT["components"]}
            jsonschema.Draft202012Validator(schema).validate(example)
            count += 1
    assert count > 50


@each_row("operation", OPERATIONS)
def test_an_operation_is_described(operation: Any) -> None:
    """With a summary, a unique name, and a parameter for each name in its path."""
    assert len([each for each in OPERATIONS if each.name == operation.name]) == 1
    assert operation.tag in {tag["name"] for tag in DOCUMENT["tags"]}
    assert operation.summary
    assert not operation.summary.endswith(".")
    assert operation.description == "" or operation.description.endswith(".")
    names = {one.name for one in operation.parameters if one.where == "path"}
    assert names == set(re.findall(r"{(\w+)}", operation.path))
    for one in operation.parameters:
        assert one.description.endswith(".")
        assert one.required or one.where != "path"
        for example in filter(None, (one.schema.get("example"), one.schema.get("default"))):
            assert read_value(one.schema, str(example)) == example


def test_bodies_have_no_unknown_fields() -> None:
    """A mistyped field is never silently ignored."""
    names = {each.body.schema for each in OPERATIONS if each.body is not None}
    assert len(names) > 5
    assert [name for name in names if SCHEMAS[name]["additionalProperties"] is not False] == []


def test_every_operation_requires_the_token() -> None:
    """Every operation requires the token."""
    assert DOCUMENT["security"] == [{"adminToken": []}]
    assert not any("security" in found for found in objects(DOCUMENT["paths"]))
