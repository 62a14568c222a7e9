"""`coterie completion`: what a shell needs to complete our commands, options and group names.

The script is made from the parser itself, so it knows what this release knows.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.cli.parser import Parser, Subparsers

SHELLS = ("bash", "fish", "zsh")
GROUPS = '"${XDG_STATE_HOME:-$HOME/.local/state}/coterie"'


def add_parser(subparsers: Subparsers) -> Parser:
    """Describe the command."""
    parser = subparsers.add_parser(
        "completion",
        help="print a script that completes commands in your shell",
        description="Print a script for your shell. For bash: "
        "source <(coterie completion bash); for zsh the same with zsh; for fish: "
        "coterie completion fish | source",
    )
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    from coterie.cli.main import build_parser  # noqa: PLC0415 -- it imports us

    commands = _commands(build_parser())
    script = _fish(commands) if args.shell == "fish" else _bash(commands)
    if args.shell == "zsh":
        script = "autoload -Uz compinit bashcompinit && compinit && bashcompinit\n" + script
    print(script, end="")
    return 0


def _commands(parser: Parser) -> dict[str, tuple[str, Parser]]:
    """Give every command with its help and its parser."""
    [action] = [
        action
        for action in parser._actions  # noqa: SLF001 -- argparse has no other way to look inside
        if isinstance(action, argparse._SubParsersAction)  # noqa: SLF001
    ]
    helps = {each.dest: each.help or "" for each in action._choices_actions}  # noqa: SLF001
    return {name: (helps.get(name, ""), each) for name, each in action.choices.items()}


def _options(parser: Parser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # noqa: SLF001
        if any(option.startswith("--") for option in action.option_strings):
            yield action


def _long(action: argparse.Action) -> str:
    return next(option for option in action.option_strings if option.startswith("--"))


def _words(parser: Parser) -> list[str]:
    """Give the words that a positional argument of a command may be."""
    words: list[str] = []
    for action in parser._actions:  # noqa: SLF001
        if not action.option_strings and action.choices is not None:
            words += map(str, action.choices)
    return words


def _takes_name(parser: Parser) -> bool:
    return any(
        action.dest == "name" and not action.option_strings
        for action in parser._actions  # noqa: SLF001
    )


def _bash(commands: dict[str, tuple[str, Parser]]) -> str:
    cases = []
    for name, (_, parser) in commands.items():
        values = "".join(
            f'            {_long(action)}) words="{" ".join(map(str, action.choices))}" ;;\n'
            for action in _options(parser)
            if action.choices is not None
        )
        options = " ".join(_long(action) for action in _options(parser))
        names = f" $(command ls {GROUPS} 2>/dev/null)" if _takes_name(parser) else ""
        words = " ".join([options, *_words(parser)])
        cases.append(
            f'        {name})\n            words="{words}{names}"\n'
            + (f"            case $previous in\n{values}            esac\n" if values else "")
            + "            ;;\n"
        )
    return (
        "_coterie() {\n"
        "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} words\n"
        '    if [ "$COMP_CWORD" -eq 1 ]; then\n'
        f'        words="{" ".join(commands)} --help"\n'
        "    else\n"
        "        case ${COMP_WORDS[1]} in\n" + "".join(cases) + "        esac\n"
        "    fi\n"
        '    COMPREPLY=($(compgen -W "$words" -- "$current"))\n'
        "}\n"
        "complete -o default -F _coterie coterie\n"
    )


def _fish(commands: dict[str, tuple[str, Parser]]) -> str:
    lines = []
    for name, (help_, parser) in commands.items():
        inside = f"complete -c coterie -n '__fish_seen_subcommand_from {name}'"
        lines.append(
            f"complete -c coterie -n __fish_use_subcommand -f -a {name} -d {_quote(help_)}"
        )
        for action in _options(parser):
            line = f"{inside} -l {_long(action).removeprefix('--')} -d {_quote(_help(action))}"
            if action.choices is not None:
                line += f" -x -a {_quote(' '.join(map(str, action.choices)))}"
            lines.append(line)
        if _takes_name(parser):
            groups = "begin; set -q XDG_STATE_HOME; or set -l XDG_STATE_HOME ~/.local/state; "
            groups += "command ls $XDG_STATE_HOME/coterie 2>/dev/null; end"
            lines.append(f"{inside} -f -a {_quote(f'({groups})')}")
        if words := _words(parser):
            lines.append(f"{inside} -f -a {_quote(' '.join(words))}")
    return "\n".join(lines) + "\n"


def _help(action: argparse.Action) -> str:
    # What argparse itself does when it prints the help.
    return (action.help or "") % vars(action)


def _quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
