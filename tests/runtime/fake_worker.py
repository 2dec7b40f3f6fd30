"""A worker for tests of worker slots: `python -m tests.runtime.fake_worker HOW DESCRIPTOR`.

serve    serves until SIGTERM, and answers requests for a report
deaf     serves, and ignores orders and SIGTERM
refuse   reports that it cannot start
hang-up  serves, closes the channel, and continues
odd      serves, then sends an invalid message
deaf-odd serves, ignores orders, sends an invalid message at SIGUSR1, and continues
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time

from gateway.admin.readiness import Readiness
from gateway.observe.registry import Snapshot
from gateway.runtime.channel import Channel, Failed, Report, RequestReport, Serving

REPORT = Report(Snapshot(()), Readiness(True, {}), 0.0)


async def main(how: str, end: socket.socket) -> int:
    channel = await Channel.open(end)
    await channel.receive()
    if how == "refuse":
        channel.send(Failed("--store: nobody is there"))
        await channel.close()
        return 1
    if how == "deaf-odd":
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    if how == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    channel.send(Serving())
    if how == "deaf-odd":
        signal.sigwait([signal.SIGUSR1])
    if how in ("odd", "deaf-odd"):
        os.write(end.fileno(), b"\x00\x00\x00\x01?")
    if how == "hang-up":
        await channel.close()
    if how in ("deaf", "hang-up", "deaf-odd"):
        time.sleep(60)  # noqa: ASYNC251 - it hears nothing
    while (command := await channel.receive()) is not None:
        if isinstance(command, RequestReport):
            channel.send(REPORT)
    return 0


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main(sys.argv[1], socket.socket(fileno=int(sys.argv[2])))))
