"""The format of the arguments and the reply of `lua/decide.lua`, which describes it.

A check's part of the command is always the same, so it is encoded once and cached in `Check.wire`;
each request only costs a join and the unpacking of the reply. A lease, which differs each time, is
inserted after the check's first values. Quotas with a calendar have the bounds of their periods in
it, and are encoded again when a period ends. The sender's clock may differ from the store's by up
to a period.

A reply is untrusted input: it must answer exactly the checks that were sent.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha1
from importlib.resources import files
from struct import Struct
from typing import Final

from gateway.domain.limits import MOST_LIMITS, Check, Decision, Limit, Standing
from gateway.stores.redis.clock import host_us
from gateway.stores.redis.connection import command

_SCRIPT: Final = (files("gateway.stores.limits") / "lua" / "decide.lua").read_bytes()
#: The command that loads the script into a server.
LOAD: Final = command("SCRIPT", "LOAD", _SCRIPT)
_EVAL: Final = b"$7\r\nEVALSHA\r\n$40\r\n%s\r\n" % (
    sha1(_SCRIPT, usedforsecurity=False).hexdigest().encode()
)

_CHECK: Final = Struct("<dB")
#: The same with the number of a lease, or with its negative and the tags of connection and worker.
_LEASED_CHECK: Final = Struct("<dBd")
_CONNECTED_CHECK: Final = Struct("<dBddd")
#: Added to the number of limits: a lease follows; costs follow.
_LEASED: Final = 128
_COSTS: Final = 64
_LIMIT: Final = Struct("<BBddddd")
#: The kind of a quota with a calendar.
_DATED: Final = 4
_REPLY: Final = Struct("<qq")
#: The answer to a check with this many limits: its values, then two for each limit.
_ANSWERS: Final = tuple(Struct("<BBIq" + "qq" * limits) for limits in range(MOST_LIMITS + 1))
_ONE: Final = _ANSWERS[1]


class UnreadableReply(Exception):
    """A reply that does not answer the checks that were sent."""


def build_command(checks: list[Check], now_us: int, clock_us: Callable[[], int] = host_us) -> bytes:
    """The call of the script that decides these checks.

    now_us:   the time to decide at; 0: now, by the store's clock
    clock_us: this process's clock, for the bounds of calendar periods
    """
    names: list[bytes] = []
    packed_values: list[bytes] = []
    count = 0
    for check in checks:
        plain = check.plain or check
        wire = plain.wire
        if wire is None:
            wire = _encode(plain, now_us, clock_us)
        named, values = wire
        names.append(named)
        limits = len(check.limits)
        count += limits
        if check.lease:
            packed_values.append(_pack_lease(check))
            values = values[_CHECK.size :]
        packed_values.append(values)
    packed = b"".join(packed_values)
    return b"*%d\r\n%s$%d\r\n%d\r\n%s$%d\r\n%d\r\n$%d\r\n%s\r\n" % (
        count + 5,
        _EVAL,
        len(b"%d" % count),
        count,
        b"".join(names),
        len(b"%d" % now_us),
        now_us,
        len(packed),
        packed,
    )


def is_sendable(check: Check) -> bool:
    """Can this check be sent? Its values may be larger than the format holds."""
    try:
        build_command([check], 0)
    except Exception:
        return False
    return True


def read_reply(reply: bytes, checks: list[Check]) -> tuple[list[Decision], int]:
    """The decisions of a reply to `build_command`, in order; and the number of foreign values.

    A foreign value is one that the gateway has not written; it counted as empty. Raises
    UnreadableReply.
    """
    decisions: list[Decision] = []
    try:
        now_us, foreign = _REPLY.unpack_from(reply)
        at = _REPLY.size
        for check in checks:
            limits = len(check.limits)
            if limits == 1:  # the usual case, in two thirds of the time
                allowed, governing, refusing, retry_us, left, reset_us = _ONE.unpack_from(reply, at)
                at += _ONE.size
                standings: tuple[Standing, ...] = (Standing(left, reset_us),)
            else:
                form = _ANSWERS[limits]
                allowed, governing, refusing, retry_us, *numbers = form.unpack_from(reply, at)
                at += form.size
                standings = tuple(map(Standing, numbers[::2], numbers[1::2]))
            if governing >= limits > 0:
                raise UnreadableReply("it names a limit that was not checked")
            retry = retry_us if retry_us >= 0 else None
            decisions.append(Decision(allowed == 1, governing, retry, now_us, standings, refusing))
    except (struct.error, TypeError) as error:
        raise UnreadableReply(f"it is too short, or no text: {type(reply).__name__}") from error
    if at != len(reply):
        raise UnreadableReply("it is longer than the answers to the checks")
    return decisions, foreign


def _encode(check: Check, now_us: int, clock_us: Callable[[], int]) -> tuple[bytes, bytes]:
    """The names of a check's counters as RESP strings, and its packed values."""
    if all(limit.calendar is None for limit in check.limits):
        check.wire = _names(check), _pack_values(_cost(check), check.limits, check.costs)
        return check.wire
    at_us = now_us or clock_us()
    if check.dated is None or not check.dated[2] <= at_us < check.dated[3]:
        bounds = [limit.calendar.bounds(at_us) for limit in check.limits if limit.calendar]
        since, until = max(one.start for one in bounds), min(one.end for one in bounds)
        check.dated = _names(check), _pack_dated(check, at_us), since, until
    return check.dated[:2]


