"""A client's address, and whether it uses TLS: from the headers of a proxy that policies trust."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path

import pytest

from gateway.domain.policy import AdminProxy
from tests.kit.admin import AdminScene

HERE = ip_network("127.0.0.1")
OTHERS = ip_network("10.0.0.0/8")


async def noted(scene: AdminScene, proxy: AdminProxy, headers: dict[str, str]) -> str:
    """The address that the audit log has for a change."""
    scene.loaded = replace(scene.loaded, policy=replace(scene.policy, admin_proxy=proxy))
    body = {"name": "test", "plan": "free"}
    answer = await scene.ask("POST", "/keys", body, headers=headers)
    assert answer.status == 201
    entry = (await scene.ask("GET", "/audit")).json["items"][0]
    name, _, rest = entry["actor"].partition(" (api, ")
    assert name == "token"
    return str(rest.removesuffix(")"))


@pytest.mark.parametrize(
    ("trusted", "headers", "address"),
    [
        ((), {"X-Forwarded-For": "192.0.2.7"}, "127.0.0.1"),
        ((OTHERS,), {"X-Forwarded-For": "192.0.2.7"}, "127.0.0.1"),
        ((HERE,), {}, "127.0.0.1"),
        ((HERE,), {"X-Forwarded-For": "192.0.2.7"}, "192.0.2.7"),
        ((HERE,), {"X-Forwarded-For": "192.0.2.9, 192.0.2.7"}, "192.0.2.7"),
        ((HERE, OTHERS), {"X-Forwarded-For": "192.0.2.7, 10.1.1.1"}, "192.0.2.7"),
        ((HERE,), {"X-Forwarded-For": "192.0.2.9, junk"}, "127.0.0.1"),
        ((HERE,), {"X-Forwarded-For": "2001:DB8::0:1"}, "2001:db8::1"),
        ((HERE,), {"Forwarded": 'for="[2001:db8::1]:80"'}, "2001:db8::1"),
        ((HERE,), {"Forwarded": "for=192.0.2.9", "X-Forwarded-For": "192.0.2.7"}, "192.0.2.7"),
        ((HERE,), {"X-Real-IP": "192.0.2.7"}, "127.0.0.1"),
        ((HERE,), {"X-Forwarded-For": "192.0.2.7," * 700 + "192.0.2.8"}, "192.0.2.8"),
        ((HERE,), {"X-Forwarded-For": ", " * 3_000 + "192.0.2.8"}, "192.0.2.8"),
        ((HERE,), {"X-Forwarded-For": "x" * 8_000}, "127.0.0.1"),
    ],
)
async def test_the_address_of_a_change(
    tmp_path: Path, trusted: tuple[object, ...], headers: dict[str, str], address: str
) -> None:
    """The last address before a trusted proxy; for other clients, the connection's."""
    async with AdminScene(tmp_path) as scene:
        assert await noted(scene, AdminProxy(trusted), headers) == address  # type: ignore[arg-type]


async def test_proxies_follow_the_policies(tmp_path: Path) -> None:
    """A reload of the policies applies at once."""
    async with AdminScene(tmp_path) as scene:
        headers = {"X-Forwarded-For": "192.0.2.7"}
        assert await noted(scene, AdminProxy((HERE,)), headers) == "192.0.2.7"
        assert await noted(scene, AdminProxy(), headers) == "127.0.0.1"


async def test_wrong_tokens_are_counted_per_address(tmp_path: Path) -> None:
    """Not for the proxy that all share."""
    async with AdminScene(tmp_path) as scene:
        proxied = replace(scene.policy, admin_proxy=AdminProxy((HERE,)))
        scene.loaded = replace(scene.loaded, policy=proxied)
        guesser, other = ({"X-Forwarded-For": f"192.0.2.{number}"} for number in (7, 8))
        for _ in range(10):
            await scene.ask("GET", "/keys", token="wrong-wrong-wrong", headers=guesser)
        for headers, status in ((guesser, 429), (other, 401)):
            answer = await scene.ask("GET", "/keys", token="wrong-wrong-wrong", headers=headers)
            assert answer.status == status


@pytest.mark.parametrize(
    ("proxy", "is_secure"),
    [
        (AdminProxy(), False),
        (AdminProxy((HERE,)), False),
        (AdminProxy((HERE,), tls=True), True),
        (AdminProxy((OTHERS,), tls=True), False),
    ],
)
async def test_tls_of_a_proxy_follows_the_policy(
    tmp_path: Path, proxy: AdminProxy, is_secure: bool
) -> None:
    """For clients behind the proxy; others, e.g. by port-forward, go by their own connection.

    X-Forwarded-Proto is ignored: a client that reaches the proxy in clear text must not get a
    cookie for clear text.
    """
    async with AdminScene(tmp_path) as scene:
        scene.loaded = replace(scene.loaded, policy=replace(scene.policy, admin_proxy=proxy))
        async with scene.client.post(
            scene.url("/console/sign-in"),
            data={"name": "anna", "token": "correct-horse-battery-staple"},
            headers={"X-Forwarded-Proto": "http" if is_secure else "https"},
            allow_redirects=False,
        ) as answer:
            (cookie,) = answer.cookies.values()
    assert bool(cookie["secure"]) is is_secure
    assert cookie.key.startswith("__Host-") is is_secure
