"""Rules for all objects of the chart, whatever its values: safe and consistent."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import yaml

from tests.helm.chart import (
    VARIANTS,
    Object,
    component,
    containers,
    deployment,
    gateway,
    one,
    pods,
    render,
    settings,
    variant,
)
from tests.kit.rows import each_row

every_variant = each_row("name", VARIANTS)
#: May be only in a secret; the values of the variant "extras" have it.
PASSWORD = "for-a-try-only"
#: Variables with a path or a name from Kubernetes or the chart, never with a secret.
NO_SECRETS = ("_FILE",)


@every_variant
def test_pods_are_restricted(latest: int, name: str) -> None:
    """No container is root, writes to its image, or has or gains privileges; seccomp is on."""
    for where, _, pod in pods(variant(latest, name)):
        context = pod["securityContext"]
        assert context["runAsNonRoot"] is True, where
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, where
        for container in containers(pod):
            own = container["securityContext"]
            assert own["allowPrivilegeEscalation"] is False, where
            assert own["readOnlyRootFilesystem"] is True, where
            assert own["capabilities"] == {"drop": ["ALL"]}, where
            assert "privileged" not in own, where
        for forbidden in ("hostNetwork", "hostPID", "hostIPC"):
            assert forbidden not in pod, where


@every_variant
def test_pods_know_nothing_of_the_cluster(latest: int, name: str) -> None:
    """No pod gets a token, or variables named after other services."""
    for where, _, pod in pods(variant(latest, name)):
        assert pod["automountServiceAccountToken"] is False, where
        assert pod["enableServiceLinks"] is False, where


@every_variant
def test_containers_have_resources(latest: int, name: str) -> None:
    """Every container requests CPU and memory, and has a memory limit."""
    for where, _, pod in pods(variant(latest, name)):
        for container in containers(pod):
            asked = container["resources"]
            assert {"cpu", "memory"} <= set(asked["requests"]), where
            assert "memory" in asked["limits"], where


@every_variant
def test_long_running_containers_are_probed(latest: int, name: str) -> None:
    """Every long-running container has a liveness and a readiness probe."""
    for where, _, pod in pods(variant(latest, name)):
        if pod.get("restartPolicy") == "Never":
            continue
        for container in pod["containers"]:
            assert {"livenessProbe", "readinessProbe"} <= set(container), where


def test_probes_of_the_gateway(latest: int) -> None:
    """Liveness and startup use /healthz, which depends on nothing else; readiness uses /readyz."""
    container = gateway(variant(latest, "minimal"))
    paths = {
        kind: container[kind]["httpGet"]["path"]
        for kind in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert paths == {
        "startupProbe": "/healthz",
        "livenessProbe": "/healthz",
        "readinessProbe": "/readyz",
    }


@every_variant
def test_mounts_have_their_volumes(latest: int, name: str) -> None:
    """Mounts and volumes match, without subPath, whose files would not be updated."""
    objects = variant(latest, name)
    for where, _, pod in pods(objects):
        claims: list[Object] = []
        for entry in objects:
            if where == f"{entry['kind']}/{entry['metadata']['name']}":
                claims = entry.get("spec", {}).get("volumeClaimTemplates", [])
        there = {volume["name"] for volume in pod.get("volumes", [])}
        there |= {claim["metadata"]["name"] for claim in claims}
        mounts = [mount for found in containers(pod) for mount in found.get("volumeMounts", [])]
        assert {mount["name"] for mount in mounts} == there, where
        assert not [mount for mount in mounts if "subPath" in mount], where


@every_variant
def test_secrets_and_maps_that_are_the_charts_are_there(latest: int, name: str) -> None:
    """A secret or ConfigMap of the release that a pod names exists, with the entries it uses."""
    objects = variant(latest, name)
    made = {
        (entry["kind"], entry["metadata"]["name"]): set(entry.get("data", {}))
        for entry in objects
        if entry["kind"] in ("Secret", "ConfigMap")
    }
    mine = deployment(objects)["metadata"]["name"]
    for where, _, pod in pods(objects):
        for kind, wanted, keys in references(pod):
            if wanted.startswith(mine):
                assert keys <= made[kind, wanted], f"{where}: {wanted}"


def references(pod: Object) -> Iterator[tuple[str, str, set[str]]]:
    """The secrets and ConfigMaps that a pod names: kind, name, and the entries it uses."""
    for volume in pod.get("volumes", []):
        for source in [volume, *volume.get("projected", {}).get("sources", [])]:
            for field, kind in (("secret", "Secret"), ("configMap", "ConfigMap")):
                if found := source.get(field):
                    items = {item["key"] for item in found.get("items", [])}
                    yield kind, found.get("secretName") or found["name"], items
    for container in containers(pod):
        for entry in container.get("env", []):
            if found := entry.get("valueFrom", {}).get("secretKeyRef"):
                yield "Secret", found["name"], {found["key"]}


@every_variant
def test_ports_that_are_named_exist(latest: int, name: str) -> None:
    """The ports that services, probes, network policies and monitors name exist."""
    objects = variant(latest, name)
    of_pods = [(labels, port_names(pod)) for _, labels, pod in pods(objects)]
    for entry in objects:
        spec = entry.get("spec", {})
        if entry["kind"] == "Service":
            for port in spec["ports"]:
                assert port["targetPort"] in reached(of_pods, spec["selector"])
        if entry["kind"] == "NetworkPolicy":
            wanted = spec["podSelector"]["matchLabels"]
            named = [port["port"] for rule in spec["ingress"] for port in rule["ports"]]
            assert set(named) <= reached(of_pods, wanted)
        if entry["kind"] == "PodMonitor":
            for endpoint in spec["podMetricsEndpoints"]:
                for labels in wanted_labels(spec["selector"]):
                    assert endpoint["port"] in reached(of_pods, labels)
    for where, _, pod in pods(objects):
        for container in containers(pod):
            for port in probe_ports(container):
                assert port in port_names(pod), where


def wanted_labels(selector: Object) -> list[Object]:
    """The labels that a selector wants; of an expression, each value on its own."""
    wanted = selector["matchLabels"]
    expressions = selector.get("matchExpressions", [])
    assert all(each["operator"] == "In" for each in expressions)
    return [{**wanted, each["key"]: value} for each in expressions for value in each["values"]] or [
        wanted
    ]


def port_names(pod: Object) -> set[str]:
    return {port["name"] for found in containers(pod) for port in found.get("ports", [])}


def probe_ports(container: Object) -> list[str]:
    probes = [container.get(f"{kind}Probe", {}) for kind in ("startup", "liveness", "readiness")]
    return [
        probe[way]["port"] for probe in probes for way in ("httpGet", "tcpSocket") if way in probe
    ]


def reached(of_pods: list[tuple[Object, set[str]]], selector: Object) -> set[str]:
    """The ports of the pods that a selector matches; fails if it matches none."""
    found = [ports for labels, ports in of_pods if selector.items() <= labels.items()]
    assert len(found) == 1, f"{selector} finds {len(found)} kinds of pods"
    return found[0]


@every_variant
def test_selectors_find_their_own(latest: int, name: str) -> None:
    """Workloads select their own pods and no others; budgets select the gateway's."""
    objects = variant(latest, name)
    of_pods = [(labels, set[str]()) for _, labels, _ in pods(objects)]
    for entry in objects:
        if entry["kind"] in ("Deployment", "StatefulSet", "PodDisruptionBudget"):
            reached(of_pods, entry["spec"]["selector"]["matchLabels"])
        if entry["kind"] in ("Deployment", "StatefulSet"):
            own = entry["spec"]["template"]["metadata"]["labels"]
            assert entry["spec"]["selector"]["matchLabels"].items() <= own.items()
            spread = entry["spec"]["template"]["spec"].get("topologySpreadConstraints", [])
            assert all(
                rule["labelSelector"]["matchLabels"].items() <= own.items() for rule in spread
            )


