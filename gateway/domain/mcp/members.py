"""Reads the members of JSON objects that must have only one reading, and leaves values unread.

A reader that found another value than this one would do what nobody was asked for. So an object in
which two parsers could find different values is refused: a key twice, one that is a known name only
where letter case is ignored, or one with odd characters.

msgspec skips the values, and validates them without building them. Objects have few keys and arrays
few elements, or reading them ends there: a million of them take no time.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import msgspec
from msgspec import UNSET

from gateway.domain.json_array import ODD, fold_case

#: The most keys of an object: more take long, and no message has them.
MOST_KEYS: Final = 32
#: The longest of these keys, in characters.
MOST_KEY: Final = 256
#: The most elements of an array.
MOST_ELEMENTS: Final = 32
#: The longest object that is read as clients write it: any other is then gone over once more.
MOST_COMPACT_BYTES: Final = 16 * 1024
SPACES: Final = b" \t\r\n"
#: By the first byte.
_KINDS: Final = {
    **{b"[": "an array", b'"': "a text", b"n": "null"},
    **dict.fromkeys((b"t", b"f"), "a boolean"),
}


class Invalid(Exception):
    """The text has no reading, or more than one; the message says why."""


class _Key:
    """A key of an object. Each is equal to itself alone: so a dict keeps equal keys, and order."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


_Object = dict[_Key, msgspec.Raw]
Pairs = list[tuple[str, msgspec.Raw]]


class _Reader:
    """Reads the pairs of objects without reading their values.

    form: an object, or the array of them; most_keys: in all of these together
    """

    def __init__(self, form: Any, most_keys: int) -> None:
        self._most = self._left = most_keys
        self._decode = msgspec.json.Decoder(form, dec_hook=self._key).decode

    def _key(self, _type: type, text: Any) -> _Key:
        self._left -= 1
        if self._left < 0:
            raise Invalid(f"an object has more than {MOST_KEYS} keys")
        if len(text) > MOST_KEY:
            raise Invalid(f"a key has more than {MOST_KEY} characters")
        return _Key(text)

    def read(self, text: bytes | msgspec.Raw) -> Any:
        self._left = self._most
        try:
            return self._decode(text)
        except msgspec.ValidationError as error:
            raise (error.__cause__ if isinstance(error.__cause__, Invalid) else error) from None


def _array_of(element: Any) -> Any:
    """The form of an array: elements beyond the fields end the reading."""
    return msgspec.defstruct(
        "_Array",
        [(f"at_{index}", element | msgspec.UnsetType, UNSET) for index in range(MOST_ELEMENTS)],
        array_like=True,
        forbid_unknown_fields=True,
    )


_object: Final = _Reader(_Object, MOST_KEYS).read
_objects: Final = _Reader(_array_of(_Object), MOST_KEYS * MOST_ELEMENTS).read
_elements: Final = msgspec.json.Decoder(_array_of(msgspec.Raw)).decode
_encode: Final = msgspec.json.Encoder().encode


def read_object(text: bytes | msgspec.Raw) -> Pairs:
    """The pairs of an object. Raises Invalid, or what msgspec raises."""
    return _pairs(_object(text))


def read_objects(text: bytes) -> list[Pairs]:
    """The pairs of each object of an array. Raises Invalid, or what msgspec raises."""
    return [_pairs(each) for each in msgspec.structs.astuple(_objects(text)) if each is not UNSET]


def read_elements(text: bytes) -> list[bytes]:
    """The elements of an array, of any kind. Raises what msgspec raises."""
    return [bytes(each) for each in msgspec.structs.astuple(_elements(text)) if each is not UNSET]


def kind_of(value: bytes) -> str:
    """What a JSON value that is no object is, for an error. value: without white space before it"""
    return _KINDS.get(value[:1], "a number")


def _pairs(read: _Object) -> Pairs:
    if len(read) > MOST_KEYS:  # of one that shares the bound with the others of its array
        raise Invalid(f"an object has more than {MOST_KEYS} keys")
    return [(key.text, value) for key, value in read.items()]


class Members:
    """Reads the members of an object that have these names, and leaves their values unread.

    An object as clients write it has well-known keys only, and no white space. msgspec reads that
    without a call for each key, but takes the last of equal keys. So it is written again: if that
    has as many bytes, nothing else is in the object, and no key is there twice or in an odd form.
    Any other object is read key by key.
    """

    def __init__(self, names: Collection[str], *more: str) -> None:
        """names: the attributes are what follows the last slash of each; more well-known keys"""
        self._names = frozenset(names)
        #: By a reading of a key that ignores letter case.
        self._alike = {fold_case(name): name for name in names}
        self._attributes = {name: name.rpartition("/")[2] for name in (*names, *more)}
        self._form = msgspec.defstruct(
            "_Form",
            [
                (
                    attribute,
                    msgspec.Raw | msgspec.UnsetType,
                    msgspec.field(default=UNSET, name=name),
                )
                for name, attribute in self._attributes.items()
            ],
            forbid_unknown_fields=True,
        )
        self._decode = msgspec.json.Decoder(self._form).decode

    def read(self, text: bytes | msgspec.Raw) -> Any:
        """Of the text of an object: as attributes; UNSET: it has no such key.

        Raises Invalid, or what msgspec raises.
        """
        size = len(memoryview(text))
        if size <= MOST_COMPACT_BYTES:
            try:
                found = self._decode(text)
            except msgspec.DecodeError:
                pass
            else:
                if len(_encode(found)) == size:
                    return found
        return self.of(read_object(text))

    def of(self, pairs: Pairs) -> Any:
        """The same, of the pairs of an object."""
        found = self.checked(pairs)
        read = {self._attributes[name]: found[name] for name in self._names if name in found}
        return self._form(**read)

    def checked(self, pairs: Pairs) -> dict[str, msgspec.Raw]:
        """All pairs, if each parser finds the same values under the names. Raises Invalid."""
        found = dict(pairs)
        if len(found) < len(pairs):
            raise Invalid("an object has a key twice")
        others = found.keys() - self._names
        if not others:
            return found
        if ODD.search("".join(others)):
            raise Invalid("a key with characters that some parsers ignore")
        # Together: there may be many, and a key has no LF.
        folded = {each.strip() for each in fold_case("\n".join(others)).split("\n")}
        for alike in folded & self._alike.keys():
            raise Invalid(f'a key that some parsers take for "{self._alike[alike]}"')
        return found
