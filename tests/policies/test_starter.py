"""A first policy folder: it loads, and each operation of a document is a route, or says why not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.cli.shipped import find_policies
from gateway.domain.policy import Policy
from gateway.policies.load import load
from gateway.policies.openapi import Document, Operation, Unusable
from gateway.policies.starter import build_starter, to_pattern
from tests.kit.reach import reached, reaches


def write(folder: Path, *operations: tuple[str, ...], **more: object) -> Policy:
    """The policy of a document with these operations: (pattern, name, tag, "public")."""
    read = []
    for match, *rest in operations:
        method, _, path = match.partition(" ")
        name, tag, access = (*rest, "", "", "")[:3]
        read.append(Operation(method, path, name, tag, access == "public"))
    fields = {"title": "", "server": "", "tags": {}, "skipped": (), **more}
    starter = build_starter(
        find_policies(), "http://h:9", Document(operations=tuple(read), **fields)
    )  # type: ignore[arg-type]
    folder.mkdir(exist_ok=True)
    for name, text in starter.files.items():
        (folder / name).write_text(text, "utf-8")
    return load(folder)


def patterns(policy: Policy) -> dict[str, str]:
    return {name: f"{route.pattern} {route.auth}" for name, route in policy.routes.items()}


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("/a/b", "/a/b"),
        ("/a/{id}", "/a/{id}"),
        ("/a/{id}.json", "/a/{id}"),
        ("/{a}...{b}/{a}/{}", "/{a}/{a_2}/{any}"),
        ("/{name=shelves}:go", "/{name_shelves}"),
        ("/{" + "x" * 99 + "}", "/{" + "x" * 48 + "}"),
    ],
)
def test_patterns(path: str, pattern: str) -> None:
    """A segment with a parameter is {name}; a * is none, as it would be a wildcard."""
    assert to_pattern(path) == pattern
    with pytest.raises(ValueError):
        to_pattern(path + "/*")


def test_one_route(tmp_path: Path) -> None:
    """Without a document all requests are forwarded, with the shipped plans and settings."""
    starter = build_starter(find_policies(), "http://h:9", None)
    for name, text in starter.files.items():
        (tmp_path / name).write_text(text)
    policy = load(tmp_path)
    assert patterns(policy) == {"api": "* /** key"}
    assert [server.authority for server in policy.upstreams["api"].servers] == ["h:9"]
    assert list(policy.upstreams) == ["api"]
    assert policy.plans == load(find_policies()).plans


def test_names(tmp_path: Path) -> None:
    """Readable and different; a limit's name, and words of YAML, are none."""
    names = ["list pets", "list-pets", "plan", "no", "..", "", "é", "gwk_" * 30, "x" * 200]
    policy = write(tmp_path, *((f"GET /{at}", name) for at, name in enumerate(names)))
    assert list(policy.routes)[:7] == [
        *("list-pets", "list-pets-2", "plan-2", "no", "route", "get-5", "route-2"),
    ]
    assert len(policy.routes) == len(names)


def test_access(tmp_path: Path) -> None:
    """A route is public if each operation that it matches is, and has no wider pattern."""
    policy = write(
        tmp_path,
        ("GET /in", "in", "", "public"),
        ("GET /a/{id}", "a", "", "public"),
        ("GET /a/{x}.json", "b"),
        ("GET /p/{x}.png", "png", "", "public"),
    )
    assert patterns(policy) == {
        "in": "GET /in none",
        "a": "GET /a/{id} key",
        "png": "GET /p/{x} key",
    }


def test_overlaps(tmp_path: Path) -> None:
    """Requests of two routes have a third one, which needs a key unless neither does."""
    policy = write(tmp_path, ("GET /a/{x}/c", "one"), ("GET /a/b/{y}", "two", "", "public"))
    assert patterns(policy)["one-or-two"] == "GET /a/b/c key"


