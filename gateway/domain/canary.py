"""A canary: a share of a route's requests, or those with a header, go to another upstream.

By share, it is decided by the subject alone: the same client always gets the same upstream, on all
routes with the same canary, workers and gateways. With a larger share, clients that had the canary
keep it.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Protocol

_WHOLE: Final = 2**64


class Sent(Protocol):
    """The request."""

    def header(self, name: str) -> str:
        """The value of a field by its name in lower case; "": it is absent."""
        ...

    def subject_of(self, by: str) -> str:
        """What a share goes by: "key", "account", "ip" or "header:NAME", as for limits."""
        ...


@dataclass(frozen=True, slots=True)
class Canary:
    """Which requests go to another upstream: those with the header, and a share of the others.

    percent: the share, 0 to 100
    by:      the subject that it goes by
    header:  in lower case; "": none
    value:   the header's value; "": any but an empty one
    """

    upstream: str
    percent: float = 0.0
    by: str = "key"
    header: str = ""
    value: str = ""

    def takes(self, request: Sent) -> bool:
        """Does this request go to the canary?"""
        if self.header:
            found = request.header(self.header)
            if found and found == (self.value or found):
                return True
        if not self.percent:
            return False
        subject = f"{self.upstream}\n{request.subject_of(self.by)}"
        digest = blake2b(subject.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest) * 100 < self.percent * _WHOLE

    @property
    def headers(self) -> tuple[str, ...]:
        """The headers that it goes by, in lower case."""
        named = self.by.removeprefix("header:") if self.by.startswith("header:") else ""
        return tuple(name for name in (self.header, named) if name)

    @property
    def words(self) -> str:
        """In words: "5% by key and those with the header x-canary: always to beta"."""
        share = f"{self.percent:g}% by {self.by}" if self.percent else ""
        value = f": {self.value}" if self.value else ""
        header = f"those with the header {self.header}{value}" if self.header else ""
        return f"{' and '.join(filter(None, (share, header)))} to {self.upstream}"
