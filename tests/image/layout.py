"""The files of the image, built in a folder with plain pip, and run without a container.

The commands of the build stage and the copies of the last stage are read from the Dockerfile and
executed under `root`, which replaces the image's `/`. This machine's Python replaces the base
image's; instead of a read-only root, the files belong to another user than the one that the
gateway runs as.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.image.dockerfile import Dockerfile, Stage, is_in_context, read_dockerfile, sources

CHECKOUT = Path(__file__).parents[2]
IS_ROOT = os.geteuid() == 0

#: Folders that the Dockerfile creates; all others are the base image's.
_OURS = re.compile(r"(?<![\w./-])/(src|opt|etc/gateway|data)(?![\w-])")
#: Files of the interpreter that a slim image lacks, too.
_HEAVY = shutil.ignore_patterns("test", "tests", "idlelib", "tkinter", "site-packages", "config-*")


@dataclass(frozen=True, slots=True)
class Layout:
    """A built image. root: its /; user: the user to run as, or None for the current one"""

    root: Path
    dockerfile: Dockerfile
    python: Path
    user: int | None

    @property
    def home(self) -> Path:
        return self.root / "opt/gateway"

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def policies(self) -> Path:
        return self.root / "etc/gateway/policies"

    def place(self, text: str) -> str:
        """The text with the image's paths replaced by those on this machine."""
        return _OURS.sub(lambda found: f"{self.root}/{found[1]}", text)

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of a process in the image; `more` overrides it, like docker run --env."""
        variables = self.dockerfile.final.environment
        # The base's programs are not this machine's, such as a redis-server.
        path = self.place(variables["PATH"].partition(":")[0])
        # A copied interpreter may look for its library where it was built, which is out of reach.
        library = {"LD_LIBRARY_PATH": str(self.python.parent.parent / "lib")}
        return {**{n: self.place(v) for n, v in variables.items()}, "PATH": path, **library, **more}

    def popen(self, words: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
        """Run a command of the image, as its user."""
        return subprocess.Popen(
            [str(self.home / "bin" / words[0]), *words[1:]],
            env=environment,
            cwd=self.data,
            user=self.user,
            group=self.user,
            extra_groups=None if self.user is None else [],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, words: list[str], environment: dict[str, str]) -> tuple[int, str]:
        """Run it to its end; return its exit status and its output."""
        with self.popen(words, environment) as process:
            output, _ = process.communicate(timeout=60)
        return process.returncode, output

    def files(self) -> dict[str, tuple[int, int, int]]:
        """All files except those in /data: path -> mode, size and modification time."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            if self.data not in (path, *path.parents):
                status = path.lstat()
                found[str(path)] = (status.st_mode, status.st_size, status.st_mtime_ns)
        return found


def build(root: Path, interpreters: Path) -> Layout:
    """Do what `docker build` does, in a new folder `root`. Raises BuildFailed."""
    dockerfile = read_dockerfile((CHECKOUT / "Dockerfile").read_text(encoding="utf-8"))
    user = int(dockerfile.final.the("USER").text.partition(":")[0]) if IS_ROOT else None
    layout = Layout(root, dockerfile, _python_for(user, interpreters), user)
    root.mkdir()
    _run_stage(layout, dockerfile.build)
    built = root.rename(root.with_name("build"))
    root.mkdir()
    for copy in dockerfile.final.all("COPY"):
        stage, what, where = sources(copy)
        target = Path(layout.place(where))
        for source in what:
            if stage is None:
                _copy(source, target)
            else:  # the build stage is not used any more
                target.parent.mkdir(parents=True, exist_ok=True)
                (built / source.lstrip("/")).rename(target)
    shutil.rmtree(built)
    layout.data.mkdir(mode=0o700)
    if user is not None:
        os.chown(layout.data, user, user)
    else:
        _make_read_only(root)
    return layout


class BuildFailed(Exception):
    """A command of the build stage failed; its output."""


def _run_stage(layout: Layout, stage: Stage) -> None:
    folder = layout.root
    for instruction in stage.instructions:
        if instruction.word == "WORKDIR":
            folder = Path(layout.place(instruction.text))
            folder.mkdir(parents=True)
        elif instruction.word == "COPY":
            _, what, where = sources(instruction)
            for source in what:
                target = folder / where
                _copy(source, target / Path(source).name if where.endswith("/") else target)
        else:
            assert instruction.word == "RUN", instruction
            _run(layout, instruction.text, folder)


def _run(layout: Layout, command: str, folder: Path) -> None:
    path = f"{layout.python.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["/bin/sh", "-ec", layout.place(command)],
        cwd=folder,
        env={**os.environ, "PATH": path, "HOME": str(layout.root)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BuildFailed(f"{command}\n{done.stdout}\n{done.stderr}")


def _copy(source: str, target: Path) -> None:
    """Copy a file or a folder of the checkout, if .dockerignore permits it."""
    rules = (CHECKOUT / ".dockerignore").read_text(encoding="utf-8")

    def ignored(folder: str, names: list[str]) -> set[str]:
        inside = Path(folder).relative_to(CHECKOUT)
        return {name for name in names if not is_in_context(inside / name, rules)}

    target.parent.mkdir(parents=True, exist_ok=True)
    if (CHECKOUT / source).is_dir():
        shutil.copytree(CHECKOUT / source, target, symlinks=True, ignore=ignored)
    else:
        assert is_in_context(Path(source), rules), source
        shutil.copy2(CHECKOUT / source, target)


def _python_for(user: int | None, folder: Path) -> Path:
    """A `python` that this user can run: that of the tests, or a copy if it is out of reach."""
    folder.mkdir()
    interpreter = Path(os.path.realpath(sys.executable))
    if not _can_run(interpreter, user):
        library = f"lib/python{sys.version_info.major}.{sys.version_info.minor}"
        shutil.copytree(Path(sys.base_prefix) / library, folder / library, ignore=_HEAVY)
        for shared in (Path(sys.base_prefix) / "lib").glob("libpython*.so*"):
            shutil.copy2(shared, folder / "lib", follow_symlinks=False)
        (folder / "bin").mkdir()
        interpreter = Path(shutil.copy2(interpreter, folder / "bin/python3"))
    python = folder / "bin/python"
    python.parent.mkdir(exist_ok=True)
    python.symlink_to(interpreter)
    return python


def _can_run(interpreter: Path, user: int | None) -> bool:
    try:
        words = [str(interpreter), "-I", "-c", ""]
        return subprocess.run(words, user=user, cwd="/", check=False).returncode == 0
    except PermissionError:
        return False


def _make_read_only(root: Path) -> None:
    """Without another user to run as, make the files read-only."""
    for path in (root / "opt", root / "etc"):
        for each in (path, *path.rglob("*")):
            if not each.is_symlink():
                each.chmod(each.stat().st_mode & ~0o222)
