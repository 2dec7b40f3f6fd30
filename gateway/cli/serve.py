"""`gateway serve`: runs the gateway in the foreground."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import click

from gateway.app import CannotStart, Gateway, Settings
from gateway.cli.options import read_address
from gateway.cli.store import store_options
from gateway.observe import logs
from gateway.policies.faults import PolicyFaults
from gateway.runtime.process import run
from gateway.runtime.process import serve as run_service
from gateway.stores.connect import StoreAddress

log = logging.getLogger("gateway")


@click.command(epilog="Example: gateway serve --policies policies --store redis://127.0.0.1:6379/0")
@click.option(
    "--policies",
    type=click.Path(path_type=Path),
    required=True,
    help="The folder of policy files. Changes are taken up while the gateway runs.",
)
@click.option("--listen", callback=read_address, default="127.0.0.1:8080", show_default=True)
@click.option(
    "--admin",
    callback=read_address,
    default="127.0.0.1:9901",
    show_default=True,
    help="Where /metrics, /healthz and /readyz are.",
)
@store_options
@click.option(
    "--workers", type=click.IntRange(1, 1), default=1, help="More than one is not available yet."
)
@click.option(
    "--access-log",
    default="off",
    show_default=True,
    help="A path, - for standard output, or off. SIGHUP opens the path anew.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
)
def serve(
    policies: Path,
    listen: tuple[str, int],
    admin: tuple[str, int],
    store: StoreAddress | None,
    data: Path,
    workers: int,
    access_log: str,
    log_level: str,
) -> None:
    """Run the gateway.

    SIGTERM or Ctrl-C finishes what is under way, then ends; a second one ends at once. SIGHUP reads
    the policies anew.
    """
    del workers  # there is one
    logs.configure(log_level, sys.stderr)
    settings = Settings(
        policies=policies,
        listen=listen,
        admin=admin,
        store=store,
        data=data,
        access_log=access_log,
    )

    async def main() -> None:
        gateway = Gateway(settings)
        await run_service(gateway, announce=lambda: _announce(gateway, settings))

    try:
        run(main)
    except PolicyFaults as faults:
        for fault in faults.faults:
            click.echo(str(fault), err=True)
        raise click.ClickException(f"{policies}: the policies have faults") from faults
    except CannotStart as error:
        raise click.ClickException(str(error)) from error


def _announce(gateway: Gateway, settings: Settings) -> None:
    log.info("listening on http://%s:%d", settings.listen[0], gateway.port)
    if settings.admin is not None:
        log.info("admin on http://%s:%d", settings.admin[0], gateway.admin_port)
