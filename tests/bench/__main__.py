"""All benchmarks that this machine has the tools for; prints what is missing.

    make bench

The status is 1 if our own code takes more instructions than the baseline allows.
"""

from __future__ import annotations

import asyncio
import shutil
import sys

from tests.bench import hot, loaded


def main() -> int:
    """Measure our own code alone, then the whole under load."""
    status = hot.main(["--against"] if shutil.which("valgrind") else [])
    if lacking := loaded.missing():
        print(f"no load was put on a gateway: not on PATH: {', '.join(lacking)}")
    else:
        print()
        asyncio.run(loaded.main())
    return status


if __name__ == "__main__":
    sys.exit(main())
