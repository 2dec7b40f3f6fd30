"""What is left of processes with a wrong clock."""

from __future__ import annotations

import os
from pathlib import Path

from tests.kit.skewed import clean_up


def test_files_of_ended_processes_are_removed(tmp_path: Path) -> None:
    """Those of running ones stay, and so does everything else."""
    nobody = 2**22 + 1  # above the kernel's largest number of a process
    for name in ("faketime_shm", "sem.faketime_sem"):
        for pid in (os.getpid(), nobody):
            (tmp_path / f"{name}_{pid}").touch()
    (tmp_path / f"other_{nobody}").touch()
    clean_up(tmp_path)
    left = {f"{name}_{os.getpid()}" for name in ("faketime_shm", "sem.faketime_sem")}
    assert {file.name for file in tmp_path.iterdir()} == left | {f"other_{nobody}"}
