"""The options that commands share: the parents of their parsers, and what was given as the engine wants it."""

import argparse
import os
import re
import sys
from argparse import Namespace
from collections.abc import Collection, Sequence
from typing import Any, NoReturn

from engine.errors import UsageError, one_line
from engine.importance.layers import LAYERS_BY
from engine.importance.rankings_of import OF_ONE_TASK
from engine.models.loading import PRECISIONS
from engine.placement.placement import PLACE_HELP

MOST, MOST_SEED, MOST_THREADS = 1_000_000, 2**31 - 1, 1024
PATHS = {"cache", "claims", "items", "out", "plan", "save", "table", "task_data", "text"}


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line and a hint."""

    def error(self, message: str) -> NoReturn:
        message = one_line(re.sub(r"^argument (\S+): (?=\1)", "", message))  # named once
        print(f"{self.prog}: {message}; `{self.prog} --help` lists the options", file=sys.stderr)
        raise SystemExit(2)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As of any parser, with `~` in paths expanded: a shell leaves it alone in `--out=~/scores.csv`."""
        options, rest = super().parse_known_args(args, namespace)
        for name in PATHS & vars(options).keys():
            if path := getattr(options, name):
                setattr(options, name, os.path.expanduser(path))
        return options, rest

    def add_number(
        self, option: str, ends: tuple[float, float], help: str, kind: type[int] | type[float] = int, **more: Any
    ) -> None:
        """An option that takes a number between two ends."""
        what, (low, high) = "a whole number" if kind is int else "a number", ends

        def number(text: str) -> float:
            try:
                value = kind(text)
            except ValueError as error:
                raise argparse.ArgumentTypeError(f"{option} is {text!r}; give {what}") from error
            if not low <= value <= high:  # nan is beyond both
                raise argparse.ArgumentTypeError(f"{option} is {text}; choose {low:,} to {high:,}")
            return value

        self.add_argument(option, type=number, help=help, **more)

    def add_choice(self, option: str, names: Collection[str], help: str, **more: Any) -> None:
        """An option that takes one of `names`: a table of the engine's, so that help and check cannot differ."""

        def known(name: str) -> str:
            if name not in names:
                raise argparse.ArgumentTypeError(f"{name!r} is unknown; choose one of {', '.join(names)}")
            return name

        self.add_argument(option, type=known, choices=tuple(names), help=help, **more)


def shared() -> Parser:
    """The options of every command."""
    parent = Parser(add_help=False)
    default = "HEADROOM_CACHE, then cache/data in a clone, the user's cache folder where headroom is installed"
    parent.add_argument("--cache", help=f"folder of the result store (default: {default})")
    parent.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    return parent


def model() -> Parser:
    """Which model, and how it is run."""
    parent = Parser(add_help=False)
    about = "demo, a hub id such as facebook/opt-125m, a folder, or a snapshot of a run such as RUN@step512"
    parent.add_argument("--model", default="demo", help=about)
    parent.add_argument("--revision", help="branch, tag or commit of a hub model; the same as --model ID@REVISION")
    about = "fetch from the hub what is not on this computer, model or rows (default: asks on a terminal, else refuses)"
    parent.add_argument("--download", action="store_true", help=about)
    parent.add_choice("--precision", PRECISIONS, "of the weights (default: int8)", default="int8")
    help = "bitsandbytes outlier threshold (6.0)"
    parent.add_number("--int8-threshold", (0, MOST), help, float, default=6.0)
    parent.add_argument(
        "--bos",
        action=argparse.BooleanOptionalAction,
        help="beginning-of-sequence token in front (default: as the tokenizer; OPT: yes)",
    )
    parent.add_argument("--place", metavar="PLACES", help=PLACE_HELP)
    parent.add_number("--threads", (1, MOST_THREADS), "CPU threads (default: torch's choice)")
    return parent


def pruned() -> Parser:
    """What is pruned: levels by a ranking, and a mask."""
    parent = Parser(add_help=False)
    parent.add_argument("--mask", default="", help='what to prune besides, such as "L3H5 L4H* F7 F2-5 B9 keep L1H0"')
    parent.add_argument("--prune-heads", default="0", help="percent of heads to prune by --ranking")
    parent.add_argument("--prune-ffns", default="0", help="percent of FFNs to prune by --ranking")
    parent.add_choice("--ranking", OF_ONE_TASK, "what goes first (default: importance)", default="importance")
    parent.add_argument("--prune-layers", default="0", help="percent of whole layers to drop by --layers-by")
    by = "which layers go first: those of least block influence (default), without which least accuracy is lost "
    by += "(oracle), the same measured anew after each (greedy), the deepest, or random ones"
    parent.add_choice("--layers-by", LAYERS_BY, by, default="influence")
    parent.add_number("--ranking-questions", (1, MOST), "train questions behind the ranking (default: all)")
    parent.add_number("--seed", (0, MOST_SEED), "seed of the random ranking", default=0)
    return parent


def data() -> Parser:
    """Where tasks come from."""
    parent = Parser(add_help=False)
    parent.add_argument(
        "--task-data", help="folder with <task>/train.jsonl and validation.jsonl (or HEADROOM_TASK_DATA)"
    )
    return parent


def spec_of(options: Namespace) -> Any:
    """Which model, as the options name it."""
    from engine.models.loading import LoadSpec

    return LoadSpec(options.model, options.precision, options.int8_threshold, options.revision)


def data_dir(options: Namespace) -> str | None:
    """The folder with task data, or None."""
    return options.task_data or os.environ.get("HEADROOM_TASK_DATA") or None


def names_of(text: str | None, default: Sequence[str]) -> list[str]:
    """The names in a list separated by commas; each once."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip())) if text else list(default)


def numbers_of(option: str, text: str) -> list[int]:
    """The whole numbers in a list separated by commas."""
    try:
        return [int(number) for number in names_of(text, ())]
    except ValueError as error:
        raise UsageError(f"{option} {text!r} is no list of whole numbers; write it like 0,1,5") from error
