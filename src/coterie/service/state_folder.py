"""Where the groups of this machine are found by their names.

A group that `coterie serve` runs has a folder: its configuration file, a folder for each replica,
and the control socket of its supervisor. It stands in the *state folder* of the user,
$XDG_STATE_HOME/coterie (by default ~/.local/state/coterie), under the name of the group, or a
symbolic link does that leads to where `--dir` put it. Groups that are served together have one
folder, under the name of them all, and are found by their own names, too.

    STATE/seats/group.toml     written last: when it is there, the group has been founded
    STATE/seats/secrets/       what its replicas and its owner show, for nobody else to read
    STATE/seats/a/             what replica a keeps: its journals, its lock, its control socket
    STATE/seats/serve.log      what a detached supervisor says
"""

from __future__ import annotations

from pathlib import Path

from coterie.journal.disk import make_private_folder
from coterie.kernel.errors import CoterieError
from coterie.runtime.local_groups import CONFIG, state_folder
from coterie.service.config import NAME, ClusterConfig, encode_config, load_config

__all__ = [
    "CONFIG",
    "LOG",
    "NoSuchGroup",
    "check_name",
    "find_group",
    "group_names",
    "place_group",
    "read_config",
    "state_folder",
    "write_config",
]

LOG = "serve.log"


class NoSuchGroup(CoterieError):
    """No group of this name is known on this machine; the message says which are."""


def group_names() -> list[str]:
    """Give the names of all groups that were founded on this machine."""
    return sorted({name for folder in _folders() for name in (folder.name, *_groups_in(folder))})


def _folders() -> list[Path]:
    folder = state_folder()
    if not folder.is_dir():
        return []
    return sorted(entry for entry in folder.iterdir() if (entry / CONFIG).is_file())


def _groups_in(folder: Path) -> list[str]:
    """Give the groups of a folder, none if its file cannot be read: whoever uses it is told."""
    try:
        return list(read_config(folder).groups)
    except CoterieError:
        return []


def check_name(name: str) -> None:
    """Refuse what could not be the name of a folder."""
    if not NAME.fullmatch(name):
        raise CoterieError(
            f"{name!r} is no name: use up to 64 letters, digits, dots, hyphens and underscores, "
            "beginning with a letter or digit"
        )


def find_group(name: str) -> Path:
    """Give the folder of a group, by its name or that of all that are served together.

    Raises `NoSuchGroup`, also if several of that name are served with others.
    """
    check_name(name)
    folder = state_folder() / name
    if (folder / CONFIG).is_file():
        return folder.resolve()
    holding = [each for each in _folders() if name in _groups_in(each)]
    if len(holding) == 1:
        return holding[0].resolve()
    if holding:
        where = ", ".join(each.name for each in holding)
        raise NoSuchGroup(
            f"there are several groups {name!r}, in {where}: say which by --config "
            f"{holding[0] / CONFIG}"
        )
    if folder.is_symlink() and not folder.exists():
        raise NoSuchGroup(
            f"the folder of group {name!r}, {folder.readlink()}, is gone: "
            f"put it back, or remove {folder}"
        )
    names = ", ".join(group_names())
    there = f"there is {names}" if names else "there is none yet (coterie serve starts one)"
    raise NoSuchGroup(f"no group {name!r} was served on this machine; {there}")


def place_group(name: str, directory: Path | None) -> Path:
    """Make the folder of a group, in *directory* if one is given; give it."""
    check_name(name)
    folder = state_folder() / name
    try:
        if directory is None or directory.absolute() == folder:
            make_private_folder(folder)
            return folder.resolve()
        make_private_folder(directory)
        target = directory.resolve()
        make_private_folder(folder.parent)
        if folder.is_symlink() and not folder.exists():
            folder.unlink()
        if not folder.exists():
            folder.symlink_to(target, target_is_directory=True)
    except OSError as error:
        raise CoterieError(f"{error.filename} cannot be used: {error.strerror}") from None
    if folder.resolve() != target:
        raise CoterieError(
            f"the group {name!r} is in {folder.resolve()} already: leave out --dir to go on with "
            "it, or choose another --name"
        )
    return target


def write_config(folder: Path, config: ClusterConfig) -> None:
    """Write the configuration file of a group, all of it or nothing."""
    draft = folder / f"{CONFIG}.draft"
    draft.write_text(encode_config(config), encoding="utf-8")
    draft.replace(folder / CONFIG)


def read_config(folder: Path) -> ClusterConfig:
    """Read the configuration file of a group; raises `ConfigError`."""
    return load_config(folder / CONFIG)
