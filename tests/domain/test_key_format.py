"""How keys are created and parsed."""

from __future__ import annotations

import hashlib
import random
import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.domain import key_format

BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
environments = st.from_regex(r"[a-z][a-z0-9-]{0,31}", fullmatch=True)
generators = st.integers(0, 2**32).map(lambda seed: random.Random(seed).randrange)


def checksum(body: str) -> str:
    """The checksum as the module's docstring describes it, digit by digit."""
    rest, digits = zlib.crc32(body.encode()), ""
    for _ in range(6):
        rest, digit = divmod(rest, 62)
        digits = BASE62[digit] + digits
    return digits


@given(environments, generators)
def test_what_is_minted_is_read(environment, randbelow):
    """A new key has five parts, from which its environment and id are parsed."""
    text, key_id = key_format.mint(environment, randbelow)
    parts = text.split("_")
    assert parts[:3] == ["gwk", environment, key_id]
    assert len(parts) == 4
    assert len(parts[3]) == 38
    assert len(key_id) == 12
    assert set(key_id) <= set(key_format.ID_ALPHABET)
    assert not set(key_id) & set("01oil")
    assert text[-6:] == checksum(text[:-6])
    for form in (text, text.encode()):
        assert key_format.parse(form) == (environment, key_id)
    assert key_format.id_of(text.encode()) == key_id
    assert key_format.is_key_id(key_id)
    assert key_format.looks_like_key(text)
    assert key_format.holds_key(text.encode())


def test_every_character_comes_from_one_even_draw():
    """Each character is one random number below its alphabet's size, so all are equally likely."""
    sizes: list[int] = []

    def randbelow(size: int) -> int:
        sizes.append(size)
        return size - 1

    text, key_id = key_format.mint("production", randbelow)
    assert sizes == [31] * 12 + [62] * 32
    assert key_id == "z" * 12
    assert text.split("_")[3][:32] == "z" * 32


@given(st.binary(max_size=200))
def test_no_bytes_make_it_raise(text):
    """Whatever is sent as a key, the result is None, not an exception."""
    assert key_format.parse(text) is None
    assert len(key_format.id_of(text)) <= 12


@given(st.text(max_size=100))
def test_no_text_makes_it_raise(text):
    """Nor does any text, including lone surrogates."""
    for form in (text, "gwk_production_" + text, text + "\ud800"):
        assert key_format.parse(form) is None


@given(generators, st.integers(0, 64), st.integers(1, 255))
def test_one_wrong_byte_is_noticed(randbelow, place, change):
    """A key with one byte changed, anywhere, is invalid."""
    text = bytearray(key_format.mint("production", randbelow)[0].encode())
    text[place % len(text)] ^= change
    assert key_format.parse(bytes(text)) is None


@given(generators, st.integers(0, 64))
def test_a_shortened_or_extended_key_is_no_key(randbelow, length):
    """A part of a key is invalid, and so is a key with something around it."""
    text = key_format.mint("production", randbelow)[0].encode()
    assert key_format.parse(text[: length % len(text)]) is None
    for around in (b" " + text, text + b" ", text + b"\n", text + b"\x00", text + text):
        assert key_format.parse(around) is None


@given(generators, st.integers(0, 5))
def test_digits_of_other_scripts_are_no_digits(randbelow, place):
    """A digit of another script is not accepted as a digit."""
    text = key_format.mint("production", randbelow)[0]
    swapped = text[: -6 + place] + "\N{FULLWIDTH DIGIT ONE}" + text[-6 + place + 1 :]
    assert key_format.parse(swapped) is None


@pytest.mark.parametrize(
    "environment", ["", "Production", "a_b", "1a", "a" * 33, "a b", "é", "a\n"]
)
def test_environments_that_cannot_be_spelled(environment):
    """A key is created only for an environment that can be parsed from it."""
    assert not key_format.is_environment(environment)
    with pytest.raises(ValueError, match="environment"):
        key_format.mint(environment, lambda _: 0)


@pytest.mark.parametrize(
    "text", ["", "abc", "7h3k9m2p4q6", "7h3k9m2p4q6r7", "7H3k9m2p4q6r", "0" * 12]
)
def test_invalid_ids(text):
    """An id is twelve characters of its alphabet."""
    assert not key_format.is_key_id(text)


def test_digest():
    """The store has the SHA-256 of the text."""
    assert key_format.digest(b"gwk_x") == hashlib.sha256(b"gwk_x").digest()


@given(
    st.binary(max_size=20), st.binary(max_size=20), st.sampled_from(["lower", "upper", "swapcase"])
)
def test_a_key_is_found_anywhere(before, after, case):
    """Within any bytes, in any case, and with `_` percent-encoded."""
    text, _ = key_format.mint("test-2", lambda size: size // 3)
    for key in (text, getattr(text, case)(), text.replace("_", "%5F"), text[:20] + text[21:]):
        assert key_format.holds_key(before + key.encode() + after)


@given(
    *(st.binary(max_size=20), st.binary(max_size=20), environments),
    *(st.sampled_from(["%%%02x", "%%%02X", "%%25%02x"]), st.sets(st.integers(0, 90))),
)
@example(b"", b"", "production", "%%%02x", {0})
@example(b"", b"", "production", "%%25%02X", {1, 2, 60})
@example(b"%", b"%", "a" * 32, "%%%02x", set(range(90)))
def test_an_encoded_key_is_found_anywhere(before, after, environment, form, places):
    """Any of its characters may be percent-encoded, once or twice: servers decode them."""
    text, _ = key_format.mint(environment, lambda size: size // 3)
    for in_case in (text, text.swapcase()):
        key = "".join(
            form % ord(character) if place in places else character
            for place, character in enumerate(in_case)
        )
        assert key_format.holds_key(before + key.encode() + after)
        assert key_format.looks_like_key(before.decode("latin-1") + key)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"gwk_",
        b"gwk_production_7h3k9m2p4q6r",
        b"gwk_a_b_c",
        b"gwk-a-7h3k9m2p4q6r-" + b"a" * 38,
        b"gwk%2Da%2D7h3k9m2p4q6r%2D" + b"a" * 38,
        b"%gwk%5Fproduction%5F7h3k9m2p4q6r",
    ],
)
def test_text_that_is_no_key_is_not_found(text):
    """Neither a prefix, nor a public id, nor a key with other separators."""
    assert not key_format.holds_key(text)
