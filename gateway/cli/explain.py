"""`gateway explain`: which rules apply to a request, and what would happen to it now."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from gateway.cli.options import Folder, load_folder
from gateway.cli.store import StoreChoice, store_options, with_managed
from gateway.domain.patterns import printable
from gateway.manage.explain import Explain, read_ip, read_key_id, read_rules
from gateway.manage.problems import Invalid
from gateway.stores.managed import ManagedStores
from gateway.stores.redis.address import StoreAddress

#: Field name of a fault -> the option or argument.
_GIVEN: Final = {
    **{"client_ip": "--ip", "key_id": "--key", "host": "--host"},
    **{"method": "METHOD", "path": "PATH"},
}


@click.command(epilog="Example: gateway explain --policies policies GET '/api/search/x?q=1'")
@click.option("--policies", type=Folder(path_type=Path), required=True)
@click.option("--key", metavar="ID", help="Id of the request's key; without it, only the rules.")
@click.option("--ip", default="127.0.0.1", show_default=True, help="The client's address.")
@click.option("--host", metavar="NAME", default="", help="The request's host.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@store_options
@click.argument("method")
@click.argument("path")
def explain(
    policies: Path,
    key: str | None,
    ip: str,
    host: str,
    as_json: bool,
    store: StoreAddress | None,
    data: Path,
    method: str,
    path: str,
) -> None:
    """Show the route, access rules and limits of a request, and what would happen to it now.

    Nothing is counted. With --key, the key's record and counters are read from the store.
    """
    policy = load_folder(policies)
    with _usage_errors():
        rules = read_rules(policy, method, path, host, read_ip(ip))
        key_id = None if key is None else read_key_id(key)

    async def ask(stores: ManagedStores) -> dict[str, object]:
        explained = Explain(stores.keys, stores.counters, lambda: policy, stores.clock_us)
        return await explained.ask(method, path, key_id, ip, host)

    # Without a key the policies are enough: no store is opened or started.
    if key_id is None or rules.route is None:
        explained = rules.without_key()
    else:
        explained = with_managed(StoreChoice(store, data), ask)
    click.echo(json.dumps(explained, indent=2) if as_json else _as_text(explained))


@contextmanager
def _usage_errors() -> Iterator[None]:
    """Turn Invalid into a usage error of the option or argument."""
    try:
        yield
    except Invalid as error:
        fault = error.faults[0]
        words = f"{_GIVEN[fault.at]}: found {fault.found}, expected {fault.expected}"
        raise click.UsageError(words) from error


def _as_text(explained: Mapping[str, object]) -> str:
    lines = []
    for name, value in explained.items():
        if isinstance(value, Mapping):
            lines.append(f"{name}:")
            lines.extend(printable(f"  {key}: {words}") for key, words in value.items())
        else:
            lines.append(printable(f"{name + ':':<9} {value}"))
    return "\n".join(lines)
