"""No spelling of a path leads around a route's limit or scope, however the upstream reads URLs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote_to_bytes

import pytest

from gateway.domain.policy import Policy
from gateway.errors import BAD_TARGET, Refusal
from gateway.http1.requested import Requested, read_request_line
from gateway.policies.load import load

#: The policies that users start from, not the tests' own.
SHIPPED = Path(__file__).parents[2] / "policies"

GUARDED = {
    "search": ("GET", "/api/search/x"),
    "batch": ("POST", "/api/y/batch"),
    "webhook-test": ("POST", "/api/webhooks/test"),
    "connectors": ("GET", "/v1/connectors"),
}

#: Put between two segments, or before the first or after the last, in place of the slash there.
_JOINTS = (
    "// /// /./ /.// /././ /x/../ /x/y/../../ /x/./../ /%2e/ /x/%2e%2e/ /x/.%2e/ /x/%2E./ /.%2f "
    "/%2f %2f %2F /%2f/ %2f/ \\ /\\ \\/ \\\\ %5c %5C /%5c/ /x\\..\\ /x/..\\ /x%2f..%2f /x/..%2f "
    "/x%5c..%5c %252f %252F %255c /%252e/ /x/%252e%252e/ /x/%252e%252e%252f /x/..%252f "
    ";/ ;a=b/ /; /;/ /;x/ /x/..;/ /x/;../ /x/..;a=b/ %3b/ %3B/ /x/..%3b/ %253b/ "
    "/%00/ %00/ /%0a/ %0d%0a/ /%09/ %20/ /%20/ /%7f/ /? %3f/ # %23/ "
    "%c0%af %e0%80%af %f0%80%80%af %c1%9c /x/%c0%ae%c0%ae/ /x/%e0%80%ae./ /%ef%bc%8f "
    "/... /.../ /..../ /*/ /%2a/ /~/ /@/ /:/ /%/ /%2/ /%zz/ /%u002f %u002f /%u2215/ "
    "/../ /../../ /x/../../ /%2e%2e/ /%2e%2e%2f /.;/ /.%3b/ /.%00/ /..%00/ /.%20/"
)
#: Put behind the last segment.
_TAILS = (
    "/ // /. /./ /.. /x/.. /%2e /%2e%2e . .. ... %2e %2E. %20 %09 %00 %0a %0d ; ;x ;x=/y %3b "
    "? ?x ?/ ?/../.. ?; ?%2f %3f %3fx # %23 #/.. \\ %5c /; /;x /%20 ~ %7e .json %2ejson %252e "
    "/%2e%2e%2f /*  %2a %c0%ae %ff %c2%85 + %2b , %2c = & $ ! ' ( ) : @ %40"
)
JOINTS, TAILS = _JOINTS.split(), _TAILS.split()
#: Put in place of the first slash.
HEADS = ("//", "/./", "/x/../", "/%2e/", "/../", "\\", "/\\", "/%2f", "%2f", "/;/", "/;x/", ".")


def split(path: bytes) -> list[bytes]:
    """Dot segments resolved and doubled slashes merged, as every upstream does after decoding."""
    kept: list[bytes] = []
    for segment in path.split(b"/"):
        if segment == b"..":
            kept[-1:] = []
        elif segment not in {b"", b"."}:
            kept.append(segment)
    return kept


def split_first(path: bytes) -> list[bytes]:
    """RFC 3986, 2.4: the segments are parted before any of them is decoded."""
    kept: list[bytes] = []
    for segment in map(unquote_to_bytes, path.split(b"/")):
        if segment == b"..":
            kept[-1:] = []
        elif segment not in {b"", b"."}:
            kept.append(segment)
    return kept


def without_parameters(path: bytes) -> bytes:
    return b"/".join(segment.partition(b";")[0] for segment in path.split(b"/"))


READINGS: dict[str, Callable[[bytes], list[bytes]]] = {
    "raw": split,
    "RFC 3986": split_first,
    "decoded first": lambda path: split(unquote_to_bytes(path)),
    "decoded twice": lambda path: split(unquote_to_bytes(unquote_to_bytes(path))),
    "parameters cut": lambda path: split(without_parameters(unquote_to_bytes(path))),
    "parameters cut before decoding": lambda path: split(
        unquote_to_bytes(without_parameters(path))
    ),
    "backslash as slash": lambda path: split(unquote_to_bytes(path).replace(b"\\", b"/")),
}


def spellings(path: str) -> Iterator[str]:
    """All sorts of ways to write a path, and to write what is nearly it."""
    segments = path[1:].split("/")
    for at in range(1, len(segments)):
        for joint in JOINTS:
            yield "/" + "/".join(segments[:at]) + joint + "/".join(segments[at:])
    for tail in TAILS:
        yield path + tail
    for head in HEADS:
        yield head + path[1:]
        for tail in TAILS[::4]:
            yield head + path[1:] + tail
    for at, letter in enumerate(path):
        for code in (f"%{ord(letter):02x}", f"%{ord(letter):02X}", f"%25{ord(letter):02x}"):
            yield path[:at] + code + path[at + 1 :]
        if letter != "/":
            yield path[:at] + letter.upper() + path[at + 1 :]
            yield path[:at] + f"%{ord(letter.upper()):02X}" + path[at + 1 :]
    whole = "".join(f"%{ord(letter):02x}" for letter in path[1:].replace("/", "\0"))
    yield "/" + whole.replace("%00", "/")
    yield "/" + whole.replace("%00", "%2f")
    yield "/" + whole.replace("%00", "/").replace("%", "%25")
    yield f"http://gateway.test{path}"
    yield f"http://gateway.test/{path}"
    yield f"//gateway.test{path}"
    yield f"/x?{path}"
    yield f"/x/..{path}"
    yield f"/x/%2e%2e{path}?y"


TABLE = [
    (name, method, target)
    for name, (method, path) in GUARDED.items()
    for target in dict.fromkeys(spellings(path))
]


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load(SHIPPED)


def judged(method: str, target: str, policy: Policy) -> Requested | None:
    """What the gateway decides about a target; None: it is refused."""
    line = f"{method} {target} HTTP/1.1".encode("latin-1")
    requested = read_request_line(line, policy)
    if isinstance(requested, Refusal) or requested.refusal is not None:
        return None
    return requested


def route_of(segments: list[bytes], method: str, policy: Policy) -> str | None:
    route = policy.table.match(method, [one.decode("utf-8", "replace") for one in segments])
    return None if route is None else route.name


def test_the_table_is_one() -> None:
    """It is long; and of each route some spellings pass and some are refused."""
    assert len(TABLE) >= 1_500
    policy = load(SHIPPED)
    for name in GUARDED:
        decided = [judged(method, target, policy) for who, method, target in TABLE if who == name]
        assert sum(one is not None and one.route.name == name for one in decided) >= 30
        assert sum(one is None for one in decided) >= 50


@pytest.mark.parametrize("name", GUARDED)
def test_every_reading_leads_to_the_route_that_decided(name: str, policy: Policy) -> None:
    """A spelling is refused, or all readings of what is forwarded lead to one route's limits."""
    wrong = []
    for who, method, target in TABLE:
        requested = judged(method, target, policy) if who == name else None
        if requested is None:
            continue
        forwarded = requested.forward_line.split(b" ")[1].partition(b"?")[0]
        for reading, read in READINGS.items():
            route = route_of(read(forwarded), method, policy)
            if route != requested.route.name:
                wrong.append((target, reading, route, requested.route.name))
    assert wrong == []


@pytest.mark.parametrize("name", GUARDED)
def test_what_was_sent_leads_there_as_well(name: str, policy: Policy) -> None:
    """Read in any way, what the client sent means what was judged; else it was refused."""
    wrong = []
    for who, method, target in TABLE:
        requested = judged(method, target, policy) if who == name else None
        if requested is None:
            continue
        sent = re.sub("^http://[^/]*", "", target).partition("?")[0].encode("latin-1")
        for reading, read in READINGS.items():
            if reading == "raw":  # which nobody reads what a client sends to us by
                continue
            route = route_of(read(sent), method, policy)
            if route != requested.route.name:
                wrong.append((target, reading, route, requested.route.name))
    assert wrong == []


@pytest.mark.parametrize(
    "target", ["/api/search%2fx", "/api/..;/v1/connectors", "/v1/%2563onnectors", "/v1\\connectors"]
)
def test_ambiguous_spellings_are_refused(target: str, policy: Policy) -> None:
    """What two readers would take for two paths is a 400, not a guess."""
    requested = read_request_line(f"GET {target} HTTP/1.1".encode(), policy)
    assert isinstance(requested, Requested)
    assert requested.refusal is BAD_TARGET
