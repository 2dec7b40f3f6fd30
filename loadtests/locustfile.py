"""Clients of each plan, for `locust -f loadtests` against any gateway.

    GATEWAY_KEY_FREE=gwk_… GATEWAY_KEY_PRO=gwk_…,gwk_… locust -f loadtests --host https://api.test

GATEWAY_KEY_FREE, GATEWAY_KEY_PRO, GATEWAY_KEY_ENTERPRISE: keys, separated by commas; the clients
are divided among the plans by their numbers of keys. GATEWAY_POLICIES: the folder of the policies
whose limits are asserted. GATEWAY_HOSTS: gateways on one store, used alternately instead of --host.

Options that Locust's --help does not show: --stages 10:30s,50:1m (number of clients and duration),
--until-checked 60 (the last stage goes on until each assertion that these clients can check was
checked, and enough was sent, for so many seconds at most), --pace 2 (twice the pauses),
--longest-wait 90 (seconds; a longer Retry-After is not waited for), and the objectives --p99-ms,
--most-errors (a share of all), --least-requests and --least-waits. If one is not met, or an answer
breaks an assertion, the exit status is 1.

Clients, options and objectives are registered only in this module: Locust loads each module of a
folder separately, under its bare name, so other modules would register them twice.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentTypeError
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from locust import LoadTestShape, events
from locust.runners import LocalRunner, WorkerRunner

from gateway.policies.faults import PolicyFaults
from gateway.policies.load import load
from loadtests.traffic.caller import Caller, Plan
from loadtests.traffic.figures import Figures
from loadtests.traffic.keychain import PLANS, Keychain, Turns, read_keys, read_list, variable
from loadtests.traffic.library import LibraryCaller
from loadtests.traffic.objectives import Measured, Objectives, describe, is_enough, judge
from loadtests.traffic.outcome import measure
from loadtests.traffic.stages import Stage, callers_until, parse_stages
from loadtests.traffic.truth import Witness, unchecked

if TYPE_CHECKING:
    from locust.argument_parser import LocustArgumentParser
    from locust.env import Environment

_KEYS: Final = read_keys(os.environ)
_FOLDER: Final = Path(__file__).resolve().parent


class FreeCaller(Caller):
    """Sends slowly, and waits when it is refused, which happens soon."""

    abstract = bool(_KEYS) and "free" not in _KEYS
    weight = len(_KEYS.get("free", ())) or 1


class ProCaller(Caller):
    """Sends faster, and sometimes waits when it is refused."""

    abstract = bool(_KEYS) and "pro" not in _KEYS
    weight = len(_KEYS.get("pro", ())) or 1
    pause_s = 0.05
    wait_share = 0.02


class EnterpriseCaller(Caller):
    """Sends fast; it repeats refused requests without waiting."""

    abstract = bool(_KEYS) and "enterprise" not in _KEYS
    weight = len(_KEYS.get("enterprise", ())) or 1
    pause_s = 0.02
    wait_share = 0.0


class PacedCaller(LibraryCaller):
    """Sends with the client library and its pacing, by a key of its own, if there are two."""

    abstract = len(_KEYS.get("free", ())) < 2
    fixed_count = 1


_CALLERS: Final[dict[str, type[Caller]]] = {
    "free": FreeCaller,
    "pro": ProCaller,
    "enterprise": EnterpriseCaller,
}


class Stages(LoadTestShape):
    """The stages of --stages, if they are given.

    more_s:    how much longer the last one may go on; 0: not at all
    unchecked: what the clients could check and had not checked, when they were last looked at
    """

    use_common_options = True
    stages: tuple[Stage, ...] = ()
    more_s = 0.0
    environment: Environment
    unchecked: frozenset[str] = frozenset()

    def tick(self) -> tuple[int, float] | None:
        callers = callers_until(self.stages, self.get_run_time(), self.more_s, self._is_enough)
        return None if callers is None else (callers, max(1.0, callers))

    def _is_enough(self) -> bool:
        paced = None if PacedCaller.abstract else PacedCaller.shared.keychain.keys[0].witness
        Stages.unchecked = unchecked(_all_checks(), _witnesses(), paced)
        return is_enough(_asked(self.environment), _measured(self.environment))


@events.init_command_line_parser.add_listener
def add_options(parser: LocustArgumentParser, **_: Any) -> None:
    """The options of a run beside Locust's own."""
    group = parser.add_argument_group("Traffic and objectives")
    group.add_argument("--stages", type=_checked, default="", help="such as 10:30s,50:1m")
    group.add_argument(
        "--until-checked", type=float, default=0.0, help="how much longer the last stage may go on"
    )
    group.add_argument("--pace", type=float, default=1.0, help="2: twice the pauses; 0: none")
    group.add_argument(
        "--longest-wait", type=float, default=90.0, help="a longer Retry-After is not waited for"
    )
    group.add_argument("--p99-ms", type=float, help="of what is admitted, at most")
    group.add_argument("--most-errors", type=float, default=0.0, help="share of all: 0.001")
    group.add_argument("--least-requests", type=int, default=1)
    group.add_argument("--least-waits", type=int, default=0, help="for Retry-After")


