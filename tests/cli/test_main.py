"""The command as a whole: its overview, errors, environment variables and start time."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import click
import pytest

from gateway.__main__ import main as installed_command
from gateway.cli import main
from gateway.cli.main import COMMANDS, cli, name_variables, run
from tests.kit.command import run as run_here
from tests.kit.gateway import command


def test_every_command_exists_and_has_an_example() -> None:
    """Each listed command can be loaded, and its help has an example."""
    with click.Context(cli, **cli.context_settings) as context:
        names = cli.list_commands(context)
        assert names
        for name in names:
            found = cli.get_command(context, name)
            assert found is not None
            assert found.name == name
            assert "gateway " + name in found.get_help(context), name


def test_the_overview_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """--help has a line about each command."""
    assert run(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(f"  {name}" in printed for name in COMMANDS)


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    """--version prints the installed version."""
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"gateway {version('rate-limiting-gateway')}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sreve"], "gateway: there is no command 'sreve'; did you mean 'serve'?"),
        (["xyzzy"], "gateway: there is no command 'xyzzy'; there are demo, init, serve,"),
        (["--verbose"], "gateway: No such option '--verbose'"),
        (["validate"], "gateway validate: Missing argument 'DIR'"),
        (["demo", "--listen", "8080"], "expected HOST:PORT"),
    ],
)
def test_bad_usage_is_one_line_and_status_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line has the fault and the option for help; stdout is empty."""
    assert run(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert message in printed.err
    assert "--help" in printed.err


@pytest.mark.parametrize("group", [(), ("keys",), ("accounts",), ("policies",)])
def test_a_group_without_a_subcommand_prints_its_help(group: tuple[str, ...]) -> None:
    """It is the page of --help and of -h, on stderr as nothing was done, and with status 2."""
    asked, bare = run_here(*group, "-h"), run_here(*group)
    assert (asked.returncode, asked.stderr) == (0, "")
    assert "\nCommands:\n" in asked.stdout
    assert (bare.returncode, bare.stdout, bare.stderr) == (2, "", asked.stdout)


@pytest.mark.parametrize("words", [("validate",), ("serve",), ("keys", "create")])
def test_help_has_a_short_name(words: tuple[str, ...]) -> None:
    """-h is --help, of every command."""
    short, long = (run_here(*words, option) for option in ("-h", "--help"))
    assert short.stdout.startswith(f"Usage: gateway {' '.join(words)} ")
    assert (short.returncode, short.stdout) == (0, long.stdout)


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """`gateway serve` replaced by a command that ends as the last item of this list says."""
    ends: list[object] = []

    @click.command()
    @click.option("--some-thing", default="default")
    @click.option("--json", "as_json", is_flag=True)
    def serve(some_thing: str, as_json: bool) -> object:
        click.echo(f"{some_thing} {as_json}")
        end = ends.pop() if ends else None
        if isinstance(end, BaseException):
            raise end
        return end

    monkeypatch.setattr(main, "import_module", lambda _: type("module", (), {"serve": serve}))
    return ends


@pytest.mark.parametrize(
    ("end", "status", "message"),
    [
        (None, 0, ""),
        ("words", 0, ""),
        (3, 3, ""),
        (click.ClickException("two\n  lines"), 1, "gateway serve: two lines\n"),
        (click.UsageError("odd"), 2, "gateway serve: odd (see gateway serve --help)\n"),
        (click.exceptions.Exit(1), 1, ""),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 141, ""),
        (OSError(28, "No space left on device"), 1, "gateway serve: [Errno 28] No space left on"),
        (click.Abort(), 130, ""),
    ],
)
def test_how_a_command_ends(
    probe: list[object],
    end: object,
    status: int,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each end has its exit status, and at most one line on stderr."""
    probe.append(end)
    assert run(["serve"]) == status
    printed = capsys.readouterr().err.lstrip("\n")
    assert printed.startswith(message) if message else not printed
    assert printed.count("\n") <= 1


def test_every_option_is_a_variable_too(
    probe: list[object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """GATEWAY_ and the option's name, without the command's; the option takes precedence."""
    monkeypatch.setenv("GATEWAY_SOME_THING", "variable")
    monkeypatch.setenv("GATEWAY_JSON", "1")
    run(["serve"])
    run(["serve", "--some-thing", "given"])
    assert capsys.readouterr().out == "variable False\ngiven False\n"


def test_a_commands_own_variable_stays() -> None:
    """A command's own variable for an option is kept; commands in groups get variables, too."""

    @click.group()
    def group() -> None: ...

    @group.command()
    @click.option("-q", "short_only", is_flag=True)
    @click.option("--own", envvar="OWN")
    @click.option("--any-name")
    def child() -> None: ...

    name_variables(group)
    named = {param.name: getattr(param, "envvar", None) for param in child.params}
    assert named == {"short_only": None, "own": "OWN", "any_name": "GATEWAY_ANY_NAME"}


def test_keys_do_not_load_the_proxy() -> None:
    """Commands on keys do not import the libraries that only serving needs."""
    heavy = ("uvloop", "aiohttp", "prometheus_client")
    code = (
        "import sys; from gateway.cli.main import run; run(['keys', '--help']);"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_status_is_the_processs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The installed entry point exits with the command line's status."""
    monkeypatch.setattr(sys, "argv", ["gateway", "nothing"])
    with pytest.raises(SystemExit) as ended:
        installed_command()
    assert ended.value.code == 2


@pytest.mark.parametrize(
    "program", [command(), [str(Path(sys.executable).parent / "gateway")]], ids=["module", "script"]
)
@pytest.mark.parametrize("words", [("--version",), ()], ids=["version", "help"])
def test_the_entry_points(program: list[str], words: tuple[str, ...]) -> None:
    """`python -m gateway` and the installed script are this command line, with its exit status."""
    here = run_here(*words)
    done = subprocess.run(
        [*program, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        here.returncode,
        here.stdout,
        here.stderr,
    )


def test_a_closed_pipe_ends_it_silently() -> None:
    """`gateway schema | head -1` ends without a traceback."""
    process = subprocess.Popen(command("schema"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


def test_a_closed_output() -> None:
    """`gateway usage >&-` ends without a traceback."""
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *command("usage", "--store", "memory://")]
    done = subprocess.run(closed, stderr=subprocess.PIPE, text=True, check=False)
    assert "memory://" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_full_disk() -> None:
    """What cannot be written is one line."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command("schema"), stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.stderr == b"gateway schema: [Errno 28] No space left on device\n"
    assert done.returncode == 1


# -- completion ------------------------------------------------------------------------------------

#: Asks the shell, after the line of the guide, for the completions of `gateway keys li`.
ASK_SHELL = {
    "bash": "COMP_WORDS=(gateway keys li); COMP_CWORD=2; _gateway_completion gateway;"
    ' echo "${COMPREPLY[@]}"',
    "zsh": "_arguments() { :; }; compadd() { :; };"
    ' _describe() { local -a found=(${(P)3}); echo "${found[@]}"; };'
    " words=(gateway keys li); CURRENT=3; _gateway_completion",
    "fish": "complete --do-complete 'gateway keys li'",
}


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """An environment whose PATH has `gateway`."""
    script = tmp_path / "gateway"
    script.write_text(f'#!/bin/sh\nexec {shlex.join(command())} "$@"\n')
    script.chmod(0o755)
    root = str(Path(__file__).parents[2])
    path = f"{tmp_path}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": root, "HOME": str(tmp_path)}


@pytest.mark.parametrize("shell", ASK_SHELL)
def test_the_guides_line_completes_in_a_shell(shell: str, installed: dict[str, str]) -> None:
    """The line of docs/operations.md makes the shell complete commands."""
    guide = (Path(__file__).parents[2] / "docs/operations.md").read_text()
    (line,) = re.findall(rf"```{shell}\n(.*_GATEWAY_COMPLETE.*)\n```", guide)
    if shutil.which(shell) is None:
        source = [f"_GATEWAY_COMPLETE={shell}_source", "gateway"]
        done = subprocess.run(["env", *source], env=installed, capture_output=True, check=False)
        assert " ".join(source) in line
        assert done.returncode == 0
        assert b"_GATEWAY_COMPLETE" in done.stdout
        return
    options = {"zsh": ["-f"], "bash": ["--norc"], "fish": ["--no-config"]}[shell]
    setup = "autoload -Uz compinit; compinit -u;" if shell == "zsh" else ""
    script = f"{setup}\n{line}\n{ASK_SHELL[shell]}"
    done = subprocess.run(
        [shell, *options, "-c", script],
        env=installed,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split()[:1] == ["list"], done.stderr


@pytest.mark.parametrize(
    ("words", "at", "expected"),
    [
        ("gateway ", 1, list(COMMANDS)),
        ("gateway ke", 1, ["keys"]),
        ("gateway --v", 1, ["--version"]),
        ("gateway keys ex", 2, ["export"]),
        ("gateway keys list --sort ", 4, ["created", "name", "last_used", "expires"]),
        ("gateway keys import --conflicts s", 4, ["skip"]),
        ("gateway nothing ", 2, list(COMMANDS)),
    ],
)
def test_completions(
    words: str,
    at: int,
    expected: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Commands, options and their values; the exit status is 0."""
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(at))
    monkeypatch.setenv(main.COMPLETION, "bash_complete")
    assert run([]) == 0
    shown = [line.partition(",")[2] for line in capsys.readouterr().out.splitlines()]
    assert [word for word in shown if word] == expected


def test_completing_commands_imports_none(installed: dict[str, str]) -> None:
    """Their names and lines are known, so that Tab is fast; zsh shows the lines."""
    asked = {"COMP_WORDS": "gateway ", "COMP_CWORD": "1", main.COMPLETION: "zsh_complete"}
    code = (
        "import sys; from gateway.cli.main import run; status = run([]);"
        "sys.exit(status or any(name in sys.modules for name in ('aiohttp', 'redis', 'yaml')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**installed, **asked},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert COMMANDS["serve"][1] in done.stdout


def test_an_unknown_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an error, with a status of its own."""
    monkeypatch.setenv(main.COMPLETION, "csh_source")
    assert run([]) == 1
