"""The gateway's own log: JSON lines for machines, plain lines on a terminal, and no secrets.

Whatever is logged, at whatever level, passes `redact` as a last step before it is written: the
message with its arguments filled in, extra fields, exceptions and their tracebacks. So a key that
was split over arguments, or sits in somebody else's exception, is caught as well. What a stranger
may have put into a line (line ends, terminal codes) comes out escaped.
"""

from __future__ import annotations

import json
import logging
import math
import re
from datetime import UTC, datetime
from typing import Any, Final, TextIO

REDACTED: Final = "[redacted]"

_NAME: Final = r"(?:authorization|api[-_]?key|x-service-signature)"
_NAMES: Final = ("authorization", "apikey", "api-key", "api_key", "x-service-signature")
_IS_SECRET: Final = re.compile(_NAME, re.IGNORECASE)
#: Words in lower case, one of which is in every text with such a secret; the secret; and what takes
#: its place. Looking for the words first makes plain text twelve times as cheap. No pattern looks
#: at a character more than a few times.
_RULES: Final = (
    # An API key: the prefix and all that a key can be spelled with, percent-encoded too.
    (("gwk",), re.compile(r"gwk(?:_|%5f)[\w%.~+-]+", re.IGNORECASE), f"gwk_{REDACTED}"),
    # A header in quotes, as dicts, lists of pairs and JSON show it: {'apiKey': b'...'}
    (
        _NAMES,
        re.compile(
            rf"({_NAME}\\?[\"']\s*[:=,]\s*[\[(]*b?)(\\?[\"'])(?:(?!\2)(?:\\.|[^\\]))*",
            re.IGNORECASE | re.DOTALL,
        ),
        rf"\1\2{REDACTED}",
    ),
    # A header as it is sent, and NAME=VALUE. Where the value ends is only sure at the line's end.
    (
        _NAMES,
        re.compile(rf"({_NAME}\s*[:=]\s*)[^\r\n]+", re.IGNORECASE),
        rf"\1{REDACTED}",
    ),
    (("bearer",), re.compile(r"\b(bearer)\s+[\w.~+/=-]+", re.IGNORECASE), rf"\1 {REDACTED}"),
)
#: A URL to the next space, and what stands in it before a password.
_ADDRESS: Final = re.compile(r"://\S*")
_USER: Final = re.compile(r"://[^/:@]*:")

#: An API key in a path, with the rest of its segment. A path has few segments, so there are few of
#: these: 8 KiB take 0.03 ms, and a replacement for each beginning of a key would take 0.1.
_KEY_IN_PATH: Final = re.compile(r"gwk(?:_|%5[Ff])[^/]*")

_LEVELS: Final = ("debug", "info", "warning", "error")
#: What every record has; anything else on one came as an extra field.
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(level: str, stream: TextIO) -> None:
    """Send the log of the whole process to `stream`, from `level` on. May be called again.

    level: "debug", "info", "warning" or "error"; raises ValueError on another
    """
    if level not in _LEVELS:
        raise ValueError(f"log level {level!r}: expected one of {', '.join(_LEVELS)}")
    handler = _Handler(stream)
    handler.setFormatter(_PlainLines() if stream.isatty() else _JsonLines())
    root = logging.getLogger()
    for earlier in [found for found in root.handlers if isinstance(found, _Handler)]:
        root.removeHandler(earlier)
    root.addHandler(handler)
    root.setLevel(level.upper())


def redact(text: str) -> str:
    """The text without what looks like a key, a credential's header or a URL's password."""
    small = text.lower()
    for words, pattern, replacement in _RULES:
        if any(word in small for word in words):
            text = pattern.sub(replacement, text)
    return _ADDRESS.sub(_without_password, text) if "://" in text and "@" in text else text


def redact_path(path: str) -> str:
    """A request's path without what looks like a key in it."""
    return _KEY_IN_PATH.sub(f"gwk_{REDACTED}", path)


def _without_password(address: re.Match[str]) -> str:
    # A password may hold "@" and "/", so it goes as far as there is an "@" in the word. Not a
    # pattern's task: it would look for that end once for each "://".
    found = address[0]
    end = found.rfind("@")
    user = _USER.search(found, 0, end)
    if user is None or user.end() == end:
        return found
    return f"{found[: user.end()]}{REDACTED}{found[end:]}"


class _Handler(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """The log cannot be written. The inherited way prints the arguments, with their secrets."""


class _Redacting(logging.Formatter):
    """What both forms share: the parts of a record, redacted."""

    def message(self, record: logging.LogRecord) -> str:
        try:
            return redact(record.getMessage())
        except Exception:  # the arguments do not fit; the line is still worth having
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
    """For eyes: time, level, logger, message, extra fields; a traceback below, indented.

    The indentation tells a traceback's lines from the log's own, whatever an exception says.
    """

    def format(self, record: logging.LogRecord) -> str:
        extras = "".join(f"  {name}={value}" for name, value in self.extras(record).items())
        line = (
            f"{self.time(record):%H:%M:%S} {record.levelname:<7} {redact(record.name)}: "
            f"{self.message(record)}{extras}"
        )
        trace = self.trace(record)
        return "\n    ".join(_printable(part) for part in (line, *trace.split("\n")) if part)


def _redacted_field(name: str, value: Any) -> object:
    """A field as JSON can hold it; what is no plain value becomes text."""
    if _IS_SECRET.search(name):
        return REDACTED
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    try:
        return redact(str(value))
    except Exception:  # a __str__ of somebody else's
        return f"<{type(value).__name__}>"


def _printable(text: str) -> str:
    """Control characters, line ends and the like in the way a string literal has them."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )
