"""The imports of the client library: nothing of the gateway, and webhooks need Python alone."""

from __future__ import annotations

import ast
import sys

import pytest

from tests.test_layers import ROOT, circles, import_graph, imports, modules, source_of

PACKAGE = ROOT / "client" / "gateway_client"
#: The modules that send by httpx, and read its answers.
HTTPX = {"__main__", "async_client", "bodies", "calls", "client", "session"}
#: Of the standard library of some Python that the client library is for, but not of all.
NOT_EVERYWHERE = {
    *("annotationlib", "compression", "tomllib"),
    *("asynchat", "asyncore", "distutils", "imp", "smtpd"),
    *("aifc", "audioop", "cgi", "cgitb", "chunk", "crypt", "imghdr", "mailcap", "msilib", "nis"),
    *("nntplib", "ossaudiodev", "pipes", "sndhdr", "spwd", "sunau", "telnetlib", "uu", "xdrlib"),
}
LIBRARY = sys.stdlib_module_names - NOT_EVERYWHERE


def complaints(name: str, source: str, is_package: bool = False) -> list[str]:
    """The faults of the imports of a module of this name, such as webhooks.asgi."""
    found = []
    top = name.partition(".")[0]
    for imported in imports(ast.parse(source), name, is_package, PACKAGE.name):
        first = imported.partition(".")[0]
        if first == PACKAGE.name:
            if top == "webhooks" and not f"{imported}.".startswith(f"{PACKAGE.name}.webhooks."):
                found.append(f"{name} imports {imported}, which webhooks do without")
        elif first == "httpx":
            if name not in HTTPX:
                found.append(f"{name} imports httpx, whose home is {sorted(HTTPX)}")
        elif first not in LIBRARY:
            found.append(f"{name} imports {first}, which not every Python has")
    return found


@pytest.mark.parametrize("name", ["", *modules(PACKAGE)])
def test_a_module_imports_what_is_there(name: str) -> None:
    """The library itself, httpx where it is at home, and what every Python has; not the gateway."""
    path = source_of(name, PACKAGE)
    assert complaints(name, path.read_text(), path.name == "__init__.py") == []


def test_no_circle() -> None:
    """No module imports itself through others, not even for types."""
    assert circles(import_graph(PACKAGE)) == []


@pytest.mark.parametrize(
    ("name", "source", "words"),
    [
        ("client", "from gateway.errors import TABLE", "imports gateway, which not every"),
        ("client", "import yaml", "imports yaml, which not every"),
        ("settings", "import tomllib", "imports tomllib, which not every"),
        ("retries", "def f():\n    import httpx", "imports httpx, whose home"),
        ("webhooks.asgi", "import httpx", "imports httpx, whose home"),
        ("webhooks.asgi", "from gateway_client.calls import read", "webhooks do without"),
        ("webhooks.asgi", "from ..session import Session", "webhooks do without"),
    ],
)
def test_a_breach_is_seen(name: str, source: str, words: str) -> None:
    """Every form of import is checked, and the complaint says what is wrong."""
    (complaint,) = complaints(name, source)
    assert words in complaint


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("client", "import httpx, time\nfrom gateway_client import calls"),
        ("webhooks.asgi", "from gateway_client.webhooks.events import Event"),
        ("webhooks.asgi", "from .events import Event\nfrom gateway_client import webhooks"),
    ],
)
def test_what_is_allowed_passes(name: str, source: str) -> None:
    """The library itself, httpx at its home, the standard library."""
    assert complaints(name, source) == []
