"""The command `gateway`: loads subcommands when they are used, and reports their errors.

A subcommand's module is imported only when it runs, so that `gateway keys` does not import the
proxy's libraries. Every error is one line on stderr, "gateway COMMAND: what is wrong"; a group
without a subcommand prints its help there. The exit status is 2 for bad usage, 1 for a failure, 130
after Ctrl-C, 141 if the reader of the output closed it. Every option of every subcommand can also
be set by a variable, GATEWAY_ and its name.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Final

import click
from click.shell_completion import CompletionItem

PROGRAM: Final = "gateway"
#: As a shell reports a program that SIGPIPE ended: 1 would mean that a check has failed.
CLOSED_PIPE: Final = 128 + signal.SIGPIPE
#: The variable with which shells ask click for completions.
COMPLETION: Final = "_GATEWAY_COMPLETE"

#: Subcommand -> where it is, and its line in the overview, which needs no import.
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "demo": ("gateway.cli.demo:demo", "Start a gateway with an upstream, a store and keys to try."),
    "init": ("gateway.cli.init:init", "Write first policy files for your own API."),
    "serve": ("gateway.cli.serve:serve", "Run the gateway."),
    "deliver": ("gateway.cli.deliver:deliver", "Deliver webhooks, for gateways elsewhere."),
    "validate": ("gateway.cli.policies:validate", "List every fault of the policy files."),
    "schema": ("gateway.cli.policies:schema", "Print the JSON Schema of the policy files."),
    "test": ("gateway.cli.test:test", "Run the tests of the policy files."),
    "diff": ("gateway.cli.diff:diff", "Compare two policies: what changes, and for which keys."),
    "policies": (
        "gateway.cli.policy_history:policies",
        "List, show and restore the policies that were loaded.",
    ),
    "explain": ("gateway.cli.explain:explain", "Show what would happen to a request."),
    "simulate": ("gateway.cli.simulate:simulate", "Replay access logs against policies."),
    "keys": ("gateway.cli.keys:keys", "Create, list, rotate and revoke API keys."),
    "accounts": (
        "gateway.cli.accounts:accounts",
        "Manage accounts: plan, services, limits, status.",
    ),
    "usage": (
        "gateway.cli.usage_report:usage",
        "Show requests, latencies and bytes by route, account or key.",
    ),
    "mcp": ("gateway.cli.mcp:mcp", "Show open MCP connections and calls of tools."),
    "integrations": (
        "gateway.cli.integrations:integrations",
        "Manage integrations, whose webhooks are captured; publish events.",
    ),
    "watches": ("gateway.cli.watches:watches", "Manage watches: where events are delivered."),
    "events": ("gateway.cli.events:events", "Show the events of an integration."),
    "deliveries": (
        "gateway.cli.deliveries:deliveries",
        "Show what became of events; deliver them again.",
    ),
    "warnings": ("gateway.cli.warnings:warnings", "List keys that came close to a limit."),
    "store": ("gateway.cli.store_check:store", "Check the connections to the store."),
    "audit": ("gateway.cli.audit:audit", "Show who changed what; verify the audit log."),
}


class LazyGroup(click.Group):
    """A group that has its commands' names and overview, and imports a command when used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        name_variables(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        is_unknown = args[0] not in COMMANDS and not args[0].startswith("-")
        if is_unknown and not ctx.resilient_parsing:  # which is set for completions
            ctx.fail(unknown_command(args[0]))
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands, without importing them, and the options."""
        commands = [
            CompletionItem(name, help=line)
            for name, (_, line) in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return commands + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


def unknown_command(name: str) -> str:
    """The error for a command that does not exist, with the most similar one."""
    near = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(COMMANDS)}"
    return f"there is no command '{name}'; {hint}"


def name_variables(command: click.Command) -> None:
    """Let every option be set by GATEWAY_NAME too, except --json and --help.

    click's own prefix would put the subcommand into the name (GATEWAY_SERVE_STORE); here
    GATEWAY_STORE applies to all subcommands.
    """
    for option in command.params:
        if isinstance(option, click.Option) and option.envvar is None:
            long = next((name for name in option.opts if name.startswith("--")), None)
            if long and long not in ("--json", "--help"):
                option.envvar = f"GATEWAY_{long[2:].replace('-', '_').upper()}"
    if isinstance(command, click.Group):
        for child in command.commands.values():
            name_variables(child)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(
    version("rate-limiting-gateway"), prog_name=PROGRAM, message="%(prog)s %(version)s"
)
def cli() -> None:
    """A rate-limiting gateway for HTTP APIs: keys, scopes, sliding windows.

    Example: gateway demo
    """


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: that of the process); returns its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        status = cli.main(words, prog_name=PROGRAM, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as help_page:
        help_page.show()
        return help_page.exit_code
    except click.ClickException as error:
        click.echo(_in_one_line(error, words), err=True)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return 130
    except (BrokenPipeError, SystemExit) as ended:
        if isinstance(ended, SystemExit) and COMPLETION in os.environ:
            return ended.code if isinstance(ended.code, int) else 0
        # The reader of our output has closed it, as `| head` does. click raises SystemExit for that
        # and for completions alone.
        _drop_output()
        return CLOSED_PIPE
    except OSError as error:  # such as a full disk, to which our output goes
        _drop_output()
        click.echo(_in_one_line(click.ClickException(str(error)), words), err=True)
        return 1
    return status if isinstance(status, int) else 0


def _drop_output() -> None:
    """Send what is not written yet nowhere. Python would print an error when it flushes at exit."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _in_one_line(error: click.ClickException, words: Sequence[str]) -> str:
    """The command, what is wrong, and after bad usage a reference to --help."""
    context = getattr(error, "ctx", None)
    if isinstance(context, click.Context):
        path = context.command_path
    else:
        path = f"{PROGRAM} {words[0]}" if words and words[0] in COMMANDS else PROGRAM
    message = " ".join(error.format_message().split())
    hint = f" (see {path} --help)" if isinstance(error, click.UsageError) else ""
    return f"{path}: {message}{hint}"
