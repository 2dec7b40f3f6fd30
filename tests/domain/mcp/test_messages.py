"""Messages of MCP have one reading, or none."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.json_array import ODD
from gateway.domain.mcp.members import MOST_ELEMENTS, MOST_KEY, MOST_KEYS, read_object
from gateway.domain.mcp.messages import (
    INVALID,
    INVALID_PARAMS,
    MOST_ARRAY_BYTES,
    MOST_META_BYTES,
    MOST_NAME_BYTES,
    NAMED,
    UNREADABLE,
    Body,
    Fault,
    Message,
    read_body,
    read_in_steps,
    read_text,
)


def call(**changes: object) -> bytes:
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "search"}}
    return json.dumps({**message, **changes}).encode()


def read_both(body: bytes, version: str) -> Body | Fault:
    """Read at once, and in steps as long bodies are: with the same result."""
    read = read_body(body, version)
    *rest, last = read_in_steps(body, version)
    assert last == read
    assert rest == [None] * len(rest)
    return read


def one(body: bytes, version: str = "") -> Message:
    read = read_both(body, version)
    assert isinstance(read, Body), read
    assert not read.is_array
    (message,) = read.messages
    return message


def fault(body: bytes, version: str = "") -> Fault:
    read = read_both(body, version)
    assert isinstance(read, Fault), read
    return read


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (call(), Message("request", b"7", "tools/call", "search")),
        (call(id="a"), Message("request", b'"a"', "tools/call", "search")),
        (call(id=-12), Message("request", b"-12", "tools/call", "search")),
        (
            call(method="prompts/get", params={"name": "p", "arguments": {"name": "q"}}),
            Message("request", b"7", "prompts/get", "p"),
        ),
        (
            call(method="resources/read", params={"uri": "file:///a"}),
            Message("request", b"7", "resources/read", "file:///a"),
        ),
        # Removed by 2026-07-28: servers answer that they do not know the method.
        (
            call(method="resources/subscribe", params={"_meta": {}}),
            Message("request", b"7", "resources/subscribe"),
        ),
        (call(method="tools/list", params={}), Message("request", b"7", "tools/list")),
        (call(method="x/unknown", params={"name": "a"}), Message("request", b"7", "x/unknown")),
        (
            b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
            Message("notification", b"", "notifications/initialized"),
        ),
        (b'{"jsonrpc":"2.0","id":"s1","result":{}}', Message("response", b'"s1"')),
        (b'{"jsonrpc":"2.0","id":null,"error":{"code":1}}', Message("response")),
        (
            call(
                params={
                    "name": "search",
                    "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"},
                }
            ),
            Message("request", b"7", "tools/call", "search", "2026-07-28"),
        ),
    ],
)
def test_what_a_decision_needs(body: bytes, message: Message) -> None:
    """Kind, id as it was written, method, the name that is asked for, and the version."""
    assert one(body) == message
    assert one(b" \r\n\t" + body + b"\n") == message


@pytest.mark.parametrize("text", ["7", "-0", "1" * 256, '"a"', '"\\u0041"', '"' + "x" * 254 + '"'])
def test_ids_keep_their_form(text: str) -> None:
    """An id is returned as it was written, whatever a parser would make of it."""
    assert one(b'{"jsonrpc":"2.0","method":"ping","id":%b}' % text.encode()).id == text.encode()


@pytest.mark.parametrize(
    "text", ["null", "1.0", "1e3", "true", "[1]", "{}", "1" * 257, '"' + "x" * 255 + '"']
)
def test_other_ids_are_refused(text: str) -> None:
    """MCP: an id is text or an integer, and not null; here it is short as well."""
    found = fault(b'{"jsonrpc":"2.0","method":"ping","id":%b}' % text.encode())
    assert (found.code, found.id) == (INVALID, b"null")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b"NaN",
        call() + b"x",
        call().replace(b'"search"', b"NaN"),
        call().replace(b'"search"', b'"search",'),
        call().replace(b"7", b"07"),
        b"\xef\xbb\xbf" + call(),
        call().decode().encode("utf-16"),
        call().replace(b"search", b"\xff"),
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"\xed\xa0\x80"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":%b}'
        % (b'{"a":' * 2000 + b"1" + b"}" * 2000),
        b'{"a":' * 5000,
        b"[" * 5000,
    ],
)
def test_no_json(body: bytes) -> None:
    """What is not JSON in UTF-8, or too deep, cannot be read."""
    assert fault(body).code == UNREADABLE


@pytest.mark.parametrize(
    "body",
    [
        b"1",
        b'"a"',
        b"null",
        call(jsonrpc="1.0"),
        call(jsonrpc=2.0),
        b'{"id":1,"method":"ping"}',
        call(method=1),
        call(method="x" * 257),
        call(result={}),
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}',
        b"[]",
        b"[1]",
        b"[[]]",
        b"[null]",
        b"[%b, {}]" % call(),
        b"[%b]" % b",".join([call()] * (MOST_ELEMENTS + 1)),
        b"[%b]" % call(params={"name": "a", "arguments": "x" * MOST_ARRAY_BYTES}),
        b'{"jsonrpc":"2.0",%b"method":"x"}' % (b'"a":1,' * MOST_KEYS),
    ],
)
def test_no_message(body: bytes) -> None:
    """JSON that is no message of JSON-RPC 2.0."""
    assert fault(body).code == INVALID


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (call(params=[]), INVALID_PARAMS),
        (call(params="name"), INVALID_PARAMS),
        (call(params={}), INVALID_PARAMS),
        (call(params={"name": 1}), INVALID_PARAMS),
        (call(method="resources/read", params={"uri": 1}), INVALID_PARAMS),
        (call(params={"name": "a", "_meta": []}), INVALID_PARAMS),
    ],
)
def test_params_that_name_nothing(body: bytes, code: int) -> None:
    """A call without a tool's name cannot be decided; the fault has the message's id."""
    found = fault(body)
    assert (found.code, found.id) == (code, b"7")


ALIKE = [
    b'"method":"tools/list"',
    b'"Method":"tools/list"',
    b'"METHOD":"tools/list"',
    b'"m\\u0065thod":"tools/list"',
    b'"method\\u0000":"tools/list"',
    b'"me\\u200bthod":"tools/list"',
    b'"\\ufeffmethod":"tools/list"',
    b'"Id":8',
    b'"ID":8',
    b'"\\u0130d":8',
    b'"par\\u0061ms":{}',
    b'"PARAMS":{"name":"other"}',
]


@pytest.mark.parametrize("pair", ALIKE)
@pytest.mark.parametrize("first", [True, False])
def test_a_name_twice(pair: bytes, first: bool) -> None:
    """Parsers differ in which of two alike keys they take: none is."""
    inner = call()[1:-1]
    body = b"{%b}" % b",".join([pair, inner] if first else [inner, pair])
    assert fault(body).code == INVALID


@pytest.mark.parametrize(
    "pair",
    [b'"name":"other"', b'"Name":"other"', b'"NAME":1', b'"n\\u0061me":"other"', b'"Uri":""'],
)
def test_a_parameter_twice(pair: bytes) -> None:
    """The same holds for the names of parameters."""
    body = call().replace(b'"name"', pair + b', "name"')
    assert fault(body).code == INVALID


@pytest.mark.parametrize("key", [b"\\u0000", b"\\u200bx", b"x\x7f", b"x" * (MOST_KEY + 1)])
def test_odd_keys(key: bytes) -> None:
    """Keys that no protocol has are refused where it has names; they may be in arguments."""
    pair = b'"%b":1' % key
    meta = b'{"progressToken":1,%b}' % pair
    assert fault(b"{%b,%b" % (pair, call()[1:])).code == INVALID
    assert fault(call().replace(b'"name"', pair + b',"name"')).code == INVALID
    assert fault(call().replace(b'"name"', b'"_meta":%b,"name"' % meta)).code == INVALID
    assert one(call().replace(b'"name"', b'"arguments":%b,"name"' % meta)).name == "search"


def test_steps() -> None:
    """Each body takes three, but one that is not to be read at all."""
    for body in (call(), b"[%b]" % call(), b"{", call(**{"x" * 300: 1})):
        assert len(list(read_in_steps(body, ""))) == 3
    for body in (b'{"a": "\xff"}', b"[" * 100_000):
        (only,) = read_in_steps(body, "")
        assert isinstance(only, Fault)


def test_no_step_is_repeated() -> None:
    """The last one looks at the pairs that were found, and no more at the body."""
    assert isinstance(read_text(b"", "", read_object(call())), Body)


def test_long_parameters() -> None:
    """What is looked into is bounded, as it is gone over once more."""
    for more in (0, 1):
        name = {"name": "x" * (MOST_NAME_BYTES - len('""') + more)}
        meta = {"a": "x" * (MOST_META_BYTES - len('{"a": ""}') + more)}
        for params in (name, {"name": "search", "_meta": meta}):
            read = read_both(call(params=params), "")
            assert isinstance(read, Fault) is (more > 0)
            if isinstance(read, Fault):
                assert (read.code, read.id) == (INVALID_PARAMS, b"7")


def test_arguments_are_not_looked_into() -> None:
    """What is in arguments is between client and server, keys that are there twice included."""
    body = call().replace(b'"name"', b'"arguments": {"a": 1, "a": 2, "Name": 3}, "name"')
    assert one(body).name == "search"


def test_arrays() -> None:
    """Versions up to 2025-03-26 have arrays; later ones do not."""
    body = b"[%b, %b]" % (call(), b'{"jsonrpc":"2.0","method":"notifications/cancelled"}')
    for version in ("", "2024-11-05", "2025-03-26"):
        read = read_both(body, version)
        assert isinstance(read, Body)
        assert read.is_array
        assert [message.kind for message in read.messages] == ["request", "notification"]
        assert [message.id for message in read.requests] == [b"7"]
    for version in ("2025-06-18", "2025-11-25", "2026-07-28"):
        assert fault(body, version).code == INVALID
    assert isinstance(read_both(b"[%b]" % b",".join([call()] * MOST_ELEMENTS), ""), Body)


@pytest.mark.parametrize(
    "body",
    [
        b"{%b}" % b",".join(b'"%d":1' % number for number in range(200_000)),
        b"[%b]" % b",".join([b"1"] * 400_000),
        call(params={"name": "a", **{str(number): 1 for number in range(1_000)}}),
    ],
)
def test_many_keys_and_elements_are_not_read(body: bytes) -> None:
    """The reading of an object or array ends at its bound."""
    assert fault(body).code == INVALID


@pytest.mark.parametrize("unit", ["a", "\n", "\u200b", "\u0390"])
@pytest.mark.parametrize("place", ["message", "params", "_meta"])
def test_long_keys_are_not_compared(unit: str, place: str) -> None:
    """To compare them with the names of the protocol takes long."""
    long = {unit * (MOST_KEY + 1): 1}
    params = {"name": "a", "_meta": long if place == "_meta" else {}}
    if place == "params":
        params |= long
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
    if place == "message":
        message |= long
    assert "a key has more than" in fault(json.dumps(message).encode()).message


@pytest.mark.parametrize("method", ["tools/call", "tools/list", "resources/read", "ping", "a/b"])
def test_requests_have_an_id(method: str) -> None:
    """A JSON-RPC server runs a request without an id; no limit would count it."""
    params = {NAMED[method]: "a"} if method in NAMED else {}
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    found = fault(json.dumps(message).encode())
    assert (found.code, found.id) == (INVALID, b"null")
    assert 'without "id"' in found.message


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)


@given(
    st.sampled_from([*NAMED, "tools/list", "ping"]),
    TEXTS.filter(lambda name: not ODD.search(name)),
    st.integers(-(10**20), 10**20) | TEXTS,
    VALUES,
    st.booleans(),
)
def test_what_any_client_sends_is_read(
    method: str, name: str, message_id: int | str, arguments: object, ascii_only: bool
) -> None:
    """Whatever a JSON library writes of a valid message is read as that message."""
    params = {"arguments": arguments, **({NAMED[method]: name} if method in NAMED else {})}
    message = {"jsonrpc": "2.0", "id": message_id, "method": method, "params": params}
    body = json.dumps(message, ensure_ascii=ascii_only).encode()
    read = one(body)
    assert (read.method, json.loads(read.id)) == (method, message_id)
    assert read.name == (name if method in NAMED else "")


MEMBERS = st.dictionaries(
    st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "Id", "x"]),
    st.sampled_from(
        [
            *(b'"2.0"', b"7", b'"tools/call"', b"null", b"{}", b"[]", b'"ping"'),
            *(b'{"name":"a"}', b'{"name":"a","arguments":{"b": 1}}', b'{"name":"a","name":"b"}'),
            *(b'{"Name":"a"}', b'{"n\\u0061me":"a"}', b'{"name":"a","_meta":{"progressToken":1}}'),
            b'{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"},"name":"a"}',
            b'{"_meta":{"io.modelcontextprotocol/protocolVersion":"a","progresstoken":1,"a":2}}',
        ]
    ),
)


@given(MEMBERS, st.integers(0, 7), st.sampled_from(["", "2025-11-25"]))
def test_white_space_changes_nothing(members: dict[str, bytes], doubled: int, version: str) -> None:
    """A message as clients write it is read in another way than one with spaces: with the same
    result, whatever its keys are.
    """
    members = {"jsonrpc": b'"2.0"', "id": b"7", "method": b'"tools/call"', **members}
    pairs = [b'"%b":%b' % (name.encode(), value) for name, value in members.items()]
    pairs += pairs[doubled : doubled + 1]
    plain = b"{%b}" % b",".join(pairs)
    assert read_body(plain, version) == read_body(b"{ " + plain[1:], version)
    spaced = plain.replace(b'{"name":', b'{ "name":').replace(b'{"_meta":', b'{ "_meta":')
    assert read_body(plain, version) == read_body(spaced, version)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"[[]]", "expected an array of objects, found an array as element 1"),
        (b"[%b, null]" % call(), "expected an array of objects, found null as element 2"),
        (b"[ [[{}]], 1]", "expected an array of objects, found an array as element 1"),
        (b'[{}, "x"]', "expected an array of objects, found a text as element 2"),
        (b"[true]", "expected an array of objects, found a boolean as element 1"),
        (b"[-1]", "expected an array of objects, found a number as element 1"),
        (b"[%b]" % b",".join([b"1"] * 33), "an array has more than 32 elements"),
        (b' "x"', "expected a JSON object, found a text"),
        (b"7", "expected a JSON object, found a number"),
        (
            b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[[]]}',
            'expected an object as "params", found an array',
        ),
    ],
)
def test_what_was_found(body: bytes, words: str) -> None:
    """An error says what is there in place of an object."""
    found = read_body(body, "")
    assert isinstance(found, Fault)
    assert found.message == f"Invalid message: {words}."


def test_an_array_that_is_no_json() -> None:
    """That is said first, whatever its elements are."""
    found = read_body(b"[1, {", "")
    assert isinstance(found, Fault)
    assert found.code == UNREADABLE


@pytest.mark.parametrize("method", ["Tools/Call", "tools/call ", "\ttools/call", "TOOLS/CALL"])
def test_a_method_that_looks_like_another(method: str) -> None:
    """A server that ignores case or white space would call a tool that nobody looked at."""
    found = fault(call(method=method))
    assert (found.code, found.id) == (INVALID, b"7")
    assert found.message == 'Invalid message: a method that some servers take for "tools/call".'


@pytest.mark.parametrize("method", ["Tools/List", " tools/list"])
def test_a_method_that_looks_like_the_list(method: str) -> None:
    """Its answer would not be filtered."""
    assert "some servers take for" in fault(call(method=method)).message


@pytest.mark.parametrize("odd", ["\0", "\u200b", "\ufeff", "\x1f", "\x7f"])
def test_odd_characters(odd: str) -> None:
    """A server that cuts a text off at NUL, or drops invisible characters, would find another."""
    found = fault(call(method=f"tools/call{odd}"))
    assert found.message in (
        'Invalid message: "method" has other characters than printable ASCII.',
        'Invalid message: a method that some servers take for "tools/call".',
    )
    found = fault(call(params={"name": f"debug_dump{odd}"}))
    assert (found.code, found.id) == (INVALID_PARAMS, b"7")
    assert found.message.endswith('"name" has control or invisible characters.')
