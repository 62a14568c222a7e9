"""Addresses on the command line of `coterie pipeline`: what lies in a store is worked on here."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.cli.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from coterie.cli.parser import Parser
    from coterie.pipeline.stores.mirror import Mirror

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def folder(text: str) -> Path | str:
    """Take a folder here, or the address of one in a store."""
    return text if _ADDRESS.match(text) else Path(text)


def add_option(parser: Parser) -> None:
    """Describe where what lies in stores is worked on."""
    parser.add_argument(
        "--work",
        type=Path,
        metavar="DIR",
        help="a folder here for what lies in object storage, where JOURNALS or --out name an "
        "address (s3://bucket/folder); kept, it saves copying again what has not changed",
    )


def are_named(args: argparse.Namespace) -> bool:
    """Say whether a command names stores."""
    return any(isinstance(place, str) for place in (*args.journals, args.out))


class Mirrors:
    """What a command works on here in the place of stores."""

    def __init__(self, args: argparse.Namespace) -> None:
        """Let *args* name folders below `--work` instead of addresses."""
        from coterie.pipeline.stores.addresses import RemoteFolder  # noqa: PLC0415 -- slow to import
        from coterie.pipeline.stores.mirror import Mirror  # noqa: PLC0415

        work: Path = args.work.absolute()
        self.journals: list[Mirror] = []
        for number, place in enumerate(args.journals, 1):
            if isinstance(place, str):
                self.journals.append(Mirror(RemoteFolder(place), work / f"journals-{number}"))
                args.journals[number - 1] = self.journals[-1].folder
        self.results: Mirror | None = None
        if isinstance(args.out, str):
            self.results = Mirror(RemoteFolder(args.out), work / "results")
            args.out = self.results.folder

    def pull(self, *, anew: bool = False) -> None:
        """Bring everything here."""
        for mirror in (*self.journals, *([self.results] if self.results else [])):
            copied = mirror.pull(anew=anew)
            _say(f"{copied:,} files copied from {mirror.store.address}")

    def refresh(self) -> None:
        """Bring here what journals have that is new."""
        for mirror in self.journals:
            mirror.pull()

    def publish(self, told: dict[str, Any]) -> dict[str, Any]:
        """Bring results to their store; give what is told of them, with their place there."""
        if self.results is None:
            return told
        copied = self.results.push()
        address = self.results.store.address
        _say(f"{copied:,} files copied to {address}")
        report = told["report"] and f"{address}/{Path(told['report']).name}"
        return {**told, "out": address, "report": report}


@contextmanager
def mirrored(args: argparse.Namespace) -> Iterator[Mirrors]:
    """Have everything here that a command names at an address, and `--work` to oneself."""
    from coterie.pipeline.jobs import claimed  # noqa: PLC0415 -- slow to import
    from coterie.pipeline.stores.addresses import StoreFailed  # noqa: PLC0415

    if args.work is None:
        raise UsageError("object storage is worked on here: name a folder for that with --work")
    with claimed(args.work):
        try:
            mirrors = Mirrors(args)
            mirrors.pull(anew=getattr(args, "verify_sources", False))
        except StoreFailed as error:
            raise UsageError(str(error)) from None
        yield mirrors


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
