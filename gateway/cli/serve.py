"""`gateway serve`: runs the gateway in the foreground."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from gateway.cli.options import (
    Folder,
    read_address,
    read_courier_url,
    read_host_names,
    read_optional_address,
)
from gateway.cli.store import store_options
from gateway.domain.upstreams import Server
from gateway.observe import logs
from gateway.policies.faults import PolicyFaults
from gateway.runtime.process import run
from gateway.runtime.process import serve as run_service
from gateway.runtime.settings import CannotStart, Settings, authority
from gateway.runtime.supervisor import CourierPlan, Supervisor
from gateway.runtime.systemd import read_sockets
from gateway.stores.redis.address import StoreAddress

log = logging.getLogger("gateway")

#: Runs a worker. Not imported here, as a supervisor needs nothing of it. -P: without the working
#: directory on the path, as a folder "gateway" there is not this program.
WORKER: Final = (sys.executable, "-P", "-m", "gateway.cli.worker")
#: Runs a courier.
COURIER: Final = (sys.executable, "-P", "-m", "gateway.cli.courier")


@click.command(epilog="Example: gateway serve --policies policies --store redis://127.0.0.1:6379/0")
@click.option(
    "--policies",
    type=Folder(path_type=Path),
    required=True,
    help="The folder of policy files. Changes are loaded while the gateway runs.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    callback=read_address,
    default="127.0.0.1:8080",
    show_default=True,
    help="Address for clients.",
)
@click.option(
    "--listen-http",
    metavar="HOST:PORT",
    callback=read_optional_address,
    help="Address for clients of plain HTTP, which are redirected to https. The policies need tls.",
)
@click.option(
    "--admin",
    metavar="HOST:PORT",
    callback=read_address,
    default="127.0.0.1:9901",
    show_default=True,
    help="Address of the admin listener: /metrics, /healthz, /readyz, admin API and console.",
)
@click.option(
    "--admin-host",
    "admin_hosts",
    metavar="NAME",
    multiple=True,
    callback=read_host_names,
    help="A host name that the admin listener accepts, beside IP addresses and localhost. "
    "Repeatable.",
)
@store_options
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Worker processes, one for each core to use; one that dies is restarted.",
)
@click.option(
    "--couriers",
    type=click.IntRange(0, 64),
    default=1,
    show_default=True,
    help="Processes that capture and deliver webhooks; none with memory://.",
)
@click.option(
    "--courier-url",
    metavar="URL",
    callback=read_courier_url,
    help="Where `gateway deliver` listens, in place of couriers of this gateway: http://HOST:PORT. "
    "Both need the same GATEWAY_WEBHOOK_KEY.",
)
@click.option(
    "--take-over",
    is_flag=True,
    help="Replace the gateway that runs with the same --listen and --data: it passes its sockets, "
    "and drains once this one serves. If none runs, start as usual.",
)
@click.option(
    "--access-log",
    default="off",
    show_default=True,
    metavar="TARGET",
    help="A path, - for standard output, off, syslog: (or syslog:/PATH, syslog:udp://HOST:PORT), "
    "or udp://HOST:PORT. SIGHUP reopens the path. access_log in the policies has the format.",
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
    listen_http: tuple[str, int] | None,
    admin: tuple[str, int],
    admin_hosts: tuple[str, ...],
    store: StoreAddress | None,
    data: Path,
    workers: int,
    couriers: int,
    courier_url: Server | None,
    take_over: bool,
    access_log: str,
    log_level: str,
) -> None:
    """Run the gateway.

    SIGTERM or Ctrl-C drains, then stops; a second one stops now. SIGHUP reloads the policies.
    SIGUSR2 starts this program again with --take-over, for an upgrade that refuses no client. The
    admin token is read from GATEWAY_ADMIN_TOKEN or GATEWAY_ADMIN_TOKEN_FILE, the webhook key from
    GATEWAY_WEBHOOK_KEY or GATEWAY_WEBHOOK_KEY_FILE; what is not set is generated in the folder of
    --data. Each option can be set by a variable, GATEWAY_ and its name, such as GATEWAY_LISTEN.
    """
    if workers > 1 and store is not None and store.kind == "memory":
        raise click.UsageError(
            "--workers: memory:// is inside one process, and each worker would count separately; "
            "use a Redis, or omit --store"
        )
    if take_over and store is not None and store.kind == "memory":
        raise click.UsageError(
            "--take-over: memory:// is inside the running gateway, and its counters would be lost; "
            "use a Redis, or omit --store"
        )
    if listen_http is not None and not listen_http[1]:
        raise click.UsageError("--listen-http: found port 0, expected one that clients know")
    logs.configure(log_level, sys.stderr)
    settings = Settings(
        policies=policies,
        listen=listen,
        admin=admin,
        admin_hosts=admin_hosts,
        store=store,
        data=data,
        access_log=access_log,
        take_over=take_over,
        listen_http=listen_http,
    )

    def build() -> Supervisor:
        return Supervisor(
            settings,
            workers=workers,
            command=WORKER,
            successor=own_command(),
            inherited=read_sockets(),
            log_level=log_level,
            couriers=CourierPlan(couriers, COURIER, courier_url),
        )

    def announce(gateway: Supervisor, stop: Callable[[], None]) -> None:
        gateway.announce(stop)
        _announce(gateway, workers)

    run_supervisor(build, announce, policies)


def run_supervisor(
    build: Callable[[], Supervisor],
    announce: Callable[[Supervisor, Callable[[], None]], None],
    policies: Path,
) -> None:
    """Run a supervisor until it is stopped. Raises ClickException if it cannot start.

    announce: called once it has started, with what stops it
    """

    async def main() -> None:
        gateway = build()
        await run_service(
            gateway, announce=lambda stop: announce(gateway, stop), steps=gateway.steps
        )

    try:
        run(main)
    except PolicyFaults as faults:
        for fault in faults.faults:
            click.echo(str(fault), err=True)
        raise click.ClickException(f"{policies}: the policies have faults") from faults
    except CannotStart as error:
        raise click.ClickException(str(error)) from error


def own_command() -> list[str]:
    """The command line of this process, to start it again.

    An executable program file is run by itself: it may now be a newer version with a different
    interpreter.
    """
    return list(sys.argv if os.access(sys.argv[0], os.X_OK) else sys.orig_argv)


def _announce(gateway: Supervisor, workers: int) -> None:
    by = "1 worker" if workers == 1 else f"{workers} workers"
    log.info("listening on %s://%s, %s", gateway.scheme, authority(*gateway.address), by)
    if gateway.redirects is not None:
        log.info("redirecting http://%s to https", authority(*gateway.redirects))
    if gateway.admin is not None:
        log.info("admin on %s", gateway.admin.url)
        source = gateway.admin.token_source
        log.info("console on %s/console, admin token in %s", gateway.admin.url, source)