def _names(check: Check) -> bytes:
    if len(check.limits) > MOST_LIMITS:
        raise OverflowError(f"found {len(check.limits)} limits, expected {MOST_LIMITS} at most")
    names = [name.encode() for name in check.counters]
    return b"".join([b"$%d\r\n%s\r\n" % (len(name), name) for name in names])


def _cost(check: Check) -> int:
    return -check.cost if check.dry else check.cost


def _pack_lease(check: Check) -> bytes:
    """The first values of a check that has a lease, without its costs."""
    form = len(check.limits) + _LEASED + (_COSTS if check.costs else 0)
    if not check.connection:
        return _LEASED_CHECK.pack(_cost(check), form, check.lease)
    return _CONNECTED_CHECK.pack(_cost(check), form, -check.lease, check.connection, check.holder)


@lru_cache(maxsize=4_096)
def _pack_values(cost: int, limits: tuple[Limit, ...], costs: tuple[int, ...] | None) -> bytes:
    """The packed values of a check; one object for all checks with equal limits."""
    return b"".join((_pack_costs(cost, len(limits), costs), *map(_pack_limit, limits)))


def _pack_costs(cost: int, limits: int, costs: tuple[int, ...] | None) -> bytes:
    """The first values of a check: its cost, the number of its limits, and the cost of each."""
    if not costs:
        return _CHECK.pack(cost, limits)
    return _CHECK.pack(cost, limits + _COSTS) + struct.pack(f"<{limits}I", *costs)


def _pack_limit(limit: Limit) -> bytes:
    kind = limit.rules.code + (limit.burst is not None)
    width_us = limit.slot_us if limit.rules.slotted else limit.window_us
    return _LIMIT.pack(
        kind, limit.shadow, limit.amount, limit.peak, width_us, limit.unit_us, limit.slot_us
    )


def _pack_dated(check: Check, at_us: int) -> bytes:
    """The packed values of a check at this time."""
    packed = [_pack_costs(_cost(check), len(check.limits), check.costs)]
    for limit in check.limits:
        if limit.calendar is None:
            packed.append(_pack_limit(limit))
        else:
            bounds = limit.calendar.bounds(at_us)
            packed.append(_LIMIT.pack(_DATED, limit.shadow, limit.amount, *bounds))
    return b"".join(packed)
