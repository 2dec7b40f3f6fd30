"""The log is JSON for files and text for terminals, and never contains a secret."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import logging
import re
import string
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.observe.access_fields import shown_path
from gateway.observe.logs import configure, redact, redact_path
from tests.kit.cost import cost
from tests.kit.rows import each_row

LOGGER = "gateway.test"


@pytest.fixture(autouse=True)
def _no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless a test wants them."""
    monkeypatch.setenv("NO_COLOR", "1")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def logged(log: Callable[[logging.Logger], None], stream: io.StringIO | None = None) -> str:
    """The output of a call at level debug, without pytest's handlers, which raise."""
    stream = stream or io.StringIO()
    root = logging.getLogger()
    others, root.handlers[:] = root.handlers[:], []
    try:
        configure("debug", stream)
        log(logging.getLogger(LOGGER))
    finally:
        root.handlers[:] = others
    return stream.getvalue()


def fail(text: object) -> None:
    raise RuntimeError(text)


# -- form ------------------------------------------------------------------------------------------


def test_a_file_gets_json_lines() -> None:
    """Time, level, logger, message, then the extra fields with their types."""
    extra = {"route": "search", "count": 3, "ratio": 0.5, "local": True, "none": None}
    line = json.loads(logged(lambda log: log.warning("over %d", 5, extra=extra)))
    at = line.pop("time")
    assert list(line) == ["level", "logger", "message", *extra]
    assert line == {"level": "warning", "logger": LOGGER, "message": "over 5", **extra}
    assert len(at) == len("2023-11-14T22:13:20.000Z")
    assert at.endswith("Z")


def test_other_values_become_text() -> None:
    """Other values are written as text; if __str__ fails, as the name of the type."""

    class Broken:
        def __str__(self) -> str:
            raise RuntimeError

    extra = {"nan": float("nan"), "tags": ["a"], "broken": Broken()}
    line = json.loads(logged(lambda log: log.info("x", extra=extra)))
    assert (line["nan"], line["tags"], line["broken"]) == ("nan", "['a']", "<Broken>")


def test_an_extra_field_cannot_pose_as_one_of_the_lines_own() -> None:
    """An extra field with the name of a fixed one is left out."""
    line = json.loads(logged(lambda log: log.info("x", extra={"level": "debug", "time": "never"})))
    assert line["level"] == "info"
    assert line["time"] != "never"


def test_a_terminal_gets_text() -> None:
    """Level, logger, message and fields as text."""
    text = logged(lambda log: log.info("over %d", 5, extra={"route": "search"}), Terminal())
    assert text.endswith(f"INFO    {LOGGER}: over 5  route=search\n")


@each_row("stream_type", [io.StringIO, Terminal])
def test_an_exception_is_logged_with_its_traceback(stream_type: type[io.StringIO]) -> None:
    """The traceback is in the log, in both formats."""

    def log(logger: logging.Logger) -> None:
        try:
            fail("broken pump")
        except RuntimeError:
            logger.exception("failed", stack_info=True)

    text = logged(log, stream_type())
    assert "RuntimeError: broken pump" in text
    assert "in fail" in text
    assert "Stack (most recent call last)" in text


def test_a_json_line_is_one_line_with_its_exception() -> None:
    """The traceback is a field, its line ends escaped."""

    def log(logger: logging.Logger) -> None:
        try:
            fail("broken pump")
        except RuntimeError:
            logger.exception("failed")

    (line,) = logged(log).splitlines()
    assert json.loads(line)["exception"].endswith("RuntimeError: broken pump")


@given(text=st.text())
@example(text="\x1b[2J\r\nINFO forged: line\x85\u2028\x00\x7f")
def test_nothing_logged_can_forge_a_line(text: str) -> None:
    """Line ends and terminal codes are escaped; a traceback's lines are indented."""

    def log(logger: logging.Logger) -> None:
        try:
            fail(text)
        except RuntimeError:
            logger.exception("got %s", text, extra={"field": text})

    (line,) = logged(log).splitlines()
    assert line.isprintable()
    first, *rest = logged(log, Terminal()).removesuffix("\n").split("\n")
    assert all(part.isprintable() for part in (first, *rest))
    assert rest
    assert all(part.startswith("    ") for part in rest)