def test_what_cannot_be_a_route(tmp_path: Path) -> None:
    """Comments have the paths and the reasons."""
    skipped = ["GET /health", "TRACE /x", "GET /a//b", "GET /a;b", "GET /" + "a/" * 70, "GET /A"]
    policy = write(tmp_path, ("GET /a",), *((match,) for match in skipped))
    assert len(policy.routes) == 1
    text = (tmp_path / "routes.yaml").read_text()
    listed = [line.split(": ")[1] for line in text.split("cannot be one:\n")[1].splitlines()]
    assert listed[0] == "the gateway answers this path itself"
    assert listed[1] == "TRACE is never forwarded"
    assert all(line.startswith("expected a path ") for line in listed[2:5])
    assert listed[5] == "the same requests as get-a"


def test_groups(tmp_path: Path) -> None:
    """By tag: in the document's order, then others, then what has no tag."""
    write(
        tmp_path,
        *(("GET /1", "", ""), ("GET /2", "", "new"), ("GET /3", "", "b"), ("GET /4", "", "a")),
        tags={"a": "First", "b": "x" * 200, "unused": ""},
        title="T\n# evil: yes",
        server="https://x",
    )
    text = (tmp_path / "routes.yaml").read_text()
    comments = [line for line in text.splitlines() if line.startswith("  # ")]
    assert comments[0] == "  # a: First"
    assert comments[1].startswith("  # b: xxx")
    assert comments[1].endswith("…")
    assert comments[2:4] == ["  # new", "  # Without a tag"]
    assert "# From the OpenAPI document of T # evil: yes.\n# It names the server https://x." in text


@pytest.mark.parametrize("tag", ["", " ", " shared"])
def test_a_tag_of_any_text(tmp_path: Path, tag: str) -> None:
    """It is no other group: each route is there once."""
    overlapping = ("GET /a/{x}/c", "one", tag), ("GET /a/b/{y}", "two", tag)
    policy = write(tmp_path, *overlapping, ("GET /d", "three", "x"), tags={tag: ""})
    assert sorted(policy.routes) == ["one", "one-or-two", "three", "two"]


def test_thousands_of_paths(tmp_path: Path) -> None:
    """5,000 paths with parameters are as many routes."""
    paths = [(f"GET /api/r{n}/{{id}}/sub", f"op{n}") for n in range(5_000)]
    assert len(write(tmp_path, *paths).routes) == 5_000


def test_too_many_overlaps(tmp_path: Path) -> None:
    """They are one error, with an example."""
    paths = [(f"GET /a{n}/{{x}}/c",) for n in range(30)]
    paths += [(f"GET /{{x}}/b{n}/c",) for n in range(30)]
    with pytest.raises(Unusable, match=r"found more than 500 overlaps such as GET /a\d+/"):
        write(tmp_path, *paths)


_segments = st.sampled_from(["a", "b", "{x}", "{y}.z", "A", "health"]) | st.text(max_size=6)
_operations = st.tuples(
    st.sampled_from(["GET", "HEAD", "POST"]),
    st.lists(_segments, max_size=4).map(lambda words: "/" + "/".join(words)),
    st.text(max_size=10),
    st.text(max_size=10),
    st.booleans(),
)


@reaches(0.2)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(_operations, min_size=1, max_size=12), st.text(max_size=50))
def test_any_document(
    tmp_path: Path, operations: list[tuple[str, str, str, str, bool]], text: str
) -> None:
    """Whatever names, paths and texts it has: the files load, unless no path can be a route."""
    read = tuple(Operation(*each) for each in operations)
    document = Document(text, text, {text: text}, read, ((text, text),))
    starter = build_starter(find_policies(), "http://h:9", document)
    if not starter.routes:
        return
    for name, content in starter.files.items():
        (tmp_path / name).write_text(content, "utf-8")
    reached()
    assert len(load(tmp_path).routes) == starter.routes
    assert json.loads(starter.files["policy.schema.json"])
