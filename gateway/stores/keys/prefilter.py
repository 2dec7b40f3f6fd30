"""A prefilter on the bytes of records: can a record match the filter of a list of keys?

A page may need a few keys among ten thousand, and parsing a record takes ten times as long as
searching its bytes. `records` writes a record's fields in the order of their names and without
spaces, so that a plain search finds a field and its value; a quotation mark inside a text is
escaped, so that no text can look like a field. In doubt a record passes, and the caller parses it
and decides. A record that was written by hand, in another format, may be missed.
"""

from __future__ import annotations

import json
import re
from typing import Final

from gateway.domain.ports import KeyFilter

_expiry = re.compile(rb',"expires_us":(-?[0-9]{1,20}),').search
#: The fields that a text is searched in (account, id, name): the bytes before and after each.
_TEXTS: Final = (
    (b'{"account":"', b'","created_us":'),
    (b',"id":"', b'","limits":'),
    (b',"name":"', b'","networks":'),
)


class Prefilter:
    """Rejects most records that do not match. is_selective: it can reject records"""

    def __init__(self, wanted: KeyFilter) -> None:
        self.wanted = wanted
        status = "valid" if wanted.status == "expired" else wanted.status
        exact = {"status": status, "account": wanted.account, "environment": wanted.environment}
        self._fields = [_field(name, value) for name, value in exact.items() if value is not None]
        plan = wanted.plan
        self._plans = () if plan is None else (_field("plan", plan), _field("plan", ""))
        self._expired = {"expired": True, "valid": False}.get(wanted.status or "")
        self._text = _written((wanted.text or "").lower())[1:-1]
        self.is_selective = bool(self._fields or self._plans or self._text)

    def may_pass(self, content: bytes) -> bool:
        """Can the record match?"""
        return (
            all(field in content for field in self._fields)
            and (not self._plans or any(field in content for field in self._plans))
            and (self._expired is None or self._may_be_in_time(content))
            and (not self._text or self._may_have_text(content))
        )

    def _may_be_in_time(self, content: bytes) -> bool:
        found = _expiry(content)
        has_expired = found is not None and int(found[1]) <= self.wanted.now_us
        return has_expired == self._expired

    def _may_have_text(self, content: bytes) -> bool:
        # Most records do not contain it at all: this check takes a quarter of the time.
        if self._text not in content.lower() and b"\\u" not in content:
            return False
        start = 0
        for before, after in _TEXTS:
            start = content.find(before, start)
            end = content.find(after, start)
            text = content[start + len(before) : end]
            # Escaped letters (all that are not ASCII) cannot be compared as bytes in lower case.
            if start < 0 or end < 0 or self._text in text.lower() or b"\\u" in text:
                return True
            start = end
        return False


def _field(name: str, value: str) -> bytes:
    return b"%b:%b," % (_written(name), _written(value))


def _written(text: str) -> bytes:
    """A text as it is written in a record."""
    return json.dumps(text).encode()
