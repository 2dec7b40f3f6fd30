"""`error_pages`: the policy's own bodies of refusals, in JSON or HTML, and which of them is sent.

A page is a text with variables. Their values are escaped for the page's format, so that a message
cannot add markup. The request's id is left out of what is built, as everything else is the same for
many requests: `pieces` returns what is between its occurrences. Pages may have 64 KiB, and clients
can cause many answers that differ in little: few pages are cached, and without what differs most.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from typing import Final, Literal

Kind = Literal["html", "json"]

VARIABLES: Final = ("status", "code", "message", "request_id", "retry_after")
CONTENT_TYPES: Final[dict[Kind, bytes]] = {
    "html": b"text/html; charset=utf-8",
    "json": b"application/json",
}
#: The format; the text, None: the gateway's own JSON; whether other values of Accept get another.
Page = tuple[Kind, bytes | None, bool]
#: A longer Accept gets JSON. Browsers send up to 150 characters.
MOST_ACCEPT: Final = 512

_VARIABLE: Final = re.compile(rb"\{([a-z_]{1,32})\}")
_WEIGHT = re.compile(r"[qQ]=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)").fullmatch
#: By how specific they are, the most specific first (RFC 9110, 12.5.1).
_RANGES: Final[dict[Kind, tuple[str, ...]]] = {
    "html": ("text/html", "text/*", "*/*"),
    "json": ("application/json", "application/*", "*/*"),
}


@dataclass(frozen=True, slots=True)
class ErrorPages:
    """The texts, in UTF-8; None: there is none, so that the gateway's own body is sent."""

    html: bytes | None = None
    json: bytes | None = None

    def chosen(self, accept: str) -> Page:
        """The page for a request with this Accept."""
        if self.html is not None and prefers_html(accept):
            return "html", self.html, True
        return "json", self.json, self.html is not None


def prefers_html(accept: str) -> bool:
    """Does a client want HTML rather than JSON? JSON is for all that do not say so."""
    return len(accept) <= MOST_ACCEPT and "html" in accept.lower() and _prefers_html(accept)


@lru_cache(maxsize=256)
def _prefers_html(accept: str) -> bool:
    weights: dict[str, float] = {}
    for entry in accept.lower().split(","):
        media, *parameters = (part.strip(" \t") for part in entry.split(";"))
        weight = 1.0
        for parameter in parameters:
            found = _WEIGHT(parameter)
            if found is not None:
                weight = float(found[1])
            elif parameter.startswith("q="):
                weight = 0.0
        weights.setdefault(media, weight)
    html, as_json = (
        next((weights[each] for each in ranges if each in weights), 0.0)
        for ranges in _RANGES.values()
    )
    return html > as_json


def unknown_variable(text: str) -> str | None:
    """The first variable of a page that does not exist."""
    names = (found[1].decode() for found in _VARIABLE.finditer(text.encode()))
    return next((name for name in names if name not in VARIABLES), None)


@lru_cache(maxsize=64)
def pieces(
    kind: Kind, page: bytes, status: int, code: str, message: str, retry_s: int | None
) -> tuple[bytes, ...]:
    """The page with its values, split where the request's id is.

    retry_s: in JSON null if it is None, in HTML nothing
    """
    if kind == "html":
        values = {
            b"status": str(status),
            b"code": escape(code),
            b"message": escape(message),
            b"retry_after": "" if retry_s is None else str(retry_s),
        }
    else:
        values = {
            b"status": str(status),
            b"code": json.dumps(code)[1:-1],
            b"message": json.dumps(message)[1:-1],
            b"retry_after": json.dumps(retry_s),
        }
    encoded = {name: text.encode() for name, text in values.items()}
    parts = _template(page)
    found: list[bytes] = []
    begun = [parts[0]]
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        if name == b"request_id":
            found.append(b"".join(begun))
            begun = [text]
        else:
            begun += (encoded[name], text)
    return (*found, b"".join(begun))


@lru_cache(maxsize=8)
def _template(page: bytes) -> list[bytes]:
    """Texts and names of variables in turns: the first is a text."""
    return _VARIABLE.split(page)
