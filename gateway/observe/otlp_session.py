"""HTTP with a collector: its answers are bounded, in length and in time.

Of an answer only the status counts, and of a failure its words are logged. By itself, requests
keeps the whole of it, however long it is, and waits as long as a byte comes now and then.
"""

from __future__ import annotations

import time
from typing import Any, Final

from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

#: The longest body of an answer that is read, and how long that may take.
MOST_ANSWER_BYTES: Final = 4096
MOST_ANSWER_S: Final = 10.0


def bounded_session() -> Session:
    """A session for an exporter."""
    session = Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, _Adapter())
    return session


class _Adapter(HTTPAdapter):
    """Reads answers up to a bound. A redirect is a failure: the spans would not arrive."""

    def send(
        self, request: PreparedRequest, stream: bool = False, *args: Any, **settings: Any
    ) -> Response:
        response = super().send(request, True, *args, **settings)
        if 300 <= response.status_code < 400:
            response.close()
            raise RequestException(f"the collector redirects, with status {response.status_code}")
        response._content = _body(response)  # what `Response.content` returns
        return response


def _body(response: Response) -> bytes:
    """The body as it was sent, without decoding it. Raises RequestException if it has no end."""
    body = bytearray()
    give_up = time.monotonic() + MOST_ANSWER_S
    try:
        while byte := response.raw.read(1, decode_content=False):
            body += byte
            if len(body) > MOST_ANSWER_BYTES or time.monotonic() > give_up:
                raise RequestException(
                    f"the collector's answer, with status {response.status_code}, is longer than "
                    f"{MOST_ANSWER_BYTES} bytes, or takes more than {MOST_ANSWER_S:g} s"
                )
    except (HTTPError, OSError):
        # It ended early, or a RequestException.
        response.close()
        raise
    return bytes(body)
