import argparse
import subprocess
import sys
from importlib import import_module

import pytest

from coterie.cli import main as cli
from coterie.cli.commands import version
from coterie.cli.parser import Parser


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["verison"], "'coterie' has no command 'verison'; did you mean 'version'?"),
        (["--hepl"], "'coterie' has no option '--hepl'; did you mean '--help'?"),
        (["version", "--hel=1"], "'coterie version' has no option '--hel'; did you mean '--help'?"),
        (["version", "--xyzzy"], "'coterie version' has no option '--xyzzy'"),
        (["version", "twice"], "'coterie version' does not expect 'twice'"),
    ],
)
def test_misuse_ends_in_one_sentence(
    argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(argv) == 2
    assert capsys.readouterr() == ("", f"coterie: {sentence}\n")


def test_a_command_like_no_other_is_answered_with_the_choice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["xyzzy"]) == 2
    choice = ", ".join(cli.COMMANDS)
    assert capsys.readouterr().err == (
        f"coterie: 'coterie' has no command 'xyzzy' (choose from {choice})\n"
    )


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "commands:" in capsys.readouterr().err


def test_version_names_what_a_bug_report_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["version"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["coterie", "CPython", "msgspec", "uvloop"]


@pytest.mark.parametrize(("end", "status"), [(KeyboardInterrupt, 130), (BrokenPipeError, 141)])
def test_an_early_end_is_quiet(end: type[BaseException], status: int) -> None:
    """In a process of its own, because the interpreter has its say on the way out, too."""
    script = (
        "import sys; from coterie.cli import main; from coterie.cli.commands import version\n"
        f"def run(args): print('partly done'); raise {end.__name__}\n"
        "version.run = run; sys.exit(main.main(['version']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (status, b"")


def test_a_status_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_args: argparse.Namespace) -> int:
        return 7

    monkeypatch.setattr(version, "run", run)
    assert cli.main(["version"]) == 7


def test_every_command_bears_the_name_of_its_module() -> None:
    subparsers = argparse.ArgumentParser().add_subparsers(parser_class=Parser)
    for name in cli.COMMANDS:
        import_module(f"coterie.cli.commands.{name}").add_parser(subparsers)
    assert tuple(subparsers.choices) == cli.COMMANDS
