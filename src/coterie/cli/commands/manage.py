"""`coterie manage`: have a policy kept: so many replicas of each group, on the hosts there are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.cli import exits
from coterie.cli.errors import UsageError

if TYPE_CHECKING:
    import argparse
    import asyncio
    from collections.abc import Awaitable, Callable

    from coterie.cli.parser import Parser, Subparsers
    from coterie.cli.target import KnownGroup

NAME = "manager"


def add_parser(subparsers: Subparsers) -> Parser:
    """Describe the command and its options."""
    parser = subparsers.add_parser(
        "manage",
        help="keep a policy: replace what is lost, add and remove what is wanted",
        description="Run an instance of the availability manager. Several may run; one acts. What "
        "it does is written to a group of Coterie's own first, that of --config, so another "
        "instance goes on where one ends. 'coterie status' with that group shows what is done.",
    )
    parser.add_argument("policy", type=Path, metavar="POLICY", help="the file of the policy")
    add_manager(parser)
    parser.add_argument(
        "--agents-secret",
        type=Path,
        required=True,
        metavar="FILE",
        help="the secret of the agents",
    )
    parser.add_argument(
        "--name", default="", help="the name of this instance (default: the host's)"
    )
    parser.add_argument(
        "--check", action="store_true", help="say whether the policy can be kept at all, and end"
    )
    parser.add_argument("--json", action="store_true", help="log as JSON lines")
    return parser


def add_manager(parser: Parser) -> None:
    """Add the options that say where the manager's group is."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="the configuration of the manager's group, if 'coterie serve' does not run it here",
    )
    parser.add_argument(
        "--group", default=NAME, metavar="NAME", help=f"how that group is called ({NAME})"
    )


def run(args: argparse.Namespace) -> int:
    """Run the instance until it is told to stop."""
    import os  # noqa: PLC0415 -- start-up of other commands stays fast
    import socket  # noqa: PLC0415
    import time  # noqa: PLC0415

    from coterie.kernel.errors import CoterieError  # noqa: PLC0415
    from coterie.manager.policy import parse_policy  # noqa: PLC0415
    from coterie.runtime.address import parse_address  # noqa: PLC0415
    from coterie.runtime.security import read_secret  # noqa: PLC0415
    from coterie.service.manage.running import RunningManager  # noqa: PLC0415

    try:
        policy = parse_policy(_read(args.policy), source=str(args.policy))
        for host in policy.hosts.values():
            parse_address(host.agent)
        if args.check:
            print(f"policy {policy.number}: {len(policy.groups)} groups, {len(policy.hosts)} hosts")
            return exits.DONE
        target = manager_target(args)
        # Each life has a name of its own: another one waits until the lease of this one has ended.
        name = f"{args.name or socket.gethostname()}#{os.getpid()}.{time.time_ns() // 1_000_000}"
        manager = RunningManager(
            name[-200:],
            policy=policy,
            addresses=list(target.addresses.values()),
            group=target.group,
            secret=target.secret,
            agent_secret=read_secret(args.agents_secret),
        )
        run_until_stopped(manager.run, as_json=args.json)
    except CoterieError as error:
        raise UsageError(str(error)) from None
    return exits.DONE


def manager_target(args: argparse.Namespace) -> KnownGroup:
    """Find the group of the manager."""
    from argparse import Namespace  # noqa: PLC0415

    from coterie.cli.target import find_target  # noqa: PLC0415

    return find_target(Namespace(name=args.group, config=args.config))


def run_until_stopped(run: Callable[[asyncio.Event], Awaitable[None]], *, as_json: bool) -> None:
    """Run until SIGTERM or SIGINT; a second one ends the process at once."""
    import asyncio  # noqa: PLC0415
    import logging  # noqa: PLC0415

    from coterie.cli.commands.replica_session import stop_on_signals  # noqa: PLC0415
    from coterie.cli.terminal.log_lines import logging_lines  # noqa: PLC0415

    async def until_stopped() -> None:
        await run(stop_on_signals())

    with logging_lines(as_json=as_json or not sys.stderr.isatty(), level=logging.INFO):
        asyncio.run(until_stopped())


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{path} cannot be read: {reason}") from None
