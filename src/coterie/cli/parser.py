"""An `argparse` parser whose complaints are one sentence, with the closest word that exists."""

import argparse
import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, TypeAlias

from coterie.cli.errors import UsageError

# What `add_subparsers` returns; argparse gives it no public name.
Subparsers: TypeAlias = "argparse._SubParsersAction[Parser]"  # noqa: SLF001


def suggestion(word: str, known: Iterable[str]) -> str:
    """Say which known word is close to *word*, as the end of a sentence; or say nothing."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


class Parser(argparse.ArgumentParser):
    """Raises `UsageError` where `argparse` would print its usage and exit.

    Subcommands get a parser of the same class, so the rules hold on every level.
    """

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - handed on as they are
        # An abbreviated option that works today would be ambiguous after the next new option.
        super().__init__(**{"allow_abbrev": False, **settings})
        self.takes_rest: Callable[[argparse.Namespace, list[str]], None] | None = None
        """What takes words that come after an option; argparse itself has no place for them."""

    def error(self, message: str) -> NoReturn:
        """Refuse a command line for a reason of argparse's own."""
        raise UsageError(f"{message} ('{self.prog} --help' explains)")

    def _check_value(self, action: argparse.Action, value: Any) -> None:  # noqa: ANN401
        """Refuse a word outside a closed choice, a command among them."""
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        what = "command" if isinstance(action.choices, dict) else "/".join(action.option_strings)
        hint = suggestion(str(value), known) or f" (choose from {', '.join(known)})"
        raise UsageError(f"'{self.prog}' has no {what} '{value}'{hint}")

    # The override is narrower than argparse's overloads on purpose: nobody here brings their own
    # namespace class.
    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Refuse what is left over here, where it is known which options would have fitted."""
        parsed, left_over = super().parse_known_args(args, namespace)
        if left_over and self.takes_rest is not None and not left_over[0].startswith("-"):
            self.takes_rest(parsed, left_over)
            left_over = []
        if left_over:
            word = left_over[0]
            if word.startswith("-"):
                word = word.partition("=")[0]
                hint = suggestion(word, self._option_string_actions)
                raise UsageError(f"'{self.prog}' has no option '{word}'{hint}")
            raise UsageError(f"'{self.prog}' does not expect '{word}'")
        return parsed, left_over
