"""The section `webhooks` of policies, and the upstream of that name."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path

import pytest

from gateway.domain.upstreams import WEBHOOKS, Server, Upstream, with_couriers
from gateway.domain.webhooks.settings import WebhookSettings
from gateway.policies.faults import PolicyFaults
from gateway.policies.load import load

BASE = """
upstreams: {api: {servers: ["http://127.0.0.1:9000"]}}
plans: {free: {rate: 60/minute}}
routes: {r: {match: GET /a, upstream: api}}
"""


def load_with(folder: Path, more: str, base: str = BASE) -> WebhookSettings:
    (folder / "policy.yaml").write_text(base + more)
    return load(folder).webhooks


def test_all_settings(tmp_path: Path) -> None:
    """Sizes, times and addresses are read as elsewhere in policies."""
    found = load_with(
        tmp_path,
        "webhooks: {brand: acme, allow: [10.0.0.0/8], deny: [192.0.2.1], slots: 10, per_watch: 2, "
        "budget: 2MiB, keep: 5m, max_event: 4MiB, spool: 1MiB}",
    )
    assert (found.names.signature, found.names.timestamp) == (
        "x-acme-signature",
        "x-acme-timestamp",
    )
    assert found.destinations.allowed == (ip_network("10.0.0.0/8"),)
    assert found.destinations.denied == (ip_network("192.0.2.1/32"),)
    assert (found.slots, found.per_watch, found.keep_s) == (10, 2, 300)
    assert (found.budget_bytes, found.event_bytes, found.spool_bytes) == (2 << 20, 4 << 20, 1 << 20)


def test_without_settings(tmp_path: Path) -> None:
    """The defaults hold, and nothing beside the internet may be reached."""
    assert load_with(tmp_path, "") == load_with(tmp_path, "webhooks: {}") == WebhookSettings()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("{slots: 0}", "webhooks.slots: found the number 0"),
        ("{budget: 1KiB}", "webhooks.budget: found '1KiB', expected at least 1MiB"),
        ("{budget: 65GiB}", "webhooks.budget: found '65GiB', expected a size up to 65536MiB"),
        ("{max_event: 5MiB}", "webhooks.max_event: found '5MiB', expected a size up to 4MiB"),
        ("{keep: 8d}", "webhooks.keep: found '8d', expected a duration from 1m to 7d"),
        ("{allow: [localhost]}", "webhooks.allow[0]: found 'localhost'"),
        ("{brand: Acme}", "webhooks.brand: found 'Acme'"),
        ("{ca: nowhere.pem}", "webhooks.ca: found 'nowhere.pem' (no file"),
        ("{slotts: 1}", "webhooks.slotts: found the key"),
        ("5", "webhooks: found the number 5"),
    ],
)
def test_faults(given: str, words: str, tmp_path: Path) -> None:
    """Each says what was found, what was expected, and where."""
    with pytest.raises(PolicyFaults) as caught:
        load_with(tmp_path, f"webhooks: {given}")
    assert words in str(caught.value.faults[0])


def test_the_built_in_upstream(tmp_path: Path) -> None:
    """Routes may name it without a definition; only then does the policy have it."""
    load_with(tmp_path, "")
    assert WEBHOOKS not in load(tmp_path).upstreams
    load_with(tmp_path, "", BASE.replace("upstream: api}", "upstream: webhooks}"))
    assert load(tmp_path).upstreams[WEBHOOKS] == Upstream(WEBHOOKS, ())


def test_another_upstream_of_its_name(tmp_path: Path) -> None:
    """A policy cannot define it: requests would go elsewhere with the couriers' token."""
    with pytest.raises(PolicyFaults, match="webhooks is the upstream of the gateway's own"):
        load_with(
            tmp_path, "", BASE.replace("{api: {", '{webhooks: {servers: ["http://a"]}, api: {')
        )


def test_where_the_couriers_are() -> None:
    """The server is put in by the gateway; a policy without the upstream stays as it is."""
    server = Server("http", "127.0.0.1", 8081)
    found = with_couriers({WEBHOOKS: Upstream(WEBHOOKS, ())}, server)
    assert found[WEBHOOKS].servers == (server,)
    assert with_couriers(found, None)[WEBHOOKS].servers == ()
    assert with_couriers({}, server) == {}
