"""`access`: lists of addresses in policies and in files, and what is wrong with them."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from gateway.domain.address_lists import AccessList, AddressRanges
from gateway.policies.access import MOST_FILE_BYTES
from gateway.policies.load import load
from tests.policies.folder import complaints, write

ROUTES = "routes:\n  one: {{match: GET /one, upstream: api, access: {}}}\n"


def ranges(*texts: str) -> AddressRanges:
    return AddressRanges(map(ip_network, texts))


def test_values(tmp_path: Path) -> None:
    """Lists and files are added; of the policy and of routes."""
    (tmp_path / "office.txt").write_text(
        "\ufeff192.0.2.9\n# offices\n\n192.0.2.0/24  # Berlin\n2001:db8::/32\n  198.51.100.7\n",
        "utf-8",
    )
    policy = load(
        write(
            tmp_path,
            gateway="access: {allow: [10.0.0.0/8], allow_file: office.txt}\n",
            routes=ROUTES.format("{deny: [10.1.0.0/16]}"),
        )
    )
    allowed = ranges("10.0.0.0/8", "192.0.2.0/24", "198.51.100.7/32", "2001:db8::/32")
    assert policy.access == AccessList(allow=allowed)
    assert policy.routes["one"].access == AccessList(deny=ranges("10.1.0.0/16"))
    assert policy.access_lists == (policy.access, policy.routes["one"].access)
    assert policy.used == (f"{tmp_path}/office.txt",)


@pytest.mark.parametrize(
    ("access", "complaint"),
    [
        ("[10.0.0.0/8]", "expected a mapping with one of allow, deny, allow_file, deny_file"),
        ("{}", "expected one of allow, deny, allow_file, deny_file"),
        ("{allow: 10.0.0.0/8}", "expected a list of addresses and CIDR ranges"),
        ("{allow: [10.0.0.1/8]}", "expected an address or a CIDR range"),
        ("{allow: [localhost]}", "expected an address or a CIDR range"),
        ("{alow: [10.0.0.0/8]}", "did you mean 'allow'?"),
        ("{deny_file: none.txt}", "found 'none.txt' (No such file or directory), expected a file"),
        ("{deny_file: .}", "found '.' (it is a folder, not a regular file), expected a file that"),
        ("{deny_file: bad.txt}", "bad.txt:2: found '10.0.0.1/8' (from routes.one.access"),
        ("{deny_file: binary.txt}", "expected a text file in UTF-8"),
        ("{deny_file: huge.txt}", f"longer than {MOST_FILE_BYTES} bytes"),
    ],
)
def test_faults(tmp_path: Path, access: str, complaint: str) -> None:
    """Each says where, and what was expected."""
    (tmp_path / "bad.txt").write_text("10.0.0.1\n10.0.0.1/8\n", "utf-8")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe")
    (tmp_path / "huge.txt").write_bytes(b"#" * (MOST_FILE_BYTES + 1))
    (found,) = complaints(write(tmp_path, routes=ROUTES.format(access)))
    assert complaint in found


def test_a_file_with_many_faults(tmp_path: Path) -> None:
    """The first ten are reported: one wrong separator makes every line faulty."""
    (tmp_path / "many.txt").write_text("10.0.0.1;\n" * 1000, "utf-8")
    found = complaints(write(tmp_path, routes=ROUTES.format("{deny_file: many.txt}")))
    assert len(found) == 10


def test_a_hundred_thousand_ranges(tmp_path: Path) -> None:
    """They are one list, in which each is found."""
    texts = [f"{number >> 8 & 255}.{number & 255}.{number >> 16}.0/25" for number in range(100_000)]
    (tmp_path / "many.txt").write_text("\n".join(texts), "utf-8")
    policy = load(write(tmp_path, routes=ROUTES.format("{deny_file: many.txt}")))
    (access,) = policy.access_lists
    for text in texts[::997]:
        network = ip_network(text)
        assert not access.permits(network[5])
        assert access.permits(network[0] + 128)
    assert access.permits(ip_address("2001:db8::1"))
