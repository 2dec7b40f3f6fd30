"""No spelling of a path evades a route's limit or scope, however the upstream reads URLs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes

import pytest

from gateway.domain.policy import Policy
from gateway.domain.route import Route
from gateway.domain.routes import RouteTable
from gateway.errors import AMBIGUOUS_PATH, BAD_TARGET, Refusal
from gateway.policies.load import load
from gateway.routing import Requested, read_request_line

#: The shipped policies, which users start from.
SHIPPED = Path(__file__).parents[2] / "policies"

GUARDED = {
    "search": ("GET", "/api/search/x"),
    "batch": ("POST", "/api/v1/y/batch"),
    "webhook-test": ("POST", "/api/webhooks/test"),
    "connectors": ("GET", "/v1/connectors"),
}

#: Replace the slash between two segments, before the first or after the last.
_JOINTS = (
    "// /// /./ /.// /././ /x/../ /x/y/../../ /x/./../ /%2e/ /x/%2e%2e/ /x/.%2e/ /x/%2E./ /.%2f "
    "/%2f %2f %2F /%2f/ %2f/ \\ /\\ \\/ \\\\ %5c %5C /%5c/ /x\\..\\ /x/..\\ /x%2f..%2f /x/..%2f "
    "/x%5c..%5c %252f %252F %255c /%252e/ /x/%252e%252e/ /x/%252e%252e%252f /x/..%252f "
    ";/ ;a=b/ /; /;/ /;x/ /x/..;/ /x/;../ /x/..;a=b/ %3b/ %3B/ /x/..%3b/ %253b/ "
    "/%00/ %00/ /%0a/ %0d%0a/ /%09/ %20/ /%20/ /%7f/ /? %3f/ # %23/ "
    "%c0%af %e0%80%af %f0%80%80%af %c1%9c /x/%c0%ae%c0%ae/ /x/%e0%80%ae./ /%ef%bc%8f "
    "/... /.../ /..../ /*/ /%2a/ /~/ /@/ /:/ /%/ /%2/ /%zz/ /%u002f %u002f /%u2215/ "
    "/../ /../../ /x/../../ /%2e%2e/ /%2e%2e%2f /.;/ /.%3b/ /.%00/ /..%00/ /.%20/ "
    "./ .../ %20/ %20./ .%20/ /x/..%20/ /%20./ /x/..%3f/ %3f/x/../ .%2f /%2f. %2f..%2fx%2f"
)
#: Put after the last segment.
_TAILS = (
    "/ // /. /./ /.. /x/.. /%2e /%2e%2e . .. ... %2e %2E. %20 %09 %00 %0a %0d ; ;x ;x=/y %3b "
    "? ?x ?/ ?/../.. ?; ?%2f %3f %3fx # %23 #/.. \\ %5c /; /;x /%20 ~ %7e .json %2ejson %252e "
    "/%2e%2e%2f /*  %2a %c0%ae %ff %c2%85 + %2b , %2c = & $ ! ' ( ) : @ %40 "
    ".%20 %20. .%3f .%3Fx %20%23 ...%20%3f/y /%3f /.%3f /%23/.. %3f. %23%20 /%20%3f %2f%3f /%20"
)
JOINTS, TAILS = _JOINTS.split(), _TAILS.split()
#: Put in place of the first slash.
HEADS = ("//", "/./", "/x/../", "/%2e/", "/../", "\\", "/\\", "/%2f", "%2f", "/;/", "/;x/", ".")
#: Characters beyond ASCII that are another case of a letter: the long s, the Kelvin sign, and
#: the Turkish letters that Java converts to an i.
LOOKALIKES = {"s": "\u017f", "k": "\u212a", "i": "\u0130\u0131"}


def split(path: bytes) -> list[bytes]:
    """Resolve dot segments and merge doubled slashes, as every upstream does after decoding."""
    kept: list[bytes] = []
    for segment in path.split(b"/"):
        if segment == b"..":
            kept[-1:] = []
        elif segment not in {b"", b"."}:
            kept.append(segment)
    return kept


def split_first(path: bytes) -> list[bytes]:
    """RFC 3986, 2.4: the segments are separated before any of them is decoded."""
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
    """Many spellings of a path, and of nearly the same path."""
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
    for other in (path.upper(), path.title(), path.swapcase()[:-1]):
        yield other
        for tail in TAILS:
            yield other + tail
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


def beyond_ascii(path: str) -> Iterator[str]:
    """A path with one letter in a case that is not ASCII."""
    for at, letter in enumerate(path):
        for lookalike in LOOKALIKES.get(letter, ()):
            yield path[:at] + quote(lookalike) + path[at + 1 :]


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
    return route.name if isinstance(route, Route) else None


def test_the_table_is_long() -> None:
    """The table is long; of each route some spellings pass and some are refused."""
    assert len(TABLE) >= 1_500
    policy = load(SHIPPED)
    for name in GUARDED:
        decided = [judged(method, target, policy) for who, method, target in TABLE if who == name]
        assert sum(one is not None and one.route.name == name for one in decided) >= 30
        assert sum(one is None for one in decided) >= 50


@pytest.mark.parametrize("name", GUARDED)
def test_every_reading_matches_the_same_route(name: str, policy: Policy) -> None:
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
def test_what_was_sent_matches_the_same_route(name: str, policy: Policy) -> None:
    """In any reading, what the client sent is what was matched; else it was refused."""
    wrong = []
    for who, method, target in TABLE:
        requested = judged(method, target, policy) if who == name else None
        if requested is None:
            continue
        sent = re.sub("^http://[^/]*", "", target).partition("?")[0].encode("latin-1")
        for reading, read in READINGS.items():
            if reading == "raw":  # no reading of what a client sends
                continue
            route = route_of(read(sent), method, policy)
            if route != requested.route.name:
                wrong.append((target, reading, route, requested.route.name))
    assert wrong == []


def cut(path: bytes) -> bytes:
    return re.split(rb"[?#]", path)[0]


def without_ends(segments: list[bytes]) -> list[bytes]:
    """Without dots and spaces at the ends, as Windows reads names."""
    return split(b"/".join(segment.rstrip(b". ") for segment in segments))


def in_any_case(segments: list[bytes]) -> tuple[str, ...]:
    text = "/".join(segment.decode("utf-8", "replace") for segment in segments)
    return tuple(text.translate({0x130: "i", 0x131: "i"}).casefold().split("/"))


#: Conversions of a path before a case-insensitive match.
UPSTREAMS: dict[str, Callable[[bytes], list[bytes]]] = {
    **READINGS,
    "query cut off after decoding": lambda path: split(cut(unquote_to_bytes(path))),
    "Windows": lambda path: without_ends(split(unquote_to_bytes(path))),
    "Windows, decoding last": lambda path: without_ends(split_first(path)),
    "Windows behind a query cut off": lambda path: without_ends(split(cut(unquote_to_bytes(path)))),
    "spaces dropped": lambda path: split(
        b"/".join(segment.rstrip(b" ") for segment in unquote_to_bytes(path).split(b"/"))
    ),
}


def guarded(method: str, path: tuple[str, ...]) -> str | None:
    """The routes with their own rules that an upstream would serve for it."""
    if method == "GET" and path[:2] == ("api", "search"):
        return "search"
    if method == "GET" and path == ("v1", "connectors"):
        return "connectors"
    if method == "POST" and path == ("api", "webhooks", "test"):
        return "webhook-test"
    if method == "POST" and len(path) > 1 and path[0] == "api" and path[-1] == "batch":
        return "batch"
    return None


def keeping(policy: Policy) -> Policy:
    """The same policy, with encoded slashes kept by every route."""
    kept = {name: replace(one, keeps_slashes=True) for name, one in policy.routes.items()}
    return replace(policy, routes=kept, table=RouteTable(kept.values()))


@pytest.mark.parametrize("name", GUARDED)
@pytest.mark.parametrize("keeps_slashes", [False, True])
def test_no_spelling_evades_a_rule(name: str, keeps_slashes: bool, policy: Policy) -> None:
    """What an upstream serves for a guarded path passed that path's route, or is refused."""
    used = keeping(policy) if keeps_slashes else policy
    wrong, met = [], set()
    method, path = GUARDED[name]
    for target in (*spellings(path), *beyond_ascii(path)):
        requested = judged(method, target, used)
        if requested is None:
            continue
        forwarded = requested.forward_line.split(b" ")[1].partition(b"?")[0]
        for upstream, read in UPSTREAMS.items():
            serves = guarded(method, in_any_case(read(forwarded)))
            met.add(serves)
            if serves not in (None, requested.route.name):
                wrong.append((target, upstream, serves, requested.route.name))
    assert wrong == []
    assert name in met


