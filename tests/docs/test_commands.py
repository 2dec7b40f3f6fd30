"""Every command in the documents exists and has the options that it is given."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gateway.cli.main import cli
from tests.docs.pages import ROOT, Example, guides
from tests.kit.rows import each_row

#: Languages of fenced blocks, and how each is tested.
LANGUAGES = {
    "sh": "its commands are looked at here",
    "console": "its commands are looked at here, and run in test_answers",
    "yaml": "test_policies",
    "json": "test_policies",
    "python": "its syntax is checked here",
    "http": "a request, read in test_answers",
    "redis": "tests/end_to_end/test_acl.py",
    **dict.fromkeys(("bash", "zsh", "fish"), "completion, run by tests/cli/test_main.py"),
    "mermaid": "drawn by GitHub",
}
#: Programs of others, and why their lines are not run.
NOT_TRIED = {
    "docker": "takes an engine and a network; the Dockerfile is read by tests/image",
    "helm": "takes a cluster; tests/helm renders the chart",
    "kubectl": "takes a cluster",
    "systemctl": "takes a machine with these units; tests/hostile/test_systemd.py plays systemd",
    "kill": "takes a running gateway; tests/hostile/test_take_over.py sends the signal",
    "apt-get": "changes the machine",
    "pip": "changes the machine",
    "locust": "takes the extra load, and an API to load",
    "grep": "a filter",
    "sort": "a filter",
    "sed": "a filter",
    "tail": "a filter",
    "curl": "run in test_answers",
    "npx": "fetches a package",
    "claude": "a client of others",
    **dict.fromkeys(("cp", "mkdir", "openssl"), "run in test_example"),
}
EXAMPLES = [each for page in guides() for each in page.examples("sh", "console")]
_IS_SETTING = re.compile(r"[A-Z_]+=").match


def commands(example: Example) -> Iterator[list[str]]:
    """The simple commands of a block, as words."""
    lines = example.text.replace("\\\n", " ").splitlines()
    if example.language == "console":
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    for line in lines:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;")
        lexer.whitespace_split, lexer.commenters = True, "#"
        words: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set("|&;"):
                if words and words[0] != "for":
                    yield words
                words = []
            elif words or not (_IS_SETTING(word) or word in ("do", "done")):
                words.append(word)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the files that examples name: policies, a log, an API."""
    for name in ("policies", "changed"):
        (tmp_path / name).symlink_to(ROOT / "policies")
    (tmp_path / "requests.log").touch()
    (tmp_path / "keys.jsonl").touch()
    (tmp_path / "openapi.yaml").touch()
    (tmp_path / "event.json").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@each_row("example", EXAMPLES)
@pytest.mark.usefixtures("folder")
def test_commands(example: Example) -> None:
    """Each is a command of the project with valid options, or of a known program of others."""
    look_at(example)


def look_at(example: Example) -> None:
    found = list(commands(example))
    assert found
    for program, *words in found:
        if program in ("gateway", ".venv/bin/gateway"):
            parse(words)
        elif program in ("python", ".venv/bin/python"):
            check_module(words)
        elif program == "make":
            assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(), re.M), words
        elif program.startswith(".ci/"):
            assert (ROOT / program).is_file()
        else:
            assert program in NOT_TRIED, program
            if words[0] == "exec":
                parse(words[-words[::-1].index("gateway") :])


def parse(words: list[str]) -> None:
    """Parse a command line as `gateway` does, without running it; "…" stands for more options.

    Raises click.UsageError.
    """
    is_partial = "…" in words
    if ">" in words:
        words = words[: words.index(">")]
    words = [word for word in words if word != "…"]
    command: click.Command | None = cli
    context = click.Context(cli, info_name="gateway", **cli.context_settings)
    while isinstance(command, click.Group):
        name, *words = words
        command = command.get_command(context, name)
        assert command is not None, name
        context = click.Context(command, info_name=name, parent=context)
    assert command is not None
    try:
        command.make_context(command.name, words, parent=context.parent)
    except click.MissingParameter:
        if not is_partial:
            raise


def check_module(words: list[str]) -> None:
    """Check that the module exists and knows these options."""
    assert words[0] == "-m"
    if words[1] == "pytest":
        return
    found = importlib.util.find_spec(words[1])
    assert found is not None, words[1]
    if words[1] == "gateway":
        parse(words[2:])
        return
    assert found.origin is not None
    module = Path(found.origin)
    # A package's options may be parsed in any of its modules.
    sources = module.parent.rglob("*.py") if found.submodule_search_locations else [module]
    source = "".join(path.read_text("utf-8") for path in sources)
    for option in [word for word in words[2:] if word.startswith("--")]:
        assert f'"{option}"' in source, f"{words[1]} {option}"


@each_row("example", [each for page in guides() for each in page.examples("python")])
def test_python(example: Example) -> None:
    """Its packages are not installed here."""
    assert compile(example.text, example.where, "exec")


def test_languages() -> None:
    """Each block has a known language, by which it is tested."""
    found = {(each.language, each.where) for page in guides() for each in page.examples()}
    assert {pair for pair in found if pair[0] not in LANGUAGES} == set()


@each_row(
    "line",
    ["gateway serve --polices policies", "gateway key list", "gateway keys rotate --overlap x y"],
)
@pytest.mark.usefixtures("folder")
def test_a_wrong_command_is_found(line: str) -> None:
    """An unknown option, command or value fails."""
    with pytest.raises((click.UsageError, AssertionError)):
        look_at(Example("here", "sh", line))


def test_an_unknown_program_is_found() -> None:
    """A program that is in neither list fails."""
    with pytest.raises(AssertionError):
        look_at(Example("here", "sh", "gatewayctl start"))
