"""The command: what it sends, prints and exits with."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gateway_client.__main__ import main

from tests.client.scripted import (
    Got,
    Scripted,
    Step,
    answer,
    limited,
    limits,
    lost,
    refused,
    send,
)
from tests.client.shells import KEY, KEY_ID, SECRET, Clock
from tests.kit.wire import TIMEOUT_S

CLIENT = Path(__file__).parents[2] / "client"
CONNECTORS = answer(200, [{"id": "con_1"}], limits(60, 59, 61), x_request_id="ca63-1")
EVIL = "a\x1b]0;owned\x07\u202eb\r\x9bc"


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_API_KEY", KEY)
    monkeypatch.setenv("SERVICE_BASE_URL", "http://127.0.0.1:9")


class Run:
    """A run in this process: its status and output, and what the server got."""

    def __init__(
        self,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        arguments: list[str],
        steps: tuple[Step, ...],
    ) -> None:
        with Scripted(*steps) as server:
            monkeypatch.setenv("SERVICE_BASE_URL", server.url)
            try:
                self.status = main(arguments)
            except SystemExit as exit_:
                self.status = int(exit_.code or 0)
            self.got: list[Got] = server.got
        self.out, self.err = capsys.readouterr()
        assert SECRET not in self.out + self.err


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """`run("GET", "/v1/a", steps=[…])`"""

    def run(*arguments: str, steps: tuple[Step, ...] = ()) -> Run:
        return Run(capsys, monkeypatch, list(arguments), steps)

    return run


def test_an_answer(run: Any) -> None:
    """Its body goes to stdout, its status and limits to stderr; exit 0."""
    found = run("get", "/v1/connectors?page=2", steps=(CONNECTORS,))
    assert (found.status, found.out) == (0, '[\n  {\n    "id": "con_1"\n  }\n]\n')
    assert found.err == "200 Scripted, 59 of 60 remain, reset in 61 s, request ca63-1\n"
    assert (found.got[0].method, found.got[0].target) == ("GET", "/v1/connectors?page=2")
    assert found.got[0].all("content-type") == []


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (
            refused(403, "INSUFFICIENT_SCOPE", "It lacks a scope."),
            ["403 INSUFFICIENT_SCOPE, request ca63-1", "It lacks a scope."],
        ),
        (
            limited(40_000),
            [
                "429 rate_limit_exceeded, 0 of 60 remain, reset in 40000 s, request ca63-429",
                "Rate limit exceeded. (the wait would be 40000 s, longer than 120 s)",
            ],
        ),
        (
            refused(422, "INVALID", faults=[{"path": "url", "found": "\x1b[31m"}]),
            [
                "422 INVALID, request ca63-1",
                "No.",
                '{"path": "url", "found": "\\u001b[31m"}',
            ],
        ),
        (answer(500, b"<h1>"), ["500", "500 Scripted"]),
        (lost, ["POST /v1/a: ReadError: [Errno 104] Connection reset by peer"]),
    ],
)
def test_an_error(run: Any, step: Step, expected: list[str]) -> None:
    """It is told on stderr, nothing is on stdout; exit 1."""
    found = run("POST", "/v1/a", steps=(step,))
    assert (found.status, found.out) == (1, "")
    lines = found.err.splitlines()
    assert lines[:-1] == expected[:-1]
    assert lines[-1].startswith(expected[-1])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "the following arguments are required: METHOD, PATH"),
        (["GET"], "the following arguments are required: PATH"),
        (["GET", "v1/a"], "path: found 'v1/a', expected a path such as /v1/connectors"),
        (["GET", "https://evil.example/"], "path: found"),
        (["GET", "/v1/\x1b[31m"], "path: found '/v1/\\x1b[31m'"),
        (["GET", "/v1/a", "--header", "X-Team"], "--header: expected 'NAME: VALUE'"),
        (["GET", "/v1/a", "--header", ": blue"], "--header: expected 'NAME: VALUE'"),
        (["GET", "/v1/a", "--header", "X-Team: \x07"], "headers: X-Team has a control character"),
        (["GET", "/v1/a", "--header", "apiKey: x"], "the client sends its own key"),
        (["GET", "/v1/a", "--data", "@/no/such/file"], "No such file or directory"),
        (["GET", "/v1/a", "--nothing"], "unrecognized arguments: --nothing"),
    ],
)
def test_wrong_usage(run: Any, arguments: list[str], words: str) -> None:
    """Nothing is sent; exit 2, with the usage and what is wrong."""
    found = run(*arguments)
    assert (found.status, found.out, found.got) == (2, "", [])
    assert found.err.startswith("usage: python -m gateway_client")
    assert words in found.err
    assert "\x1b" not in found.err


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("SERVICE_API_KEY", "", "no API key: set SERVICE_API_KEY"),
        ("SERVICE_API_KEY", f"{KEY} {KEY}", "the API key has"),
        ("SERVICE_ENVIRONMENT", "development", "the key is of the environment 'production'"),
        ("SERVICE_RETRY_ATTEMPTS", "many", "SERVICE_RETRY_ATTEMPTS: found 'many'"),
    ],
)
def test_wrong_settings(
    run: Any, monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    """Nothing is sent; exit 2."""
    monkeypatch.setenv(name, value)
    found = run("GET", "/v1/a")
    assert (found.status, found.out, found.got) == (2, "", [])
    assert words in found.err


def test_help(run: Any) -> None:
    """With examples; exit 0."""
    found = run("--help")
    assert found.status == 0
    assert "python -m gateway_client GET /v1/connectors" in found.out


def test_data(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the command line, a file or stdin, byte by byte; JSON unless a header says otherwise."""
    (tmp_path / "body").write_bytes(b'{"a": "\xc3\xa9"}\n')
    stdin = io.TextIOWrapper(io.BytesIO(b"\x00\xff"))
    monkeypatch.setattr(sys, "stdin", stdin)
    ok = answer(200, {})
    sent = [
        run("POST", "/v1/a", "--data", '{"a": "é"}', steps=(ok,)).got[0],
        run("PUT", "/v1/a", "--data", f"@{tmp_path / 'body'}", steps=(ok,)).got[0],
        run("POST", "/v1/a", "--data", "@-", steps=(ok,)).got[0],
        run("POST", "/v1/a", "--data", "", steps=(ok,)).got[0],
    ]
    assert [got.body for got in sent] == [
        '{"a": "é"}'.encode(),
        b'{"a": "\xc3\xa9"}\n',
        b"\x00\xff",
        b"",
    ]
    assert {tuple(got.all("content-type")) for got in sent} == {("application/json",)}


