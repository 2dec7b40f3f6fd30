"""The instructions of a request, counted by valgrind: the same on a busy machine.

Started under callgrind, this module forks one process for each case, so that each begins in the
same state. Of that process only the rounds between two calls of `getppid` are counted, a function
that nothing else calls: valgrind writes a file at each. The remaining variation (the addresses of
objects are hashed) is less than a percent.
"""

from __future__ import annotations

import gc
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.bench.cases import CASES, Case
from tests.bench.rig import rig

#: Warm-up rounds, until the interpreter has specialised its code, and memory is stable.
WARM_ROUNDS: Final = 100
ROUNDS: Final = 200

_totals = re.compile(r"^totals: (\d+)$", re.MULTILINE).search


def interpreter() -> str:
    """The interpreter: counts of another Python, or another build of it, are not comparable.

    "CPython 3.11.7, GCC 12.2.0, x86_64"
    """
    return (
        f"{platform.python_implementation()} {platform.python_version()}, "
        f"{platform.python_compiler()}, {platform.machine()}"
    )


def count_instructions(cases: Sequence[Case] = CASES) -> dict[str, int]:
    """Instructions per request, by the case's name. Needs valgrind; takes half a minute."""
    with tempfile.TemporaryDirectory(prefix="gateway-bench-") as folder:
        done = subprocess.run(
            [
                *("valgrind", "--tool=callgrind", "--dump-before=getppid", "--quiet"),
                f"--callgrind-out-file={folder}/out.%p",
                *(sys.executable, "-m", "tests.bench.instructions"),
                *(str(CASES.index(case)) for case in cases),
            ],
            env={**os.environ, "PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"counting instructions failed:\n{done.stdout}{done.stderr}")
        pids = done.stdout.split()
        return {
            case.name: round(
                read_total((Path(folder) / f"out.{pid}.2").read_text()) / ROUNDS / case.requests
            )
            for case, pid in zip(cases, pids, strict=True)
        }


def read_total(text: str) -> int:
    """The instructions in one file of callgrind."""
    found = _totals(text)
    assert found is not None, f"no total in {text[:200]!r}"
    return int(found[1])


def _run(case: Case) -> None:
    with rig() as parts:
        once = case.build(parts)
        for _ in range(WARM_ROUNDS):
            once()
        gc.disable()
        os.getppid()
        for _ in range(ROUNDS):
            once()
        os.getppid()


def main(places: Sequence[str]) -> None:
    """Run cases, each in a separate process, and print the processes' ids."""
    for place in places:
        pid = os.fork()
        if not pid:
            _run(CASES[int(place)])
            os._exit(0)
        if os.waitpid(pid, 0)[1]:
            raise SystemExit(f"failed: {CASES[int(place)].name}")
        print(pid, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
