"""The comparison's upstream and load without nginx and wrk, which a bare machine lacks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from loadtests.compare import probe
from loadtests.compare.probe import BIG_BYTES, SMALL
from loadtests.compare.wrk import Load


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body in one piece: two would wait for the other end's delayed acknowledgement.
    wbufsize = -1

    def do_GET(self) -> None:
        self._answer(b"x" * BIG_BYTES if self.path == "/big" else SMALL)

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(SMALL, len(sent))

    def _answer(self, body: bytes, got: int = 0) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Body-Bytes", str(got))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A gateway keeps connections open until it ends, so their threads are not awaited.
    block_on_close = False

    def handle_error(self, *_: object) -> None:
        """Ignore resets; a fault of the upstream shows in its answers."""


@contextmanager
def upstream() -> Iterator[int]:
    """A server that answers as the run's nginx does; its port."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def requests(count: int) -> Callable[..., Load]:
    """Replaces wrk: this many requests, with the key of the file that it would have read."""

    def run(url: str, connections: int, seconds: float, script: str, *words: str) -> Load:
        key = Path(words[0]).read_text().split()[0]
        method, body = ("POST", b"x" * int(words[2])) if "POST" in words else ("GET", None)
        port, _, path = url.removeprefix("http://127.0.0.1:").partition("/")
        answers = [
            probe.ask(int(port), f"/{path}", key, method=method, body=body) for _ in range(count)
        ]
        return Load(count, 100, 1, 2, other=sum(answer.status >= 400 for answer in answers))

    return run
