"""`coterie restore`: a new group that begins with a backup."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coterie.cli import exits
from coterie.cli.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from coterie.cli.parser import Parser, Subparsers
    from coterie.journal.backup import Backup

REPLICAS = 3


def add_parser(subparsers: Subparsers) -> Parser:
    """Describe the command and its options."""
    parser = subparsers.add_parser(
        "restore",
        help="found a new group with a backup",
        description="Found a group that begins with the state in a backup, for 'coterie serve "
        "--name NAME' to run. With --config and --id it is one replica of a deployment that is "
        "given the state: do it for each, with the same file, and start them without --found. "
        "Nothing is founded where there is anything already.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the backup")
    parser.add_argument("--name", help="what the new group is called (default: as it was)")
    parser.add_argument(
        "--replicas", type=int, metavar="N", help=f"how many it has (default: {REPLICAS})"
    )
    parser.add_argument("--dir", type=Path, metavar="DIR", help="where its files are")
    parser.add_argument(
        "--config", type=Path, metavar="CONFIG", help="the configuration file of a deployment"
    )
    parser.add_argument("--id", help="with --config: which of its replicas")
    return parser


def run(args: argparse.Namespace) -> int:
    """Found the group, or one replica of it."""
    from coterie.journal.backup import Backup  # noqa: PLC0415 -- start-up stays fast
    from coterie.kernel.errors import CoterieError  # noqa: PLC0415

    try:
        backup = Backup(args.file)
        backup.check()
        told = _one(args, backup) if args.config or args.id else _all(args, backup)
    except CoterieError as error:
        raise UsageError(str(error)) from None
    print(f"coterie: {told}")
    return exits.DONE


def _one(args: argparse.Namespace, backup: Backup) -> str:
    """Give one replica of a deployment the state."""
    from coterie.kernel.errors import CoterieError  # noqa: PLC0415
    from coterie.service.config import load_config  # noqa: PLC0415
    from coterie.service.operate.backups import begin_with_backup  # noqa: PLC0415

    if not args.config or not args.id:
        raise CoterieError("--config and --id are given together: which replica, and where")
    if args.replicas is not None or args.dir is not None:
        raise CoterieError("--replicas and --dir are not for --config, which has its own")
    config, group = load_config(args.config), args.name or backup.head.group
    if args.id not in config.replicas or group not in config.groups_at(args.id):
        raise CoterieError(f"{args.config} has no replica {args.id!r} of a group {group!r}")
    begin_with_backup(backup, config, group, args.id)
    return f"replica {args.id} of {group} begins at position {backup.head.position}"


def _all(args: argparse.Namespace, backup: Backup) -> str:
    """Found a group on this machine."""
    from coterie.kernel.errors import CoterieError  # noqa: PLC0415
    from coterie.service.folder import lock_folder  # noqa: PLC0415
    from coterie.service.operate.backups import begin_with_backup, group_of_backup  # noqa: PLC0415
    from coterie.service.operate.founding import make_config, protect  # noqa: PLC0415
    from coterie.service.state_folder import CONFIG, place_group, write_config  # noqa: PLC0415

    name = args.name or backup.head.group
    given = group_of_backup(backup)
    replicas = REPLICAS if args.replicas is None else args.replicas
    folder = place_group(name, args.dir)
    with lock_folder(
        folder, f"the group {name!r} is being served: give the new one another --name"
    ):
        if (folder / CONFIG).exists():
            raise CoterieError(
                f"there is a group {name!r} already, in {folder}: give the new one another --name"
            )
        config = protect(folder, make_config(folder, name, groups={name: given}, replicas=replicas))
        for id in config.ids:
            begin_with_backup(backup, config, name, id)
        write_config(folder, config)
    return (
        f"the group {name!r} begins at position {backup.head.position}, with {replicas} replicas: "
        f"coterie serve --name {name} runs it"
    )
