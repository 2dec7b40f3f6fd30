"""Reading a folder: unreadable files are faults, and no content crashes the process."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.policies import documents
from gateway.policies.documents import MAX_BYTES, read_documents
from gateway.policies.faults import Fault
from tests.kit.reach import reached, reaches
from tests.policies.folder import ROUTES, complaints, faults_of, write


def put_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


def test_no_folder(tmp_path: Path) -> None:
    """A folder that does not exist, or a file in its place, is one fault."""
    (fault,) = faults_of(tmp_path / "none")
    assert str(fault) == (
        f"{tmp_path}/none: found no readable folder (No such file or directory), "
        "expected a folder of *.yaml files"
    )
    (tmp_path / "file").write_text("")
    (fault,) = faults_of(tmp_path / "file")
    assert fault.found == "no readable folder (Not a directory)"


def test_no_files(tmp_path: Path) -> None:
    """Other files, hidden ones and folders are not policy files."""
    (tmp_path / "policies.yml").write_text("a: 1")
    (tmp_path / ".#routes.yaml").write_text("a: 1")
    (tmp_path / "old.yaml").mkdir()
    (fault,) = faults_of(tmp_path)
    assert (fault.file, fault.found) == (str(tmp_path), "no *.yaml file")


def test_another_ending(tmp_path: Path) -> None:
    """A file that ends in .yml is not passed over in silence."""
    (tmp_path / "plans.yaml").write_text("a: 1\n")
    (tmp_path / "routes.yml").write_text("b: 2\n")
    read = read_documents(tmp_path)
    assert [str(fault) for fault in read.faults] == [
        f"{tmp_path / 'routes.yml'}: found the ending .yml, "
        "expected the ending .yaml: no other files are read"
    ]
    assert not read.complete


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """A link to nowhere is named; the files beside it are still read."""
    folder = write(tmp_path, x="environment: Prod")
    (folder / "y.yaml").symlink_to("nowhere")
    assert [line.split(", ")[0] for line in complaints(folder)] == [
        "x.yaml:1: environment: found 'Prod'",
        "y.yaml: found an unreadable file (No such file or directory)",
    ]


@pytest.mark.parametrize(
    ("put", "kind"),
    [
        (os.mkfifo, "a named pipe"),
        (put_socket, "a socket"),
        (lambda path: path.symlink_to("/dev/zero"), "a device"),
    ],
    ids=["pipe", "socket", "device"],
)
@pytest.mark.timeout(30)
def test_special_files_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put: Callable[[Path], None], kind: str
) -> None:
    """Reading a pipe would block, and a device has no end: both are faults."""
    monkeypatch.chdir(write(tmp_path, x="environment: Prod"))  # a socket's path must be short
    put(Path("y.yaml"))
    assert [line.split(", expected")[0] for line in complaints(tmp_path)] == [
        "x.yaml:1: environment: found 'Prod'",
        f"y.yaml: found an unreadable file (it is {kind}, not a regular file)",
    ]


def test_a_file_that_is_too_long(tmp_path: Path) -> None:
    """Ten megabytes of YAML would take twenty seconds and two gigabytes to be read."""
    write(tmp_path, routes=ROUTES + "#" * (MAX_BYTES - len(ROUTES)))
    assert faults_of(tmp_path) == []
    write(tmp_path, routes=ROUTES + "#" * (MAX_BYTES - len(ROUTES) + 1))
    (fault,) = faults_of(tmp_path)
    assert str(fault) == (
        f"{tmp_path}/routes.yaml: found an unreadable file (it is longer than 4194304 bytes), "
        "expected a YAML file"
    )


def test_all_files_together_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All files together have a bound, too; files beyond it are not parsed."""
    monkeypatch.setattr(documents, "MAX_VALUES", 100)
    for name in "abc":
        (tmp_path / f"{name}.yaml").write_text(f"x{name}: [{'1, ' * 40}]")
    composed: list[str] = []
    compose = yaml.compose

    def counted(text: str, **options: Any) -> Any:
        composed.append(text)
        return compose(text, **options)

    monkeypatch.setattr(yaml, "compose", counted)
    (fault,) = read_documents(tmp_path).faults
    assert str(fault).startswith(f"{tmp_path}/c.yaml:1: found more than 100 values in all files")
    assert len(composed) == 2


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (b"a: 1\nb: \xff\n", 2, "found the byte 0xff, expected text in UTF-8"),
        (b"a: 1\nb: \x00\n", 2, "control characters are not allowed"),
        (b"a: 'x\n", 2, "found unexpected end of stream"),
        (b"routes:\n  r: {match: * /**}\n", 2, "needs quotes"),
        (b"a: *b\n", 1, "undefined alias"),
        (b"environment: a\n---\nenvironment: b\n", 2, "another document"),
        (b"a: " + b"[" * 100_000, 1, "found more than 64 levels, expected a flatter file"),
        (b"- " * 100_000 + b"a", 1, "more than 64 levels"),
        (b"a: &x [*x]\n", 1, "an anchor that contains itself"),
        (b"a: &x {<<: *x}\n", 1, "an anchor that contains itself"),
        (
            b"a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n"
            + b"".join(b"a%d: &a%d [%s]\n" % (i + 1, i + 1, b"*a%d," % i * 10) for i in range(30)),
            6,
            "found more than 500000 values in all files, with aliases expanded",
        ),
        (
            b"a0: &a0 {}\n"
            + b"".join(b"a%d: &a%d {<<: *a%d}\n" % (i + 1, i + 1, i) for i in range(3000)),
            65,
            "more than 64 levels",
        ),
    ],
    ids=range(12),
)  # fmt: skip
def test_invalid_files(tmp_path: Path, content: bytes, line: int, words: str) -> None:
    """Broken text, endless nesting and exploding aliases are one fault each, with its line."""
    (tmp_path / "x.yaml").write_bytes(content)
    (fault,) = read_documents(tmp_path).faults
    assert words in str(fault)
    assert fault.line == line
    assert "\n" not in str(fault)


def test_a_byte_order_mark(tmp_path: Path) -> None:
    """Editors on Windows begin files with one; it is ignored."""
    write(tmp_path)
    (tmp_path / "x.yaml").write_bytes(b"\xef\xbb\xbfenvironment: staging\n")
    assert faults_of(tmp_path) == []


SCRAPS = [
    *("routes", "plans", "upstreams", "match", "rate", "limits", "name", "api", "GET /a", "3/day"),
    *("{", "}", "[", "]", ":", ": ", ",", "\n", "\n  ", "- ", "&a ", "*a", "<<: ", "'", '"', "!x "),
    *("#", "? ", "|\n", "1", "true", "~", "* /**", "\t", "---", "%", "@", "é", "\x07"),
]  # fmt: skip


@reaches(0.3)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(max_size=60), st.lists(st.sampled_from(SCRAPS), max_size=30)))
def test_any_content_is_a_policy_or_faults(tmp_path: Path, content: bytes | list[str]) -> None:
    """Any content of a file gives a policy, or faults of one line each."""
    write(tmp_path)
    text = content if isinstance(content, bytes) else "".join(content).encode()
    (tmp_path / "routes.yaml").write_bytes(text)
    for fault in faults_of(tmp_path):
        reached()
        assert isinstance(fault, Fault)
        assert len(str(fault).splitlines()) == 1
