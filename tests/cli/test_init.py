"""`gateway init` writes policies that load, never over others, and says what to do next."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from gateway.cli.init import init
from gateway.cli.main import run
from gateway.policies.load import load
from gateway.policies.starter import FILES

DOCUMENT = {
    "openapi": "3.0.0",
    "servers": [{"url": "https://api.example.com/v1"}],
    "paths": {"/pets/{id}": {"get": {}}, "/in": {"post": {"security": []}}, "/a;b": {"get": {}}},
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "api.json").write_text(json.dumps(DOCUMENT))
    return tmp_path


def test_for_any_api(capsys: pytest.CaptureFixture[str]) -> None:
    """It asks nothing; the placeholder is named; the next commands are complete."""
    assert run(["init"]) == 0
    printed = capsys.readouterr().out
    first, *rest = printed.splitlines()
    assert first == f"wrote policies: {', '.join(FILES)}; 1 route"
    assert "  edit policies/upstreams.yaml: http://127.0.0.1:9000 is a placeholder" in rest
    assert list(load(Path("policies")).routes) == ["api"]
    assert run(["validate", "policies"]) == 0
    assert "gateway serve --policies policies" in printed
    assert "gateway keys create --policies policies --name first --plan free" in printed


def test_from_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    """Routes by its paths, in front of the named upstream."""
    assert run(["init", "my api", "--upstream", "https://h:8443", "--openapi", "api.json"]) == 0
    printed = capsys.readouterr().out
    policy = load(Path("my api"))
    assert [route.pattern for route in policy.routes.values()] == [
        "GET /v1/pets/{id}",
        "POST /v1/in",
    ]
    assert [server.authority for server in policy.upstreams["api"].servers] == ["h:8443"]
    assert "2 routes" in printed
    assert "1 path has no route; the end of routes.yaml says why" in printed
    assert "1 of the routes needs no key" in printed
    assert f"gateway validate {shlex.quote('my api')}" in printed
    assert "placeholder" not in printed


@pytest.mark.parametrize("name", [*FILES, "other.yaml"])
def test_nothing_is_overwritten(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder with any policy is left as it is."""
    Path("policies").mkdir()
    Path("policies", name).write_text("mine")
    assert run(["init"]) == 1
    assert f"found policies/{name}, expected a folder without policies" in capsys.readouterr().err
    assert [path.read_text() for path in Path("policies").iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--upstream", "h:80"], 2, "found 'h:80', expected an address such as http://127"),
        (["--upstream", "http://h/v1?x"], 2, "expected an address such as"),
        (["--openapi", "none"], 2, "does not exist"),
        (["--openapi", "odd"], 1, "odd: found no version, expected openapi: 3.x or swagger: 2.0"),
        (["--openapi", "steps"], 1, "steps: found paths of which a request would need 511 steps"),
        (["api.json"], 1, "api.json: Not a directory, expected a folder"),
        (["api.json/x"], 1, "Not a directory"),
    ],
)
def test_errors(
    words: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, and no folder."""
    Path("odd").write_text("{}")
    names = ["/".join("xa"[int(bit)] for bit in f"{number:08b}") for number in range(256)]
    paths = {f"/{name}".replace("x", "{x}"): {"get": {}} for name in names}
    Path("steps").write_text(json.dumps({"openapi": "3.0.0", "paths": paths}))
    assert run(["init", *words]) == status
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert not Path("policies").exists()


def test_what_the_loader_refuses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever it is: the first fault is the error, and nothing is written."""
    monkeypatch.setattr("gateway.policies.checks.MOST_STEPS", 1)
    assert run(["init", "--openapi", "api.json"]) == 1
    message = "api.json: its paths cannot be written as routes: routes: found routes that need"
    assert message in capsys.readouterr().err
    assert not Path("policies").exists()


def test_help() -> None:
    """It has an example, which is the shortest way."""
    assert "Example: gateway init --upstream" in (init.help or "")
