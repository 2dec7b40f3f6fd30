"""The program that a supervisor runs as a courier: `python -m gateway.cli.courier DESCRIPTOR`.

Not a command for users: it needs a channel to a supervisor.
"""

from __future__ import annotations

import sys

from gateway.courier import CourierProcess
from gateway.runtime.process import run
from gateway.runtime.worker import work


def main() -> int:
    """Run the courier whose end of the channel is this descriptor; returns the exit status."""
    descriptor = int(sys.argv[1])
    return run(lambda: work(descriptor, CourierProcess))


if __name__ == "__main__":
    raise SystemExit(main())
