"""How many units a request counts, where that depends on the request: `cost` of a route.

Reading the body or the header is left to `proxy`; here is what they say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gateway.domain.json_array import count_elements
from gateway.domain.media_types import read_media_type
from gateway.errors import COST_TOO_HIGH, COST_UNREADABLE, Refusal

#: The largest body that is counted, unless the policy says otherwise.
BODY_BYTES: Final = 64 * 1024
#: The header fields by which an upstream chooses how to read a body, in lower case.
MEDIA_FIELDS: Final = ("content-type", "content-encoding")

_NUMBER = re.compile(r"[1-9][0-9]{0,9}").fullmatch
#: RFC 6839, 3.1: what media types end with that are JSON.
_JSON_SUFFIX: Final = "+json"


@dataclass(frozen=True, slots=True)
class JsonCost:
    """A unit for each element of an array in the JSON body; 1 without a body or elements.

    path:       the array's keys, from the outermost object on; (): the body is the array
    most:       a request with more elements is refused
    body_bytes: and one with a larger body
    """

    path: tuple[str, ...]
    most: int
    body_bytes: int = BODY_BYTES

    @property
    def least(self) -> int:
        """What a request costs about which nothing is known."""
        return 1

    @property
    def words(self) -> str:
        """For people: "1 for each element at ids of the JSON body, at most 100"."""
        return f"1 for each element of {self.place}, at most {self.most}"

    @property
    def place(self) -> str:
        """The array, in words."""
        return f"{'.'.join(self.path)} in the JSON body" if self.path else "the JSON body"


@dataclass(frozen=True, slots=True)
class HeaderCost:
    """The number in a request header.

    name:    in lower case
    most:    a request with a larger number is refused
    default: without the header
    """

    name: str
    most: int
    default: int = 1

    @property
    def least(self) -> int:
        """What a request costs about which nothing is known."""
        return self.default

    @property
    def words(self) -> str:
        """For people: "the number in the header x-items, at most 100; 1 without it"."""
        return f"the number in the header {self.name}, at most {self.most}; {self.default} without"


#: How a route's cost is found; the other kind is a plain number.
Costing = JsonCost | HeaderCost


@dataclass(frozen=True, slots=True)
class Uncounted:
    """A request whose cost is refused. detail: what was found, and what was expected"""

    refusal: Refusal
    detail: str


def is_json(content_type: str, content_encoding: str) -> bool:
    """Do these fields, of a request with a body, say that it is JSON in UTF-8, as it is?

    An upstream may read a body of another type, charset or coding in another way: JSON can be a
    form at the same time, with other elements.
    """
    if content_type == "application/json" and not content_encoding:
        return True
    found = read_media_type(content_type)
    if found.parameters is None or content_encoding.strip().lower() not in {"", "identity"}:
        return False
    kind, _, subtype = found.name.partition("/")
    is_named = kind == "application" and (subtype == "json" or subtype.endswith(_JSON_SUFFIX))
    return is_named and found.is_utf8


def body_cost(costing: JsonCost, body: bytes) -> int | Uncounted:
    """The cost of a request with this body."""
    if not body:
        return 1
    found = count_elements(body, costing.path)
    if isinstance(found, str):
        expected = f"a JSON array as {costing.place}" if costing.path else "a JSON array"
        return Uncounted(COST_UNREADABLE, f"Found {found}, expected {expected}.")
    if found > costing.most:
        detail = f"Found {found} elements of {costing.place}, expected at most {costing.most}."
        return Uncounted(COST_TOO_HIGH, detail)
    return max(found, 1)


def header_cost(costing: HeaderCost, value: str) -> int | Uncounted:
    """The cost of a request with this value of the header; "": it has none."""
    if not value:
        return costing.default
    if value.isdecimal() and value.isascii() and len(value) > 10 and value[0] != "0":
        value = f"{value[:10]}..."
    elif not _NUMBER(value):
        expected = f"a whole number from 1 to {costing.most}"
        return Uncounted(COST_UNREADABLE, f"Expected {expected} in the header {costing.name}.")
    elif int(value) <= costing.most:
        return int(value)
    detail = f"Found {value} in the header {costing.name}, expected at most {costing.most}."
    return Uncounted(COST_TOO_HIGH, detail)
