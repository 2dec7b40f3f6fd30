"""No text of others takes a time that grows with its square: a search for those that do.

Each pattern, and each function that reads texts of others, gets texts of 1, 4 and 16 KiB in which
one part comes again and again. A header may have 32 KiB, and a body 1 MiB: they take seconds where
the time grows so, and all else in the process waits.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from aiohttp.helpers import parse_content_type

from gateway.admin.api.routes import OPERATIONS
from gateway.domain import networks
from gateway.domain.headers import HeaderRules
from gateway.http1 import field_lines, response_parser
from gateway.http1.field_parser import FieldParser
from tests.growth import measure, patterns, readers
from tests.growth.measure import Pump, fault
from tests.growth.pumps import pumps_of
from tests.growth.readers import EXEMPT, EXPECTED, LIBRARIES, READERS, Reader
from tests.kit.rows import each_row

_OF_POLICIES = [
    *patterns.arguments("matching"),
    *patterns.arguments("named"),
    *patterns.arguments("_read_amount", 1),
]
_CUTS = (response_parser._CUT, FieldParser(HeaderRules(100))._cut)
#: Patterns that depend on what the code is given: all that it is given.
GIVEN: Mapping[str, list[re.Pattern[Any]]] = {
    "gateway.admin.api.reading: read_value.is_wrong": [
        re.compile(parameter.schema["pattern"])
        for operation in OPERATIONS
        for parameter in operation.parameters
        if "pattern" in parameter.schema
    ],
    "gateway.admin.console.cookie: _values_of": [find.__self__ for find in readers.COOKIES],
    "gateway.http1.own_fields: Cut.__init__.split": [cut.split.__self__ for cut in _CUTS],
    "gateway.http1.own_fields: Cut.__init__.any": [cut.any.__self__ for cut in _CUTS],
    "gateway.policies.fields: _read_amount.found": _OF_POLICIES,
    "gateway.policies.values: Value.matching": _OF_POLICIES,
    "gateway.policies.values: Value.named": _OF_POLICIES,
}
#: What patterns are asked where the source does not show it.
ASKED = {"gateway.observe.logs: _RULES": frozenset({"sub"})}
#: What looks for its parts in texts that another pattern, or function, has allowed.
AFTER: Mapping[str, Callable[[Any], object]] = {
    "gateway.http1.field_lines: split_fields": field_lines._PLAIN_LINES,
    "gateway.domain.networks: _pairs": networks._element,
}


def checked() -> list[tuple[str, re.Pattern[Any], str]]:
    """Each pattern with what it is asked: where, pattern, method."""
    found = {}
    for use in patterns.uses():
        methods = use.methods or ASKED[use.where]
        for pattern in GIVEN[use.where] if use.pattern is None else [use.pattern]:
            for method in methods:
                found[use.where, pattern, method] = None
    return list(found)


def test_patterns() -> None:
    """No pattern of the packages takes longer by its square, however the code uses it."""
    faults = {}
    tried = 0
    for where, pattern, method in checked():
        ask, allowed = patterns.asking(pattern, method), AFTER.get(where)
        pumps = list(pumps_of(pattern))
        tried += len(pumps)
        work = ask if allowed is None else _after(allowed, ask)
        if (found := fault(work, pumps)) is not None:
            faults[f"{where} {method}"] = found
    assert faults == {}
    assert tried > 5_000


def _after(allowed: Callable[[Any], object], ask: Callable[[Any], object]) -> Callable[[Any], Any]:
    return lambda text: allowed(text) and ask(text)


def test_readers() -> None:
    """No function that reads texts of others takes longer by their square, or fails."""
    faults = {}
    for module, rows in READERS.items():
        for row in rows:
            if (found := _fault_of(row)) is not None:
                faults[f"{module}: {row.name}"] = found
    assert faults == {}


def _fault_of(row: Reader) -> str | None:
    return fault(row.read, row.pumps(), unit=row.unit, raises=(*EXPECTED, *row.raises))


def test_each_module_is_known() -> None:
    """A module that imports what texts are read with has its functions here, or a reason."""
    reading = {module.__name__ for module in patterns.modules() if _reads(module)}
    assert {name for name in reading if name not in READERS and not readers.exempt(name)} == set()
    named = {name for names in EXEMPT.values() for name in names if not name.endswith(".*")}
    assert named - reading == set()
    assert named & READERS.keys() == set()


def _reads(module: Any) -> bool:
    return any(name.partition(".")[0] in LIBRARIES for name in _imported(module))


def _imported(module: Any) -> set[str]:
    """What a module imports: "email.utils", "re"."""
    found = set()
    for node in ast.walk(patterns.tree_of(module)):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def test_each_pattern_is_found() -> None:
    """What modules have compiled when they are imported is among what was found in the source."""
    in_source = {pattern for _, pattern, _ in checked()}
    compiled = {
        getattr(value, "__self__", value)
        for module in patterns.modules()
        for value in _values(module)
        if isinstance(getattr(value, "__self__", value), re.Pattern)
    }
    assert len(compiled) > 150
    assert compiled - in_source == set()
    assert not [module for module in patterns.modules() if _takes_from_re(module)]


def _values(module: Any) -> list[Any]:
    """The values of a module and of its classes, and what is in those that hold others."""
    values = list(vars(module).values())
    for value in list(values):
        if isinstance(value, type) and value.__module__ == module.__name__:
            values += vars(value).values()
    for value in list(values):
        if isinstance(value, dict):
            values += value.values()
        elif isinstance(value, (list, tuple)):
            values += [
                *value,
                *(part for each in value if isinstance(each, tuple) for part in each),
            ]
    return values


def _takes_from_re(module: Any) -> bool:
    """Does it call functions of `re` by other names than `re.NAME`, which were not found?"""
    return any(
        (isinstance(node, ast.ImportFrom) and node.module == "re")
        or (isinstance(node, ast.Import) and any(a.name == "re" and a.asname for a in node.names))
        for node in ast.walk(patterns.tree_of(module))
    )


def test_no_library_reads_media_types() -> None:
    """Content-Type is read by one module; those of aiohttp and email take seconds for some.

    Of `email` only the functions of dates are used.
    """
    faults = []
    for module in patterns.modules():
        name = module.__name__
        faults += [
            f"{name} imports {each}"
            for each in _imported(module)
            if each.partition(".")[0] in {"email", "cgi"} and each != "email.utils"
        ]
        faults += [f"{name} {asked}" for asked in _asked_of_aiohttp(module)]
    assert set(faults) == _OWN


def _asked_of_aiohttp(module: Any) -> set[str]:
    """What a module asks requests and answers for: "request.charset"."""
    return {
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(patterns.tree_of(module))
        if isinstance(node, ast.Attribute)
        and node.attr in _READ_BY_AIOHTTP
        and isinstance(node.value, ast.Name)
        and node.value.id in {"request", "response", "answer"}
    }


#: What aiohttp reads with parsers of its own, or of the standard library.
_READ_BY_AIOHTTP = {"content_type", "charset", "post", "multipart", "cookies", "links"}
#: Attributes of answers that the gateway makes itself.
_OWN = {
    "gateway.admin.connection response.cookies",
    "gateway.admin.console.cookie response.cookies",
}

# -- what was found before -------------------------------------------------------------------------

_WORD = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_PARAMETER = rf"[ \t]*;[ \t]*{_WORD}=(?:{_WORD}|\"[^\"\\;,=]*\")"
_JSON = re.compile(rf"application/(?:{_WORD}\+)?json((?:{_PARAMETER})*)[ \t]*", re.IGNORECASE)
_PARAMETERS = re.compile(rf"({_WORD})=([^; \t]*)")
_SESSION = re.compile(rb"(?i)(?:\A|(?<=\n))mcp-session-id:[ \t]*([^\r\n]*?)[ \t]*\r\n")


def _read_json_type(text: str) -> object:
    found = _JSON.fullmatch(text)
    return found and _PARAMETERS.findall(found[1])


@each_row(
    ("pattern", "method"),
    [
        (_PARAMETERS, "findall"),
        (_SESSION, "search"),
        (re.compile(r"\s+$"), "search"),
        (re.compile(r"a[^b]*b"), "sub"),
    ],
)
def test_patterns_of_before(pattern: re.Pattern[Any], method: str) -> None:
    """The search finds patterns that took seconds, and textbook examples."""
    assert fault(patterns.asking(pattern, method), pumps_of(pattern)) is not None


@each_row(
    ("module", "name", "read"),
    [
        ("gateway.domain.costs", "is_json", _read_json_type),
        ("gateway.domain.media_types", "read_media_type", parse_content_type.__wrapped__),
    ],
)
def test_readers_of_before(module: str, name: str, read: Callable[[Any], object]) -> None:
    """The search finds functions that took seconds, with the parts of those that replaced them."""
    (row,) = [row for row in READERS[module] if row.name == name]
    assert _fault_of(Reader(name, read, row.parts, row.frames)) is not None


def test_what_takes_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern whose time doubles with each character is ended."""
    monkeypatch.setattr(measure, "LIMIT_S", 0.1)
    found = fault(re.compile(r"(a+)+b").match, [Pump("", "a", "")])
    assert found == "takes more than 0.1 s: '' + n * 'a' + ''"


def test_what_is_linear() -> None:
    """What takes long in proportion is no fault; what raises is one, unless it may."""
    pumps = [Pump("", "a", "!")]
    assert fault(lambda text: [ord(char) for _ in range(9) for char in text], pumps) is None
    assert fault(lambda text: text.index("?"), pumps, raises=(ValueError,)) is None
    assert fault(lambda text: text.index("?"), pumps) == "raises ValueError: '' + n * 'a' + '!'"
    assert fault(lambda text: [text.count(char) for char in text], pumps) is not None
