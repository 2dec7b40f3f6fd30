"""The part of a Kubernetes API that `lookup` in a chart's template needs: secrets by name."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.helm.chart import NAMESPACE, RELEASE


@contextmanager
def cluster_with(secrets: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """A cluster with these secrets, in any namespace; its address.

    secrets: {"release-redis": {"password": "in clear text"}}
    """
    answers = {name: _secret(name, entries) for name, entries in secrets.items()}

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            found = _KNOWN.get(path) or answers.get(path.partition("/secrets/")[2])
            body = json.dumps(found or _NOT_FOUND).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _secret(name: str, entries: Mapping[str, str]) -> dict[str, Any]:
    data = {key: base64.b64encode(text.encode()).decode() for key, text in entries.items()}
    metadata = {
        "name": name,
        # helm accepts only resources that are marked as part of the release.
        "labels": {"app.kubernetes.io/managed-by": "Helm"},
        "annotations": {
            "meta.helm.sh/release-name": RELEASE,
            "meta.helm.sh/release-namespace": NAMESPACE,
        },
    }
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


_NOT_FOUND: dict[str, Any] = {
    "kind": "Status",
    "apiVersion": "v1",
    "status": "Failure",
    "reason": "NotFound",
    "code": 404,
}
#: Its kinds, by group and version.
_KINDS = {
    "v1": ("ConfigMap", "Secret", "Service", "ServiceAccount"),
    "apps/v1": ("Deployment", "StatefulSet"),
    "networking.k8s.io/v1": ("NetworkPolicy",),
}


def _kinds(version: str) -> dict[str, Any]:
    return {
        "kind": "APIResourceList",
        "groupVersion": version,
        "resources": [
            {"name": f"{kind.lower()}s", "namespaced": True, "kind": kind, "verbs": ["get"]}
            for kind in _KINDS[version]
        ],
    }


_GROUPS = [
    {
        "name": version.partition("/")[0],
        "versions": [{"groupVersion": version, "version": "v1"}],
        "preferredVersion": {"groupVersion": version, "version": "v1"},
    }
    for version in _KINDS
    if "/" in version
]
_KNOWN: dict[str, dict[str, Any]] = {
    "/version": {"major": "1", "minor": "34", "gitVersion": "v1.34.0"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": _GROUPS},
    "/api/v1": _kinds("v1"),
    **{f"/apis/{version}": _kinds(version) for version in _KINDS if "/" in version},
}
