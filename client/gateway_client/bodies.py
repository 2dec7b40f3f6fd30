"""Reads the bodies of answers within bounds: in bytes, and in time.

Of an error little is needed. A longer body is cut off there; any other one that is too long is an
`UnexpectedAnswer`. It has to end within the time of an attempt, however slowly it comes.
"""

from __future__ import annotations

from typing import Final

import httpx

from gateway_client.errors import UnexpectedAnswer

#: The most bytes of the body of an error, once decoded.
MOST_OF_ERROR: Final = 64 * 1024


class Body:
    """The body of one answer. most: bytes, once decoded; ends_s: by the caller's clock"""

    def __init__(self, response: httpx.Response, most: int, ends_s: float) -> None:
        self._response = response
        self._is_error = response.status_code >= 400
        self._most = MOST_OF_ERROR if self._is_error else most
        self._ends_s = ends_s
        self._parts: list[bytes] = []
        self._size = 0

    def is_wanted(self, part: bytes, now_s: float) -> bool:
        """A part has come. False: no more is wanted.

        Raises UnexpectedAnswer if it is too long, and httpx.ReadTimeout if it takes too long.
        """
        self._parts.append(part[: self._most - self._size])
        self._size += len(part)
        if self._size > self._most:
            if self._is_error:
                return False
            raise UnexpectedAnswer(
                f"the body of the answer has more than {self._most} bytes (max_answer_bytes)",
                status=self._response.status_code,
            )
        if now_s > self._ends_s:
            raise httpx.ReadTimeout(
                "the answer did not end in time", request=self._response.request
            )
        return True

    def keep(self) -> None:
        """Give the answer its body, as `httpx.Response.read` does."""
        self._response._content = b"".join(self._parts)