def test_lower_levels_are_left_out() -> None:
    """At level warning, info is not written."""
    stream = io.StringIO()
    configure("warning", stream)
    logging.getLogger(LOGGER).info("quiet")
    logging.getLogger(LOGGER).warning("loud")
    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == ["loud"]


def test_an_unknown_level_is_refused() -> None:
    """The error names the level that was found and the valid ones."""
    with pytest.raises(ValueError, match="'loud': expected one of debug, info, warning, error"):
        configure("loud", io.StringIO())


def test_configured_twice_logs_once() -> None:
    """The later call replaces the earlier one; other handlers stay."""
    earlier, later, other = io.StringIO(), io.StringIO(), logging.NullHandler()
    logging.getLogger().addHandler(other)
    configure("info", earlier)
    configure("info", later)
    logging.getLogger(LOGGER).info("once")
    assert earlier.getvalue() == ""
    assert len(later.getvalue().splitlines()) == 1
    assert other in logging.getLogger().handlers


# -- secrets ---------------------------------------------------------------------------------------

SECRET = "s3cr3tS3CR3Ts3cr3tS3CR3Ts3cr3tS3CR3Tab"
KEY = f"gwk_production_7h3k9m2p4q6r_{SECRET}"


class Holder:
    """An object that shows a key."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"<Holder {self.text}>"


def log_with_exception(logger: logging.Logger, text: str) -> None:
    try:
        try:
            fail(text)
        except RuntimeError as cause:
            raise KeyError(text) from cause
    except KeyError as error:
        error.add_note(f"while at {text}")
        logger.exception("failed")


def log_stack(logger: logging.Logger, text: str) -> None:
    record = logger.makeRecord(LOGGER, logging.INFO, "f", 1, "stack", (), None)
    record.stack_info = f"Stack: {text}"
    logger.handle(record)


WAYS: dict[str, Callable[[logging.Logger, str], object]] = {
    "message": lambda log, key: log.info(key),
    "argument": lambda log, key: log.info("got %s", key),
    "representation": lambda log, key: log.info("got %r", key),
    "split over message and argument": lambda log, key: log.info("gwk_%s", key[4:]),
    "split over arguments": lambda log, key: log.info("%s%s", key[:20], key[20:]),
    "bytes": lambda log, key: log.info("got %s", key.encode()),
    "mapping argument": lambda log, key: log.info("got %(key)s", {"key": key}),
    "container": lambda log, key: log.info("got %s", [{"a": (key,)}]),
    "object": lambda log, key: log.info("got %s", Holder(key)),
    "object as message": lambda log, key: log.info(Holder(key)),
    "within a word": lambda log, key: log.info("xx%sxx", key),
    "url": lambda log, key: log.info("GET /search?key=%s&x=1", key),
    "encoded url": lambda log, key: log.info("GET /%s", key.replace("_", "%5F")),
    "extra field": lambda log, key: log.info("got", extra={"found": key}),
    "extra container": lambda log, key: log.info("got", extra={"found": {"a": [key]}}),
    "name of an extra field": lambda log, key: log.info("got", extra={key: 1}),
    "name of the logger": lambda log, key: log.getChild(key).info("got"),
    "exceptions": log_with_exception,
    "stack": log_stack,
    "too many arguments": lambda log, key: log.info("got", key),  # noqa: PLE1205
    "argument of the wrong type": lambda log, key: log.info("got %d", key),
    "too few arguments": lambda log, key: log.info("%s %s", key),  # noqa: PLE1206
    "debug": lambda log, key: log.debug("got %s", key),
    "another library's logger": lambda _, key: logging.getLogger("aiohttp").error(key),
}

base62 = st.text(string.ascii_letters + string.digits, min_size=38, max_size=38)
key_ids = st.text(string.ascii_lowercase + string.digits, min_size=12, max_size=12)
environments = st.sampled_from(["production", "development", "pre-prod", "eu.west", "test_2"])


@pytest.mark.parametrize("stream_type", [io.StringIO, Terminal])
@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=20)
@given(secret=base62, key_id=key_ids, environment=environments)
def test_a_key_never_appears(
    way: str,
    stream_type: type[io.StringIO],
    secret: str,
    key_id: str,
    environment: str,
) -> None:
    """However a key is logged, its secret part is neither in the log nor on standard error."""
    key = f"gwk_{environment}_{key_id}_{secret}"
    with contextlib.redirect_stderr(io.StringIO()) as stderr:
        text = logged(lambda log: WAYS[way](log, key), stream_type())
    assert secret not in text
    assert "gwk_[redacted]" in text
    assert stderr.getvalue() == ""


def test_a_log_that_cannot_be_written_does_not_spill_to_standard_error(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The error is not printed, and logging does not raise."""
    stream = io.StringIO()
    configure("info", stream)
    stream.close()
    logging.getLogger(LOGGER).info("got %s", KEY)
    assert "".join(capfd.readouterr()) == ""


