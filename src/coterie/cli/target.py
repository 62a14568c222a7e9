"""Which group a command speaks of: NAME, and where it is found.

By default in the state folder, under the name by which `coterie serve` runs it; with `--config` in
a configuration file; with `--address` at an address, which is all that a client needs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import argparse
    import ssl

    from coterie.cli.parser import Parser
    from coterie.service.config import ClusterConfig
    from coterie.service.operate.control import ProcessSeen


def add_target(parser: Parser, *, may_be_address: bool) -> None:
    """Add the options that say which group is meant."""
    parser.add_argument("name", metavar="NAME", help="the name of the group")
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="the configuration file of the group, if 'coterie serve' does not run it here",
    )
    if may_be_address:
        parser.add_argument(
            "--address",
            action="append",
            metavar="HOST:PORT",
            help="where a replica takes clients; may be given several times",
        )
        parser.add_argument(
            "--client",
            metavar="NAME",
            default="",
            help="which client of the configuration to be (default: the first whose secret or "
            "certificate is here)",
        )
        parser.add_argument(
            "--secret-file",
            type=Path,
            metavar="FILE",
            help="with --address: the secret that the group asks for, if it does",
        )
        parser.add_argument(
            "--tls",
            nargs=3,
            type=Path,
            metavar=("CERTIFICATE", "KEY", "AUTHORITY"),
            help="with --address: files to show a certificate, and to check that of the group",
        )


class KnownGroup(NamedTuple):
    """A group, and what is known of it without asking anybody."""

    group: str
    addresses: dict[str, str]
    """Where replicas take clients, by their ids; by the addresses where the ids are not known."""
    config: ClusterConfig | None = None
    folder: Path | None = None
    """The folder of the group, if `coterie serve` runs it on this machine."""
    secret: bytes | None = None
    tls: ssl.SSLContext | None = None

    def again(self) -> str:
        """Give the options that lead to the same group, for advice."""
        if self.folder is not None or self.config is None:
            return self.group
        return f"{self.group} --config FILE"

    def how_to_serve(self) -> str:
        """Say that nobody serves the group, and what to do about it."""
        assert self.config is not None, "a folder has a configuration"
        return f"it is not being served: coterie serve --name {self.config.cluster}"


def processes_of(target: KnownGroup) -> list[ProcessSeen] | None:
    """Ask the supervisor how its processes are; None if nobody serves the group on this machine.

    Where a group is not served from here, or its supervisor is too busy to answer, none is seen.
    """
    from coterie.kernel.errors import CoterieError  # noqa: PLC0415 -- start-up stays fast
    from coterie.service.operate.control import Look, NobodyThere, give_order  # noqa: PLC0415

    if target.folder is None:
        return []
    try:
        return give_order(target.folder, Look()).processes
    except NobodyThere:
        return None
    except CoterieError:
        return []


def find_target(args: argparse.Namespace) -> KnownGroup:
    """Find the group; raises `CoterieError` with what to do."""
    from coterie.service.config import ConfigError  # noqa: PLC0415 -- start-up stays fast

    target = find_targets(args)[0]
    if target.group != args.name:
        assert target.config is not None, "only a configuration has several groups"
        known = ", ".join(target.config.groups)
        raise ConfigError(f"{args.name!r} is several groups together: say which of {known}")
    return target


def find_targets(args: argparse.Namespace) -> list[KnownGroup]:
    """Find the group, or all that are served together under a name."""
    from coterie.runtime.address import parse_address  # noqa: PLC0415 -- start-up stays fast
    from coterie.runtime.certificates import TlsFiles  # noqa: PLC0415
    from coterie.runtime.security import read_secret  # noqa: PLC0415
    from coterie.service.config import ConfigError, load_config  # noqa: PLC0415
    from coterie.service.security import find_credential  # noqa: PLC0415
    from coterie.service.state_folder import CONFIG, find_group  # noqa: PLC0415

    addresses: list[str] = getattr(args, "address", None) or []
    if addresses:
        if args.client:
            raise ConfigError("--client goes with a configuration: an address has --secret-file")
        return [
            KnownGroup(
                group=args.name,
                addresses={str(parse_address(each)): each for each in addresses},
                secret=None if args.secret_file is None else read_secret(args.secret_file),
                tls=None if args.tls is None else TlsFiles(*args.tls).client,
            )
        ]
    if getattr(args, "secret_file", None) or getattr(args, "tls", None):
        raise ConfigError("--secret-file and --tls go with --address: a configuration has its own")
    folder = find_group(args.name) if args.config is None else None
    path = args.config if folder is None else folder / CONFIG
    config = load_config(path)
    if args.name not in {config.cluster, *config.groups}:
        known = ", ".join(config.groups)
        raise ConfigError(f"{path} has no group {args.name!r}; it has {known}")
    credential = find_credential(config, getattr(args, "client", ""))
    return [
        KnownGroup(
            group=group,
            addresses={
                id: str(config.replicas[id].client_address) for id in sorted(config.everyone(group))
            },
            config=config,
            folder=folder,
            secret=credential.secret,
            tls=credential.tls,
        )
        for group in ([args.name] if args.name in config.groups else config.groups)
    ]
