"""Couriers: in the gateway's pods, in pods of their own, or none."""

from __future__ import annotations

import base64
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import click
import pytest

from gateway.cli.main import cli
from gateway.domain.webhooks import destinations
from gateway.domain.webhooks.destinations import Destinations
from tests.helm.chart import (
    Object,
    component,
    deployment,
    one,
    render,
    settings,
    variant,
)
from tests.helm.test_runs import NO_OPTIONS, is_ready, write_secret
from tests.kit.eventually import eventually
from tests.kit.gateway import READY_S, Process
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer
from tests.kit.rows import each_row
from tests.kit.wire import fetch

MINE = "release-rate-limiting-gateway"
KEY_FILE = "/run/secrets/gateway/webhook-key"


def apart(**values: object) -> dict[str, Any]:
    """Values with couriers in pods of their own."""
    return {
        "externalRedis": {"url": "redis://redis:6379/0"},
        "webhooks": {"deployment": {"enabled": True, **values}},
    }


def container(objects: list[Object]) -> Object:
    """That of the couriers' pods."""
    (found,) = one(objects, "Deployment", "-couriers")["spec"]["template"]["spec"]["containers"]
    return dict(found)


def variables(objects: list[Object]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value") for entry in container(objects)["env"]}


def networks(objects: list[Object]) -> Object:
    """The network policy of the couriers' pods."""
    found: Object = one(objects, "NetworkPolicy", "-couriers")["spec"]
    return found


def secrets_of(owner: Object) -> set[str]:
    """The files that the pods have of secrets."""
    volumes = owner["spec"]["template"]["spec"]["volumes"]
    (projected,) = (entry["projected"] for entry in volumes if entry["name"] == "secrets")
    return {
        item["path"]
        for source in projected["sources"]
        for item in source.get("secret", source.get("configMap"))["items"]
    }


# -- in the gateway's pods -------------------------------------------------------------------------


def test_by_default_they_are_in_the_gateways_pods(latest: int) -> None:
    """One in each, with the key that the chart made, and no object of their own."""
    objects = render(latest, {})
    found = settings(objects)
    assert found["GATEWAY_COURIERS"] == "1"
    assert found["GATEWAY_WEBHOOK_KEY_FILE"] == KEY_FILE
    assert "GATEWAY_COURIER_URL" not in found
    assert not [entry for entry in objects if component(entry) == "couriers"]


@pytest.mark.parametrize(
    "values", [{"webhooks": {"couriers": 0}}, {"externalRedis": {"url": "memory://"}}]
)
def test_without_couriers(latest: int, values: dict[str, Any]) -> None:
    """There is no key: neither a secret nor a variable. memory:// has no couriers."""
    objects = render(latest, values)
    found = settings(objects)
    assert found["GATEWAY_COURIERS"] == "0"
    assert "GATEWAY_WEBHOOK_KEY_FILE" not in found
    assert secrets_of(deployment(objects)) == {"admin-token"}
    assert [entry["metadata"]["name"] for entry in objects if entry["kind"] == "Secret"] == [
        f"{MINE}-admin"
    ]


def test_the_key_stays_when_the_release_goes(latest: int) -> None:
    """Watches in Redis need it, which may be there longer than the release."""
    secret = one(render(latest, {}), "Secret", "-webhooks")
    assert secret["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_an_inline_key_is_made_a_secret(latest: int) -> None:
    """It is in no pod's specification; a change of it replaces the pods of both."""
    values = apart()
    values["webhooks"]["key"] = "a" * 32
    objects = render(latest, values)
    secret = one(objects, "Secret", "-webhooks")
    assert base64.b64decode(secret["data"]["webhook-key"]).decode() == "a" * 32
    assert "a" * 32 not in str([entry for entry in objects if entry["kind"] != "Secret"])
    values["webhooks"]["key"] = "b" * 32
    for before, after in zip(objects, render(latest, values), strict=True):
        if before["kind"] == "Deployment":
            assert before["spec"]["template"] != after["spec"]["template"]


# -- in pods of their own --------------------------------------------------------------------------


def test_pods_of_their_own(latest: int) -> None:
    """The gateway has none, and finds theirs by the service; both have the same key and store."""
    objects = render(latest, apart(couriers=3, port=8090))
    of_gateway, of_couriers = settings(objects), variables(objects)
    assert of_gateway["GATEWAY_COURIERS"] == "0"
    assert of_gateway["GATEWAY_COURIER_URL"] == f"http://{MINE}-couriers:8090"
    assert of_couriers["GATEWAY_COURIERS"] == "3"
    assert of_couriers["GATEWAY_LISTEN"] == "0.0.0.0:8090"
    for name in ("GATEWAY_STORE", "GATEWAY_WEBHOOK_KEY_FILE", "GATEWAY_POLICIES"):
        assert of_couriers[name] == of_gateway[name]
    service = one(objects, "Service", "-couriers")["spec"]
    assert service["type"] == "ClusterIP"
    assert [(port["port"], port["targetPort"]) for port in service["ports"]] == [
        (8090, "couriers"),
        (9901, "admin"),
    ]


def test_they_have_no_admin_token(latest: int) -> None:
    """Couriers reach the internet: what they do not need, they do not have."""
    objects = variant(latest, "couriers")
    assert secrets_of(deployment(objects)) == {"admin-token", "webhook-key", "store-password"}
    assert secrets_of(one(objects, "Deployment", "-couriers")) == {"webhook-key", "store-password"}
    assert "GATEWAY_ADMIN_TOKEN_FILE" not in variables(objects)


def test_settings_are_options_of_deliver(latest: int) -> None:
    """Each variable of the couriers' container is one that `gateway deliver` reads."""
    objects = variant(latest, "couriers")
    assert container(objects)["args"][0] == "deliver"
    command = cli.get_command(click.Context(cli), "deliver")
    assert command is not None
    known = {option.envvar for option in command.params}
    ours = {each for each in variables(objects) if each.startswith("GATEWAY_")}
    assert ours - NO_OPTIONS <= known


def test_their_account_is_their_own(latest: int) -> None:
    """A cloud's rights for couriers are not the gateway's; it can also be an existing one."""
    objects = variant(latest, "couriers")
    accounts = {entry["metadata"]["name"] for entry in objects if entry["kind"] == "ServiceAccount"}
    assert accounts == {MINE, f"{MINE}-couriers"}
    pod = one(objects, "Deployment", "-couriers")["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == f"{MINE}-couriers"
    for account, wanted in (({"create": False}, "default"), ({"name": "mine"}, "mine")):
        objects = render(latest, apart(serviceAccount=account))
        pod = one(objects, "Deployment", "-couriers")["spec"]["template"]["spec"]
        assert pod["serviceAccountName"] == wanted


def test_they_may_be_on_other_nodes(latest: int) -> None:
    """Their own selector and tolerations replace the gateway's, which hold otherwise."""
    given = {"nodeSelector": {"pool": "edge"}, "priorityClassName": "high"}
    for own, wanted in (({}, "edge"), ({"nodeSelector": {"pool": "egress"}}, "egress")):
        objects = render(latest, {**given, **apart(**own)})
        pod = one(objects, "Deployment", "-couriers")["spec"]["template"]["spec"]
        assert pod["nodeSelector"] == {"pool": wanted}
        assert pod["priorityClassName"] == "high"


def test_scaling_by_the_queue(latest: int) -> None:
    """By an external metric: what waits is the store's, and not the mean over pods."""
    scaler = one(variant(latest, "couriers"), "HorizontalPodAutoscaler")["spec"]
    depth, oldest = scaler["metrics"]
    assert depth == {
        "type": "External",
        "external": {
            "metric": {
                "name": "gateway_webhook_queue_depth",
                "selector": {"matchLabels": {"state": "due"}},
            },
            "target": {"type": "AverageValue", "averageValue": "250"},
        },
    }
    assert oldest["external"]["metric"]["name"] == "gateway_webhook_oldest_due_seconds"
    kinds = {entry["kind"] for entry in render(latest, apart())}
    assert not kinds & {"HorizontalPodAutoscaler", "PodDisruptionBudget"}


@pytest.mark.parametrize(
    ("kind", "first"), [("ServiceMonitor", "admin"), ("PodMonitor", "gateway")]
)
def test_monitors_find_them(latest: int, kind: str, first: str) -> None:
    """The one monitor selects both, and no other component."""
    values = {**apart(), kind[0].lower() + kind[1:]: {"enabled": True}}
    selector = one(render(latest, values), kind)["spec"]["selector"]
    assert "app.kubernetes.io/component" not in selector["matchLabels"]
    assert selector["matchExpressions"] == [
        {"key": "app.kubernetes.io/component", "operator": "In", "values": [first, "couriers"]}
    ]


def test_the_tests_pod_asks_them(latest: int) -> None:
    """`helm test` fails without couriers; by TLS where the admin listener has it."""
    for given, url in (
        ({}, f"http://{MINE}-couriers:9901/readyz"),
        ({"admin": {"tls": {"existingSecret": "tls"}}}, f"https://{MINE}-couriers:9901/readyz"),
    ):
        (asking,) = one(render(latest, {**apart(), **given}), "Pod")["spec"]["containers"]
        assert asking["args"][-2:] == [url, "200"]
    (asking,) = one(render(latest, {}), "Pod")["spec"]["containers"]
    assert "couriers" not in " ".join(asking["args"][1:])


# -- their networks --------------------------------------------------------------------------------


def test_only_gateways_reach_them(latest: int) -> None:
    """Their application is for the gateway's pods; the admin listener is for `admins`, and for
    `helm test`.
    """
    objects = variant(latest, "couriers")
    application, admin = networks(objects)["ingress"]
    ((peer,), (port,)) = application["from"], application["ports"]
    assert port["port"] == "couriers"
    of_gateway = deployment(objects)["spec"]["template"]["metadata"]["labels"]
    of_couriers = one(objects, "Deployment", "-couriers")["spec"]["template"]["metadata"]["labels"]
    assert peer["podSelector"]["matchLabels"].items() <= of_gateway.items()
    assert not peer["podSelector"]["matchLabels"].items() <= of_couriers.items()
    assert [port["port"] for port in admin["ports"]] == ["admin"]
    admins, test = admin["from"]
    assert admins == {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}
    }
    of_test = one(objects, "Pod")["metadata"]["labels"]
    assert test["podSelector"]["matchLabels"].items() <= of_test.items()


def reaches(rule: Object, address: str) -> bool:
    """Does a rule for addresses allow this one?"""
    found = ip_address(address)
    for peer in rule["to"]:
        block = peer["ipBlock"]
        if found in ip_network(block["cidr"]) and not any(
            found in ip_network(each) for each in block.get("except", [])
        ):
            return True
    return False


@each_row(
    "address",
    [
        *("1.1.1.1", "93.184.216.34", "10.1.2.3", "100.64.0.1", "127.0.0.1", "169.254.169.254"),
        *("168.63.129.16", "172.16.0.1", "192.168.1.1", "198.18.0.1", "224.0.0.1", "0.0.0.0"),
        *("255.255.255.255", "2606:4700::1111", "fd00::1", "fe80::1", "::1", "ff02::1"),
    ],
)
def test_what_they_reach_is_what_they_deliver_to(latest: int, address: str) -> None:
    """The public internet: what a courier itself refuses, its pod cannot reach either."""
    rule = networks(render(latest, apart()))["egress"][-1]
    assert reaches(rule, address) == Destinations().admit(ip_address(address))


def test_no_range_is_forgotten(latest: int) -> None:
    """The policy excepts exactly the ranges that a courier refuses."""
    rule = networks(render(latest, apart()))["egress"][-1]
    blocks = {peer["ipBlock"]["cidr"]: peer["ipBlock"]["except"] for peer in rule["to"]}
    assert blocks == {
        "0.0.0.0/0": [str(each) for each in destinations._NOT_V4],
        str(destinations._V6): [str(each) for each in destinations._NOT_V6],
    }


def test_receivers_in_private_networks(latest: int) -> None:
    """Ranges can be allowed, ports narrowed, and rules added."""
    *_, receivers, added = networks(variant(latest, "couriers"))["egress"]
    assert reaches(receivers, "10.30.1.1")
    assert not reaches(receivers, "10.31.1.1")
    assert [port["port"] for port in receivers["ports"]] == [443, 8443]
    assert added["to"] == [{"ipBlock": {"cidr": "10.20.0.0/16"}}]


@pytest.mark.parametrize(
    ("url", "ports"),
    [
        ("redis://redis:6379/0", [6379]),
        ("redis://redis", [6379, 26379]),
        ("rediss://gateway@redis.example.com:6380/7", [6380]),
        ("redis://[fd00::1]:7000/0", [7000]),
        ("redis+cluster://a:7001,b:7002", [7001, 7002]),
        ("redis+sentinel://a:26380,b:26380/main/0", [26380, 6379, 26379]),
    ],
)
def test_they_reach_redis(latest: int, url: str, ports: list[int]) -> None:
    """At the ports of its URL, wherever it is: a network policy knows no host names."""
    values = {**apart(), "externalRedis": {"url": url}}
    rule = networks(render(latest, values))["egress"][1]
    assert [port["port"] for port in rule["ports"]] == ports
    assert "to" not in rule


def test_the_ports_of_redis_can_be_set(latest: int) -> None:
    """Where a secret has its URL, or a Sentinel's servers have other ports."""
    rule = networks(render(latest, apart(networkPolicy={"redisPorts": [7777]})))["egress"][1]
    assert [port["port"] for port in rule["ports"]] == [7777]


def test_they_reach_the_bundled_redis(latest: int) -> None:
    """Its own policy accepts them as well as the gateway."""
    values = {"redis": {"enabled": True}, "webhooks": {"deployment": {"enabled": True}}}
    objects = render(latest, values)
    (rule,) = one(objects, "NetworkPolicy", "-redis")["spec"]["ingress"]
    found = {
        peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in rule["from"]
    }
    assert found == {"gateway", "couriers"}
    (peer,) = networks(objects)["egress"][1]["to"]
    assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "redis"


def test_the_gateway_reaches_them(latest: int) -> None:
    """Also where its own ways out are restricted."""
    objects = variant(latest, "couriers")
    own = one(objects, "NetworkPolicy", deployment(objects)["metadata"]["name"])["spec"]
    peers = [
        peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
        for rule in own["egress"]
        for peer in rule.get("to", [])
    ]
    assert peers == ["couriers"]


def test_without_a_network_policy(latest: int) -> None:
    """Where another tool makes them."""
    objects = render(latest, apart(networkPolicy={"enabled": False}))
    assert not [entry for entry in objects if entry["kind"] == "NetworkPolicy"]


# -- as processes ----------------------------------------------------------------------------------


async def test_both_start_as_rendered(
    latest: int, redis_server: RedisServer, tmp_path: Path
) -> None:
    """`gateway deliver` gets ready, and a gateway with the chart's variables leads to it."""
    gateway_port, port, admin_port, own_port = (free_port() for _ in range(4))
    values = {
        "listen": {"host": "127.0.0.1", "port": gateway_port},
        "admin": {"port": admin_port},
        "externalRedis": {"url": redis_server.url},
        "policies": {"upstream": "http://127.0.0.1:9"},
        "webhooks": {"deployment": {"enabled": True, "port": port}},
    }
    objects = render(latest, values)
    policies = tmp_path / "policies"
    policies.mkdir()
    for file, text in one(objects, "ConfigMap", "-policies")["data"].items():
        (policies / file).write_text(text, encoding="utf-8")
    write_secret(objects, "-admin", "token", tmp_path / "admin-token")
    write_secret(objects, "-webhooks", "webhook-key", tmp_path / "webhook-key")
    here = {
        "/etc/gateway/policies": str(policies),
        "/run/secrets/gateway/admin-token": str(tmp_path / "admin-token"),
        KEY_FILE: str(tmp_path / "webhook-key"),
        # Names of a cluster, and the one address of two pods.
        f"http://{MINE}-couriers:{port}": f"http://127.0.0.1:{port}",
    }
    of_couriers, of_gateway = (
        {name: here.get(value, value) for name, value in found.items()}
        for found in (variables(objects), settings(objects))
    )
    of_couriers["GATEWAY_DATA"] = str(tmp_path / "couriers")
    of_gateway["GATEWAY_DATA"] = str(tmp_path / "gateway")
    of_gateway["GATEWAY_ADMIN"] = f"127.0.0.1:{own_port}"
    couriers = Process(tmp_path / "a", *container(objects)["args"], environment=of_couriers)
    gateway = Process(tmp_path / "b", "serve", environment=of_gateway)
    try:
        await eventually(lambda: is_ready(couriers, admin_port), "couriers", READY_S)
        await eventually(lambda: is_ready(gateway, own_port), "a gateway", READY_S)
        answer = await fetch(port, "/hooks/" + "0" * 32, method="POST", body=b"{}")
        assert answer.status == 404
        answer = await fetch(gateway_port, "/hooks/" + "0" * 32, method="POST", body=b"{}")
        assert (answer.status, b"Nothing is captured" in answer.body) == (404, True)
        metrics = (
            await fetch(admin_port, "/metrics", headers=[("Host", "127.0.0.1")])
        ).body.decode()
        assert 'gateway_couriers{state="live"} 1.0' in metrics
    finally:
        assert (await gateway.stop(), await couriers.stop()) == (0, 0)
