"""The life of an exchange: one table of phases and what leads from one to the next.

    JUDGING     the gate is looking things up
    CONNECTING  admitted; an upstream connection is being found
    WAITING     the head is sent, the body is following; no byte of the answer has gone out
    RELAYING    the answer's head has gone out, its body is following
    TUNNEL      the connection has become a WebSocket
    OVER        answered, failed or abandoned; accounted for, once

Whatever is not in the table cannot happen; should it, the step fails with a sentence, and the
connection with it, rather than mixing two messages.
"""

from __future__ import annotations

from typing import Final


class Phase:
    """Where an exchange stands. The order is that of a plain exchange.

    Plain numbers and words, because in Python 3.11 to name a member of an Enum and to hash it
    costs more than the step itself: 242 ns in all, against 107.
    """

    JUDGING: Final = 0
    CONNECTING: Final = 1
    WAITING: Final = 2
    RELAYING: Final = 3
    TUNNEL: Final = 4
    OVER: Final = 5


PHASES: Final = ("JUDGING", "CONNECTING", "WAITING", "RELAYING", "TUNNEL", "OVER")


class Event:
    """What happens to an exchange."""

    ADMITTED: Final = "the gate let it pass"
    CONNECTED: Final = "an upstream connection took it"
    RESENT: Final = "its upstream closed unheard, and it goes out again"
    RESPONDED: Final = "the head of an answer came"
    SWITCHED: Final = "both sides agreed on a WebSocket"
    ANSWERED: Final = "the gateway answered it by itself"
    COMPLETED: Final = "its answer is whole"
    ABANDONED: Final = "nobody can be told any more"


TABLE: Final[dict[tuple[int, str], int]] = {
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
    """What cannot happen has happened."""


class Steps(dict[int, int]):
    """Where one event leads from each phase in which it can happen.

    Looking up any other phase raises IllegalStep. A look-up costs 30 ns; a function that looked up
    the phase and the event in `TABLE` took 110, and an exchange takes four steps.
    """

    def __init__(self, event: str) -> None:
        super().__init__({before: after for (before, on), after in TABLE.items() if on == event})
        self.event = event

    def __missing__(self, phase: int) -> int:
        raise IllegalStep(f"of an exchange in phase {PHASES[phase]}: {self.event}")
