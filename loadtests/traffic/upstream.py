"""The demo's upstream as a separate program: python -m loadtests.traffic.upstream PORT."""

from __future__ import annotations

import sys

from aiohttp import web

from gateway.cli.demo_upstream import build_demo_upstream

if __name__ == "__main__":
    web.run_app(
        build_demo_upstream(),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        access_log=None,
        handler_cancellation=True,
    )
