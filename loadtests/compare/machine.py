"""The machine of a comparison, without which its results mean nothing."""

from __future__ import annotations

import os
import platform
import re
import sys
from importlib.metadata import version as package_version
from pathlib import Path

from loadtests.compare import tools


def describe(names: list[str]) -> dict[str, str]:
    """A description of the machine, and the releases of these tools."""
    return {
        "CPU": f"{_cpu()}, {os.cpu_count()} cores",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.1f} GB",
        "kernel": f"{platform.system()} {platform.release()}",
        "Python": f"{sys.version.split()[0]}, uvloop {package_version('uvloop')}",
        **{name: found for name in names if (found := tools.version(name)) != "-"},
    }


def _cpu() -> str:
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.machine()
