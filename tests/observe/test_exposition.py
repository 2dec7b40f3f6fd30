"""The metrics of a gateway's processes, shown as those of one."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.observe.exposition import format_of, render
from gateway.observe.metrics import Metrics


def process_figures(*pids: int) -> dict[str, float]:
    text = render(Metrics("1").snapshot(), "", pids)[0].decode()
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("process_")
    }


@pytest.fixture
def other() -> Iterator[int]:
    """Another process, with a few more open files and a lower limit."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (500, 500));"
        "held = [open('/dev/null') for _ in range(300)]; print(flush=True); input()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield process.pid
    process.communicate()


def test_processes_are_shown_as_one(other: int) -> None:
    """Usage is summed; descriptors are those of the process that is nearest to its limit."""
    alone, both = process_figures(os.getpid()), process_figures(os.getpid(), other)
    assert both.keys() == alone.keys()
    memory = "process_resident_memory_bytes"
    assert both[memory] > alone[memory] + 1_000_000
    assert both["process_open_fds"] >= 300
    assert both["process_max_fds"] == 500
    assert both["process_start_time_seconds"] == alone["process_start_time_seconds"]


def test_the_cpu_time_of_ended_processes_stays(other: int) -> None:
    """The total never decreases when a worker ends."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    shown = process_figures(os.getpid())["process_cpu_seconds_total"]
    assert shown >= ended.ru_utime + ended.ru_stime


def test_an_ended_process_is_left_out() -> None:
    """A worker may end between the listing and the reading of its values."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert process_figures(os.getpid(), gone.pid).keys() == process_figures(os.getpid()).keys()
    assert process_figures(gone.pid) == {}


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain; version=0.0.4; charset=utf-8"),
        ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
        ("application/openmetrics-text", "application/openmetrics-text; version=1.0.0; "),
        ("application/openmetrics-text; version=0.0.1", "text/plain; version=0.0.4; "),
        ("application/openmetrics-text; version=9.8.7", "application/openmetrics-text; version=1."),
        ("application/openmetrics-text; version=x", "text/plain; version=0.0.4; charset=utf-8"),
    ],
)
def test_the_accept_header_selects_a_format(accept: str, content_type: str) -> None:
    """The format of an Accept header selects the same output; the header is not repeated."""
    found = format_of(accept)
    assert found.startswith(content_type)
    assert format_of(found) in (found, f"{found}; escaping=underscores")
    assert render(Metrics("1").snapshot(), found, [])[1].startswith(content_type)


def test_formats_are_few() -> None:
    """Any number of Accept headers gives a fixed number of formats."""
    kinds = ("application/openmetrics-text", "text/plain", "text/html")
    escapings = (
        "",
        "; escaping=dots",
        "; escaping=values",
        "; escaping=allow-utf-8",
        "; escaping=x",
    )
    accepts = [
        f"{kind}; version={major}.{minor}.0{escaping}"
        for kind in kinds
        for major in range(12)
        for minor in range(4)
        for escaping in escapings
    ]
    assert len({format_of(accept) for accept in accepts}) <= 9


def test_exemplars_are_shown_in_openmetrics_only() -> None:
    """Each in its bucket, with the trace's id, the value and the time."""
    metrics = Metrics("1")
    metrics.ended("api", "GET", 200, "gateway", 0.02, None, None)
    metrics.exemplify("api", 0.02, None, None, "0af7", 1_700_000_000.5)
    line = 'gateway_request_duration_seconds_bucket{le="0.025",route="api"} 1.0'
    shown, _ = render(metrics.snapshot(), "application/openmetrics-text; version=1.0.0", [])
    assert f'{line} # {{trace_id="0af7"}} 0.02 1700000000.5\n' in shown.decode()
    plain, _ = render(metrics.snapshot(), "", [])
    assert f"{line}\n" in plain.decode()
    assert "0af7" not in plain.decode()
