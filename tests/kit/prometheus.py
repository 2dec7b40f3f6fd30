"""A real Prometheus on a free port: scrapes its targets each second, and answers queries."""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

from tests.kit.eventually import eventually
from tests.kit.ports import free_port
from tests.kit.wire import fetch

#: A series of an answer: labels, and pairs of a time in seconds and a value.
Series = tuple[dict[str, str], list[tuple[float, float]]]


class Prometheus:
    """Runs within its `async with`; its data and output are in `folder`.

    targets: ports of 127.0.0.1 to scrape, as job "gateway" of the namespace "test"
    """

    def __init__(self, folder: Path, targets: list[int], rules: Path | None = None) -> None:
        folder.mkdir(parents=True)
        self.port = free_port()
        self._folder = folder
        configuration = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)] if rules else [],
            "scrape_configs": [
                {
                    "job_name": "gateway",
                    "static_configs": [
                        {
                            "targets": [f"127.0.0.1:{port}" for port in targets],
                            "labels": {"namespace": "test"},
                        }
                    ],
                }
            ],
        }
        # JSON is YAML as well.
        (folder / "prometheus.yml").write_text(json.dumps(configuration), encoding="utf-8")

    async def __aenter__(self) -> Self:
        self._start()
        try:
            await eventually(self._is_ready, "Prometheus is ready")
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    async def ask(self, path: str, **query: str | float) -> Any:
        """Call its API; return the `data` of /api/v1/PATH?QUERY."""
        answer = await fetch(self.port, f"/api/v1/{path}?{urlencode(query)}")
        result = answer.json()
        assert result["status"] == "success", f"{query}: {result.get('error')}"
        return result["data"]

    async def series(self, query: str, start_s: float, end_s: float) -> list[Series]:
        """Query at each second from start to end; return the series with finite values."""
        times = {"start": start_s, "end": end_s, "step": 1}
        data = await self.ask("query_range", query=query, **times)
        found = []
        for series in data["result"]:
            values = [(float(time_s), float(value)) for time_s, value in series["values"]]
            numbers = [(time_s, value) for time_s, value in values if math.isfinite(value)]
            if numbers:
                found.append((series["metric"], numbers))
        return found

    def _start(self) -> None:
        with (self._folder / "output").open("wb") as output:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={self._folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self._folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
            )

    async def _is_ready(self) -> bool:
        output = self._folder / "output"
        assert self._process.poll() is None, f"Prometheus ended: {output.read_text()}"
        try:
            return (await fetch(self.port, "/-/ready")).status == 200
        except OSError:
            return False

    async def _end(self) -> None:
        self._process.kill()
        await asyncio.to_thread(self._process.wait)