def test_the_monitor_finds_the_admin_service(latest: int) -> None:
    """The ServiceMonitor selects only the admin service, and names its port."""
    objects = variant(latest, "production")
    wanted = one(objects, "ServiceMonitor")["spec"]
    found = [
        entry["metadata"]["name"]
        for entry in objects
        if entry["kind"] == "Service"
        and wanted["selector"]["matchLabels"].items() <= entry["metadata"]["labels"].items()
    ]
    assert found == ["release-rate-limiting-gateway-admin"]
    (port,) = one(objects, "Service", "-admin")["spec"]["ports"]
    assert port["name"] == wanted["endpoints"][0]["port"] == "admin"


def test_clients_of_the_admin_listener_use_its_scheme(latest: int) -> None:
    """Probes, monitors and the service's protocol use TLS if the admin listener does."""
    for name, scheme in (("sentinel", "https"), ("production", "http")):
        objects = variant(latest, name)
        (container,) = deployment(objects)["spec"]["template"]["spec"]["containers"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert container[probe]["httpGet"].get("scheme", "HTTP") == scheme.upper()
        (port,) = one(objects, "Service", "-admin")["spec"]["ports"]
        assert port["appProtocol"] == scheme
    (watched,) = one(variant(latest, "sentinel"), "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert watched["scheme"] == "https"
    assert watched["tlsConfig"] == {"insecureSkipVerify": True}
    (watched,) = one(variant(latest, "production"), "ServiceMonitor")["spec"]["endpoints"]
    assert "scheme" not in watched


def test_a_monitor_may_check_the_certificate(latest: int) -> None:
    """By the monitor's `tlsConfig`."""
    values = {
        "admin": {"tls": {"existingSecret": "a"}},
        "serviceMonitor": {"enabled": True, "tlsConfig": {"serverName": "gateway.test"}},
        "apiCheck": False,
    }
    (watched,) = one(render(latest, values), "ServiceMonitor")["spec"]["endpoints"]
    assert watched["tlsConfig"] == {"serverName": "gateway.test"}


@every_variant
def test_ways_in_lead_to_the_service(latest: int, name: str) -> None:
    """Ingress and HTTPRoute name the gateway's service, and a port that it has."""
    objects = variant(latest, name)
    service = one(objects, "Service", deployment(objects)["metadata"]["name"])
    port = service["spec"]["ports"][0]
    for entry in objects:
        if entry["kind"] == "Ingress":
            for rule in entry["spec"]["rules"]:
                for path in rule["http"]["paths"]:
                    backend = path["backend"]["service"]
                    assert backend["name"] == service["metadata"]["name"]
                    assert backend["port"]["name"] == port["name"]
        if entry["kind"] == "HTTPRoute":
            (backend,) = entry["spec"]["rules"][0]["backendRefs"]
            assert backend == {"name": service["metadata"]["name"], "port": port["port"]}


def test_plain_http_is_redirected(latest: int) -> None:
    """The port is the pods', the service's and the network policy's; probes are as without it."""
    values = {
        "listen": {"port": 8443, "httpPort": 8081},
        "service": {"port": 443, "httpPort": 8000},
        "tls": {"existingSecret": "a"},
        "networkPolicy": {"enabled": True},
    }
    objects = render(latest, values)
    container = gateway(objects)
    assert {"name": "GATEWAY_LISTEN_HTTP", "value": "0.0.0.0:8081"} in container["env"]
    wanted = {"name": "http-redirect", "containerPort": 8081, "protocol": "TCP"}
    assert wanted in container["ports"]
    assert set(probe_ports(container)) == {"admin"}
    service = one(objects, "Service", deployment(objects)["metadata"]["name"])
    assert [(port["port"], port["targetPort"]) for port in service["spec"]["ports"]] == [
        (443, "http"),
        (8000, "http-redirect"),
    ]
    clients, _ = one(objects, "NetworkPolicy")["spec"]["ingress"]
    assert [port["port"] for port in clients["ports"]] == ["http", "http-redirect"]


@every_variant
def test_no_port_redirects_by_default(latest: int, name: str) -> None:
    """Only `listen.httpPort` opens one."""
    objects = variant(latest, name)
    is_open = "http-redirect" in port_names(deployment(objects)["spec"]["template"]["spec"])
    assert is_open == (name == "cluster")


@every_variant
def test_budget_and_autoscaling_agree_with_the_pods(latest: int, name: str) -> None:
    """Replicas are set unless an autoscaler sets them; a budget needs more than one pod."""
    for owner in (entry for entry in variant(latest, name) if entry["kind"] == "Deployment"):
        own = [each for each in variant(latest, name) if component(each) == component(owner)]
        kinds = {entry["kind"]: entry for entry in own}
        spec = owner["spec"]
        if scaler := kinds.get("HorizontalPodAutoscaler"):
            assert "replicas" not in spec
            assert scaler["spec"]["scaleTargetRef"]["name"] == owner["metadata"]["name"]
            assert scaler["spec"]["metrics"]
            least = scaler["spec"]["minReplicas"]
        else:
            least = spec["replicas"]
        if "PodDisruptionBudget" in kinds:
            assert least > 1


@every_variant
def test_no_secret_is_outside_secrets(latest: int, name: str) -> None:
    """Passwords and tokens are only in secrets, and are mounted into containers as files."""
    objects = variant(latest, name)
    shown = yaml.safe_dump([entry for entry in objects if entry["kind"] != "Secret"])
    assert PASSWORD not in shown
    for where, _, pod in pods(objects):
        for container in containers(pod):
            for entry in container.get("env", []):
                if any(word in entry["name"] for word in ("PASSWORD", "TOKEN", "WEBHOOK_KEY")):
                    assert entry["name"].endswith(NO_SECRETS), where


def test_an_inline_password_is_made_a_secret(latest: int) -> None:
    """externalRedis.password gets into the pod by a secret; a change of it replaces the pods."""
    objects = variant(latest, "extras")
    secret = one(objects, "Secret", "-store")
    assert base64.b64decode(secret["data"]["password"]).decode() == PASSWORD
    before = deployment(objects)["spec"]["template"]["metadata"]["annotations"]["checksum/store"]
    values = {"externalRedis": {"url": "redis://redis:6379/0", "password": "other"}}
    after = deployment(render(latest, values))["spec"]["template"]["metadata"]["annotations"]
    assert before != after["checksum/store"]


def test_policies_replace_no_pods(latest: int) -> None:
    """A changed policy does not replace the pods: they load it while they run."""
    before = render(latest, {"policies": {"upstream": "http://a"}})
    after = render(latest, {"policies": {"upstream": "http://b"}})
    assert deployment(before) == deployment(after)
    assert one(before, "ConfigMap", "-policies") != one(after, "ConfigMap", "-policies")


def test_another_redis_setting_replaces_its_pod(latest: int) -> None:
    """Redis reads its settings only at its start, so a change of them restarts it."""
    first, other = (
        one(render(latest, {"redis": {"enabled": True, "maxmemory": size}}), "StatefulSet")
        for size in ("64mb", "65mb")
    )
    assert first["spec"]["template"]["metadata"] != other["spec"]["template"]["metadata"]


def test_a_new_chart_alone_replaces_no_pods(latest: int) -> None:
    """The chart's version is a label of the objects, not of the pods."""
    for name in VARIANTS:
        for where, labels, _ in pods(variant(latest, name)):
            if where.startswith(("Deployment", "StatefulSet", "Job")):
                assert "helm.sh/chart" not in labels, where


def test_the_order_of_a_pods_end(latest: int) -> None:
    """First the pause in which the cluster stops sending requests, then SIGTERM, then the drain."""
    spec = deployment(variant(latest, "minimal"))["spec"]["template"]["spec"]
    pause = gateway(variant(latest, "minimal"))["lifecycle"]["preStop"]["exec"]["command"]
    assert pause == ["sleep", "5"]
    assert spec["terminationGracePeriodSeconds"] >= 5 + 30


def test_an_update_loses_no_request(latest: int) -> None:
    """By default a new pod is ready before an old one ends."""
    strategy = deployment(variant(latest, "minimal"))["spec"]["strategy"]
    assert strategy == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 0, "maxSurge": "25%"},
    }


