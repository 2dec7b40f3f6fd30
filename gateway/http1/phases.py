"""The phases of an exchange, and the table of transitions between them.

    JUDGING     the gate decides about the request
    READING     its whole body is read first, as the decision depends on it
    CONNECTING  admitted; waiting for an upstream connection
    WAITING     the head was sent, the body follows; no response was sent to the client
    RELAYING    the response's head was sent to the client, its body follows
    TUNNEL      the connection is a WebSocket
    OVER        answered, failed or abandoned; accounted for, once

A step that is not in the table is a programming error: it raises IllegalStep, which closes the
connection, so that two messages are never mixed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final


class Phase:
    """The phase of an exchange, in the order of a plain exchange.

    Plain numbers and strings: in Python 3.11, looking up and hashing a member of an Enum costs more
    than the step itself: 242 ns in all, against 107.
    """

    JUDGING: Final = 0
    READING: Final = 1
    CONNECTING: Final = 2
    WAITING: Final = 3
    RELAYING: Final = 4
    TUNNEL: Final = 5
    OVER: Final = 6


PHASES: Final = ("JUDGING", "READING", "CONNECTING", "WAITING", "RELAYING", "TUNNEL", "OVER")


class Event:
    """What can happen to an exchange."""

    BODY_NEEDED: Final = "to be decided by its whole body"
    BODY_READ: Final = "its whole body was read, or cannot be"
    ADMITTED: Final = "admitted by the gate"
    CONNECTED: Final = "sent to an upstream connection"
    RESENT: Final = "to be sent again, as its upstream closed without an answer"
    RESPONDED: Final = "the head of a response arrived"
    SWITCHED: Final = "both sides agreed on a WebSocket"
    ANSWERED: Final = "answered by the gateway"
    COMPLETED: Final = "its response is complete"
    ABANDONED: Final = "no response can be sent any more"


TABLE: Final[dict[tuple[int, str], int]] = {
    (Phase.JUDGING, Event.BODY_NEEDED): Phase.READING,
    (Phase.READING, Event.BODY_READ): Phase.JUDGING,
    (Phase.READING, Event.ANSWERED): Phase.OVER,
    (Phase.READING, Event.ABANDONED): Phase.OVER,
    (Phase.JUDGING, Event.ADMITTED): Phase.CONNECTING,
    (Phase.JUDGING, Event.ANSWERED): Phase.OVER,
    (Phase.JUDGING, Event.ABANDONED): Phase.OVER,
    (Phase.CONNECTING, Event.CONNECTED): Phase.WAITING,
    (Phase.CONNECTING, Event.ANSWERED): Phase.OVER,
    (Phase.CONNECTING, Event.ABANDONED): Phase.OVER,
    (Phase.WAITING, Event.RESENT): Phase.CONNECTING,
    (Phase.WAITING, Event.RESPONDED): Phase.RELAYING,
    (Phase.WAITING, Event.SWITCHED): Phase.TUNNEL,
    (Phase.WAITING, Event.ANSWERED): Phase.OVER,
    (Phase.WAITING, Event.ABANDONED): Phase.OVER,
    (Phase.RELAYING, Event.COMPLETED): Phase.OVER,
    (Phase.RELAYING, Event.ABANDONED): Phase.OVER,
    (Phase.TUNNEL, Event.COMPLETED): Phase.OVER,
    (Phase.TUNNEL, Event.ABANDONED): Phase.OVER,
}


class IllegalStep(Exception):
    """A step that is not in the table."""


class Steps(dict[int, int]):
    """The next phase after one event, by the phase before.

    table, names, of: the transitions, the phases' names, and the object that has them

    Looking up a phase in which the event cannot happen raises IllegalStep. A look-up costs 30 ns; a
    function that looked up the phase and the event in `TABLE` took 110, and an exchange takes four
    steps.
    """

    def __init__(
        self,
        event: str,
        table: Mapping[tuple[int, str], int] = TABLE,
        names: Sequence[str] = PHASES,
        of: str = "an exchange",
    ) -> None:
        super().__init__({before: after for (before, on), after in table.items() if on == event})
        self.event = event
        self._names = names
        self._of = of

    def __missing__(self, phase: int) -> int:
        raise IllegalStep(f"of {self._of} in phase {self._names[phase]}: {self.event}")
