"""What the messages of one HTTP request ask for: units, tools, and a place among connections.

The count of each limit is its own: a limit of messages counts all of them, one of a tool its calls,
a concurrency limit the requests that wait for an answer, and all others the units.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.domain.limits import Limit
from gateway.domain.mcp.messages import Body
from gateway.domain.mcp.settings import CALL, Mcp

#: Requests that count nothing: refusing them would break running calls, or the choice of version.
FREE: Final = frozenset(("ping", "initialize", "server/discover"))
#: Opens a stream of events, as GET does before 2026-07-28. A client opens one that ended again, for
#: ever: that must not use up its rate. It is bounded by limits of connections and of messages.
LISTEN: Final = "subscriptions/listen"


class Demand(msgspec.Struct, frozen=True):
    """What is asked for.

    units:    how many the requests count
    messages: their number
    tools:    the tools with a limit of their own that are called, each with the number of calls
    opens:    it needs a connection: an answer is awaited, or events
    """

    units: int = 0
    messages: int = 0
    tools: tuple[tuple[str, int], ...] = ()
    opens: bool = False

    def units_of(self, limit: Limit, calls: int | None = None) -> int:
        """How many units a limit counts. calls: of its tool; None: it is of no tool"""
        if limit.is_leased:
            return int(self.opens)
        if limit.of == "messages":
            return self.messages
        return self.units if calls is None else calls


#: Of GET, which waits for events; and of DELETE.
LISTENING: Final = Demand(messages=1, opens=True)
ENDING: Final = Demand(messages=1)


def demand_of(body: Body, mcp: Mcp, cost: int) -> Demand:
    """Of a body. cost: of a request for which no tool says otherwise"""
    called: dict[str, int] = {}
    units, listens = 0, False
    for request in body.requests:
        if request.method == CALL:
            tool = mcp.tool(request.name)
            units += cost if tool.cost is None else tool.cost
            if tool.limit is not None:
                called[request.name] = called.get(request.name, 0) + 1
        elif request.method == LISTEN:
            listens = True
        elif request.method not in FREE:
            units += cost
    tools = tuple(sorted(called.items())) if called else ()
    return Demand(units, len(body.messages), tools, listens or units > 0)
