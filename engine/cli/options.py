"""The parser of the command line: made from the fields of requests, with errors of one line."""

import argparse
import os
import re
import sys
from argparse import Namespace
from collections.abc import Collection
from dataclasses import MISSING
from typing import Any, NoReturn

from engine.errors import one_line
from engine.requests.base import Request
from engine.requests.fields import Option, option_name, options

METAVARS = {  # of a field, or of all fields of a kind; other texts have their field's name
    "number": "N", "path": "FILE", "cache": "DIR", "task_data": "DIR", "shots": "COUNTS",
    "mask": "COMPONENTS", "base_mask": "COMPONENTS", "second_mask": "COMPONENTS", "prune_heads": "PERCENT",
    "prune_ffns": "PERCENT", "prune_layers": "PERCENT", "head_levels": "LEVELS", "ffn_levels": "LEVELS",
    "from_task": "TASK", "source_task": "TASK", "aggregate_tasks": "TASKS", "against": "MODEL", "other_model": "MODEL",
    "hub_id": "ID", "quantities": "NAMES", "where": "STORE", "place": "PLACES", "period": "A-B",
}  # fmt: skip


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line and a hint."""

    def error(self, message: str) -> NoReturn:
        message = one_line(re.sub(r"^argument (\S+): (?=\1)", "", message))  # named once
        print(f"{self.prog}: {message}; `{self.prog} --help` lists the options", file=sys.stderr)
        raise SystemExit(2)

    def add_number(
        self, option: str, ends: tuple[float, float], help: str, kind: type[int] | type[float] = int, **kwargs: Any
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

        self.add_argument(option, type=number, help=help, **kwargs)

    def add_choice(self, option: str, names: Collection[str], help: str, **kwargs: Any) -> None:
        """An option that takes one of `names`: a table of the engine's, so that help and check cannot differ."""

        def known(name: str) -> str:
            if name not in names:
                raise argparse.ArgumentTypeError(f"{name!r} is unknown; choose one of {', '.join(names)}")
            return name

        self.add_argument(option, type=known, choices=tuple(names), help=help, **kwargs)

    def add_request(self, request: type[Request]) -> None:
        """Adds the options and positional arguments of a request, and its class to the parsed result."""
        for name, (field, option) in options(request).items():
            _add(self, name, option, field.default)
        self.set_defaults(request=request)


def _add(parser: Parser, name: str, option: Option, default: Any) -> None:
    """Adds a field to a parser."""
    is_required = option.is_required or default is MISSING
    kwargs: dict[str, Any] = {"help": option.help} | ({} if default is MISSING else {"default": default})
    by_name = METAVARS.get(name) if option.kind in ("text", "path") else None
    if metavar := option.metavar or by_name or METAVARS.get(option.kind):
        kwargs["metavar"] = metavar
    if option.is_position:
        _add_as(parser, name, option, kwargs | ({} if is_required else {"nargs": "?"}))
        return
    kwargs |= {"dest": name} | ({"required": True} if is_required else {})
    _add_as(parser, option_name(name, option), option, kwargs)


def _add_as(parser: Parser, word: str, option: Option, kwargs: dict[str, Any]) -> None:
    if option.kind == "number":
        parser.add_number(word, option.ends, kind=option.of, **kwargs)
    elif option.kind == "choice":
        parser.add_choice(word, option.names, **kwargs)
    elif option.kind in ("flag", "switch"):
        parser.add_argument(
            word, action=argparse.BooleanOptionalAction if option.kind == "switch" else "store_true", **kwargs
        )
    else:
        parse = os.path.expanduser if option.kind == "path" else option.parse
        kwargs |= {"nargs": "?", "const": option.alone} if option.alone else {}
        parser.add_argument(word, type=parse, **kwargs)


def request_of(parsed: Namespace) -> Request:
    """The request that was parsed."""
    return parsed.request(**{name: getattr(parsed, name) for name in options(parsed.request)})
