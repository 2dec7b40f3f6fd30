"""The whole body of one request, for a decision that depends on what is in it.

Bodies are streamed. Only a rule that needs the content asks for all of it, by `Request.whole_body`,
with a bound of its own. The exchange then collects the body here before the request is admitted:
without a lease, an upstream connection or a lock, and under the deadline for bodies
(`timeouts.body`) and the bound on all buffers (`bounds.memory`). When all of it has arrived, it
waits for its turn (`Context.collected`): many bodies may be complete in one turn of the event loop,
and counting one takes up to some milliseconds. The gate then decides from the start, as the key may
have changed meanwhile. A short body that came with its head does not wait.
"""

from __future__ import annotations

from math import inf
from typing import Final

from gateway.errors import Refusal

#: A body of this length takes a fifth of a millisecond at most.
AT_ONCE_BYTES: Final = 4096


class WholeBody:
    """Collects a body.

    most:      the most bytes that it may have
    too_large: the refusal of a larger one
    ended:     when the decision with it began, by `time.perf_counter`
    """

    __slots__ = ("_data", "ended", "most", "too_large")

    def __init__(self, most: int, too_large: Refusal) -> None:
        self.most = most
        self.too_large = too_large
        self.ended = inf
        # One array: a list of a thousand single bytes would take forty times as much memory.
        self._data = bytearray()

    def __len__(self) -> int:
        return len(self._data)

    def add(self, payload: bytes) -> bool:
        """Keep the next bytes; False: the body is too large, and nothing of it is kept."""
        if len(self._data) + len(payload) > self.most:
            self._data.clear()
            self.most = -1
            return False
        self._data += payload
        return True

    def take(self) -> bytes:
        """All of it, which is then kept by the caller alone."""
        data = bytes(self._data)
        self._data.clear()
        return data
