"""The measured peers: how each is configured and started, and its features.

Each keeps its upstream connections open, has as many workers or threads as the others, and writes
only the access log to disk, if the layer has one. `remark` describes its features for the report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from loadtests.compare import keys as key_files
from loadtests.compare import ours, probe, tools
from loadtests.compare.keys import KeySet
from loadtests.compare.processes import Program
from loadtests.compare.render import FOLDER, render_file
from loadtests.compare.scenarios import LAYERS, Layer
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer


@dataclass(frozen=True, slots=True)
class Running:
    """A started peer. store: its own Redis; away: within it that one is dead."""

    port: int
    pid: int
    store: RedisServer | None = None
    away: Callable[[], AbstractContextManager[Running]] | None = None


@dataclass(frozen=True, slots=True)
class Site:
    """The setup of a peer. folder: a new one for it alone; upstream: a port."""

    folder: Path
    upstream: int
    layer: Layer
    workers: int
    keys: KeySet

    def values(self, port: int) -> dict[str, object]:
        """The values for templates."""
        return {
            "folder": self.folder,
            "conf": FOLDER,
            "port": port,
            "upstream": self.upstream,
            "workers": self.workers,
            "layer": self.layer,
            "scope": key_files.SCOPE,
            "tiny": self.keys.tiny.text,
            "tiny_rate": key_files.TINY_RATE,
            "tiny_peak": key_files.TINY_PEAK,
            "tiny_more": key_files.TINY_PEAK - 1,
        }


@dataclass(frozen=True, slots=True)
class Peer:
    """name: for --only; needs: its tools; layers: those that it has; rules, headers: of "all".

    A peer without the layer "key" is a floor: it checks nothing.
    """

    name: str
    title: str
    needs: tuple[str, ...]
    layers: tuple[Layer, ...]
    start: Callable[[Site, ExitStack], Running]
    remark: str
    rules: frozenset[str] = frozenset(probe.RULES)
    headers: tuple[str, ...] = ("Limit", "Remaining", "Reset", "Reset-After")

    @property
    def is_floor(self) -> bool:
        return "key" not in self.layers

    def check(self, running: Running, site: Site) -> None:
        """Check that it does what the layer says. Raises probe.Wrong."""
        layer = "proxy" if self.is_floor else site.layer
        probe.check_peer(running.port, layer, site.keys, rules=self.rules, headers=self.headers)


@contextmanager
def upstream(folder: Path) -> Iterator[int]:
    """Start the static nginx behind all peers; yields its port."""
    with ExitStack() as stack:
        port = free_port()
        www = folder / "www"
        www.mkdir()
        (www / "big").write_bytes(b"0123456789abcdef" * (probe.BIG_BYTES // 16))
        conf = render_file("upstream.conf", "", {"folder": folder, "port": port}, folder)
        _start_nginx(folder, conf, port, stack)
        yield port


def _start_ours(site: Site, stack: ExitStack) -> Running:
    store = start_store(stack)
    is_full = site.layer in ("all", "log")
    key_files.write_gateway_keys(store.url, site.keys.kept(), is_full=is_full)
    policies = ours.write_policies(site.folder / "policies", site.upstream, site.layer, ["/**"])
    served = ours.serve(
        site.folder,
        policies,
        store.url,
        stack,
        workers=site.workers,
        access_log=site.layer == "log",
    )
    if site.layer == "process":
        # During an outage a worker decides locally, for cached keys.
        for key in (site.keys.good, site.keys.tiny):
            served.until(lambda key=key: _knows(served.port, key.text))
        store.kill()
        return Running(served.port, served.pid)
    return Running(served.port, served.pid, store, partial(_away, site, served, store))


def _knows(port: int, key: str) -> bool:
    """Does the gateway accept this key, which it has cached then?"""
    return probe.ask(port, "/v1/auth/verify", key).status == 200


@contextmanager
def _away(site: Site, served: ours.Served, store: RedisServer) -> Iterator[Running]:
    """Kill the store of a gateway; afterwards start it with the same keys, and wait until used."""
    store.kill()
    try:
        yield Running(served.port, served.pid)
    finally:
        store.start()
        key_files.write_gateway_keys(store.url, site.keys.kept(), is_full=True)
    served.until(lambda: _decides(store, served.port, site.keys.good.text))


def _decides(store: RedisServer, port: int, key: str) -> bool:
    """Does the store decide on a request with this key?"""
    before = script_calls(store)
    return probe.ask(port, "/small", key).status == 200 and script_calls(store) > before


def script_calls(store: RedisServer) -> int:
    """The number of scripts that it has run."""
    with store.client() as client:
        calls = client.info("commandstats")
    called = [calls.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha")]
    return sum(map(int, called))


def _start_nginx_lua(site: Site, stack: ExitStack) -> Running:
    store = start_store(stack)
    with store.client() as client:
        key_files.write_nginx_keys(client, site.keys.kept())
    values = {
        "redis": store.port,
        "script": FOLDER / "nginx_window.lua",
        "modules": tools.path_of("nginx-lua").parent,
    }
    port, pid = _nginx_gateway(site, site.layer, values, stack)
    return Running(port, pid, store)


def _start_nginx_plain(site: Site, stack: ExitStack) -> Running:
    variant = "floor-log" if site.layer == "log" else "floor"
    return Running(*_nginx_gateway(site, variant, {}, stack))


def _nginx_gateway(
    site: Site, variant: str, more: dict[str, object], stack: ExitStack
) -> tuple[int, int]:
    port = free_port()
    conf = render_file("nginx.conf", variant, {**site.values(port), **more}, site.folder)
    return port, _start_nginx(site.folder, conf, port, stack)


def _start_nginx(folder: Path, conf: Path, port: int, stack: ExitStack) -> int:
    nginx = Program(folder, str(tools.path_of("nginx")), "-p", str(folder), "-c", str(conf))
    stack.callback(nginx.stop)
    nginx.until(lambda: probe.is_up(port))
    return nginx.pid


def _start_haproxy(site: Site, stack: ExitStack) -> Running:
    port = free_port()
    keys = site.folder / "keys.map"
    keys.touch(mode=0o600)
    keys.write_text(key_files.haproxy_map(site.keys.kept()), encoding="ascii")
    conf = render_file("haproxy.cfg", site.layer, site.values(port), site.folder)
    haproxy = Program(site.folder, str(tools.path_of("haproxy")), "-db", "-f", str(conf))
    stack.callback(haproxy.stop)
    haproxy.until(lambda: probe.is_up(port))
    return Running(port, haproxy.pid)


def _start_envoy(site: Site, stack: ExitStack) -> Running:
    port = free_port()
    keys = site.folder / "keys.lua"
    keys.touch(mode=0o600)
    keys.write_text(key_files.envoy_table(site.keys.kept()), encoding="ascii")
    values = site.values(port)
    render_file("envoy_gate.lua", site.layer, values, site.folder)
    conf = render_file("envoy.yaml", site.layer, values, site.folder)
    envoy = Program(
        site.folder,
        *(str(tools.path_of("envoy")), "-c", str(conf), "--concurrency", str(site.workers)),
        *("--disable-hot-restart", "--log-level", "warning"),
    )
    stack.callback(envoy.stop)
    envoy.until(lambda: probe.is_up(port))
    return Running(port, envoy.pid)


def start_store(stack: ExitStack) -> RedisServer:
    """Start a Redis for one peer alone, without persistence."""
    store = RedisServer()
    stack.callback(store.stop)
    return store.start()


PEERS: Final = {
    peer.name: peer
    for peer in (
        Peer(
            "ours",
            "gateway",
            ("redis-server",),
            tuple(LAYERS),
            _start_ours,
            "`gateway serve` with the metrics that it always has. A limit in process is what it "
            "counts while its store is unavailable. Even without a key or a limit every answer has "
            "the four headers.",
        ),
        Peer(
            "nginx-lua",
            "nginx + Lua + Redis",
            ("nginx", "nginx-lua", "lua-redis", "redis-server"),
            ("key", "process", "redis", "all", "log"),
            _start_nginx_lua,
            "Keys are hashes in Redis, which each worker remembers for one second; one EVALSHA a "
            "request over kept connections runs the same sliding window with a burst. The limit "
            "in process is nginx's own limit_req. Metrics are counters in shared memory.",
        ),
        Peer(
            "envoy",
            "Envoy",
            ("envoy",),
            ("proxy", "key", "process", "all", "log"),
            _start_envoy,
            "Keys are a table in a Lua filter, limits a token bucket a key in the local rate limit "
            "filter: nothing is shared between two Envoys. Three of the four headers. Its own "
            "statistics.",
            headers=("Limit", "Remaining", "Reset"),
        ),
        Peer(
            "haproxy",
            "HAProxy",
            ("haproxy",),
            ("proxy", "key", "process", "all", "log"),
            _start_haproxy,
            "Keys are a map file, limits a stick table with the rate of the last minute: nothing "
            "is shared between two HAProxies, and there is no burst. No IP ranges of a key. Its "
            "own statistics.",
            rules=frozenset(probe.RULES) - {"elsewhere"},
        ),
        Peer(
            "nginx",
            "plain nginx",
            ("nginx",),
            ("proxy", "log"),
            _start_nginx_plain,
            "A proxy that checks nothing: the floor under everybody.",
        ),
    )
}
