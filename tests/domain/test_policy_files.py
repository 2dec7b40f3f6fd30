"""The hash of a policy's files, and their names."""

from __future__ import annotations

import pytest

from gateway.domain.policy_files import FilesHash, hash_of, is_file_name, is_hash


def test_the_hash_is_of_names_and_contents() -> None:
    """In any order of the files, but not if a text is in another file or cut elsewhere."""
    assert hash_of({"a.yaml": "x", "b.yaml": "y"}) == hash_of({"b.yaml": "y", "a.yaml": "x"})
    different = [
        {"a.yaml": "x", "b.yaml": "y"},
        {"a.yaml": "y", "b.yaml": "x"},
        {"a.yaml": "xb.yaml\x001\x00y"},
        {"a.yaml": "xy"},
        {"a.yaml": "x", "b.yaml": ""},
        {},
    ]
    assert len({hash_of(texts) for texts in different}) == len(different)
    assert all(is_hash(hash_of(texts)) for texts in different)


def test_names_that_are_not_unicode() -> None:
    """A file's name may have any bytes."""
    digest = FilesHash()
    digest.add("\udcff.yaml", b"")
    assert is_hash(digest.text())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("routes.yaml", True),
        ("my routes 2.yaml", True),
        ("ä.yaml", True),
        ("routes.yml", False),
        ("", False),
        (".yaml", False),
        (".routes.yaml", False),
        ("../routes.yaml", False),
        ("/etc/routes.yaml", False),
        ("a/b.yaml", False),
        ("a\x00.yaml", False),
        ("a\n.yaml", False),
        ("\x1b[2J.yaml", False),
        ("\u202e.yaml", False),
        ("\ud800.yaml", False),
        ("ä" * 125 + ".yaml", True),
        ("ä" * 126 + ".yaml", False),
    ],
)
def test_plain_names(name: str, expected: bool) -> None:
    """Only names of visible files in the folder itself, which a terminal can show."""
    assert is_file_name(name) is expected


@pytest.mark.parametrize("text", ["", "0" * 15, "0" * 17, "0" * 15 + "g", "A" * 16, "\u0660" * 16])
def test_no_hashes(text: str) -> None:
    """A hash has 16 hexadecimal digits in lower case."""
    assert not is_hash(text)
