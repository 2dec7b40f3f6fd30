"""One generated token for the gateways of a store; nothing in the store gives access."""

from __future__ import annotations

import asyncio
import os
from hashlib import sha256
from pathlib import Path

import pytest

from gateway.admin import sharing
from gateway.admin.sharing import keep_marked, shared
from gateway.admin.token import AdminToken, read_token
from gateway.domain.ports import AdminStore, StoreDown, TokenMark
from gateway.stores.admin import MemoryAdminStore
from tests.kit.admin import Failing
from tests.kit.eventually import eventually


@pytest.fixture
def store() -> MemoryAdminStore:
    return MemoryAdminStore()


async def started(data: Path, store: AdminStore, **environ: str) -> AdminToken:
    """The token that a gateway with this data folder uses."""
    return await shared(read_token(environ, data), data, store)


async def test_gateways_of_one_machine_share_the_first_token(
    tmp_path: Path, store: MemoryAdminStore
) -> None:
    """Each then has it in its own data folder, also for its restart."""
    first = await started(tmp_path / "one", store)
    for name in ("two", "three"):
        second = await started(tmp_path / name, store)
        assert second.text == first.text
        assert second.source == str(tmp_path / name / "admin-token")
        assert (tmp_path / name / "admin-token").read_text() == f"{first.text}\n"
        assert (tmp_path / name / "admin-token").stat().st_mode & 0o777 == 0o600
        assert os.listdir(tmp_path / name) == ["admin-token"]
    again = await started(tmp_path / "two", MemoryAdminStore())
    assert (again.text, again.origin) == (first.text, "kept")


async def test_the_store_has_no_token(tmp_path: Path) -> None:
    """Only a digest, which cannot be reversed, and the file's path."""
    marks: list[TokenMark] = []

    class Watched(MemoryAdminStore):
        async def mark_token(self, mark: TokenMark, for_s: int) -> TokenMark:
            marks.append(mark)
            return await super().mark_token(mark, for_s)

    token = await started(tmp_path, Watched())
    (mark,) = marks
    assert token.text not in f"{mark}"
    assert sha256(token.text.encode()).hexdigest() != mark.digest
    assert mark.path == str(tmp_path / "admin-token")


async def test_a_given_token_is_not_shared(tmp_path: Path, store: MemoryAdminStore) -> None:
    """The store gets nothing: a person may have chosen it, and its digest would allow guesses."""
    failing = Failing(store)
    failing.failure = AssertionError("the store was asked")
    given = {"GATEWAY_ADMIN_TOKEN": "correct-horse-battery-staple"}
    token = await started(tmp_path, failing, **given)  # type: ignore[arg-type]
    await keep_marked(token, failing)  # type: ignore[arg-type]
    assert token.text == given["GATEWAY_ADMIN_TOKEN"]


async def test_a_gateway_that_has_a_token_keeps_it(
    tmp_path: Path, store: MemoryAdminStore, caplog: pytest.LogCaptureFixture
) -> None:
    """People already use it. The log says that there are two tokens, and what to do."""
    own = read_token({}, tmp_path / "one")
    await started(tmp_path / "two", store)
    assert (await started(tmp_path / "one", store)).text == own.text
    (line,) = caplog.messages
    assert str(tmp_path / "one" / "admin-token") in line
    assert str(tmp_path / "two" / "admin-token") in line
    assert "GATEWAY_ADMIN_TOKEN_FILE" in line
    assert own.text not in line


async def test_without_the_store_a_gateway_has_its_own(
    tmp_path: Path, store: MemoryAdminStore
) -> None:
    """It still starts, with a token that it generates."""
    failing = Failing(store)
    failing.failure = StoreDown("refused")
    token = await started(tmp_path, failing)  # type: ignore[arg-type]
    assert token.text == (tmp_path / "admin-token").read_text().strip()


