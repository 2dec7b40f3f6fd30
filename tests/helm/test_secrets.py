"""Secrets that the chart generates: random, kept over upgrades, or replaced by existing ones."""

from __future__ import annotations

import base64

from tests.helm.chart import Cluster, Object, one, render, settings, variant
from tests.helm.cluster import cluster_with

MINE = "release-rate-limiting-gateway"
VALUES = {"redis": {"enabled": True}}
#: The secrets that the chart makes, and their entries.
MADE = (("-redis", "password"), ("-admin", "token"), ("-webhooks", "webhook-key"))


def entry(objects: list[Object], suffix: str, key: str) -> str:
    return base64.b64decode(one(objects, "Secret", suffix)["data"][key]).decode()


def test_they_are_random(major: int) -> None:
    """On a first install each secret is long and random."""
    with cluster_with({}) as server:
        first, second = (render(major, VALUES, Cluster(server=server)) for _ in range(2))
    for suffix, key in MADE:
        assert len(entry(first, suffix, key)) == 40
        assert entry(first, suffix, key) != entry(second, suffix, key)


def test_they_are_kept_over_upgrades(major: int) -> None:
    """An upgrade renders the cluster's existing secrets again."""
    there = {
        f"{MINE}-redis": {"password": "kept"},
        f"{MINE}-admin": {"token": "kept as well"},
        f"{MINE}-webhooks": {"webhook-key": "kept too"},
    }
    with cluster_with(there) as server:
        objects = render(major, VALUES, Cluster(server=server))
    assert entry(objects, "-redis", "password") == "kept"
    assert entry(objects, "-admin", "token") == "kept as well"
    assert entry(objects, "-webhooks", "webhook-key") == "kept too"


def test_existing_secrets_are_used(latest: int) -> None:
    """With existing secrets the chart renders none, and its pods mount theirs."""
    values = {
        "redis": {"enabled": True, "existingSecret": "mine", "secretKey": "redis"},
        "admin": {"existingSecret": "mine", "secretKey": "admin"},
        "webhooks": {"existingSecret": "mine", "secretKey": "master"},
    }
    objects = render(latest, values)
    assert not [found for found in objects if found["kind"] == "Secret"]
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]
    (volume,) = (found for found in pod["volumes"] if found["name"] == "secrets")
    sources = [source["secret"] for source in volume["projected"]["sources"]]
    assert sources == [
        {"name": "mine", "items": [{"key": "admin", "path": "admin-token"}]},
        {"name": "mine", "items": [{"key": "master", "path": "webhook-key"}]},
        {"name": "mine", "items": [{"key": "redis", "path": "store-password"}]},
    ]


def test_a_certificate_for_the_store(latest: int) -> None:
    """Both files of the secret are where the variables say."""
    objects = variant(latest, "cluster")
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]
    (volume,) = (found for found in pod["volumes"] if found["name"] == "secrets")
    files = {
        item["path"]: (source["secret"]["name"], item["key"])
        for source in volume["projected"]["sources"]
        for item in source["secret"]["items"]
    }
    assert files["store.crt"] == ("redis-client", "tls.crt")
    assert files["store.key"] == ("redis-client", "tls.key")
    found = settings(objects)
    assert found["GATEWAY_STORE_CERTIFICATE"] == "/run/secrets/gateway/store.crt"
    assert found["GATEWAY_STORE_CERTIFICATE_KEY"] == "/run/secrets/gateway/store.key"


def test_sentinels_have_a_separate_password(latest: int) -> None:
    """The Sentinels' password is a separate entry, beside that of the servers."""
    found = settings(variant(latest, "sentinel"))
    assert found["GATEWAY_STORE_PASSWORD_FILE"] == "/run/secrets/gateway/store-password"
    assert found["GATEWAY_SENTINEL_PASSWORD_FILE"] == "/run/secrets/gateway/sentinel-password"
