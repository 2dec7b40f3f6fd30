"""Warnings of limits: a counter of a key or an account is near its limit, or has reached it.

Clients can cause any number of them. So a store keeps only the newest, and a bounded number for
each minute; a metric counts all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from gateway.domain.patterns import LATEST_US

#: The most warnings kept, some 0.6 MB.
MOST_KEPT: Final = 10_000
#: The most kept of one minute, of all gateways on a store: so those kept cover some hours.
MOST_A_MINUTE: Final = 60


@dataclass(frozen=True, slots=True)
class LimitWarning:
    """A counter is near its limit, or has reached it.

    counter: the counter's name in the store
    level:  80 or 100, in percent of the limit
    at_us:  when, Unix microseconds; for_us: until the window is over

    What a notice to the account says as well:

    account:   of the key
    per:       "key" or "account": what the limit counts by
    amount:    of the limit; used: of it
    window_us: its length; of a quota, of its period
    resets_us: when all of it is available again, if nothing is sent
    window:    the number of the window: no two of a counter have the same
    """

    counter: str
    level: int
    limit: str
    plan: str
    key_id: str
    at_us: int
    for_us: int
    account: str = ""
    per: str = "key"
    amount: int = 0
    used: int = 0
    window_us: int = 0
    resets_us: int = 0
    window: int = 0


_NAMES: Final = tuple(each.name for each in fields(LimitWarning))
_IS_NUMBER: Final = tuple(each.type == "int" for each in fields(LimitWarning))


def values_of(warning: LimitWarning) -> tuple[str | int, ...]:
    """The values of all fields, in their order."""
    return tuple(getattr(warning, name) for name in _NAMES)


def of_values(values: Sequence[Any]) -> LimitWarning:
    """A warning of its values, as texts. Raises ValueError and TypeError."""
    read = [
        _number(value) if is_number else _text(value)
        for value, is_number in zip(values, _IS_NUMBER, strict=True)
    ]
    return LimitWarning(*read)


def _text(value: Any) -> Any:
    if not isinstance(value, str):
        raise TypeError(type(value))
    return value


def _number(value: Any) -> Any:
    text = _text(value)
    if not text.isascii() or not text.isdigit() or int(text) > LATEST_US:
        raise ValueError(len(text))
    return int(text)


@dataclass(frozen=True, slots=True)
class KeptWarning:
    """A warning as stored. id: its id in the store, "1800000000000-0"; the rest as above"""

    id: str
    at_us: int
    key_id: str
    plan: str
    limit: str
    level: int
