"""Impossible values are refused with a sentence, misspelled ones by the schema."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.helm.chart import CHART, Cluster, Refused, one, render
from tests.helm.tools import WHEELS

TWO = {"replicas": 2, "externalRedis": {"url": "redis://redis:6379/0"}}
SCALED = {
    "externalRedis": {"url": "redis://redis:6379/0"},
    "autoscaling": {"enabled": True},
}


def apart(**deployment: object) -> dict[str, Any]:
    """Couriers in pods of their own."""
    return {**TWO, "webhooks": {"deployment": {"enabled": True, **deployment}}}


#: Impossible values -> text of the refusal.
IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"replicas": 2}, "replicas: pods without a shared"),
    (
        {"replicas": 2, "externalRedis": {"url": "memory://"}},
        "replicas: pods without a shared",
    ),
    (
        {"replicas": 2, "externalRedis": {"url": "unix:///a"}},
        "replicas: pods without a shared",
    ),
    ({"autoscaling": {"enabled": True}}, "autoscaling.maxReplicas: pods without a shared"),
    ({"workers": 2, "externalRedis": {"url": "memory://"}}, "workers: memory://"),
    (
        {"redis": {"enabled": True}, "externalRedis": {"url": "redis://redis:6379"}},
        "redis.enabled: there is an externalRedis",
    ),
    (
        {"externalRedis": {"url": "redis://r", "existingSecret": "s", "secretKeys": {"url": "u"}}},
        "externalRedis.secretKeys.url: there is externalRedis.url",
    ),
    (
        {"externalRedis": {"url": "redis://r", "existingSecret": "s", "password": "p"}},
        "externalRedis.password: there is externalRedis.existingSecret",
    ),
    ({"externalRedis": {"password": "p"}}, "externalRedis: there is a password but no URL"),
    ({"externalRedis": {"url": "redis://u:p@r"}}, "externalRedis.url: there is a password in it"),
    ({"externalRedis": {"url": "http://redis"}}, "externalRedis.url: expected redis://"),
    (
        {"externalRedis": {"url": "redis+sentinel://a:26379,b:26379"}},
        "externalRedis.url: it names no service",
    ),
    (
        {"externalRedis": {"url": "rediss+sentinel://a:26379/"}},
        "externalRedis.url: it names no service",
    ),
    (
        {"externalRedis": {"url": "rediss://r", "ca": {"secret": "a", "configMap": "b"}}},
        "externalRedis.ca: there are a secret and a configMap",
    ),
    (
        {"externalRedis": {"url": "redis://r", "certificateSecret": "a"}},
        "externalRedis.certificateSecret: the URL is not of TLS",
    ),
    (
        {"externalRedis": {"certificateSecret": "a"}},
        "externalRedis.certificateSecret: there is no URL",
    ),
    ({"redis": {"enabled": True, "config": "requirepass x"}}, "redis.config: a password there"),
    ({**SCALED, "resources": {"requests": {"cpu": None}}}, "autoscaling.cpuUtilization: it is"),
    ({**SCALED, "autoscaling": {"enabled": True, "cpuUtilization": 0}}, "autoscaling: there is"),
    (
        {**SCALED, "autoscaling": {"enabled": True, "minReplicas": 11}},
        "autoscaling.minReplicas: it is more",
    ),
    (
        {**TWO, "podDisruptionBudget": {"minAvailable": 2}},
        "podDisruptionBudget.minAvailable: no pod could ever be evicted",
    ),
    (
        {**TWO, "podDisruptionBudget": {"minAvailable": "100%"}},
        "podDisruptionBudget.minAvailable: no pod could ever be evicted",
    ),
    (
        {**TWO, "podDisruptionBudget": {"maxUnavailable": 0}},
        "podDisruptionBudget.maxUnavailable: with 0",
    ),
    (
        {**TWO, "podDisruptionBudget": {"maxUnavailable": ""}},
        "podDisruptionBudget: set minAvailable or maxUnavailable",
    ),
    (
        {"terminationGracePeriodSeconds": 5},
        "terminationGracePeriodSeconds: the pod would be killed",
    ),
    ({"listen": {"port": 9901}}, "admin.port: clients use this port"),
    ({"listen": {"httpPort": 8080}}, "listen.httpPort: another listener uses this port"),
    ({"listen": {"httpPort": 9901}}, "listen.httpPort: another listener uses this port"),
    ({"listen": {"httpPort": 8081}}, "service.httpPort: clients use this port for https"),
    (
        {"listen": {"httpPort": 8081}, "service": {"port": 443}},
        "listen.httpPort: there is no TLS",
    ),
    ({"ingress": {"enabled": True}}, "ingress.hosts: an ingress needs a host"),
    ({"httpRoute": {"enabled": True}}, "httpRoute.parentRefs: a route needs a Gateway"),
    ({"admin": {"service": {"type": "LoadBalancer"}}}, "admin.service.type: as LoadBalancer"),
    ({"admin": {"service": {"type": "NodePort"}}}, "admin.service.type: as NodePort"),
    ({"admin": {"proxy": {"tls": True}}}, "admin.proxy.tls: there is no proxy"),
    (
        {"service": {"externalTrafficPolicy": "Local"}},
        "service.externalTrafficPolicy: only for",
    ),
    ({"service": {"nodePort": 30000}}, "service.nodePort: only for"),
    (
        {"policies": {"existingConfigMap": "c", "upstream": "http://a"}},
        "policies.existingConfigMap: policies.files, policies.upstream and policies.mcpUpstream",
    ),
    (
        {"policies": {"upstream": "http://a", "files": {"upstreams.yaml": "upstreams: {}"}}},
        "policies.upstream: there is upstreams.yaml",
    ),
    (
        {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}},
        "podMonitor.enabled: there is a serviceMonitor",
    ),
    (
        {"extraEnv": [{"name": "GATEWAY_ADMIN_TOKEN", "value": "x"}]},
        "extraEnv: GATEWAY_ADMIN_TOKEN is there in clear text",
    ),
    ({"extraArgs": ["--store=redis://u:p@r"]}, "extraArgs: there is a password in a URL"),
    (
        {"extraEnv": [{"name": "GATEWAY_WEBHOOK_KEY", "value": "x"}]},
        "extraEnv: GATEWAY_WEBHOOK_KEY is there in clear text",
    ),
    ({"webhooks": {"key": "a" * 32, "existingSecret": "b"}}, "webhooks.key: there is webhooks"),
    ({"webhooks": {"key": "short"}}, "webhooks.key: it has 5 characters; expected 32 or more"),
    (
        {"webhooks": {"deployment": {"enabled": True}}},
        "webhooks.deployment.enabled: couriers in pods of their own need a Redis",
    ),
    (
        {"externalRedis": {"url": "memory://"}, "webhooks": {"deployment": {"enabled": True}}},
        "webhooks.deployment.enabled: couriers in pods of their own need a Redis",
    ),
    (apart(port=9901), "webhooks.deployment.port: the admin listener uses this port"),
    (
        {**apart(port=9000), "admin": {"service": {"port": 9000}}},
        "webhooks.deployment.port: the service has this port",
    ),
    (
        apart(terminationGracePeriodSeconds=5),
        "webhooks.deployment.terminationGracePeriodSeconds: the pod would be killed",
    ),
    (
        apart(autoscaling={"enabled": True, "minReplicas": 11}),
        "webhooks.deployment.autoscaling.minReplicas: it is more",
    ),
    (
        apart(autoscaling={"enabled": True, "queueDepth": 0}),
        "webhooks.deployment.autoscaling: there is no metric",
    ),
    (
        apart(replicas=2, podDisruptionBudget={"minAvailable": 2}),
        "webhooks.deployment.podDisruptionBudget.minAvailable: no pod could ever be evicted",
    ),
    (
        apart(replicas=2, podDisruptionBudget={"maxUnavailable": 0}),
        "webhooks.deployment.podDisruptionBudget.maxUnavailable: with 0",
    ),
    (apart(extraArgs=["--store=redis://u:p@r"]), "extraArgs: there is a password in a URL"),
    (
        apart(extraEnv=[{"name": "GATEWAY_STORE_PASSWORD", "value": "x"}]),
        "extraEnv: GATEWAY_STORE_PASSWORD is there in clear text",
    ),
]

#: Values that the schema does not have -> their places in the error.
MISSPELLED: list[tuple[dict[str, Any], str]] = [
    ({"replicaCount": 2}, "replicaCount"),
    ({"replicas": "2"}, "replicas"),
    ({"replicas": -1}, "replicas"),
    ({"workers": 0}, "workers"),
    ({"image": {"tags": "1"}}, "image.tags"),
    ({"image": {"digest": "0123"}}, "image.digest"),
    ({"image": {"pullPolicy": "Sometimes"}}, "image.pullPolicy"),
    ({"imagePullSecrets": ["registry"]}, "imagePullSecrets.0"),
    ({"policies": {"upstream": "my-api:8080"}}, "policies.upstream"),
    ({"policies": {"files": {"plans.yml": "plans: {}"}}}, "plans.yml"),
    ({"policies": {"files": {"plans.yaml": {"plans": {}}}}}, "policies.files.plans.yaml"),
    ({"externalRedis": {"host": "redis"}}, "externalRedis.host"),
    ({"redis": {"persistence": {"size": "much"}}}, "redis.persistence.size"),
    ({"redis": {"maxmemory": "75%"}}, "redis.maxmemory"),
    ({"listen": {"port": 70000}}, "listen.port"),
    ({"admin": {"service": {"type": "ExternalName"}}}, "admin.service.type"),
    ({"admin": {"token": "x"}}, "admin.token"),
    ({"logs": {"level": "verbose"}}, "logs.level"),
    ({"logs": {"access": "off"}}, "logs.access"),
    ({"service": {"annotations": {"a": True}}}, "service.annotations.a"),
    ({"ingress": {"hosts": ["api.example.com"]}}, "ingress.hosts.0"),
    (
        {"ingress": {"hosts": [{"host": "a", "paths": [{"path": "api"}]}]}},
        "ingress.hosts.0.paths.0.path",
    ),
    ({"httpRoute": {"parentRefs": {"name": "a"}}}, "httpRoute.parentRefs"),
    ({"autoscaling": {"targetCPU": 50}}, "autoscaling.targetCPU"),
    ({"podDisruptionBudget": {"minAvailable": "half"}}, "podDisruptionBudget.minAvailable"),
    ({"serviceMonitor": {"interval": "often"}}, "serviceMonitor.interval"),
    ({"resources": {"request": {}}}, "resources.request"),
    ({"livenessProbe": {"httpGet": {}}}, "livenessProbe.httpGet"),
    ({"startupProbe": {"periodSeconds": 0}}, "startupProbe.periodSeconds"),
    ({"extraArgs": "--log-level=debug"}, "extraArgs"),
    ({"extraEnv": {"TZ": "UTC"}}, "extraEnv"),
    ({"tolerations": {}}, "tolerations"),
    ({"webhooks": {"couriers": 65}}, "webhooks.couriers"),
    (apart(replicas=0), "webhooks.deployment.replicas"),
    (apart(networkPolicy={"ports": ["https"]}), "webhooks.deployment.networkPolicy.ports.0"),
    (apart(workers=2), "webhooks.deployment.workers"),
]


@pytest.mark.parametrize(("values", "words"), IMPOSSIBLE, ids=lambda entry: str(entry)[:60])
def test_impossible_values_are_refused(latest: int, values: dict[str, Any], words: str) -> None:
    """The refusal names the value and says what to do."""
    with pytest.raises(Refused) as refused:
        render(latest, values)
    assert words in str(refused.value)


def together(rows: list[tuple[dict[str, Any], str]]) -> list[tuple[dict[str, Any], set[str]]]:
    """Fewer rows with the same values and places: none has two values of one name at its top."""
    groups: list[tuple[dict[str, Any], set[str]]] = []
    for values, place in rows:
        fitting = (group for group in groups if not group[0].keys() & values.keys())
        group = next(fitting, None)
        if group is None:
            group = ({}, set())
            groups.append(group)
        group[0].update(values)
        group[1].add(place)
    return groups


TOGETHER = together(MISSPELLED)


def test_misspelled_values_are_refused(major: int) -> None:
    """Either helm refuses each by the schema, and names its place; it says all of them at once."""
    for values, places in TOGETHER:
        with pytest.raises(Refused) as refused:
            render(major, values)
        assert "values don't meet the specifications of the schema" in str(refused.value)
        assert places - places_in(str(refused.value)) == set()


#: A line of a schema's errors: in helm 3 of `image`, or `(root)`; in helm 4 of '/image', or ''.
FAULT = re.compile(r"^- (?:(?P<three>[^' ]+)|at '(?P<four>[^']*)'): (?P<words>.*)", re.MULTILINE)
#: The name of what a map does not have, and of a key that it may not have.
UNKNOWN = re.compile(r"(?i)additional propert(?:y|ies) '?([\w.]+)")
UNNAMED = re.compile(r"(?i)property ?name (?:of )?['\"]([^'\"]+)")


def places_in(refusal: str) -> set[str]:
    """The places in the errors of a schema: "image.tags"; of a forbidden name, the name alone."""
    found = set()
    for fault in FAULT.finditer(refusal):
        place = (fault["three"] or fault["four"][1:].replace("/", ".")).replace("(root)", "")
        if unknown := UNKNOWN.match(fault["words"]):
            place = f"{place}.{unknown[1]}".removeprefix(".")
        unnamed = UNNAMED.search(fault["words"])
        found.add(unnamed[1] if unnamed else place)
    return found


def test_the_password_of_a_url_is_not_repeated(latest: int) -> None:
    """A refusal ends up in logs of pipelines: it does not quote the URL."""
    with pytest.raises(Refused) as refused:
        render(latest, {"externalRedis": {"url": "redis://gateway:hunter2@redis:6379/0"}})
    assert "hunter2" not in str(refused.value)


def test_the_webhook_key_is_not_repeated(latest: int) -> None:
    """One that is too short, either: it may be the beginning of the right one."""
    with pytest.raises(Refused) as refused:
        render(latest, {"webhooks": {"key": "hunter2"}})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"serviceMonitor": {"enabled": True}}, "ServiceMonitor"),
        ({"podMonitor": {"enabled": True}}, "PodMonitor"),
        ({"prometheusRule": {"enabled": True}}, "PrometheusRule"),
        ({"httpRoute": {"enabled": True, "parentRefs": [{"name": "a"}]}}, "HTTPRoute"),
    ],
)
def test_kinds_that_the_cluster_lacks(major: int, values: dict[str, Any], kind: str) -> None:
    """Refused with a sentence, unless apiCheck is off; rendered if the cluster has them."""
    bare = Cluster(apis=())
    with pytest.raises(Refused, match="the cluster does not have"):
        render(major, values, bare)
    assert one(render(major, {**values, "apiCheck": False}, bare), kind)
    assert one(render(major, values), kind)


def test_as_a_part_of_another_chart(latest: int) -> None:
    """A parent chart's global values and the value of its condition are accepted."""
    assert render(latest, {"global": {"anything": {"at": "all"}}, "enabled": True})


def test_the_schema_is_shut() -> None:
    """Every map of the chart refuses unknown keys, except those of Kubernetes."""
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    open_ones = [where for where, found in maps(schema, "") if not is_shut(found)]
    assert open_ones == ["/definitions/object"]


def maps(schema: Any, where: str) -> list[tuple[str, dict[str, Any]]]:
    """All schemas of maps within a schema."""
    if isinstance(schema, list):
        return [found for entry in schema for found in maps(entry, where)]
    if not isinstance(schema, dict):
        return []
    own = [(where, schema)] if schema.get("type") == "object" else []
    return own + [found for key, part in schema.items() for found in maps(part, f"{where}/{key}")]


def is_shut(schema: dict[str, Any]) -> bool:
    """Does it refuse unknown keys, or at least define the type of their values?"""
    others = schema.get("additionalProperties", True)
    return others is False or isinstance(others, dict)


def test_both_helms_are_tried() -> None:
    """Both versions of helm in use are in the table."""
    assert sorted(WHEELS) == [3, 4]
