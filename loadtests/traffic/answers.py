"""An answer as a caller sees it, and the rate-limit fields that it carries."""

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

    status:         0 where none came
    sent_s, told_s: between these moments it was decided, by a clock that only goes forward
    told_unix_s:    when it came, by the clock on the wall
    fields:         its header fields, by their names in small letters
    """

    status: int
    sent_s: float
    told_s: float
    told_unix_s: float
    fields: Mapping[str, str]

    @property
    def is_admitted(self) -> bool:
        """Certainly. Of other answers one cannot know: an upstream says 404 or 500 as well."""
        return 200 <= self.status < 400

    @property
    def is_refused(self) -> bool:
        """Certainly, so that it counted nowhere."""
        return self.status in (401, 403, 429)

    @property
    def fallback(self) -> str | None:
        """Where the gateway says that it decided without its store, how: "local" or "open"."""
        return self.fields.get("x-ratelimit-fallback")

    @property
    def retry_after_s(self) -> int | None:
        """None where there is no such field, or no whole number of seconds from 1 on."""
        return _number(self.fields.get("retry-after")) or None

    @property
    def date_unix_s(self) -> float | None:
        """The moment that Date names, None where there is none that can be read."""
        try:
            return parsedate_to_datetime(self.fields["date"]).timestamp()
        except (KeyError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class Told:
    """What the four X-RateLimit fields say."""

    limit: int
    remaining: int
    reset: int
    reset_after: int


def read_told(fields: Mapping[str, str]) -> Told | str:
    """The four fields, or a sentence on the first that is missing or no whole number."""
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
