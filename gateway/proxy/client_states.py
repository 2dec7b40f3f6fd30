"""The states of a client connection, and the table of transitions between them."""

from __future__ import annotations

from typing import Final

from gateway.http1.phases import Steps


class State:
    """What a connection does with arriving bytes.

    READY      they are a request's head. It is 0: tested for each request
    PREAMBLE   they are the PROXY protocol's header
    QUEUED     they are kept: pipelined requests wait in the backlog
    BUSY       they are the body of the request in progress, or follow it
    DISCARDING they are the rest of an unused body
    LINGERING  they are dropped: the last answer was sent, and reading goes on briefly, so that the
               client can read the answer before a reset (RFC 9112, 9.6)
    CLOSED     none arrive
    """

    READY: Final = 0
    PREAMBLE: Final = 1
    QUEUED: Final = 2
    BUSY: Final = 3
    DISCARDING: Final = 4
    LINGERING: Final = 5
    CLOSED: Final = 6


STATES: Final = ("READY", "PREAMBLE", "QUEUED", "BUSY", "DISCARDING", "LINGERING", "CLOSED")


class Event:
    """What happens to a connection."""

    PROXIED: Final = "a PROXY protocol header is expected"
    INTRODUCED: Final = "the PROXY protocol header was read"
    BEGUN: Final = "a request began, or was refused unread"
    QUEUED: Final = "more requests were pipelined than are served in a row"
    RESUMED: Final = "the backlog serves the connection"
    ANSWERED: Final = "the answer was sent, and the request's body was read"
    LEFT_OVER: Final = "the answer was sent, and some of the request's body is unread"
    DISCARDED: Final = "all of that body was read"
    LAST_ANSWERED: Final = "the last answer was sent, and the client may still be sending"
    CLOSED: Final = "the connection is closed, or closing"


TABLE: Final[dict[tuple[int, str], int]] = {
    (State.READY, Event.PROXIED): State.PREAMBLE,
    (State.PREAMBLE, Event.INTRODUCED): State.READY,
    (State.READY, Event.BEGUN): State.BUSY,
    (State.PREAMBLE, Event.BEGUN): State.BUSY,
    (State.QUEUED, Event.BEGUN): State.BUSY,
    (State.READY, Event.QUEUED): State.QUEUED,
    (State.QUEUED, Event.RESUMED): State.READY,
    (State.BUSY, Event.ANSWERED): State.READY,
    (State.BUSY, Event.LEFT_OVER): State.DISCARDING,
    (State.DISCARDING, Event.DISCARDED): State.READY,
    (State.BUSY, Event.LAST_ANSWERED): State.LINGERING,
    **{(state, Event.CLOSED): State.CLOSED for state in range(len(STATES))},
}


def steps(event: str) -> Steps:
    """Return the next state after an event, by state."""
    return Steps(event, TABLE, STATES, "a client connection")


class PauseReason:
    """Why reading from a client is paused: bits, as several can apply together.

    REQUEST   the body has no upstream connection yet
    UPSTREAM  the upstream, or the other end of a tunnel, takes no more
    AHEAD     enough pipelined bytes wait
    TURN      until the next turn of the event loop
    """

    REQUEST: Final = 1
    UPSTREAM: Final = 2
    AHEAD: Final = 4
    TURN: Final = 8
