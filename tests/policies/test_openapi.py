"""OpenAPI documents: what is read of them, and what cannot be used, however large or odd."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.policies import openapi
from gateway.policies.openapi import Document, Operation, Unusable, read_openapi

PETS: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Pets"},
    "servers": [{"url": "https://api.example.com/v1/"}],
    "security": [{"key": []}],
    "tags": [{"name": "pets", "description": "All pets"}],
    "paths": {
        "/pets": {
            "parameters": [],
            "get": {"operationId": "list", "tags": ["pets", "x"], "security": []},
            "post": {"security": [{}, {"key": []}]},
        },
        "x-more": {"get": {}},
    },
}


def read(folder: Path, document: object, *, form: str = "json") -> Document:
    path = folder / "openapi"
    if isinstance(document, bytes):
        path.write_bytes(document)
    else:
        path.write_text(json.dumps(document) if form == "json" else yaml.safe_dump(document))
    return read_openapi(path)


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_document(tmp_path: Path, form: str) -> None:
    """Methods and paths with the server's base path, names, first tags; public is `[]` alone."""
    assert read(tmp_path, PETS, form=form) == Document(
        "Pets",
        "https://api.example.com/v1/",
        {"pets": "All pets"},
        (
            Operation("GET", "/v1/pets", "list", "pets", True),
            Operation("POST", "/v1/pets", "", "", False),
        ),
        (),
    )


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"servers": []}, "/pets"),
        ({"servers": [{"url": "/"}]}, "/pets"),
        ({"servers": [{"url": "/a/b"}]}, "/a/b/pets"),
        (
            {
                "servers": [
                    {
                        "url": "{s}://h/{b}",
                        "variables": {"s": {"default": "http"}, "b": {"default": "v2"}},
                    }
                ]
            },
            "/v2/pets",
        ),
        ({"openapi": None, "swagger": "2.0", "basePath": "/v3", "host": "h"}, "/v3/pets"),
        ({"openapi": None, "swagger": "2.0"}, "/pets"),
    ],
)
def test_base_paths(tmp_path: Path, change: dict[str, Any], path: str) -> None:
    """Of OpenAPI 3 and Swagger 2, with the defaults of variables."""
    document = {name: value for name, value in {**PETS, **change}.items() if value is not None}
    assert read(tmp_path, document).operations[0].path == path


def test_references(tmp_path: Path) -> None:
    """A path may refer to another within the document; all others are skipped with the reason."""
    paths = {
        **PETS["paths"],
        "/a": {"$ref": "#/paths/~1pets"},
        "/b": {"$ref": "#/paths/~1b"},
        "/c": {"$ref": "other.yaml#/x"},
        "/d": {"$ref": "#/no/where"},
        "/e": 7,
        "no-slash": {"get": {}},
    }
    found = read(tmp_path, {**PETS, "paths": paths})
    assert [each.path for each in found.operations if each.method == "GET"] == ["/v1/pets", "/v1/a"]
    assert [path for path, _ in found.skipped] == ["/b", "/c", "/d", "/e", "no-slash"]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (b"", "found no object, expected an OpenAPI document"),
        (b"[]", "found no object"),
        (b"{}", "found no version, expected openapi: 3.x or swagger: 2.0"),
        (b"{", "found invalid JSON"),
        (b"a: b: c", "line 1: found invalid YAML"),
        (b"a: \xff", "found the byte 0xff, expected UTF-8"),
        ({**PETS, "openapi": "4.0.0"}, 'found version "4.0.0"'),
        ({"swagger": "1.2", "paths": PETS["paths"]}, 'found version "1.2"'),
        ({**PETS, "paths": {}}, "found no paths"),
        ({**PETS, "paths": {"/x": {}}}, "found no operation below paths"),
        ({**PETS, "servers": [{"url": "http://[x/"}]}, "found the server"),
        (
            b'{"openapi": ' + b"[" * 100_000,
            "found 101 levels of arrays and objects at byte 112",
        ),
        (b"openapi:\n  " + b"[" * 100_000, "line 2: found more than 100 levels"),
        (b"[" * 100_000, "line 1: found more than 100 levels"),
        (b"- " * 100_000, "line 1: found more than 100 levels"),
    ],
)
def test_unusable(tmp_path: Path, document: object, words: str) -> None:
    """What was found, and what was expected."""
    with pytest.raises(Unusable, match=words):
        read(tmp_path, document)


def test_any_types(tmp_path: Path) -> None:
    """Values of other types than expected are as if they were not there."""
    for odd in (None, 7, "x", [], {}, [None], [7]):
        document = {**PETS, **dict.fromkeys(("info", "servers", "tags"), odd)}
        operation = {"operationId": odd, "tags": odd, "security": odd}
        document["paths"] = {"/x": {"get": operation, "put": odd}}
        assert read(tmp_path, document).operations[0].method == "GET"


def test_expanding_yaml(tmp_path: Path) -> None:
    """Aliases take no memory, an anchor may contain itself, and values have a bound."""
    lines = ["openapi: 3.0.0", "paths: {/a: {get: {}}}", "x0: &x0 [1, 2]"]
    lines += [f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 10)}]" for n in range(1, 40)]
    lines += ["self: &self [*self]", "? {a: b}\n: c", "[1]: {x: y}"]
    assert len(read(tmp_path, "\n".join(lines).encode()).operations) == 1


def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of a file, the values of YAML, and the number of operations."""
    many = {f"/p{n}": {"get": {}} for n in range(openapi.MOST_OPERATIONS + 1)}
    with pytest.raises(Unusable, match="found more than 10,000 operations"):
        read(tmp_path, {**PETS, "paths": many})
    monkeypatch.setattr(openapi, "_MOST_VALUES", 10)
    with pytest.raises(Unusable, match="found more than 10 values"):
        read(tmp_path, PETS, form="yaml")
    monkeypatch.setattr(openapi, "MOST_BYTES", 10)
    with pytest.raises(OSError):
        read(tmp_path, PETS)