def _checked(stages: str) -> str:
    """The unchanged text: Locust sends options to other processes, as text and numbers."""
    try:
        if stages:
            parse_stages(stages)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error
    return stages


@events.init.add_listener
def prepare(environment: Environment, **_: Any) -> None:
    """Give the clients their keys, limits and gateways. Exits with one line if one is missing."""
    _forget_bare_names()
    folder = Path(os.environ.get("GATEWAY_POLICIES", "policies"))
    try:
        policy = load(folder)
    except PolicyFaults as faults:
        sys.exit(f"{folder}: {faults.faults[0]}")
    if not _KEYS:
        sys.exit(f"no keys: put some into {', '.join(map(variable, PLANS))}")
    if unknown := sorted(_KEYS.keys() - policy.plans.keys()):
        sys.exit(f"{folder}: no plan {', '.join(unknown)}, of which there are keys")
    options = environment.parsed_options
    hosts = read_list(os.environ, "GATEWAY_HOSTS") or [environment.host or ""]
    if not all(host.startswith(("http://", "https://")) for host in hosts):
        sys.exit("no gateway: name one with --host http://127.0.0.1:8080, or in GATEWAY_HOSTS")
    environment.host = hosts[0]
    exclusive = isinstance(environment.runner, LocalRunner)
    keys = dict(_KEYS)
    if not PacedCaller.abstract:
        *keys["free"], own = _KEYS["free"]
        PacedCaller.shared = Plan(
            Figures(policy, "free"), Keychain([own], exclusive=exclusive), Turns(hosts)
        )
    for plan, texts in keys.items():
        _CALLERS[plan].shared = Plan(
            Figures(policy, plan), Keychain(texts, exclusive=exclusive), Turns(hosts)
        )
    if options.stages:
        Stages.stages, Stages.more_s = parse_stages(options.stages), options.until_checked
        Stages.environment = environment
    else:
        environment.shape_class = None


def _forget_bare_names() -> None:
    """Remove this folder's modules from sys.modules: `site`, for example, is also Python's."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        is_ours = file is not None and _FOLDER in Path(file).parents
        if is_ours and "." not in name and name not in ("loadtests", __name__):
            del sys.modules[name]


#: How often each assertion was checked in each worker process, as last reported.
_of_workers: Final[dict[str, Mapping[str, int]]] = {}


@events.report_to_master.add_listener
def report_checks(client_id: str, data: dict[str, Any]) -> None:
    """A worker reports its checks so far."""
    data["checks"] = dict(_checks())


@events.worker_report.add_listener
def take_checks(client_id: str, data: dict[str, Any]) -> None:
    """The master keeps the last report of each worker."""
    _of_workers[client_id] = data.get("checks", {})


@events.quitting.add_listener
def conclude(environment: Environment, **_: Any) -> None:
    """Compare the run with its objectives, print the result, and set the exit status."""
    if isinstance(environment.runner, WorkerRunner):
        environment.process_exit_code = 0  # the master judges the sum of all workers
        return
    measured = _measured(environment)
    findings = judge(_asked(environment), measured)
    print("\n".join(("", *describe(measured), *map(str, findings))), flush=True)
    environment.process_exit_code = 0 if all(finding.is_met for finding in findings) else 1


def _asked(environment: Environment) -> Objectives:
    options = environment.parsed_options
    return Objectives(
        options.p99_ms,
        options.most_errors,
        options.least_requests,
        options.least_waits,
        all_checked=bool(Stages.more_s),
    )


def _measured(environment: Environment) -> Measured:
    """The run so far, in all processes."""
    return measure(environment, _all_checks(), Stages.unchecked)


def _all_checks() -> Counter[str]:
    """How often each assertion was checked in all processes, as last reported."""
    return sum(map(Counter, _of_workers.values()), _checks())


def _checks() -> Counter[str]:
    """How often each assertion was checked in this process."""
    return sum((witness.checks for witness in _witnesses()), Counter())


def _witnesses() -> list[Witness]:
    """Those of all keys, in this process."""
    shared = [_CALLERS[plan].shared for plan in _KEYS]
    if not PacedCaller.abstract:
        shared.append(PacedCaller.shared)
    return [held.witness for each in shared for held in each.keychain.keys]