HEADERS = ["Authorization", "authorization", "Proxy-Authorization", "apiKey", "APIKEY", "X-Api-Key"]
HEADERS += ["x-service-signature", "X-Service-Signature", "api_key"]
SHAPES = [
    "{name}: {value}",
    "{name}:{value}",
    "{name}={value}",
    "GET / HTTP/1.1\r\nHost: x\r\n{name}: {value}\r\n\r\n",
    "{{'{name}': '{value}', 'host': 'x'}}",
    '{{"{name}": "{value}", "host": "x"}}',
    "<CIMultiDict('Host': 'x', '{name}': '{value}')>",
    "[(b'{name}', b'{value}'), (b'host', b'x')]",
    "{{'{name}': ['{value}']}}",
    r'"{{\"{name}\": \"{value}\"}}"',
    "{{'{name}': 'it\\'s {value}'}}",
]
VALUES = [SECRET, f"Bearer {SECRET}", f"v1={SECRET}", f"Token, {SECRET}"]


@each_row(("shape", "name", "value"), itertools.product(SHAPES, HEADERS, VALUES))
def test_headers_that_carry_credentials_are_redacted(name: str, shape: str, value: str) -> None:
    """Any credential is redacted, in each form in which headers are logged."""
    text = redact(shape.format(name=name, value=value))
    assert SECRET not in text
    assert name in text


def test_text_after_a_quoted_header_is_kept() -> None:
    """Only the value is redacted."""
    assert redact("{'Authorization': 'Bearer abc', 'host': 'x'}") == (
        "{'Authorization': '[redacted]', 'host': 'x'}"
    )


@each_row("name", ["authorization", "apiKey", "x-service-signature"])
def test_fields_that_are_named_like_a_secret_are_redacted(name: str) -> None:
    """The whole value is redacted, whatever its type."""
    line = json.loads(logged(lambda log: log.info("got", extra={name: SECRET})))
    assert line[name] == "[redacted]"


def test_a_bearer_token_without_its_header_is_redacted() -> None:
    """A bearer token is recognised by the word before it."""
    assert redact(f"header Authorization Bearer {SECRET} sent") == (
        "header Authorization Bearer [redacted] sent"
    )


URLS = [
    ("redis://:hunter2@db:6379/0", "redis://:[redacted]@db:6379/0"),
    ("rediss://user:hunter2@db", "rediss://user:[redacted]@db"),
    ("redis+sentinel://u:hunt@er2@a:1,b:2/x", "redis+sentinel://u:[redacted]@a:1,b:2/x"),
    ("cannot reach redis://u:hu/nter2@db now", "cannot reach redis://u:[redacted]@db now"),
    ("redis://u:it's-hunter2@db", "redis://u:[redacted]@db"),
]
PLAIN = [
    "http://127.0.0.1:9000/path",
    "redis://db:6379/0",
    "route search: 5 refused, code=INVALID_API_KEY",
    "key 7h3k9m2p4q6r was revoked",
    "",
]


