"""What a supervisor runs as a worker: `python -m gateway.cli.worker DESCRIPTOR`.

No command for people, who would have no channel to hand it.
"""

from __future__ import annotations

import sys

from gateway.app import Gateway
from gateway.runtime.process import run
from gateway.runtime.worker import work


def main() -> int:
    """Be the worker at the other end of this descriptor; the exit status."""
    descriptor = int(sys.argv[1])
    return run(lambda: work(descriptor, lambda settings, init: Gateway(settings, init=init)))


if __name__ == "__main__":
    raise SystemExit(main())
