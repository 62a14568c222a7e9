"""What `coterie serve` is to run: found on this machine, or founded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from coterie.cli.commands.serve import REPLICAS
from coterie.journal.format import Sync
from coterie.kernel.errors import CoterieError
from coterie.service.config import GroupConfig, check_group, encode_config, parse_config
from coterie.service.engines import DEFAULT_FAMILY
from coterie.service.folder import lock_folder
from coterie.service.operate.founding import found, make_config, protect
from coterie.service.operate.members import have_changed
from coterie.service.process import load_object, load_objects
from coterie.service.state_folder import CONFIG, check_name, place_group, read_config, write_config

if TYPE_CHECKING:
    import argparse

    from coterie.objects import Definition
    from coterie.service.config import ClusterConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Groups that can be started: founded, and their classes found."""

    name: str
    folder: Path
    config: ClusterConfig
    definitions: dict[str, Definition]
    is_new: bool


def prepare(args: argparse.Namespace) -> Served:
    """Find the groups, or found them; raises `CoterieError` with what is wrong."""
    classes = _classes(args)
    name = _name(args, classes)
    asked = {
        group: GroupConfig(
            class_=where,
            engine=args.engine or DEFAULT_FAMILY,
            stack=args.stack or "",
            sync=Sync(args.sync or "none"),
        )
        for group, where in classes.items()
    }
    for group in asked.values():  # before there is a trace of it
        check_group(group)
        load_object(group)
    folder = place_group(name, args.dir)
    with lock_folder(folder, f"the group {name!r} is being served already: coterie stop {name}"):
        is_new = not (folder / CONFIG).exists()
        if is_new:
            if not asked:
                raise CoterieError(
                    f"there is no group {name!r} yet, so say what it is: coterie serve MODULE:CLASS"
                )
            replicas = REPLICAS if args.replicas is None else args.replicas
            config = make_config(folder, name, groups=asked, replicas=replicas)
            config = protect(folder, config)
            found(folder, config)
        else:
            config = _go_on(folder, args, classes)
    return Served(
        name=name,
        folder=folder,
        config=config,
        definitions=load_objects(config),
        is_new=is_new,
    )


def _classes(args: argparse.Namespace) -> dict[str, str]:
    """Give the classes asked for, by the names of their groups."""
    classes: dict[str, str] = {}
    for word in args.classes:
        name, separator, where = word.partition("=")
        if not separator:
            where = word
            if len(args.classes) > 1:
                raise CoterieError(
                    f"{word!r} is one of several groups, so give it a name: eu={word}"
                )
            name = str(args.name or where.rpartition(":")[2].lower())
        check_name(name)
        if name in classes:
            raise CoterieError(f"two groups are called {name!r}: give one another name")
        classes[name] = _portable(where)
    return classes


def _name(args: argparse.Namespace, classes: dict[str, str]) -> str:
    if args.name is not None:
        return str(args.name)
    if not classes:
        raise CoterieError("say what to serve: MODULE:CLASS, or --name of a group that was served")
    return "-".join(classes)


def _portable(cls: str) -> str:
    """Give the place of a class so that it is found from anywhere, as far as it is a file."""
    module, _, name = cls.rpartition(":")
    return f"{Path(module).absolute()}:{name}" if module.endswith(".py") else cls


def _go_on(folder: Path, args: argparse.Namespace, classes: dict[str, str]) -> ClusterConfig:
    """Give the configuration of groups that were founded before, with what may change changed."""
    config = read_config(folder)
    name = config.cluster
    other = "leave {} out, or found another with a new --name"
    # Whoever has members come and go need not change the command by which the group is served.
    is_as_founded = not have_changed(folder, config)
    if is_as_founded and args.replicas not in {None, len(config.replicas)}:
        raise CoterieError(
            f"the group {name!r} was founded with {len(config.replicas)} replicas, and "
            f"goes on with them: {other.format('--replicas')}"
        )
    changed = {}
    for group, before in config.groups.items():
        if args.engine not in {None, before.engine}:
            raise CoterieError(
                f"the group {group!r} was founded with {before.kept_by}, and goes on with it: "
                f"{other.format('--engine')}"
            )
        if args.stack is not None and args.stack.upper() != before.kept_by.upper():
            raise CoterieError(
                f"the group {group!r} was founded with {before.kept_by}, and goes on with it: "
                f"{other.format('--stack')}"
            )
        changed[group] = msgspec.structs.replace(
            before,
            class_=classes.pop(group, before.class_),
            sync=before.sync if args.sync is None else Sync(args.sync),
        )
    if classes:
        known = ", ".join(config.groups)
        raise CoterieError(
            f"{name!r} was founded with {known}, and goes on with them: found {', '.join(classes)} "
            "under another --name"
        )
    # A group that an earlier release founded was open to all users of the machine.
    protected = protect(folder, msgspec.structs.replace(config, groups=changed))
    if protected != config:
        config = parse_config(encode_config(protected), source=str(folder / CONFIG))
        write_config(folder, config)
    return config
