"""The output of `helm install`: the next steps, and warnings of likely mistakes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helm.chart import CI, notes

#: Values without a warning.
VALID: dict[str, Any] = {
    "policies": {"upstream": "http://my-api:8080"},
    "externalRedis": {"url": "redis://redis:6379/0"},
}
PROXIED = {"gateway.yaml": "trusted_proxies: [10.0.0.0/8]", "upstreams.yaml": "upstreams: {}"}

#: Changes of these values -> text of the warning.
WARNED: list[tuple[dict[str, Any], str]] = [
    ({"externalRedis": {}}, "There is no Redis"),
    ({"externalRedis": {"url": "memory://"}}, "memory:// keeps keys"),
    (
        {"externalRedis": {"url": "rediss://redis:6379/0", "password": "x"}},
        "externalRedis.password is stored with the release",
    ),
    (
        {"externalRedis": {"url": "redis://redis:6379/0", "existingSecret": "x"}},
        "is sent over the network in clear text",
    ),
    (
        {"externalRedis": {}, "redis": {"enabled": True, "persistence": {"enabled": False}}},
        "The bundled Redis has no volume",
    ),
    (
        {"admin": {"service": {"type": "NodePort", "allowExposure": True}}},
        "try tokens for the console in clear text",
    ),
    (
        {
            "admin": {
                "service": {"type": "NodePort", "allowExposure": True},
                "tls": {"existingSecret": "a"},
            }
        },
        "try tokens for the console.",
    ),
    (
        {"policies": {"existingConfigMap": "a"}, "admin": {"proxy": {"trusted": ["10.0.0.0/8"]}}},
        'need {"admin_proxy":{"tls":false,"trusted":["10.0.0.0/8"]}}',
    ),
    (
        {
            "autoscaling": {"enabled": True, "cpuUtilization": 0, "requestsPerSecond": 100},
            "resources": {"requests": {"cpu": None}},
        },
        "without a CPU request",
    ),
    (
        {"autoscaling": {"enabled": True, "requestsPerSecond": 100}},
        "No adapter in the cluster provides the metric gateway_requests_per_second",
    ),
    ({"policies": {}}, "http://127.0.0.1:9000, where nothing listens"),
    ({"ingress": {"enabled": True, "hosts": [{"host": "a"}]}}, "trusted_proxies"),
    ({"httpRoute": {"enabled": True, "parentRefs": [{"name": "a"}]}}, "trusted_proxies"),
    ({"service": {"type": "LoadBalancer"}}, "trusted_proxies"),
    ({"terminationGracePeriodSeconds": 35}, "requests in progress may be cut off"),
    (
        {"policies": {"files": {"gateway.yaml": "timeouts: {drain: 120s}"}}},
        "timeouts.drain (120s)",
    ),
    ({"workers": 20}, "768Mi of memory is too little for workers: 20"),
    ({"webhooks": {"couriers": 12}}, "768Mi of memory is too little for workers: 1 and couriers"),
    (
        {"networkPolicy": {"enabled": True}, "serviceMonitor": {"enabled": True}},
        "networkPolicy.admins is empty",
    ),
    (
        {"policies": {"existingConfigMap": "a"}, "tls": {"existingSecret": "b"}},
        "the policies in your ConfigMap need tls",
    ),
    ({"webhooks": {"key": "a" * 32}}, "webhooks.key is stored with the release"),
    (
        {"networkPolicy": {"enabled": True, "egress": {"enabled": True}}},
        "networkPolicy.egress: the couriers in the gateway's pods reach only",
    ),
    (
        {"webhooks": {"deployment": {"enabled": True, "autoscaling": {"enabled": True}}}},
        "No adapter in the cluster provides the external metric gateway_webhook_queue_depth",
    ),
    (
        {"webhooks": {"deployment": {"enabled": True, "terminationGracePeriodSeconds": 25}}},
        "deliveries in progress may be made twice",
    ),
    (
        {"webhooks": {"deployment": {"enabled": True}}, "serviceMonitor": {"enabled": True}},
        "a Prometheus in another namespace cannot scrape the couriers",
    ),
]
#: Changes of these values that cause no warning.
NOT_WARNED: list[dict[str, Any]] = [
    {},
    {"ingress": {"enabled": True, "hosts": [{"host": "a"}]}, "policies": {"files": PROXIED}},
    {"service": {"type": "LoadBalancer", "externalTrafficPolicy": "Local"}},
    {"terminationGracePeriodSeconds": 40},
    {"workers": 4},
    {"policies": {"existingConfigMap": "a"}},
    {"externalRedis": {"url": "rediss://redis:6379/0", "existingSecret": "x"}},
    {"webhooks": {"deployment": {"enabled": True}}},
    {"webhooks": {"couriers": 0, "key": "a" * 32}},
    {
        "webhooks": {"deployment": {"enabled": True}},
        "networkPolicy": {"enabled": True, "egress": {"enabled": True}},
    },
]


def notes_for(major: int, changed: dict[str, Any]) -> str:
    return notes(major, {**VALID, "apiCheck": False, **changed})


@pytest.mark.parametrize(("changed", "words"), WARNED, ids=lambda entry: str(entry)[:60])
def test_warnings(latest: int, changed: dict[str, Any], words: str) -> None:
    """One warning, about the change."""
    warnings = notes_for(latest, changed).split("\nWARNING: ")[1:]
    assert [words in warning for warning in warnings].count(True) == 1


@pytest.mark.parametrize("changed", NOT_WARNED, ids=lambda entry: str(entry)[:60])
def test_no_warnings(latest: int, changed: dict[str, Any]) -> None:
    """Valid values cause no warning."""
    assert "WARNING" not in notes_for(latest, changed)


def test_next_steps(latest: int) -> None:
    """They have the address, and how to get a key, the console, its token and a test."""
    words = notes(latest, CI / "minimal-values.yaml")
    for wanted in (
        "http://release-rate-limiting-gateway.gateways.svc:80",
        "kubectl exec deploy/release-rate-limiting-gateway --namespace gateways -- gateway keys",
        "kubectl port-forward deploy/release-rate-limiting-gateway 9901 --namespace gateways",
        "kubectl get secret release-rate-limiting-gateway-admin --namespace gateways",
        "{{ .data.token | base64decode }}",
        "helm test release --namespace gateways",
    ):
        assert wanted in words


@pytest.mark.parametrize(
    ("changed", "way"),
    [
        ({"tls": {"existingSecret": "a"}}, "https://release-rate-limiting-gateway.gateways.svc"),
        ({"ingress": {"enabled": True, "hosts": [{"host": "api.test"}]}}, "http://api.test"),
        (
            {
                "httpRoute": {
                    "enabled": True,
                    "parentRefs": [{"name": "a"}],
                    "hostnames": ["api.test"],
                }
            },
            "\n  api.test\n",
        ),
        ({"service": {"type": "LoadBalancer"}}, "kubectl get service release-rate-limiting"),
    ],
)
def test_the_way_in(latest: int, changed: dict[str, Any], way: str) -> None:
    """The address is the one that clients outside use."""
    assert way in notes_for(latest, changed)


def test_no_secret_is_shown(latest: int) -> None:
    """The notes end up in logs of pipelines: they contain no password."""
    changed = {"externalRedis": {"url": "rediss://redis:6379/0", "password": "hunter2"}}
    assert "hunter2" not in notes_for(latest, changed)
