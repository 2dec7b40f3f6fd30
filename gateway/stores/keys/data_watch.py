"""Notices that the store has other data than before, or has lost its keys.

Redis pushes changes of names, but not that another database took the place of this one (SWAPDB).
So each heartbeat also reads a mark, a random text that the first worker writes: other data have
another one, or none. Where the mark has changed, whatever is cached is out of date.

There is an index of all keys since the first one was created, and nothing removes it. If it was
there and is no longer, keys were lost: by an eviction, or with the whole of the data. Their clients
are then refused as if they had made them up, which looks like a fault of theirs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from secrets import token_hex
from typing import Final

from gateway.stores.names import DATA_MARK, KEY_INDEX
from gateway.stores.redis.connection import command

_log = logging.getLogger("gateway")

READ_MARK: Final = command("GETRANGE", DATA_MARK, 0, 63)
READ_INDEX: Final = command("TYPE", KEY_INDEX)


class DataWatch:
    """Reads mark and index with each `beat`.

    send:     sends a command and calls back with its reply, in order
    replaced: called when the store has other data than before
    label:    the store's name in the log, without credentials
    lost:     were there keys, and is their index missing?
    on_lost:  listeners, called when `lost` has changed
    """

    def __init__(
        self,
        send: Callable[[bytes, Callable[[object], None]], None],
        replaced: Callable[[], None],
        label: str,
    ) -> None:
        self.lost = False
        self.on_lost: list[Callable[[], None]] = []
        self._send = send
        self._replaced = replaced
        self._label = label
        #: b"": there is none; None: not known yet.
        self._mark: bytes | None = None
        self._had_keys = False

    @property
    def detail(self) -> str:
        """For an operator: that keys were lost, and what to do; "": they were not."""
        return "has lost its keys: restore them, or create new ones" if self.lost else ""

    def beat(self) -> None:
        """Read the mark, and whether there is an index."""
        self._send(READ_MARK, self._mark_came)
        self._send(READ_INDEX, self._index_came)

    def _mark_came(self, reply: object) -> None:
        if not isinstance(reply, bytes):
            return
        last, self._mark = self._mark, reply
        if last is not None and last != reply:
            self._replaced()
        if not reply:
            # Several workers may write one at once: the first one stays, and is that of these data.
            self._send(command("SET", DATA_MARK, token_hex(16), "NX"), _ignore)
            self._send(READ_MARK, self._new_mark_came)

    def _new_mark_came(self, reply: object) -> None:
        if isinstance(reply, bytes):
            self._mark = reply

    def _index_came(self, reply: object) -> None:
        if reply == b"zset":
            self._had_keys = True
            if self.lost:
                _log.info("store has keys again: %s", self._label)
                self._set_lost(False)
        elif reply == b"none" and self._had_keys and not self.lost:
            _log.error(
                "store has lost its keys: %s: their index is missing, so each key that is not "
                "cached gets 401; restore the data, or create new keys",
                self._label,
            )
            self._set_lost(True)

    def _set_lost(self, lost: bool) -> None:
        self.lost = lost
        for listener in self.on_lost:
            listener()


def _ignore(_: object) -> None: ...