async def test_a_store_that_hangs_holds_up_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not longer than a short timeout."""
    monkeypatch.setattr(sharing, "_WAIT_S", 0.01)

    class Hanging(MemoryAdminStore):
        async def mark_token(self, mark: TokenMark, for_s: int) -> TokenMark:
            await asyncio.Event().wait()
            return mark

    assert (await started(tmp_path, Hanging())).origin == "made"


# -- what another program may write to the store ---------------------------------------------------

PLANTED = "A" * 43


def mark_for(text: str, path: Path) -> TokenMark:
    return TokenMark(AdminToken(text, "", "kept").digest, "evil", str(path))


def plant(folder: Path, text: str, name: str = "admin-token", mode: int = 0o600) -> Path:
    folder.mkdir()
    path = folder / name
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("text", "name", "mode"),
    [
        (f"{PLANTED}\n", "other-file", 0o600),
        (f"{PLANTED}\n", "admin-token", 0o604),
        (f"{PLANTED}\n", "admin-token", 0o660),
        ("correct-horse-battery-staple\n", "admin-token", 0o600),
        (f"{PLANTED}\nmore\n", "admin-token", 0o600),
        (f"user = {PLANTED}\n", "admin-token", 0o600),
    ],
    ids=["name", "readable", "writable", "chosen", "lines", "other-content"],
)
async def test_no_other_file_becomes_the_token(
    tmp_path: Path, store: MemoryAdminStore, text: str, name: str, mode: int
) -> None:
    """Whatever the mark says: another program may have written it."""
    path = plant(tmp_path / "evil", text, name, mode)
    await store.mark_token(mark_for(text.strip(), path), 60)
    own = await started(tmp_path / "own", store)
    assert own.text not in text
    assert own.text == (tmp_path / "own" / "admin-token").read_text().strip()


async def test_a_digest_gives_no_access(tmp_path: Path, store: MemoryAdminStore) -> None:
    """The file does not exist, as on another machine, or has another token."""
    elsewhere = tmp_path / "elsewhere" / "admin-token"
    await store.mark_token(mark_for(PLANTED, elsewhere), 60)
    assert (await started(tmp_path / "own", store)).text != PLANTED
    plant(tmp_path / "elsewhere", "B" * 43)
    assert (await started(tmp_path / "second", store)).text not in (PLANTED, "B" * 43)


async def test_a_link_is_not_followed(tmp_path: Path, store: MemoryAdminStore) -> None:
    """It could lead to a token that others know."""
    path = plant(tmp_path / "evil", PLANTED, "real")
    (tmp_path / "evil" / "admin-token").symlink_to(path)
    await store.mark_token(mark_for(PLANTED, tmp_path / "evil" / "admin-token"), 60)
    assert (await started(tmp_path / "own", store)).text != PLANTED


@pytest.mark.parametrize("path", ["", "admin-token", "a\x00/admin-token", "/", "/dev/admin-token"])
async def test_no_path_does_harm(tmp_path: Path, store: MemoryAdminStore, path: str) -> None:
    """An invalid path counts as no mark."""
    await store.mark_token(TokenMark("00" * 32, "evil", path), 60)
    assert (await started(tmp_path, store)).origin == "made"


async def test_a_pipe_does_not_block(tmp_path: Path, store: MemoryAdminStore) -> None:
    """Opening one would wait for a writer."""
    (tmp_path / "evil").mkdir()
    os.mkfifo(tmp_path / "evil" / "admin-token", 0o600)
    await store.mark_token(mark_for(PLANTED, tmp_path / "evil" / "admin-token"), 60)
    assert (await started(tmp_path / "own", store)).origin == "made"


@pytest.mark.parametrize("words", ["\x1b[31m", "a\nb", "ü", "x" * 10_000])
async def test_the_log_has_no_control_characters(
    tmp_path: Path, store: MemoryAdminStore, caplog: pytest.LogCaptureFixture, words: str
) -> None:
    """Other programs may have written the mark."""
    await store.mark_token(TokenMark("00" * 32, words, words), 60)
    await started(tmp_path, store)
    (line,) = caplog.messages
    assert words not in line
    assert len(line) < 1_000


# -- while it runs ---------------------------------------------------------------------------------


class Watched(MemoryAdminStore):
    """A store that counts the calls for the mark."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    async def mark_token(self, mark: TokenMark, for_s: int) -> TokenMark:
        self.asked += 1
        return await super().mark_token(mark, for_s)


async def keep_until_asked(folder: Path, store: Watched, times: int) -> None:
    """Start with this store, and renew the mark until it was called this many times."""
    token = await started(folder, store)
    renewing = asyncio.ensure_future(keep_marked(token, store))
    await eventually(lambda: store.asked >= times, "the mark was renewed")
    renewing.cancel()
    await asyncio.wait([renewing])


async def test_the_mark_is_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it exists as long as a gateway with its token; an outage does not end the renewal."""
    monkeypatch.setattr(sharing, "RENEW_S", 0.0)

    class Away(Watched):
        async def mark_token(self, mark: TokenMark, for_s: int) -> TokenMark:
            kept = await super().mark_token(mark, for_s)
            if self.asked == 2:
                raise StoreDown("refused")
            return kept

    await keep_until_asked(tmp_path, Away(), 4)


async def test_another_token_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A gateway that started during an outage may have generated one."""
    monkeypatch.setattr(sharing, "RENEW_S", 0.0)
    other = TokenMark("00" * 32, "host-two", "/data/admin-token")

    class Taken(Watched):
        async def mark_token(self, mark: TokenMark, for_s: int) -> TokenMark:
            kept = await super().mark_token(mark, for_s)
            return kept if self.asked == 1 else other

    await keep_until_asked(tmp_path, Taken(), 5)
    assert len([line for line in caplog.messages if "host-two" in line]) == 1
