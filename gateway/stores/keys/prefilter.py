"""A quick look at a record's bytes: may it be one of those that are wanted?

Among ten thousand keys a page of a few is wanted, and to parse a record takes ten times as long as
to look at it. `records` writes a record's fields in the order of their names and without blanks, so
that a plain search finds a field and its value; a quotation mark inside a text is escaped there,
so that no name can pretend to be a field. What is in doubt passes: whoever asks parses it and
judges. A record that somebody wrote by hand, in another form, may be held back.
"""

from __future__ import annotations

import json
import re
from typing import Final

from gateway.domain.ports import KeyFilter

_expiry = re.compile(rb',"expires_us":(-?[0-9]{1,20}),').search
#: Where the texts stand that a text is looked for in: account, id and name, by what is around them.
_TEXTS: Final = (
    (b'{"account":"', b'","created_us":'),
    (b',"id":"', b'","limits":'),
    (b',"name":"', b'","networks":'),
)


class Sieve:
    """What holds back most of those that are not wanted. sifts: something is held back at all"""

    def __init__(self, wanted: KeyFilter) -> None:
        self.wanted = wanted
        status = "valid" if wanted.status == "expired" else wanted.status
        exact = {"status": status, "account": wanted.account, "environment": wanted.environment}
        self._fields = [_field(name, value) for name, value in exact.items() if value is not None]
        plan = wanted.plan
        self._plans = () if plan is None else (_field("plan", plan), _field("plan", ""))
        self._expired = {"expired": True, "valid": False}.get(wanted.status or "")
        self._text = _written((wanted.text or "").lower())[1:-1]
        self.sifts = bool(self._fields or self._plans or self._text)

    def may_pass(self, content: bytes) -> bool:
        """False: it is certain that the record is none of those that are wanted."""
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
        # Most have it nowhere, which takes a quarter of the time to see.
        if self._text not in content.lower() and b"\\u" not in content:
            return False
        start = 0
        for before, after in _TEXTS:
            start = content.find(before, start)
            end = content.find(after, start)
            text = content[start + len(before) : end]
            # Escaped letters (all beyond ASCII) have small forms that bytes do not tell.
            if start < 0 or end < 0 or self._text in text.lower() or b"\\u" in text:
                return True
            start = end
        return False


def _field(name: str, value: str) -> bytes:
    return b"%b:%b," % (_written(name), _written(value))


def _written(text: str) -> bytes:
    """As it stands in a record."""
    return json.dumps(text).encode()
