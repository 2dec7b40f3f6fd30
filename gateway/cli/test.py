"""`gateway test`: runs the tests of policies, and shows what was found in place of the expected.

`cases` reads the files, `case_run` decides the requests.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from gateway.cli.case_run import CaseResult, StepResult, run_case
from gateway.cli.cases import FOLDER, find_files, read_cases
from gateway.cli.options import Folder
from gateway.domain.limits import SECOND_US
from gateway.domain.patterns import printable
from gateway.policies.faults import PolicyFaults
from gateway.policies.load import load


@click.command(epilog="Example: gateway test policies")
@click.argument("folder", metavar="DIR", type=Folder(path_type=Path))
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
@click.pass_context
def test(ctx: click.Context, folder: Path, files: tuple[Path, ...], as_json: bool) -> None:
    """Run the tests of the policies in DIR: those in DIR/tests/*.yaml, or in FILE.

    A test sends requests and says what to expect: the status, the route, the limit, how many of a
    hundred are admitted. Requests are decided as the gateway decides them, without a store and
    without an upstream. Time is simulated: nothing waits.

    The exit status is 0 if all tests pass, 1 if one fails, and 2 if the policies or the tests have
    faults.
    """
    if not folder.is_dir():
        raise click.BadParameter(f"'{folder}' is not a folder", ctx, param_hint="DIR")
    try:
        policy = load(folder)
        results = [run_case(policy, case) for case in read_cases(files or _found(folder), policy)]
    except PolicyFaults as exc:
        if as_json:
            _print({"passed": 0, "failed": 0, "tests": [], "faults": _plain(exc)})
        else:
            for fault in exc.faults:
                click.echo(str(fault), err=True)
        ctx.exit(2)
    failed = [result for result in results if not result.has_passed]
    if as_json:
        shown = [_as_json(result) for result in results]
        passed = len(results) - len(failed)
        _print({"passed": passed, "failed": len(failed), "tests": shown, "faults": []})
    else:
        for result in failed:
            click.echo("\n".join(map(printable, _failure(result))) + "\n")
        click.echo(_summary(len(failed), len(results)))
    ctx.exit(1 if failed else 0)


def _found(folder: Path) -> Sequence[Path]:
    """The test files of a policy folder. Raises UsageError if there are none."""
    try:
        files = find_files(folder)
    except OSError:
        files = []
    if not files:
        raise click.UsageError(f"found no tests, expected *.yaml files in {folder / FOLDER}")
    return files


def _summary(failed: int, total: int) -> str:
    tests = f"{total} test{'' if total == 1 else 's'}"
    return f"{failed} of {tests} failed" if failed else f"{tests} passed"


def _failure(result: CaseResult) -> Iterator[str]:
    """Lines about a failed test: the steps that led to it, and the differences."""
    case = result.case
    yield f"{case.file}:{case.line}: {case.name}"
    for number, step in enumerate(result.steps, 1):
        yield f"  step {number}, at {_seconds(step.at_us)}: {_step_words(step)}"
    for each in result.differences:
        yield (
            f"    {case.file}:{each.line}: {each.field}: found {each.found}, "
            f"expected {each.expected}"
        )


def _step_words(result: StepResult) -> str:
    step, last = result.step, result.last
    if last is None:
        return f"waited {_seconds(step.wait_us)}"
    key = step.shared.sender
    sender = "no key" if key is None else f"key {key.name}" if key.name else "a key of its own"
    sent = f"{step.send}, {sender}, from {step.shared.client}"
    if step.times > 1:
        over = f" over {_seconds(step.over_us)}" if step.over_us else ""
        sent += f", {step.times} times{over}: {result.admitted} admitted"
        if result.refused_at:
            sent += f", the first refusal is number {result.refused_at}"
        sent += "; the last"
    refusal = last.refusal
    if refusal is None:
        remain = "" if last.remaining is None else f", {last.remaining} of {last.limit} remain"
        return f"{sent}: admitted{remain}"
    retry = "" if last.retry_after is None else f", retry after {last.retry_after} s"
    by = f" by {last.limit}" if refusal.status == 429 else ""
    return f"{sent}: refused with {refusal.status} {refusal.code} ({refusal.reason}){by}{retry}"


def _seconds(time_us: int) -> str:
    return f"{time_us / SECOND_US:.6f}".rstrip("0").rstrip(".") + "s"


def _as_json(result: CaseResult) -> dict[str, object]:
    case = result.case
    return {
        "file": case.file,
        "line": case.line,
        "name": case.name,
        "passed": result.has_passed,
        "steps": [_step_words(step) for step in result.steps],
        "differences": [
            {"line": each.line, "path": each.field, "found": each.found, "expected": each.expected}
            for each in result.differences
        ],
    }


def _plain(exc: PolicyFaults) -> list[dict[str, Any]]:
    return [dataclasses.asdict(fault) for fault in exc.faults]


def _print(shown: object) -> None:
    click.echo(json.dumps(shown, indent=2, ensure_ascii=False))
