"""What the rendered objects run works: settings, policies, the bundled Redis, the test's pod."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_network
from pathlib import Path

import click
import pytest
import redis
import trustme
from click.testing import CliRunner
from redis.backoff import NoBackoff
from redis.retry import Retry

from gateway.cli.main import cli
from gateway.domain.policy import AdminProxy, Tls
from gateway.policies.load import load
from gateway.stores.redis.address import parse_url
from tests.helm.chart import CHART, VARIANTS, Object, gateway, one, render, settings, variant
from tests.kit.certificates import make_certificate
from tests.kit.eventually import eventually
from tests.kit.gateway import READY_S, Process
from tests.kit.needs import needs
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer, server_binary
from tests.kit.rows import each_row
from tests.kit.wire import fetch

#: A client that tries again by itself would wait longer, with each try, for a start of Redis.
NO_RETRY = Retry(NoBackoff(), 0)
#: Variables that are no options: passwords, certificates, and Python's TLS.
NO_OPTIONS = {
    "GATEWAY_ADMIN_TOKEN_FILE",
    "GATEWAY_WEBHOOK_KEY_FILE",
    "GATEWAY_STORE_PASSWORD_FILE",
    "GATEWAY_SENTINEL_PASSWORD_FILE",
    "GATEWAY_STORE_CERTIFICATE",
    "GATEWAY_STORE_CERTIFICATE_KEY",
    "SSL_CERT_FILE",
}


@each_row("name", VARIANTS)
def test_settings_are_options_of_serve(latest: int, name: str) -> None:
    """Each variable of the gateway's container is one that `gateway serve` reads."""
    command = cli.get_command(click.Context(cli), "serve")
    assert command is not None
    known = {option.envvar for option in command.params}
    for variable in settings(variant(latest, name)):
        if variable.startswith("GATEWAY_") and variable not in NO_OPTIONS:
            assert variable in known


@each_row("name", VARIANTS)
def test_the_stores_address_can_be_read(latest: int, name: str) -> None:
    """The gateway can parse each URL that the chart sets."""
    url = settings(variant(latest, name)).get("GATEWAY_STORE")
    assert not isinstance(url, str) or parse_url(url)


@each_row("name", VARIANTS)
def test_policies_are_sound(latest: int, name: str, tmp_path: Path) -> None:
    """`gateway validate` finds no fault in any ConfigMap of policies."""
    certificate = trustme.CA().issue_cert("gateway.test")
    certificate.private_key_pem.write_to_path(str(tmp_path / "tls.key"))
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "tls.crt"))
    for entry in variant(latest, name):
        if entry["kind"] == "ConfigMap" and "-policies" in entry["metadata"]["name"]:
            folder = tmp_path / entry["metadata"]["name"]
            folder.mkdir()
            for file, text in entry["data"].items():
                there = text.replace("/etc/gateway/tls/", f"{tmp_path}/")
                there = there.replace("/etc/gateway/admin-tls/", f"{tmp_path}/")
                (folder / file).write_text(there, encoding="utf-8")
            result = CliRunner().invoke(cli, ["validate", str(folder)])
            assert result.exit_code == 0, result.stderr


async def test_the_gateway_starts_as_rendered(
    latest: int, redis_server: RedisServer, tmp_path: Path
) -> None:
    """With the container's variables `gateway serve` gets ready, and accepts the host names."""
    port, admin_port = free_port(), free_port()
    values = {
        "listen": {"host": "127.0.0.1", "port": port},
        "admin": {"port": admin_port, "hosts": ["console.test"]},
        "externalRedis": {"url": redis_server.url},
        "policies": {"upstream": "http://127.0.0.1:9"},
    }
    objects = render(latest, values)
    policies = tmp_path / "policies"
    policies.mkdir()
    for file, text in one(objects, "ConfigMap", "-policies")["data"].items():
        (policies / file).write_text(text, encoding="utf-8")
    token = write_secret(objects, "-admin", "token", tmp_path / "admin-token")
    write_secret(objects, "-webhooks", "webhook-key", tmp_path / "webhook-key")
    here = {
        "/etc/gateway/policies": str(policies),
        "/run/secrets/gateway/admin-token": str(tmp_path / "admin-token"),
        "/run/secrets/gateway/webhook-key": str(tmp_path / "webhook-key"),
        "/data/gateway": str(tmp_path / "data"),
    }
    environment = {name: here.get(value, value) for name, value in settings(objects).items()}
    running = Process(tmp_path / "run", *gateway(objects)["args"], environment=environment)
    try:
        await eventually(lambda: is_ready(running, admin_port), "the gateway is ready", READY_S)
        names = ("release-rate-limiting-gateway-admin.gateways.svc", "console.test", "evil.test")
        statuses = [await asked_as(admin_port, name, token) for name in names]
        assert statuses[:2] == [200, 200]
        assert statuses[2] >= 400
        assert (await fetch(port, "/health")).status == 200
    finally:
        assert await running.stop() == 0


