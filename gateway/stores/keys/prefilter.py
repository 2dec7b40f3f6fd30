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
from typing import Final, NamedTuple

from gateway.domain.keys import KeyRecord
from gateway.domain.patterns import NAME
from gateway.domain.ports import KeyFilter

_expiry = re.compile(rb',"expires_us":(-?[0-9]{1,20}),').search
_owner = re.compile(
    rb'\{"account":"(%b)",.*,"lineage":"([^"\\]*)",.*,"status":"([a-z]*)",' % NAME.encode(),
    re.DOTALL,
).match
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
        # A record without a plan has that of its account.
        plans = None if wanted.plans is None else wanted.plans | {""}
        self._plans = [_field("plan", plan) for plan in plans or ()]
        others = (wanted.other_plans or frozenset()) - {""}
        self._other_plans = [_field("plan", name) for name in others]
        self._expired = {"expired": True, "valid": False}.get(wanted.status or "")
        self._text = _written((wanted.text or "").lower())[1:-1]
        self._scope = b"" if wanted.scope is None else _written(wanted.scope)
        narrowed = self._fields or self._plans or self._other_plans or self._text or self._scope
        self.is_selective = bool(narrowed) or wanted.expires_before_us is not None

    def may_pass(self, content: bytes) -> bool:
        """Can the record match?"""
        return (
            all(field in content for field in self._fields)
            and (not self._plans or any(field in content for field in self._plans))
            and not any(field in content for field in self._other_plans)
            and (self._expired is None or self._may_be_in_time(content))
            and (not self._text or self._may_have_text(content))
            and (not self._scope or self._scope in content)
            and (self.wanted.expires_before_us is None or self._may_expire_before(content))
        )

    def _may_expire_before(self, content: bytes) -> bool:
        found = _expiry(content)
        assert self.wanted.expires_before_us is not None
        return found is not None and int(found[1]) < self.wanted.expires_before_us

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


class Owner(NamedTuple):
    """Whose a key is. is_own: the account is the key's own, as none was given"""

    account: str
    is_revoked: bool
    is_own: bool

    @classmethod
    def of(cls, record: KeyRecord) -> Owner:
        """That of a record."""
        is_own = record.account == record.lineage
        return cls(record.account, record.status == "revoked", is_own)


def owner_of(content: bytes) -> Owner | None:
    """Whose a record is, without parsing it; None: it is not in the format of `records`."""
    found = _owner(content)
    if found is None:
        return None
    account, lineage, status = found.groups()
    return Owner(account.decode("ascii"), status == b"revoked", account == lineage)


def _field(name: str, value: str) -> bytes:
    return b"%b:%b," % (_written(name), _written(value))


def _written(text: str) -> bytes:
    """A text as it is written in a record."""
    return json.dumps(text).encode()
