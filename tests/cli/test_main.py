"""The command as a whole: its overview, errors, environment variables and start time."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import click
import pytest

from gateway.__main__ import main as installed_command
from gateway.cli import main
from gateway.cli.main import COMMANDS, cli, name_variables, run
from tests.kit.gateway import command, run_command


def test_every_command_exists_and_has_an_example() -> None:
    """Each listed command can be loaded, and its help has an example."""
    with click.Context(cli) as context:
        for name in cli.list_commands(context):
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
        (["xyzzy"], "gateway: there is no command 'xyzzy'; there are demo, serve,"),
        (["--verbose"], "gateway: No such option '--verbose'"),
        ([], "gateway: Missing command"),
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
        (BrokenPipeError(), 1, ""),
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
    assert capsys.readouterr().err.lstrip("\n") == message


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


def test_it_is_a_module_too() -> None:
    """`python -m gateway` is the same command, with the same exit status."""
    assert run_command("--version").stdout.startswith("gateway ")
    assert run_command("nothing").returncode == 2


def test_a_closed_pipe_ends_it_silently() -> None:
    """`gateway schema | head -1` ends without a traceback."""
    process = subprocess.Popen(command("schema"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() in (0, 1)
