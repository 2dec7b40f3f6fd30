"""Whether the store may evict: keys would be unknown, and counters would begin anew.

Redis does not say that it evicts, so its settings are read: at each connection, because it may be
another server, and once a minute, because they can be changed. They are read from INFO, because
many services do not permit CONFIG GET. In a cluster the node with the keys is asked.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Final

from gateway.stores.redis.connection import Done, command

_log = logging.getLogger("gateway")

ASK: Final = command("INFO", "memory")
_EVERY_S: Final = 60.0
#: The only policy that evicts nothing.
_NONE: Final = "noeviction"
_POLICY: Final = re.compile(r"^maxmemory_policy:([a-z-]{1,64})\r?$", re.MULTILINE)
_LIMIT: Final = re.compile(r"^maxmemory:([0-9]{1,20})\r?$", re.MULTILINE)


class EvictionWatch:
    """Asks the store while it runs, and logs each change.

    send:    sends a command and calls back with its reply
    label:   the store's name in the log, without credentials
    changed: called with each answer: may it evict?
    """

    def __init__(
        self, send: Callable[[bytes, Done], None], label: str, changed: Callable[[bool], None]
    ) -> None:
        self._send = send
        self._label = label
        self._changed = changed
        self._policy = ""
        self._is_refused = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def detail(self) -> str:
        """What the store may evict and by which policy, for an operator; "": nothing."""
        return words_of(self._policy)

    def connected(self) -> None:
        """Ask now, and then once a minute, until `stop`. Needs a running loop."""
        self._is_refused = False
        self._ask()

    def stop(self) -> None:
        """Ask no more; harmless when repeated."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ask(self) -> None:
        self.stop()
        # A user without the right is refused again and again, each time with a line in ACL LOG.
        if not self._is_refused:
            self._timer = asyncio.get_running_loop().call_later(_EVERY_S, self._ask)
            self._send(ASK, self._answered)

    def _answered(self, reply: object) -> None:
        if not isinstance(reply, bytes):
            self._is_refused = isinstance(reply, Exception) and str(reply).startswith("NOPERM")
            return
        policy = read_policy(reply.decode("utf-8", "replace"))
        if policy != self._policy:
            self._policy = policy
            if policy:
                _log.warning("store %s: %s", self.detail, self._label)
            else:
                _log.info("store evicts nothing any more: %s", self._label)
        self._changed(bool(policy))


def words_of(policy: str) -> str:
    """What a server with this policy may do, for an operator; "" for none."""
    if not policy:
        return ""
    return f"may evict keys and counters: maxmemory-policy is {policy}, expected {_NONE}"


def read_policy(info: str) -> str:
    """The policy by which a server evicts, from its INFO; "": it does not, or does not say so."""
    policy, limit = _POLICY.search(info), _LIMIT.search(info)
    if policy is None or policy[1] == _NONE or (limit is not None and int(limit[1]) == 0):
        return ""
    return policy[1]
