"""`access`: lists of addresses, in the policy and in files beside it."""

from __future__ import annotations

from typing import Final

from gateway.domain.address_lists import AccessList, AddressRanges
from gateway.domain.networks import Network
from gateway.policies import fields
from gateway.policies.faults import Fault, note, one_of, quoted
from gateway.policies.pages import read_content
from gateway.policies.settings import read_networks
from gateway.policies.values import Fields, Value

ACCESS: Final = ("allow", "deny", "allow_file", "deny_file")
#: The longest file, and the most lines with a range; a hundred thousand take half a second.
MOST_FILE_BYTES: Final = 4 * 1024 * 1024
MOST_RANGES: Final = 200_000
#: The most faults of one file.
_MOST_FAULTS: Final = 10


def read_access(value: Value) -> AccessList | None:
    """One list. Its files are added to `value.used`."""
    given = value.fields(ACCESS)
    if given is None:
        return None
    if not given:
        if not value.node.value:
            value.add_fault(one_of(ACCESS), "an empty mapping")
        return None
    return AccessList(_ranges(given, "allow"), _ranges(given, "deny"))


def _ranges(given: Fields, key: str) -> AddressRanges | None:
    """Those of a list and of a file together; None: neither is given."""
    networks: list[Network] = []
    if key in given:
        networks += read_networks(given[key]) or ()
    if f"{key}_file" in given:
        networks += _of_file(given[f"{key}_file"])
    elif key not in given:
        return None
    return AddressRanges(networks)


def _of_file(value: Value) -> list[Network]:
    """The ranges of a file: one on each line, with comments after '#'."""
    found = read_content(value, MOST_FILE_BYTES)
    if found is None:
        return []
    path, content = found
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        value.add_fault("a text file in UTF-8", f"byte {exc.start} of {path}")
        return []
    return _read_lines(value, str(path), text)


def _read_lines(value: Value, path: str, text: str) -> list[Network]:
    networks: list[Network] = []
    faults = 0
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].strip()
        if not words:
            continue
        if len(networks) == MOST_RANGES:
            value.add_fault(f"at most {MOST_RANGES} ranges", "more of them")
            break
        try:
            networks.append(fields.read_network(words))
        except ValueError as exc:
            found = f"{quoted(words)} (from {value.path})"
            note(value.faults, Fault(path, number, "", found, str(exc)))
            faults += 1
            if faults == _MOST_FAULTS:
                break
    return networks