@each_row(("text", "expected"), URLS)
def test_the_password_of_a_url_is_redacted(text: str, expected: str) -> None:
    """Scheme, user and host stay, as they say what could not be reached."""
    assert redact(text) == expected


@each_row("text", PLAIN)
def test_ordinary_text_is_left_alone(text: str) -> None:
    """A URL with a port, a key's id and ordinary words are unchanged."""
    assert redact(text) == text


def test_a_long_password_is_redacted_too() -> None:
    """A password of any length is redacted, with a user's name of any length."""
    text = f"redis://{'u' * 5_000}:{'p@/' * 5_000}@db"
    assert redact(text) == f"redis://{'u' * 5_000}:[redacted]@db"


PIECES = [
    *("://", "://a:", "://:", "://u:p@", "://aaaaaaaa:bbbbbbbb", "gwk", "gwk_", "gwk%5f", "@"),
    *(
        "authorization",
        "authorization:",
        "authorization='",
        "authorization'=",
        "apikey",
        "apikey =",
    ),
    *("apikey' [", "apikey'=(", "x-service-signature\\", "bearer", "bearer ", "bearer\t"),
]
LONG = [
    *("apikey'" + " " * 8_000, "apikey'=" + "[" * 8_000, "apikey'='" + "\\" * 8_000),
    *("bearer" + " " * 8_000, "://" + "a" * 8_000, "://:" + "a" * 8_000),
]


@pytest.mark.parametrize("text", [(piece * 8_192)[:8_192] for piece in PIECES] + LONG)
def test_hostile_text_is_redacted_in_a_few_passes(text: str) -> None:
    """No text makes a pattern scan the same characters repeatedly."""
    one_pass = re.compile("authorization|apikey", re.IGNORECASE)
    plain = "GET /v1/connectors/abc?x=1 " * 304
    # It is 12 at most; a pattern that looked for the end of an address once each "://" took 125.
    assert cost(lambda: redact(text), lambda: one_pass.search(plain), 30) < 30


def test_a_path_is_redacted_a_segment_at_a_time() -> None:
    """A path has at most one replacement per segment, however many keys seem to be in it."""
    assert redact_path("/a" + "/" + "gwk_x:" * 1_000 + "/gwkx/" + "gwk%5fy" * 9) == (
        "/a/gwk_[redacted]/gwkx/gwk_[redacted]"
    )


@each_row("beginning", ["%67wk_", "GWK_", "g%57k%5F", "%2567wk%255f"])
def test_a_key_in_another_form_is_redacted(beginning: str) -> None:
    """Percent-encoded, or in capitals."""
    assert redact_path(f"/a/{beginning}x_{SECRET}/b") == "/a/gwk_[redacted]/b"
    assert redact(f"of {beginning}x_{SECRET}, and") == "of gwk_[redacted], and"


def test_types_of_fields_survive() -> None:
    """Numbers stay numbers."""
    values: dict[str, Any] = {"count": 2, "share": 1.5, "up": False}
    line = json.loads(logged(lambda log: log.info("x", extra=values)))
    assert {name: line[name] for name in values} == values


def test_levels_have_colours_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the level, and not with NO_COLOR; a message cannot add one."""

    def write(log: logging.Logger) -> None:
        log.warning("careful \x1b[31m")
        log.info("fine")

    assert "\x1b" not in logged(write, Terminal())
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.delenv("TERM", raising=False)
    warned, told = logged(write, Terminal()).splitlines()
    assert warned[8:] == f" \x1b[33mWARNING\x1b[0m {LOGGER}: careful \\x1b[31m"
    assert told[8:] == f" INFO    {LOGGER}: fine"
    assert "\x1b" not in logged(write)


def test_capture_addresses() -> None:
    """They are secrets of a kind: their first characters say which one it is."""
    path = "/hooks/0123456789abcdef0123456789abcdef"
    assert shown_path(f"{path}?a=1") == redact_path(path) == "/hooks/0123[redacted]"
    assert redact(f"POST {path} failed") == "POST /hooks/0123[redacted] failed"
    assert redact_path("/v1/hooks/partner/0123456789") == "/v1/hooks/partner/0123456789"
