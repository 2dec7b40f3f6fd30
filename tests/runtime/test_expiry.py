"""When certificates expire: read at the start, and when a file or the policy changes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gateway.domain.policy import CertificateFiles, Tls
from gateway.policies.load import load
from gateway.runtime.expiry import Expiry
from tests.kit.certificates import make_certificate
from tests.kit.eventually import eventually
from tests.policies.folder import write

FIRST = datetime(2040, 1, 1, tzinfo=UTC)


async def test_certificates_and_their_ends(tmp_path: Path) -> None:
    """Of all settings; a faulty one keeps its value, and one that is not in the policy has none."""
    ends = [FIRST + timedelta(days=number) for number in range(6)]
    times = [int(end.timestamp()) for end in ends]
    made = [make_certificate(tmp_path, ["a.test"], f"c{at}", ends=ends[at]) for at in range(4)]
    one, two, three, four = (
        CertificateFiles(str(each.certificate), str(each.key)) for each in made
    )
    tls = Tls(one.certificate, one.key, (two,))
    bare = load(write(tmp_path))
    name, upstream = next(iter(bare.upstreams.items()))
    known = replace(upstream, client_certificate=four.certificate, client_key=four.key)
    policy = [
        replace(
            bare,
            tls=tls,
            admin_tls=Tls(three.certificate, three.key),
            upstreams={**bare.upstreams, name: known},
        )
    ]
    found: list[Mapping[tuple[str, str], int]] = []
    watch = Expiry(lambda: policy[0], found.append, interval_s=0.005)
    task = asyncio.create_task(watch.run())

    async def until(expected: dict[tuple[str, str], int]) -> None:
        await eventually(lambda: bool(found) and dict(found[-1]) == expected, str(expected))

    expected = {
        ("tls", one.certificate): times[0],
        ("tls", two.certificate): times[1],
        ("admin_tls", three.certificate): times[2],
        (f"upstreams.{name}", four.certificate): times[3],
    }
    await until(expected)
    make_certificate(tmp_path, ["a.test"], "c3", ends=ends[0])
    expected[f"upstreams.{name}", four.certificate] = times[0]
    await until(expected)
    make_certificate(tmp_path, ["a.test"], "c1", ends=ends[4])
    await until({**expected, ("tls", two.certificate): times[4]})
    before = len(found)
    make_certificate(tmp_path, ["a.test"], "c0", ends=ends[5])
    made[0].key.write_text("broken")
    await eventually(lambda: len(found) > before, "it was read")
    await until({**expected, ("tls", two.certificate): times[4]})
    policy[0] = replace(bare, tls=Tls(two.certificate, two.key))
    await until({("tls", two.certificate): times[4]})
    policy[0] = bare
    await until({})
    assert not task.done()
    task.cancel()
    await asyncio.wait([task])
