"""The gateway's own log: JSON lines, or plain lines on a terminal, and no secrets.

`redact` is applied to all texts of any level just before they are written: the message with its
arguments filled in, extra fields, exceptions and their tracebacks. So a key that was split over
arguments, or is in the exception of a library, is removed as well. Untrusted characters (line ends,
terminal codes) are escaped.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from gateway.domain.key_format import BEGINNING
from gateway.observe.colours import Colour, has_colours, paint

REDACTED: Final = "[redacted]"

_NAME: Final = r"(?:authorization|api[-_]?key|x-service-signature)"
_NAMES: Final = ("authorization", "apikey", "api-key", "api_key", "x-service-signature")
_IS_SECRET: Final = re.compile(_NAME, re.IGNORECASE)
#: Words in lower case, one of which is in every text with such a secret; the pattern of the secret;
#: and its replacement. Searching for the words first makes usual texts twelve times as fast. No
#: pattern reads a character more than a few times.
_RULES: Final = (
    # An API key: the prefix and all characters of a key, also percent-encoded.
    (("gwk", "%"), re.compile(rf"{BEGINNING}[\w%.~+-]+"), f"gwk_{REDACTED}"),
    # A header in quotes, as dicts, lists of pairs and JSON show it: {'apiKey': b'...'}
    (
        _NAMES,
        re.compile(
            rf"({_NAME}\\?[\"']\s*[:=,]\s*[\[(]*b?)(\\?[\"'])(?:(?!\2)(?:\\.|[^\\]))*",
            re.IGNORECASE | re.DOTALL,
        ),
        rf"\1\2{REDACTED}",
    ),
    # A header as it is sent, and NAME=VALUE. The value may extend to the end of the line.
    (
        _NAMES,
        re.compile(rf"({_NAME}\s*[:=]\s*)[^\r\n]+", re.IGNORECASE),
        rf"\1{REDACTED}",
    ),
    (("bearer",), re.compile(r"\b(bearer)\s+[\w.~+/=-]+", re.IGNORECASE), rf"\1 {REDACTED}"),
)
#: A URL to the next space, and the part of it before a password.
_ADDRESS: Final = re.compile(r"://\S*")
_USER: Final = re.compile(r"://[^/:@]*:")

#: An API key in a path, with the rest of its segment. A path has few segments, so there are few
#: matches: 8 KiB take 0.03 ms; one match for each prefix of a key would take 0.1.
_KEY_IN_PATH: Final = re.compile(rf"{BEGINNING}[^/]*")
#: A capture address, which only its provider should know: its first characters say which one it is.
_HOOKS: Final = "/hooks/"
_CAPTURE_IN_PATH: Final = re.compile(r"(/hooks/[0-9A-Fa-f]{4})[0-9A-Fa-f%]{28,}")

_LEVELS: Final = ("debug", "info", "warning", "error")
_LEVEL_COLOURS: Final[dict[str, Colour]] = {
    "DEBUG": "dim",
    "WARNING": "yellow",
    "ERROR": "red",
    "CRITICAL": "red",
}
#: The attributes of every record; all others are extra fields.
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(level: str, stream: TextIO) -> None:
    """Write the log of the whole process to `stream`, from `level` on. May be called again.

    level: "debug", "info", "warning" or "error". Raises ValueError for any other
    """
    if level not in _LEVELS:
        raise ValueError(f"log level {level!r}: expected one of {', '.join(_LEVELS)}")
    handler = _Handler(stream)
    is_terminal = stream.isatty()
    lines = _PlainLines(has_colours(stream, os.environ)) if is_terminal else _JsonLines()
    handler.setFormatter(lines)
    root = logging.getLogger()
    for earlier in [found for found in root.handlers if isinstance(found, _Handler)]:
        root.removeHandler(earlier)
    root.addHandler(handler)
    root.setLevel(level.upper())


def redact(text: str) -> str:
    """The text without keys, values of credential headers, and passwords in URLs."""
    small = text.lower()
    for words, pattern, replacement in _RULES:
        if any(word in small for word in words):
            text = pattern.sub(replacement, text)
    if _HOOKS in text:
        text = _CAPTURE_IN_PATH.sub(rf"\1{REDACTED}", text)
    return _ADDRESS.sub(_without_password, text) if "://" in text and "@" in text else text


def redact_path(path: str) -> str:
    """A request's path, or a text with one, without keys and capture addresses."""
    if "gwk" in path.lower() or "%" in path:
        path = _KEY_IN_PATH.sub(f"gwk_{REDACTED}", path)
    return _CAPTURE_IN_PATH.sub(rf"\1{REDACTED}", path) if _HOOKS in path else path


def _without_password(address: re.Match[str]) -> str:
    # A password may contain "@" and "/", so it ends at the last "@" of the word. A pattern would
    # search for that end once for each "://".
    found = address[0]
    end = found.rfind("@")
    user = _USER.search(found, 0, end)
    if user is None or user.end() == end:
        return found
    return f"{found[: user.end()]}{REDACTED}{found[end:]}"


class _Handler(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Ignore a failed write. The inherited method prints the arguments, with their secrets."""


class _Redacting(logging.Formatter):
    """The common part of both formats: the parts of a record, redacted."""

    def message(self, record: logging.LogRecord) -> str:
        try:
            return redact(record.getMessage())
        except Exception:  # the arguments do not match the message: log both
            return redact(f"{record.msg!r} {record.args!r}")

    def extras(self, record: logging.LogRecord) -> dict[str, object]:
        return {
            redact(name): _redacted_field(name, value)
            for name, value in vars(record).items()
            if name not in _STANDARD
        }

    def trace(self, record: logging.LogRecord) -> str:
        parts = []
        if record.exc_info:
            parts.append(self.formatException(record.exc_info))
        if record.stack_info:
            parts.append(record.stack_info)
        return redact("\n".join(parts))

    def time(self, record: logging.LogRecord) -> datetime:
        return datetime.fromtimestamp(record.created, UTC)


class _JsonLines(_Redacting):
    """One JSON object a line: time, level, logger, message, extra fields, exception."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": self.time(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": redact(record.name),
            "message": self.message(record),
        }
        for name, value in self.extras(record).items():
            fields.setdefault(name, value)
        if trace := self.trace(record):
            fields["exception"] = trace
        return json.dumps(fields)


class _PlainLines(_Redacting):
    """For a terminal: time, level, logger, message, extra fields; a traceback below, indented.

    The indentation distinguishes the lines of a traceback from log lines.

    colours: the level has a colour
    """

    def __init__(self, colours: bool) -> None:
        super().__init__()
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        extras = "".join(f"  {name}={value}" for name, value in self.extras(record).items())
        level = f"{record.levelname:<7}"
        line = f"{redact(record.name)}: {self.message(record)}{extras}"
        parts = (_printable(part) for part in (line, *self.trace(record).split("\n")) if part)
        shown = paint(level, _LEVEL_COLOURS.get(record.levelname)) if self._colours else level
        return f"{self.time(record):%H:%M:%S} {shown} " + "\n    ".join(parts)


def _redacted_field(name: str, value: Any) -> object:
    """A field for JSON; all but simple values become text."""
    if _IS_SECRET.search(name):
        return REDACTED
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    try:
        return redact(str(value))
    except Exception:  # the object's __str__ failed
        return f"<{type(value).__name__}>"


def _printable(text: str) -> str:
    """A text with control characters, line ends and the like escaped as in a string literal."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )
