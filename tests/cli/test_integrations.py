"""`gateway integrations` and `gateway watches`, as a user calls them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.cli.main import cli
from gateway.domain.webhooks.watches import secret_of
from gateway.stores.managed import open_managed
from gateway.stores.redis.address import parse_url
from gateway.webhooks.master import read_master
from gateway.webhooks.sealing import Sealer
from tests.kit.policies import write_policies
from tests.kit.redis_server import RedisServer

SECRET = "a-secret-of-the-provider"
NEW = ("create", "--kind", "github", "--account", "acme", "--name", "Our code")

Run = Callable[..., Result]


@pytest.fixture
def run(redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command on an empty store, from an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GATEWAY_STORE", redis_server.url)

    def call(*words: str, **options: Any) -> Result:
        return CliRunner().invoke(cli, words, **options)

    return call


def shown(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def made(run: Run, *more: str) -> dict[str, Any]:
    return dict(shown(run("integrations", *NEW, "--json", *more)))


def watched(run: Run, integration: str) -> dict[str, Any]:
    words = ("--url", "https://hooks.example.com/", "--event", "build.*", "--json")
    return dict(shown(run("watches", "create", integration, *words)))


def kept_secrets(url: str, integration: str) -> tuple[str, ...]:
    """The secrets of the provider, as a courier with the key of this folder reads them."""

    async def read() -> str:
        async with open_managed(parse_url(url)) as stores:
            assert stores.webhooks is not None
            its = await stores.webhooks.resources.integration(integration)
            assert its is not None
            return its.sealed

    return Sealer(read_master({}, Path(".gateway")).key).open(integration, asyncio.run(read()))


def test_an_integration(run: Run) -> None:
    """Created, listed, described, renamed, paused, resumed, moved and removed."""
    its = made(run)
    assert len(its.pop("secret")) >= 40
    assert its["capture"].startswith("/hooks/")
    assert shown(run("integrations", "list")) == [its]
    assert shown(run("integrations", "list", "--account", "other")) == []
    assert shown(run("integrations", "describe", its["id"])) == its
    edited = run("integrations", "edit", its["id"], "--name", "Code", "--json")
    assert shown(edited)["name"] == "Code"
    assert shown(run("integrations", "pause", its["id"], "--json"))["paused"] is True
    assert shown(run("integrations", "resume", its["id"], "--json"))["paused"] is False
    moved = shown(run("integrations", "rotate-address", its["id"], "--json"))
    assert moved["capture"] != its["capture"]
    assert shown(run("integrations", "remove", its["id"], "--json"))["removed"] is True
    assert run("integrations", "describe", its["id"]).exit_code == 1


def test_text(run: Run) -> None:
    """What is shown once is said to be; lists are tables."""
    created = run("integrations", *NEW)
    assert "This is shown once" in created.stdout
    assert re.search("capture: +/hooks/", created.stdout)
    (its,) = shown(run("integrations", "list"))
    head, row = run("integrations", "list", "--text").stdout.splitlines()
    assert head.split() == ["ID", "ACCOUNT", "KIND", "NAME", "STATUS"]
    assert row.split() == [its["id"], "acme", "github", "Our", "code", "active"]
    watch = run("watches", "create", its["id"], "--url", "https://h.example/", "--event", "a.b")
    assert "This is shown once" in watch.stdout
    head, row = run("watches", "list", its["id"], "--text").stdout.splitlines()
    assert row.split()[1:] == ["https://h.example/", "a.b", "active", "0"]
    assert "has 1 watch" in run("integrations", "remove", its["id"]).output
    removed = run("integrations", "remove", its["id"], "--force")
    assert removed.stdout == f"Integration {its['id']} is removed, with 1 watch.\n"


def test_secrets_of_a_provider(run: Run, redis_server: RedisServer) -> None:
    """From a file, from stdin or a variable; they are kept and not shown."""
    Path("secret.txt").write_text(f"{SECRET}\n\n{SECRET}-2\n")
    its = made(run, "--secret-file", "secret.txt")
    assert its["secret"] is None
    assert kept_secrets(redis_server.url, its["id"]) == (SECRET, f"{SECRET}-2")
    change = ("integrations", "set-secret", its["id"], "--json")
    given: tuple[tuple[tuple[str, ...], dict[str, Any], str], ...] = (
        (("--secret-file", "-"), {"input": f"{SECRET}-3\n"}, f"{SECRET}-3"),
        ((), {"env": {"GATEWAY_PROVIDER_SECRET": f"{SECRET}-4"}}, f"{SECRET}-4"),
        ((), {"env": {"GATEWAY_PROVIDER_SECRET_FILE": "secret.txt"}}, SECRET),
    )
    for more, options, kept in given:
        result = run(*change, *more, **options)
        assert shown(result)["secret"] is None
        assert kept_secrets(redis_server.url, its["id"])[0] == kept
        assert SECRET not in result.output
    new = shown(run(*change, "--new"))["secret"]
    assert kept_secrets(redis_server.url, its["id"]) == (new,)


@pytest.mark.parametrize(
    ("words", "options", "error"),
    [
        ((), {}, "give a secret by --secret-file"),
        (("--new", "--secret-file", "secret.txt"), {}, "give a secret by --secret-file"),
        (("--secret-file", "missing.txt"), {}, "missing.txt cannot be read"),
        (("--secret-file", "-"), {"input": "short\n"}, "expected 16 to 512 printable"),
        (("--secret-file", "-"), {"input": ""}, "--secret-file: found 0 entries"),
    ],
)
def test_faults_of_secrets(
    run: Run, words: tuple[str, ...], options: dict[str, Any], error: str
) -> None:
    Path("secret.txt").write_text(SECRET)
    result = run("integrations", "set-secret", made(run)["id"], *words, **options)
    assert result.exit_code == 2
    assert error in result.output
    assert "short" not in result.output


def test_watches(run: Run) -> None:
    """Created with their secret, described, changed, paused, resumed, rotated and removed."""
    its = made(run)
    watch = watched(run, its["id"])
    master = read_master({}, Path(".gateway")).key
    assert watch.pop("secret") == secret_of(master, watch["id"], 1)
    ids = (its["id"], watch["id"])
    assert shown(run("watches", "list", its["id"])) == [watch]
    assert shown(run("watches", "describe", *ids)) == watch
    changed = shown(run("watches", "edit", *ids, "--form", "body-only", "--json"))
    assert changed == {**watch, "form": "body-only"}
    paced = run("watches", "edit", *ids, "--rate", "10/second")
    assert "rate: 10/second" in " ".join(paced.stdout.split())
    assert shown(run("watches", "edit", *ids, "--no-rate", "--json")) == changed
    assert run("watches", "edit", *ids).exit_code == 2
    assert run("watches", "edit", *ids, "--rate", "1/hour", "--no-rate").exit_code == 2
    bad = run("watches", "edit", *ids, "--rate", "10/day")
    assert "--rate: found '10/day', expected a rate such as 10/second" in bad.output
    assert shown(run("watches", "pause", *ids, "--json"))["status"] == "paused"
    assert shown(run("watches", "resume", *ids, "--json"))["status"] == "active"
    rotated = shown(run("watches", "rotate-secret", *ids, "--json"))
    assert rotated["secret"] == secret_of(master, watch["id"], 2)
    assert run("watches", "remove", *ids).stdout == f"Watch {watch['id']} is removed.\n"
    assert shown(run("watches", "list", its["id"])) == []
    bad = run("watches", "create", its["id"], "--url", "http://x/")
    assert bad.exit_code == 2
    assert "--url: found a URL that does not begin with https://" in bad.output
    assert "--event: found nothing" in bad.output


def test_an_address_of_a_watch(run: Run, tmp_path: Path) -> None:
    """It is refused unless the policies allow it."""
    its = made(run)
    inside = ("--url", "https://10.0.0.1/", "--event", "a.b")
    bad = run("watches", "create", its["id"], *inside)
    assert bad.exit_code == 2
    assert "--url: found an address that deliveries may not go to" in bad.output
    settings = "webhooks: {allow: [10.0.0.0/8]}\n"
    write_policies(tmp_path / "inside", "http://127.0.0.1:9", webhooks=settings)
    allowing = ("--policies", "inside", "--json")
    watch = shown(run("watches", "create", its["id"], *inside, *allowing))
    ids = (its["id"], watch["id"])
    assert run("watches", "edit", *ids, "--url", "https://10.0.0.2/").exit_code == 2
    edited = shown(run("watches", "edit", *ids, "--url", "https://10.0.0.2/", *allowing))
    assert edited["url"] == "https://10.0.0.2/"


def test_publishing(run: Run) -> None:
    """From a file or stdin, once for each id."""
    its = made(run)
    watch = watched(run, its["id"])
    words = ("integrations", "publish", its["id"], "--type", "build.done", "--id", "build-1")
    Path("event.json").write_text('{"number": 7}')
    first = shown(run(*words, "--content", "event.json", "--json"))
    assert first["deliveries"] == 1
    again = run(*words, "--content", "-", input='{"number": 7}')
    assert again.stdout == f"Event {first['event']} is kept, and 0 deliveries are queued.\n"
    assert shown(run("watches", "describe", its["id"], watch["id"]))["waiting"] == 1
    for content, error in (
        ("{", "--content: expected a JSON"),
        ("[]", "--content: found a list"),
        ('{"a":' * 101, "--content: found 101 levels of arrays and objects at byte 501"),
        ('{"a":' * 99 + "{}" + "}" * 99, "--content: found an event with 101 levels"),
    ):
        result = run(*words, "--content", "-", input=content)
        assert result.exit_code == 2
        assert error in result.output


def test_events_and_deliveries(run: Run) -> None:
    """Listed, described, sent again and replayed, as JSON and as text."""
    its = made(run)["id"]
    watch = watched(run, its)["id"]
    words = ("integrations", "publish", its, "--type", "build.done", "--content", "-", "--json")
    event = shown(run(*words, input='{"number": 7}'))["event"]
    (listed,) = shown(run("events", "list", its))
    assert (listed["id"], listed["event"]["data"]) == (event, {"number": 7})
    assert shown(run("events", "list", its, "--before", "2020-01-01")) == []
    (delivery,) = shown(run("events", "describe", its, event))["deliveries"]
    text = run("events", "describe", its, event, "--text").stdout
    assert delivery["id"] in text
    assert '"number": 7' in text
    assert event in run("events", "list", its, "--text").stdout
    ids = (its, watch, delivery["id"])
    assert shown(run("deliveries", "list", its, watch)) == [delivery]
    assert shown(run("deliveries", "list", its, watch, "--state", "dead")) == []
    assert shown(run("deliveries", "describe", *ids)) == delivery
    assert "no attempt was made yet" in run("deliveries", "describe", *ids, "--text").stdout
    resent = shown(run("deliveries", "resend", *ids, "--json"))["delivery"]
    assert resent in run("deliveries", "list", its, watch, "--text").stdout
    span = ("--from", "2020-01-01", "--to", "2100-01-01")
    replayed = run("deliveries", "replay", its, watch, *span).stdout
    still = "1 event still waits: `watches resume` sends what waits now."
    assert replayed == f"0 deliveries are queued. {still}\n"
    assert shown(run("deliveries", "dead", its)) == []
    wrong = run("deliveries", "replay", its, watch, "--from", "then", "--to", "2100-01-01")
    assert wrong.exit_code == 2
    assert "--from: found 'then', expected a time" in wrong.output
    assert run("deliveries", "describe", its, watch, "x").exit_code == 1


def test_lists_by_type_and_time(run: Run) -> None:
    """Of events, deliveries and dead letters, with the same options."""
    its = made(run)["id"]
    watch = watched(run, its)["id"]
    for kind in ("build.done", "build.step.done"):
        words = ("integrations", "publish", its, "--type", kind, "--content", "-")
        assert run(*words, input="{}").exit_code == 0
    _, first = shown(run("events", "list", its))
    deliveries, dead = ("deliveries", "list", its, watch), ("deliveries", "dead", its)
    for command, counts in (
        (("events", "list", its), (1, 2, 1, 0)),
        (deliveries, (1, 2, 1, 0)),
        (dead, (0, 0, 0, 0)),
    ):
        for given, count in zip(
            (
                ("--type", "build.step.*"),
                ("--type", "build.*", "--from", first["accepted"]),
                ("--to", "2100-01-01", "--from", "2020-01-01", "--count", "1"),
                ("--to", first["accepted"]),
            ),
            counts,
            strict=True,
        ):
            assert len(shown(run(*command, *given))) == count, (command, given)
        for given, error in (
            (("--type", "*"), "--type: found '*', expected a type such as"),
            (("--type", "a." * 5_000 + "*"), "--type: found 'a.a."),
            (("--type", ""), "--type: found ''"),
            (("--from", "then", "--to", ""), "--from: found 'then', expected a time"),
            (("--from", "2026-01-02", "--to", "2026-01-01"), "--to: found 2026-01-01T00:00:00Z"),
        ):
            wrong = run(*command, *given)
            assert wrong.exit_code == 2
            assert error in wrong.output
    assert len(shown(run(*deliveries, "--state", "queued", "--type", "build.done"))) == 1


def test_a_header_with_the_id(run: Run) -> None:
    """Given, changed and cleared; of the kind generic alone."""
    new = ("integrations", "create", "--account", "acme", "--name", "Builds", "--json")
    its = shown(run(*new, "--kind", "generic", "--id-header", "X-Delivery-Id"))
    assert its["id_header"] == "x-delivery-id"
    edit = ("integrations", "edit", its["id"])
    assert "id header: x-other" in run(*edit, "--id-header", "x-other").stdout
    assert shown(run(*edit, "--no-id-header", "--json"))["id_header"] is None
    for words, error in (
        ((*edit, "--id-header", "Host"), "--id-header: found 'Host', expected the name of a"),
        ((*edit, "--id-header", "x", "--no-id-header"), "cannot be combined"),
        (edit, "no field to change was given"),
        ((*new, "--kind", "github", "--id-header", "x-id"), "only the kind generic has one"),
    ):
        wrong = run(*words)
        assert wrong.exit_code == 2
        assert error in wrong.output


def test_the_webhook_key(run: Run) -> None:
    """Commands that make no secret need none; with another key than the store's, none is made."""
    assert shown(run("integrations", "list")) == []
    assert not Path(".gateway").exists()
    its = made(run)
    other = run("integrations", *NEW, env={"GATEWAY_WEBHOOK_KEY": "k" * 40})
    assert other.exit_code == 1
    assert "GATEWAY_WEBHOOK_KEY: this is not the webhook key of the gateways" in other.output
    short = run("integrations", *NEW, env={"GATEWAY_WEBHOOK_KEY": "k"})
    assert short.exit_code == 1
    assert [each["id"] for each in shown(run("integrations", "list"))] == [its["id"]]


def test_a_folder_without_a_store(run: Run, tmp_path: Path) -> None:
    """Such as one whose name was mistyped: nothing is made in it."""
    elsewhere = tmp_path / "elsewhere"
    its = "int_5f1c8a60d3b2479e01c4a7b3"
    create = ("watches", "create", its, "--url", "https://hooks.example.com/", "--event", "build.*")
    for words in (create, ("integrations", "set-secret", its, "--new")):
        result = run(*words, "--data", str(elsewhere), env={"GATEWAY_STORE": ""})
        assert result.exit_code == 1
        assert f"no private store in {elsewhere}: found no such folder" in result.output
        assert not elsewhere.exists()


def test_an_id_that_may_be_a_secret(run: Run) -> None:
    """It is not printed."""
    for words in (("integrations", "describe"), ("watches", "list")):
        result = run(*words, f"{SECRET}!")
        assert result.exit_code == 2
        assert SECRET not in result.output


@pytest.mark.parametrize("group", ["integrations", "watches", "events", "deliveries"])
def test_help(run: Run, group: str) -> None:
    """Each command has an example."""
    command = cli.get_command(None, group)  # type: ignore[arg-type]
    assert command.commands  # type: ignore[union-attr]
    for name in command.commands:  # type: ignore[union-attr]
        assert f"Example: gateway {group} {name}" in run(group, name, "--help").stdout
