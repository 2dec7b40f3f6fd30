"""The imports of the client library: nothing of the gateway, and webhooks need Python alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tests.kit.rows import each_row
from tests.test_layers import ROOT, Source, circles, import_graph, read_source, sources

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


def complaints(source: Source) -> Iterator[str]:
    """The faults of a module: where, what was found, and what was expected."""
    name = source.name
    top = name.partition(".")[0]
    for line, imported in source.imports:
        first = imported.partition(".")[0]
        fault = ""
        if first == PACKAGE.name:
            if top == "webhooks" and not f"{imported}.".startswith(f"{PACKAGE.name}.webhooks."):
                fault = f"{imported}, which webhooks do without"
        elif first == "httpx":
            if name not in HTTPX:
                fault = f"httpx, whose home is {sorted(HTTPX)}"
        elif first not in LIBRARY:
            fault = f"{first}, which not every Python has"
        if fault:
            yield f"{source.where}:{line}: {name} imports {fault}"


def read(name: str, text: str, is_package: bool = False) -> Source:
    return read_source(name, text, is_package, PACKAGE.name)


def test_modules_import_what_is_there() -> None:
    """The library itself, httpx where it is at home, and what every Python has; not the gateway."""
    top = read("", (PACKAGE / "__init__.py").read_text("utf-8"), is_package=True)
    found = [fault for each in (top, *sources(PACKAGE).values()) for fault in complaints(each)]
    assert found == [], "\n".join(found)


def test_no_circle() -> None:
    """No module imports itself through others, not even for types."""
    assert circles(import_graph(sources(PACKAGE), PACKAGE.name)) == []


@each_row(
    ("name", "text", "words"),
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
def test_a_breach_is_seen(name: str, text: str, words: str) -> None:
    """Every form of import is checked, and the complaint says what is wrong."""
    (complaint,) = complaints(read(name, text))
    assert words in complaint


@each_row(
    ("name", "text"),
    [
        ("client", "import httpx, time\nfrom gateway_client import calls"),
        ("webhooks.asgi", "from gateway_client.webhooks.events import Event"),
        ("webhooks.asgi", "from .events import Event\nfrom gateway_client import webhooks"),
    ],
)
def test_what_is_allowed_passes(name: str, text: str) -> None:
    """The library itself, httpx at its home, the standard library."""
    assert list(complaints(read(name, text))) == []