def test_the_admin_listener_uses_tls_as_rendered(latest: int, tmp_path: Path) -> None:
    """With the chart's policies the admin listener uses TLS, and trusts the given proxy."""
    made = make_certificate(tmp_path / "tls", ["127.0.0.1"])
    values = {
        "admin": {
            "tls": {"existingSecret": "gateway-admin-tls"},
            "proxy": {"trusted": ["127.0.0.1"], "tls": True},
        },
        "externalRedis": {"url": "redis://127.0.0.1:9"},
        "policies": {"upstream": "http://127.0.0.1:9"},
    }
    objects = render(latest, values)
    policies = tmp_path / "policies"
    policies.mkdir()
    for file, text in one(objects, "ConfigMap", "-policies")["data"].items():
        there = text.replace("/etc/gateway/admin-tls/tls.crt", str(made.certificate))
        there = there.replace("/etc/gateway/admin-tls/tls.key", str(made.key))
        (policies / file).write_text(there, encoding="utf-8")
    policy = load(policies)
    assert policy.admin_tls == Tls(str(made.certificate), str(made.key))
    assert policy.admin_proxy == AdminProxy((ip_network("127.0.0.1"),), tls=True)


def write_secret(objects: list[Object], suffix: str, entry: str, path: Path) -> str:
    """Write an entry of a secret into a file, as kubelet does; its text."""
    text = base64.b64decode(one(objects, "Secret", suffix)["data"][entry])
    path.write_bytes(text)
    return text.decode()


async def is_ready(running: Process, admin_port: int) -> bool:
    assert running.process.poll() is None, running.output()
    try:
        return (await fetch(admin_port, "/readyz")).status == 200
    except OSError:
        return False


async def asked_as(admin_port: int, name: str, token: str) -> int:
    """The status of a request to the admin API by this host name, with this token."""
    headers = [("Host", name), ("Authorization", f"Bearer {token}")]
    return (await fetch(admin_port, "/admin/v1/keys", headers=headers)).status


@pytest.mark.parametrize("shell", ["sh", pytest.param("bash", marks=needs("bash"))])
async def test_redis_starts_as_rendered(latest: int, shell: str, tmp_path: Path) -> None:
    """The StatefulSet's command starts a Redis with the password and settings."""
    (tmp_path / "redis-server").symlink_to(server_binary())
    port = free_port()
    values = {"redis": {"enabled": True, "config": f"port {port}\nbind 127.0.0.1"}}
    objects = render(latest, values)
    (container,) = one(objects, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    password = 'a "quote", a \\, a $dollar and a `tick`'
    (tmp_path / "password").write_text(password)
    config = one(objects, "ConfigMap", "-redis")["data"]["redis.conf"]
    (tmp_path / "redis.conf").write_text(config.replace("dir /data", f"dir {tmp_path}"))
    script = container["command"][2]
    for rendered, here in (
        ("/etc/redis/redis.conf", tmp_path / "redis.conf"),
        ("/run/secrets/redis/password", tmp_path / "password"),
    ):
        assert rendered in script
        script = script.replace(rendered, str(here))
    server = subprocess.Popen(  # noqa: ASYNC220 - nothing else runs in this loop
        [shell, "-c", script],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stdout=subprocess.DEVNULL,
    )
    try:
        with redis.Redis(port=port, password=password, retry=NO_RETRY) as client:
            await eventually(lambda: answers(client), "Redis answers")
            assert client.config_get("append*")["appendonly"] == "yes"
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        with (
            redis.Redis(port=port, retry=NO_RETRY) as anonymous,
            pytest.raises(redis.AuthenticationError),
        ):
            anonymous.ping()
        # The shell is replaced, so that SIGTERM reaches Redis; its command line has no password.
        command = command_line(server.pid)
        assert "redis-server" in command
        assert "dollar" not in command
    finally:
        server.terminate()
        assert server.wait(timeout=30) == 0


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode()


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


@contextmanager
def answering(status: int) -> Iterator[str]:
    """A server that answers every GET with this status; its address."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program of the test's pod like its container."""
    program = (CHART / "files" / "answers.py").read_text("utf-8")
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_tests_pod_succeeds() -> None:
    """If every address answers as expected, it reports ok for each and exits with 0."""
    with answering(200) as well, answering(401) as shut:
        done = ask(well, "200", shut, "401")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["ok", "ok"]


def test_the_tests_pod_fails() -> None:
    """If one answer is not as expected, it exits with 1, but still requests all."""
    with answering(503) as down, answering(200) as well:
        done = ask(down, "200", well, "200")
    assert done.returncode == 1
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["FAIL", "ok"]


def test_the_tests_pod_requests_the_services(latest: int) -> None:
    """It requests the services of the release, and the admin API without a token."""
    objects = variant(latest, "cluster")
    (container,) = one(objects, "Pod")["spec"]["containers"]
    program, *asked = container["args"]
    assert program.strip() == (CHART / "files" / "answers.py").read_text("utf-8").strip()
    mine = "release-rate-limiting-gateway"
    assert dict(zip(asked[::2], asked[1::2], strict=True)) == {
        f"https://{mine}:443/health": "200",
        f"http://{mine}-admin:443/readyz": "200",
        f"http://{mine}-admin:443/metrics": "200",
        f"http://{mine}-admin:443/admin/v1/keys": "401",
    }
    assert f"{mine}-admin" in settings(objects)["GATEWAY_ADMIN_HOST"].split()


def test_the_tests_pod_asks_by_tls_where_that_is_spoken(latest: int) -> None:
    """The admin listener has TLS separately from the clients' port."""
    (container,) = one(variant(latest, "sentinel"), "Pod")["spec"]["containers"]
    schemes = [url.partition("://")[0] for url in container["args"][1::2]]
    assert schemes == ["http", "https", "https", "https"]