@pytest.mark.parametrize(
    ("target", "route"),
    [
        ("/V1/Connectors", "connectors"),
        ("/v1/connector%C5%BF", "connectors"),
        ("/api/Search/x", "search"),
        ("/api/search/C%23", "search"),
        ("/api/search/what%3f", "search"),
        ("/api/search/etc.", "search"),
        ("/v2/C%23/etc.../what%3F", "api"),
        ("/v1/connectors%20", None),
        ("/v1/connectors.", None),
        ("/v1/connectors%3F", None),
        ("/v1/connectors%23x/y", None),
        ("/v1./connectors.%3Fx", None),
        ("/V1%20/CONNECTORS..%20.%23", None),
        ("/health.", None),
        ("/%3f", "api"),
    ],
)
def test_only_ambiguous_routes_are_refused(target: str, route: str | None, policy: Policy) -> None:
    """A path with "?", "#" or dots passes if all its readings lead to the same route."""
    requested = read_request_line(f"GET {target} HTTP/1.1".encode(), policy)
    assert isinstance(requested, Requested)
    assert requested.refusal is (AMBIGUOUS_PATH if route is None else None)
    assert (requested.route.name or None) == route


@pytest.mark.parametrize(
    "target", ["/api/search%2fx", "/api/..;/v1/connectors", "/v1/%2563onnectors", "/v1\\connectors"]
)
def test_ambiguous_spellings_are_refused(target: str, policy: Policy) -> None:
    """A spelling with two readings is a 400, not a guess."""
    requested = read_request_line(f"GET {target} HTTP/1.1".encode(), policy)
    assert isinstance(requested, Requested)
    assert requested.refusal is BAD_TARGET