def test_only_the_gateway_reaches_redis(latest: int) -> None:
    """The bundled Redis accepts only the gateway's pods, and may connect to nothing."""
    objects = variant(latest, "bundled-redis")
    spec = one(objects, "NetworkPolicy", "-redis")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert "egress" not in spec
    ((peer,),) = (rule["from"] for rule in spec["ingress"])
    of_gateway = deployment(objects)["spec"]["template"]["metadata"]["labels"]
    of_redis = one(objects, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    assert peer["podSelector"]["matchLabels"].items() <= of_gateway.items()
    assert not peer["podSelector"]["matchLabels"].items() <= of_redis.items()


@each_row(
    ("name", "wanted"),
    [
        ("minimal", None),
        ("bundled-redis", "redis://release-rate-limiting-gateway-redis:6379/0"),
        ("production", "rediss://gateway@redis.example.com:6380/0"),
        ("cluster", {"secretKeyRef": {"name": "redis-credentials", "key": "url"}}),
    ],
)
def test_the_store_is_named(latest: int, name: str, wanted: Any) -> None:
    """GATEWAY_STORE is the URL, or its secret; without a Redis it is not set."""
    assert settings(variant(latest, name)).get("GATEWAY_STORE") == wanted


def test_scaling_by_requests(latest: int) -> None:
    """The HPA uses the pods' average of a metric from an adapter."""
    metrics = one(variant(latest, "production"), "HorizontalPodAutoscaler")["spec"]["metrics"]
    assert [metric["type"] for metric in metrics] == ["Resource", "Pods"]
    assert metrics[1]["pods"] == {
        "metric": {"name": "gateway_requests_per_second"},
        "target": {"type": "AverageValue", "averageValue": "4000"},
    }


def test_alerts_can_be_left_out_and_labelled(latest: int) -> None:
    """Every alert gets the given labels, and keeps its own; disabled ones are not rendered."""
    values = {"enabled": True, "disabled": ["GatewayStoreDown"], "alertLabels": {"team": "api"}}
    groups = one(render(latest, {"prometheusRule": values}), "PrometheusRule")["spec"]["groups"]
    alerts = {rule["alert"]: rule for group in groups for rule in group["rules"]}
    assert "GatewayStoreDown" not in alerts
    assert "GatewayFallbackActive" in alerts
    for rule in alerts.values():
        assert rule["labels"]["team"] == "api"
        assert rule["labels"]["severity"]
    assert "{{ $labels.instance }}" in alerts["GatewayFallbackActive"]["annotations"]["summary"]


def test_names_stay_short(latest: int) -> None:
    """With a long release name, names are still short enough for Kubernetes.

    The pods' label adds a hash of eleven characters to a StatefulSet's name.
    """
    values = {
        "fullnameOverride": "a" * 80,
        "redis": {"enabled": True},
        "policies": {"check": True},
        "webhooks": {"deployment": {"enabled": True}},
    }
    for entry in render(latest, values):
        longest = 52 if entry["kind"] == "StatefulSet" else 63
        assert len(entry["metadata"]["name"]) <= longest
