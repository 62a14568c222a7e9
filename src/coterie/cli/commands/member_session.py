"""What `coterie member` does between its start and its end."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import time
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from coterie.cli.errors import UsageError
from coterie.cli.terminal.lines import read_lines
from coterie.cli.terminal.log_lines import logging_lines
from coterie.journal.format import JournalError
from coterie.kernel.errors import PayloadTooLarge
from coterie.kernel.layers import Batch
from coterie.kernel.settings import DEFAULT_SETTINGS
from coterie.kernel.views import View
from coterie.runtime.address import Address, parse_address
from coterie.runtime.events import log
from coterie.runtime.garbage import calm_collector
from coterie.runtime.process import LiveProcess
from coterie.runtime.recorder import FileRecorder
from coterie.stacks import STACKS, parse_stack

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from coterie.kernel.views import Member as Life
    from coterie.kernel.views import ViewId
    from coterie.runtime.member import Event, LiveMember

EXIT_REFUSED = 1
"""The exit status of a member that could not cast all of its lines."""
SAFE_MARK = b"!"
STDIN = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """What the user asked for, understood."""

    group: str
    id: str
    incarnation: int
    listen: Address
    peers: dict[str, Address]
    stack: str
    recorder: FileRecorder | None
    wait_for: int
    until_eof: bool
    json: bool


def prepare(args: argparse.Namespace) -> MemberOptions:
    """Understand the command line; raise `CoterieError` or `UsageError` where it is wrong."""
    parse_stack(args.stack, examples=STACKS)
    peers = dict(peer.split("=", 1) for peer in args.peer)
    listen = parse_address(args.listen, port_min=0)
    addresses = {id: parse_address(text) for id, text in peers.items()}
    incarnation, recorder = _begin_life(args.history, args.group, args.id)
    return MemberOptions(
        group=args.group,
        id=args.id,
        incarnation=incarnation,
        listen=listen,
        peers=addresses,
        stack=args.stack.upper(),
        recorder=recorder,
        wait_for=args.wait_for,
        until_eof=args.until_eof,
        json=args.json,
    )


def _begin_life(folder: Path | None, group: str, id: str) -> tuple[int, FileRecorder | None]:
    """Give the number of this life, which must be above all earlier ones, and its recorder."""
    if folder is None:
        # Nothing remembers how often we started. The clock does, unless it is set back.
        return time.time_ns() // 1_000_000, None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        recorder = FileRecorder(folder, group, id)
    except FileExistsError:
        raise UsageError(f"--history {folder} is a file; name a folder") from None
    except OSError as error:
        raise UsageError(f"--history {folder} cannot be used: {error.strerror}") from None
    except JournalError as error:
        raise UsageError(f"--history {folder} cannot be used: {error}") from None
    return recorder.incarnation, recorder


class MemberSession:
    """One run of the command."""

    def __init__(self, options: MemberOptions) -> None:
        self.reader_is_gone = False
        self._options = options
        self._refused = 0
        self._stop: asyncio.Event
        self._enough: asyncio.Event

    async def run(self) -> int:
        """Be a member until told to stop; give the exit status."""
        with logging_lines(as_json=self._options.json):
            return await self._be_member()

    async def _be_member(self) -> int:
        options = self._options
        self._stop = asyncio.Event()
        self._enough = asyncio.Event()
        async with LiveProcess(
            id=options.id,
            incarnation=options.incarnation,
            cluster=options.group,
            listen=options.listen,
            peers=options.peers,
            recorder=options.recorder,
        ) as process:
            self._guard(process)
            self._print_start(process.transport.address)
            member = process.join(options.group, options.stack, self)
            calm_collector()
            async with asyncio.TaskGroup() as tasks:
                lines = tasks.create_task(self._cast_lines(member))
                await self._stop.wait()
                lines.cancel()
            await member.leave()
            self._print_end(process)
        return EXIT_REFUSED if self._refused else 0

    def _guard(self, process: LiveProcess) -> None:
        """Take signals, and let no callback of the loop die unseen."""
        loop = asyncio.get_running_loop()

        def stop() -> None:
            self._stop.set()
            for signal_number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(signal_number)  # a second one ends us at once

        for signal_number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(signal_number, stop)

        def on_error(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            error = context.get("exception")
            if isinstance(error, Exception) and not isinstance(error, OSError):
                process.driver.fail(error)
            else:
                log(logging.ERROR, "loop", message=context.get("message"), error=repr(error))

        loop.set_exception_handler(on_error)

    # ---- what goes in

    async def _cast_lines(self, member: LiveMember) -> None:
        """Cast what is read; the end of the input is the end of the member only if asked for."""
        await self._enough.wait()
        limit = DEFAULT_SETTINGS.payload_bytes_max
        async for batch in read_lines(STDIN, line_bytes_max=limit):
            whole = [line for line in batch if isinstance(line, bytes)]
            if len(whole) < len(batch):
                self._refuse(f"a line is over the limit of {limit} bytes: send it in parts")
            for safe, lines in groupby(whole, key=_is_safe):
                payloads = [line.removeprefix(SAFE_MARK) if safe else line for line in lines]
                try:
                    await member.cast(payloads, safe=safe)
                except PayloadTooLarge as refusal:
                    self._refuse(str(refusal))
        if self._options.until_eof:
            self._stop.set()

    def _refuse(self, sentence: str) -> None:
        self._refused += 1
        print(f"coterie: {sentence}", file=sys.stderr)

    # ---- what comes out

    def happened(self, events: Sequence[Event]) -> None:
        """Print what one turn brought."""
        lines: list[str] = []
        for event in events:
            match event:
                case Batch():
                    lines += self._describe_batch(event)
                case View(id=view, members=members):
                    if len(members) >= self._options.wait_for:
                        self._enough.set()
                    lines.append(self._describe_view("view", view, members))
                case _:
                    lines.append(self._describe_view("transitional", event.view, event.members))
        self._print(lines)

    def _describe_view(self, what: str, view: ViewId, members: Sequence[Life]) -> str:
        if self._options.json:
            lives = [[member.id, member.incarnation] for member in members]
            return json.dumps({"event": what, "view": _view(view), "members": lives})
        return f"{what} {view}: {' '.join(str(member) for member in members)}"

    def _describe_batch(self, batch: Batch) -> list[str]:
        place = batch.number
        lines: list[str] = []
        for offset, payload in enumerate(batch.payloads):
            number = place + offset if place else 0
            if self._options.json:
                entry = {
                    "event": "deliver",
                    "view": _view(batch.view),
                    "number": number,
                    "sender": [batch.sender.id, batch.sender.incarnation],
                    "message": batch.first + offset,
                    "safe": batch.safe,
                    "part": batch.delivery.name.lower(),
                    "text": _text(payload),
                }
                lines.append(json.dumps(entry))
            else:
                stamp = f"{batch.view}:{number}" if number else f"{batch.view}"
                lines.append(f"deliver {stamp} from {batch.sender}: {_text(payload)}")
        return lines

    def _print_start(self, address: Address) -> None:
        options = self._options
        if options.json:
            start = {"event": "listening", "address": str(address), "life": options.incarnation}
            self._print([json.dumps(start)])
        else:
            self._print([f"listening at {address} as {options.id}, life {options.incarnation}"])

    def _print_end(self, process: LiveProcess) -> None:
        if self._options.json:
            self._print([json.dumps({"event": "left", "counters": process.counters()})])
        else:
            self._print(["left"])

    def _print(self, lines: list[str]) -> None:
        """Write lines at once; if nobody reads them any more, stop in good order."""
        if self.reader_is_gone:
            return
        try:
            print("\n".join(lines), flush=True)
        except BrokenPipeError:
            # The interpreter would try to flush the rest on its way out.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            self.reader_is_gone = True
            self._stop.set()


def _is_safe(line: bytes) -> bool:
    return line.startswith(SAFE_MARK)


def _view(view: ViewId) -> list[object]:
    return [view.number, view.proposer, view.incarnation]


def _text(payload: bytes) -> str:
    return payload.decode(errors="backslashreplace")
