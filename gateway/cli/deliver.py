"""`gateway deliver`: runs couriers alone, for gateways elsewhere that use the same store."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path

import click

from gateway.cli.options import Folder, read_address, read_host_names
from gateway.cli.serve import COURIER, run_supervisor
from gateway.cli.store import store_options
from gateway.observe import logs
from gateway.runtime.settings import Settings, authority
from gateway.runtime.supervisor import CourierPlan, Supervisor
from gateway.stores.redis.address import StoreAddress

log = logging.getLogger("gateway")


@click.command(epilog="Example: gateway deliver --policies policies --store redis://redis:6379/0")
@click.option(
    "--policies",
    type=Folder(path_type=Path),
    required=True,
    help="The folder of policy files; webhooks in them has the settings of couriers.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    callback=read_address,
    default="127.0.0.1:8081",
    show_default=True,
    help="Address for gateways, which name it by --courier-url.",
)
@click.option(
    "--admin",
    metavar="HOST:PORT",
    callback=read_address,
    default="127.0.0.1:9902",
    show_default=True,
    help="Address of /metrics, /healthz and /readyz.",
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
    "--couriers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Processes, one for each core to use; one that dies is restarted.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
)
def deliver(
    policies: Path,
    listen: tuple[str, int],
    admin: tuple[str, int],
    admin_hosts: tuple[str, ...],
    store: StoreAddress | None,
    data: Path,
    couriers: int,
    log_level: str,
) -> None:
    """Capture and deliver webhooks, without a gateway: for a network with its own way out.

    The gateways run with --couriers 0 and --courier-url, on the same store. All need the same
    webhook key, in GATEWAY_WEBHOOK_KEY or GATEWAY_WEBHOOK_KEY_FILE. SIGTERM or Ctrl-C finishes the
    attempts in progress, then stops; SIGHUP reloads the policies.
    """
    if store is not None and store.kind == "memory":
        raise click.UsageError("--store: memory:// is inside one gateway; use a Redis, or omit it")
    logs.configure(log_level, sys.stderr)
    settings = Settings(
        policies=policies,
        listen=listen,
        admin=admin,
        admin_hosts=admin_hosts,
        store=store,
        data=data,
    )

    def build() -> Supervisor:
        return Supervisor(
            settings,
            workers=0,
            command=(),
            log_level=log_level,
            couriers=CourierPlan(couriers, COURIER),
        )

    def announce(gateway: Supervisor, _stop: Callable[[], None]) -> None:
        many = "1 courier" if couriers == 1 else f"{couriers} couriers"
        log.info("listening on http://%s, %s", authority(*gateway.address), many)
        if gateway.admin is not None:
            log.info("metrics and probes on %s", gateway.admin.url)

    run_supervisor(build, announce, policies)
