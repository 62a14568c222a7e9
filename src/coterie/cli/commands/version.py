"""`coterie version`: what to put into a bug report."""

import argparse

from coterie.cli.parser import Parser, Subparsers


def add_parser(subparsers: Subparsers) -> Parser:
    """Describe the command."""
    return subparsers.add_parser("version", help="say which version of what is running")


def run(_args: argparse.Namespace) -> int:
    """Print our version, and the versions of what we stand on."""
    import platform  # noqa: PLC0415 - start-up stays fast
    from importlib import metadata  # noqa: PLC0415

    print(f"coterie {metadata.version('coterie')}")
    print(f"{platform.python_implementation()} {platform.python_version()}")
    for package in ("msgspec", "uvloop"):
        try:
            print(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            print(f"{package} is not installed")
    return 0
