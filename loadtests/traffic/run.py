"""One run: Locust as a separate process, the outage and sampling meanwhile, and the result."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import loadtests
from loadtests.traffic.drawing import draw
from loadtests.traffic.keychain import variable
from loadtests.traffic.memory import MOST_GROWTH, Memory
from loadtests.traffic.objectives import Finding
from loadtests.traffic.outage import Outage
from loadtests.traffic.sites import Site

_ROOT: Final = Path(loadtests.__file__).resolve().parent.parent
#: The one file that registers something: with the whole folder Locust loads twice as much.
_LOCUSTFILE: Final = "loadtests/locustfile.py"
#: A wait for Retry-After takes a minute; a run that is shorter than this does not ask for one.
_WAITS_FROM_S: Final = 85.0
#: How much longer a run may take: a busy machine gives some clients their turn late.
_MORE_S: Final = 60.0
#: What Locust needs to end beyond the time of its run.
_ENDING_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Asked:
    """The parameters of a run. See the options of `__main__`."""

    seconds: float
    users: int
    pace: float = 1.0
    p99_ms: float = 1000.0
    most_errors: float = 0.0
    chaos: bool = False
    soak: bool = False


def run(site: Site, asked: Asked, out: Path) -> bool:
    """Send the traffic, write the reports into `out`, print the result. Was everything met?"""
    print(f"{len(site.hosts)} gateway(s), {asked.users} callers, {asked.seconds:g} s …", flush=True)
    outage = None
    if asked.chaos:
        assert site.redis is not None, "a site of gateways has a Redis of its own"
        outage = Outage(site.redis, site.admins, asked.seconds / 2)
    memory = Memory()
    log = out / "locust.log"
    with log.open("w") as output:
        locust = subprocess.Popen(
            command(site, asked, out),
            cwd=_ROOT,
            env=environment(site),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            _watch(locust, site, asked, outage, memory)
        finally:
            locust.kill()  # harmless where it has ended
            locust.wait()
    lines = verdict_lines(log.read_text(errors="replace"))
    print("\n".join(lines))
    findings = [Finding(f"Locust ended with {locust.returncode}", locust.returncode == 0)]
    if outage is not None:
        findings.append(Finding(outage.words, outage.is_over))
    if asked.soak:
        findings.extend(_judge_memory(memory, out))
    for finding in findings:
        print(finding)
    is_met = all(finding.is_met for finding in findings)
    if not lines:
        print(f"Locust said nothing of objectives; its output is in {log}")
    print(f"{'PASSED' if is_met else 'FAILED'}: report in {out / 'report.html'}", flush=True)
    return is_met


def command(site: Site, asked: Asked, out: Path) -> list[str]:
    """Locust's command line, without the keys: all users can read it."""
    waits = 1 if asked.seconds >= _WAITS_FROM_S and not asked.chaos else 0
    return [
        *(sys.executable, "-m", "locust", "-f", _LOCUSTFILE, "--headless", "--only-summary"),
        *("--host", site.hosts[0], "--stages", f"{asked.users}:{asked.seconds:.0f}s"),
        *("--until-checked", f"{_MORE_S:.0f}", "--html", str(out / "report.html")),
        *("--pace", str(asked.pace), "--p99-ms", str(asked.p99_ms)),
        *("--most-errors", str(asked.most_errors), "--least-waits", str(waits)),
        *("--least-requests", str(int(asked.seconds))),
    ]


def environment(site: Site) -> dict[str, str]:
    """The environment of Locust's clients."""
    keys = {variable(plan): ",".join(texts) for plan, texts in site.keys.items()}
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")},
        **keys,
        "GATEWAY_POLICIES": str(site.policies),
        "GATEWAY_HOSTS": ",".join(site.hosts),
    }


def verdict_lines(output: str) -> list[str]:
    """The lines that `loadtests/locustfile.py` prints at the end, out of all of Locust's output."""
    starts = ("tested ", "met: ", "NOT MET: ")
    return [
        line
        for line in output.splitlines()
        if line.startswith(starts) or line.endswith(" with 429")
    ]


def _watch(
    locust: subprocess.Popen[bytes],
    site: Site,
    asked: Asked,
    outage: Outage | None,
    memory: Memory,
) -> None:
    """Each second until Locust ends, advance the outage and sample the memory."""
    began_s = time.monotonic()
    while locust.poll() is None:
        passed_s = time.monotonic() - began_s
        if passed_s > asked.seconds + _MORE_S + _ENDING_S:
            return
        if outage is not None:
            outage.move(passed_s)
        if asked.soak:
            memory.sample(passed_s, site.pids)
        with suppress(subprocess.TimeoutExpired):
            locust.wait(max(0.0, began_s + passed_s + 1 - time.monotonic()))


def _judge_memory(memory: Memory, out: Path) -> Iterator[Finding]:
    """Write the curve, and check it for each process."""
    memory.write(out / "memory.csv")
    drawing = draw("Memory of the gateway's processes", memory.series)
    (out / "memory.svg").write_text(drawing, encoding="utf-8")
    for name, grown in memory.growth().items():
        if grown is None:
            yield Finding(f"memory of {name}: too few samples to judge", False)
        else:
            words = f"memory of {name} {grown:+.1%} in the second half, at most {MOST_GROWTH:.0%}"
            yield Finding(words, grown <= MOST_GROWTH)
