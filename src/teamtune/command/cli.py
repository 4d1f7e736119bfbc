"""The command `teamtune fit|validate|test|predict`: what it says and how it ends.

Files and options are read before torch and Lightning are imported, which takes seconds.
"""

import logging
import os
import re
import sys
import warnings
from collections.abc import Sequence
from io import TextIOWrapper
from typing import TYPE_CHECKING, NoReturn

from jsonargparse import ArgumentError, set_parsing_settings

from teamtune.command.allocator import keep_freed_memory
from teamtune.command.arguments import SUBCOMMANDS, Arguments, read_arguments
from teamtune.errors import ConfigError

if TYPE_CHECKING:
    from lightning import Callback

HELP = f"""usage: teamtune {{{",".join(SUBCOMMANDS)}}} [--config FILE ...] [--key value ...]

  fit       trains a team
  validate  plays the evaluation tasks
  test      plays them once more, for a number to report
  predict   plays them and writes every rollout to a file

teamtune SUBCOMMAND --help explains each key, --print_config shows the merged configuration.
"""


def run(args: Sequence[str], first: "Callback | None" = None) -> None:
    """Runs the command with `args`, without the program's name. Raises what `main` prints.

    Args:
        args: The command line.
        first: A callback that goes before all others.
    """
    _run(read_arguments(args), first)


def _run(arguments: Arguments, first: "Callback | None" = None) -> None:
    if arguments.subcommand is None:
        print(HELP, end="")
        sys.exit()
    from teamtune.command.team_cli import TeamCLI

    quiet()
    set_parsing_settings(docstring_parse_attribute_docstrings=arguments.asks_help)  # it is slow
    TeamCLI(arguments, first)


def quiet() -> None:
    """Silences what libraries say on every run and nobody can act upon; warnings stay."""
    for name in ("lightning.pytorch", "lightning.fabric", "lightning"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in (".*LeafSpec.*", ".*does not have many workers.*", ".*litlogger.*"):
        warnings.filterwarnings("ignore", message=message)
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()


def main() -> None:
    """Entry point. A configuration that cannot work is one line and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a sign ends no run
    keep_freed_memory()
    try:
        arguments = read_arguments(sys.argv[1:])
    except ConfigError as error:
        _refuse(error)
    from lightning.pytorch.utilities.exceptions import MisconfigurationException

    from teamtune.command.interrupts import Interrupts

    interrupts = Interrupts()
    try:
        _run(arguments, interrupts)
    except (ConfigError, ArgumentError, MisconfigurationException) as error:
        _refuse(error)
    except (KeyboardInterrupt, SystemExit):
        interrupts.close()
        if interrupts.code is None:
            raise
        _say("teamtune: interrupted; --ckpt_path <run folder>/checkpoints/last.ckpt resumes a fit")
        sys.exit(interrupts.code)


def _refuse(error: Exception) -> NoReturn:
    _say(f"teamtune: error: {one_line(error)}")
    sys.exit(2)


def _say(text: str) -> None:
    if os.environ.get("LOCAL_RANK", "0") == "0" and os.environ.get("RANK", "0") == "0":
        print(text, file=sys.stderr)


def one_line(error: Exception) -> str:
    """An error's message without line breaks.

    Of a parser's list of all types that did not match, only what it says of the first one is kept.
    """
    text = str(error)
    key = re.match(r'(?:.*\n)??\s*Parser key "(.+?)":\n', text)
    _, listed, members = text.partition("Errors:\n")
    if key:
        text = f"{key[1]}: {text[key.end() :]}"
    if key and listed:
        first = re.split(r"\n\s*- |\n\s*Given value", "\n" + members)[1]
        text = f"{key[1]}: {first}"
    return " ".join(text.split())
