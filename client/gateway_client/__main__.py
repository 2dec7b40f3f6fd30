"""The command `python -m gateway_client GET /v1/connectors`: for trying things.

The body of the answer goes to stdout, its status and limits to stderr. It exits with 0, with 1 if
the answer is an error or there is none, with 2 if the command or a setting is wrong, and with 130
after Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import httpx

from gateway_client.client import Client
from gateway_client.errors import ApiError, GatewayError, SettingsInvalid
from gateway_client.limits import Limits
from gateway_client.webhooks.json_text import read_json

_EPILOG: Final = """\
SERVICE_API_KEY and SERVICE_BASE_URL say which key is used, and where.

  python -m gateway_client GET /v1/connectors
  python -m gateway_client POST /api/documents/batch --data '{"ids": ["a", "b"]}'
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Send one request; returns the exit status. arguments: by default those of the process"""
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Who reads has enough. At its end Python would flush, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _run(arguments: Sequence[str] | None) -> int:
    parser = _parser()
    found = parser.parse_args(arguments)
    try:
        headers = _headers(found.header)
        content = _content(found.data)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    if content is not None and "content-type" not in map(str.lower, headers):
        headers["Content-Type"] = "application/json"
    try:
        client = Client(patient=found.patient)
    except SettingsInvalid as error:
        parser.error(str(error))
    with client:
        try:
            answer = client.request(found.method, found.path, headers=headers, content=content)
        except ApiError as error:
            return _show_error(error, client.limits)
        except GatewayError as error:
            print(_printable(str(error)), file=sys.stderr)
            return 1
        except ValueError as error:
            parser.error(str(error))
        _show(answer, client.limits)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gateway_client",
        description="Send one request with your key, and print the answer and its limits.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("method", metavar="METHOD", help="such as GET or POST")
    parser.add_argument("path", metavar="PATH", help="such as /v1/connectors?page=2")
    parser.add_argument("--data", metavar="JSON", help="the body; @FILE reads it, @- from stdin")
    parser.add_argument("--header", metavar="'NAME: VALUE'", action="append", default=[])
    parser.add_argument(
        "--patient", action="store_true", help="wait as long as a 429 asks for, up to two minutes"
    )
    return parser


def _headers(texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise ValueError("--header: expected 'NAME: VALUE'")
        found[name.strip()] = value.strip()
    return found


def _content(text: str | None) -> bytes | None:
    if text is None or not text.startswith("@"):
        return None if text is None else text.encode()
    return sys.stdin.buffer.read() if text == "@-" else Path(text[1:]).read_bytes()


def _show(answer: httpx.Response, limits: Limits | None) -> None:
    request_id = answer.headers.get("x-request-id", "")
    _say(f"{answer.status_code} {answer.reason_phrase}", limits, request_id)
    if answer.request.method == "HEAD":
        return
    if (text := _text_of(answer)) is not None:
        print(text)
    else:
        # Bytes of any kind, for a file or another program.
        sys.stdout.buffer.write(answer.content)
        sys.stdout.buffer.flush()


def _show_error(error: ApiError, limits: Limits | None) -> int:
    _say(f"{error.status} {error.code}".strip(), limits, error.request_id)
    print(_printable(error.message), file=sys.stderr)
    for fault in error.faults:
        print(_printable(json.dumps(fault)), file=sys.stderr)
    return 1


def _say(status: str, limits: Limits | None, request_id: str) -> None:
    words = [_printable(status)]
    if limits is not None:
        words.append(f"{limits.remaining} of {limits.limit} remain")
        words.append(f"reset in {limits.reset_after} s")
    if request_id:
        words.append(f"request {_printable(request_id)}")
    print(", ".join(words), file=sys.stderr)


def _text_of(answer: httpx.Response) -> str | None:
    """The body as text; None: it is not JSON, and nobody reads it at a terminal."""
    try:
        return json.dumps(read_json(answer.content), indent=2)
    except ValueError:
        if not sys.stdout.isatty():
            return None
        text = _printable(answer.text)
    # What the encoding of stdout lacks is shown as an escape.
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _printable(text: str) -> str:
    """For a terminal: what could control it is shown as an escape."""
    return "".join(
        each if each.isprintable() or each == "\n" else repr(each)[1:-1] for each in text
    )


if __name__ == "__main__":
    sys.exit(main())
