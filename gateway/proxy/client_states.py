"""The life of a client connection: one table of states and what leads from one to the next."""

from __future__ import annotations

from typing import Final

from gateway.http1.phases import Steps


class State:
    """What a connection does with the bytes that come.

    READY      they are a request, or become one. It is 0, as it is asked for in each request
    PREAMBLE   they are the PROXY protocol's header
    QUEUED     they are kept: there are requests already, whose turn comes
    BUSY       they are of the body of the request that it carries, or follow it
    DISCARDING they belong to a body that nobody wants
    LINGERING  nobody wants them: it has answered for the last time, and reads on a little, so that
               the client gets to see the answer before a reset (RFC 9112, 9.6)
    CLOSED     there will be none
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

    PROXIED: Final = "a proxy's header is to come first"
    INTRODUCED: Final = "that header was read"
    BEGUN: Final = "a request was taken up, or refused unread"
    QUEUED: Final = "more was sent ahead than is served in a row"
    RESUMED: Final = "its turn has come"
    ANSWERED: Final = "the answer is out, and so is the request's body"
    LEFT_OVER: Final = "the answer is out, and some of the request's body is still to come"
    DISCARDED: Final = "all of that body has come"
    LAST_ANSWERED: Final = "the last answer is out, and the client may still be sending"
    CLOSED: Final = "it is closed, or about to be"


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
    """Where an event leads from each state in which it can happen."""
    return Steps(event, TABLE, STATES, "a client connection")


class Held:
    """Why nothing is read from a client: bits, as there may be several reasons at one time.

    REQUEST   the body has no place to go yet
    UPSTREAM  the upstream, or the other end of a tunnel, takes no more
    AHEAD     enough was sent ahead
    TURN      others have their turn first
    """

    REQUEST: Final = 1
    UPSTREAM: Final = 2
    AHEAD: Final = 4
    TURN: Final = 8