def test_headers(run: Any) -> None:
    """They are sent, with the key, and one of them may be the type of the body."""
    words = ("--header", "content-type: text/csv", "--header", "X-Time:  10:30 ")
    (got,) = run("POST", "/v1/a", "--data", "a,b", *words, steps=(answer(200, {}),)).got
    assert (got.all("content-type"), got.all("x-time")) == (["text/csv"], ["10:30"])
    assert got.all("authorization") == [f"Bearer {KEY}"]


def test_patient(run: Any, clock: Clock) -> None:
    """With `--patient` it waits as a 429 says; without it, as the delays say."""
    assert run("GET", "/v1/a", "--patient", steps=(limited(61), CONNECTORS)).status == 0
    assert run("GET", "/v1/a", steps=(limited(61), CONNECTORS)).status == 0
    assert clock.waits == [61, 1]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_body_that_is_not_json(
    run: Any, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    """It is printed as it is; on a terminal, what could control it is shown as an escape."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    headers = {"Content-Type": "text/plain; charset=utf-8"}
    found = run("GET", "/v1/a", steps=(answer(200, f"{EVIL}\né".encode(), headers),))
    escaped = "a\\x1b]0;owned\\x07\\u202eb\\r\\x9bc"
    assert found.out == (f"{escaped}\né\n" if is_terminal else f"{EVIL}\né")


def test_an_answer_to_head(run: Any) -> None:
    """It has no body, and no line of one."""
    step = send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
    assert run("HEAD", "/v1/a", steps=(step,)).out == ""


def test_ctrl_c(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends without a traceback, with the status of shells."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gateway_client.client.Client.request", interrupted)
    found = run("GET", "/v1/a")
    assert (found.status, found.out, found.err) == (130, "", "")


def test_an_error_does_not_control_the_terminal(run: Any) -> None:
    """Nor do a status or an id that a server makes up."""
    step = answer(400, {"message": EVIL, "code": EVIL, "request_id": EVIL, "faults": [{"a": EVIL}]})
    found = run("GET", "/v1/a", steps=(step,))
    assert (found.status, found.out) == (1, "")
    assert not {"\x1b", "\x07", "\x9b", "\r", "\u202e"} & set(found.err)
    assert "a\\x1b]0;owned" in found.err


def test_json_is_printed_in_ascii(run: Any) -> None:
    """So no text in it controls a terminal."""
    found = run("GET", "/v1/a", steps=(answer(200, {"a": EVIL}),))
    assert found.out.isascii()
    assert "\x1b" not in found.out


def run_command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The command as users run it."""
    return subprocess.run(
        [sys.executable, "-m", "gateway_client", *arguments],
        env={**os.environ, "PYTHONPATH": str(CLIENT), "SERVICE_API_KEY": KEY, **environment},
        input=b'{"n": 1}',
        capture_output=True,
        timeout=TIMEOUT_S * 2,
        check=False,
    )


def test_the_command() -> None:
    """As a process: with its log, and without the key. What is not JSON comes byte for byte."""
    body = answer(200, "é→".encode(), {"Content-Type": "text/plain; charset=utf-8"})
    with Scripted(body) as server:
        settings = {"SERVICE_BASE_URL": server.url, "PYTHONIOENCODING": "latin-1"}
        log = {"SERVICE_LOG_LEVEL": "debug", "SERVICE_LOG_AUTH": "true"}
        done = run_command("POST", "/v1/a", "--data", "@-", **settings, **log)
        assert server.got[0].json() == {"n": 1}
    assert (done.returncode, done.stdout) == (0, "é→".encode())
    assert done.stderr.decode().splitlines() == [
        f"authenticates with the key {KEY_ID} of the environment production",
        "POST /v1/a: 200, request unknown",
        "200 Scripted",
    ]


def test_the_command_fails() -> None:
    """As a process: 1 for an error, 2 for wrong usage, without a traceback."""
    with Scripted(refused(404, "NOT_FOUND")) as server:
        failed = run_command("GET", "/v1/nowhere", SERVICE_BASE_URL=server.url)
    wrong = run_command("GET", "/v1/a", SERVICE_BASE_URL="http://api.example.com")
    assert [each.returncode for each in (failed, wrong)] == [1, 2]
    assert b"404 NOT_FOUND" in failed.stderr
    assert b"expected https://" in wrong.stderr
    assert b"Traceback" not in failed.stderr + wrong.stderr
