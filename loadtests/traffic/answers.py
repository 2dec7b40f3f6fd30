"""An answer as a client sees it, and its rate-limit fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

_FIELDS: Final = (
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-ratelimit-reset-after",
)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. Times are seconds.

    status:         0: no answer
    sent_s, told_s: the times between which it was decided, by the monotonic clock
    told_unix_s:    when it arrived, by the wall clock
    fields:         its header fields, by their names in lower case
    """

    status: int
    sent_s: float
    told_s: float
    told_unix_s: float
    fields: Mapping[str, str]

    @property
    def is_admitted(self) -> bool:
        """Certainly admitted. Other answers are uncertain: an upstream may send 404 or 500 too."""
        return 200 <= self.status < 400

    @property
    def is_refused(self) -> bool:
        """Certainly refused, so that it counted nowhere."""
        return self.status in (401, 403, 429)

    @property
    def fallback(self) -> str | None:
        """How the gateway decided without its store: "local" or "open"; None: with it."""
        return self.fields.get("x-ratelimit-fallback")

    @property
    def retry_after_s(self) -> int | None:
        """None: there is no such field, or it is not a positive whole number of seconds."""
        return _number(self.fields.get("retry-after")) or None

    @property
    def date_unix_s(self) -> float | None:
        """The time in Date; None: it is absent or cannot be read."""
        try:
            return parsedate_to_datetime(self.fields["date"]).timestamp()
        except (KeyError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class Told:
    """The four X-RateLimit fields."""

    limit: int
    remaining: int
    reset: int
    reset_after: int


def read_told(fields: Mapping[str, str]) -> Told | str:
    """The four fields, or a sentence about the first that is missing or not a whole number."""
    numbers = []
    for name in _FIELDS:
        number = _number(fields.get(name))
        if number is None:
            return f"{name} is {fields.get(name)!r} and should be a whole number"
        numbers.append(number)
    return Told(*numbers)


def _number(text: str | None) -> int | None:
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 15:
        return None
    return int(text)
