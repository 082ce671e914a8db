"""The fields of requests: what each is called on the command line, what it says, and which values it takes;
and a request written out: as the words of a shell command, and as a short Python program.

A field of a request is written `shots: int = number(0, (0, 32), "examples (0)")`, its default first (MISSING: it
has to be given). Its `Option` is in the field's metadata: the parser, the documentation and the shown commands are made
from it.
"""

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache as once
from typing import Any, get_args, get_type_hints

import msgspec
import numpy as np

from engine.errors import UsageError

KEY = "option"
WIDTH = 100  # of a line of a program
SHOWN = 80  # characters of a value in an error


@dataclass(frozen=True)
class Option:
    """How a field of a request is given on the command line.

    `help`: what it says
    `kind`: number, choice, text, path (a text in which `~` is the user's folder), flag or switch (on, off or None)
    `ends`, `of`: of a number, the lowest and the highest, and int or float
    `names`: of a choice, what can be chosen
    `is_required`: the command line refuses to do without it, though a program may leave it out
    `is_position`: it is given by its place, without a name
    `is_output`: it says how results are delivered, so that a program that prints them leaves it out
    `endings`: of a file that is written, what its name may end in (none: anything)
    `name`: the name of the option where it is not the field's
    `metavar`: what stands for its value in help texts
    `alone`: of a text, the value of its option without one
    `what`: what a text names: a task, tasks, a passage, or a prompt ("": anything else)
    `example`: the initial value in a form, unless there is a default; for tasks, how many
    `parse`, `write`: of a text, from the words to the value (ArgumentTypeError: they cannot be read) and back
    """

    help: str
    kind: str
    ends: tuple[float, float] = (0, 0)
    of: type = int
    names: Collection[str] = ()
    is_required: bool = False
    is_position: bool = False
    is_output: bool = False
    endings: tuple[str, ...] = ()
    name: str = ""
    metavar: str | None = None
    alone: str = ""
    what: str = ""
    example: str = ""
    parse: Callable[[str], Any] = str
    write: Callable[[Any], str] = str


def number(default: Any, ends: tuple[float, float], help: str, of: type[int] | type[float] = int, **kwargs: Any) -> Any:
    """A field whose value is a number between two ends."""
    return _field(Option(help, "number", ends, of, **kwargs), default)


def choice(default: Any, names: Collection[str], help: str, **kwargs: Any) -> Any:
    """A field whose value is one of `names`: a table of the engine's, so that help and check cannot differ."""
    return _field(Option(help, "choice", names=names, **kwargs), default)


def string(default: Any, help: str, **kwargs: Any) -> Any:
    """A field whose value is text, or what `parse` makes of it."""
    return _field(Option(help, "text", **kwargs), default)


def path(default: Any, help: str, **kwargs: Any) -> Any:
    """A field whose value is the path of a file or folder."""
    return _field(Option(help, "path", **kwargs), default)


def output(endings: tuple[str, ...], help: str = "", **kwargs: Any) -> Any:
    """A field whose value is the path of a file that `run` writes, None by default."""
    help = help or f"output file: {', '.join(endings[:-1])} or {endings[-1]}"
    return _field(Option(help, "path", is_output=True, endings=endings, **kwargs), None)


def flag(help: str, **kwargs: Any) -> Any:
    """A field that is False until its option is given."""
    return _field(Option(help, "flag", **kwargs), False)


def switch(help: str) -> Any:
    """A field that is None until its option, `--name` or `--no-name`, is given."""
    return _field(Option(help, "switch"), None)


def options(request: Any) -> dict[str, tuple[Field[Any], Option]]:
    """The fields of a request, or of a class of requests, each with its option, by name and in order."""
    return {each.name: (each, each.metadata[KEY]) for each in fields(request)}


def given(request: Any) -> dict[str, Any]:
    """The values of a request that are not the defaults, by field, in order."""
    values = {name: (getattr(request, name), each.default) for name, (each, _) in options(request).items()}
    return {name: value for name, (value, default) in values.items() if default is MISSING or value != default}


def option_name(name: str, option: Option) -> str:
    """Such as --prune-heads."""
    return f"--{option.name or name.replace('_', '-')}"


def _field(option: Option, default: Any) -> Any:
    return field(default=default, metadata={KEY: option})


def names_of(text: str | None, default: Sequence[str]) -> list[str]:
    """The names in a list separated by commas; each once."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip())) if text else list(default)


def numbers_of(option: str, text: str) -> list[int]:
    """The whole numbers in a list separated by commas."""
    try:
        return [int(number) for number in names_of(text, ())]
    except ValueError as error:
        raise UsageError(f"{option} {text!r} is not a list of whole numbers; write it like 0,1,5") from error


def check_values(request: Any) -> None:
    """Converts the values of a request to the types of its fields, such as a Path to text. UsageError names the first
    field whose value is none that its option takes."""
    kinds = _types(type(request))
    for name, (each, option) in options(request).items():
        if (value := getattr(request, name)) is each.default:
            continue
        plain = os.fspath(value) if isinstance(value, os.PathLike) else value
        try:
            found = msgspec.convert(plain.item() if isinstance(plain, np.generic) else plain, kinds[name])
        except (msgspec.ValidationError, TypeError) as error:
            raise _refused(request, name, option, value) from error
        if found is not None and not _is_offered(found, option):
            raise _refused(request, name, option, value)
        object.__setattr__(request, name, found)


def _is_offered(value: Any, option: Option) -> bool:
    low, high = option.ends
    return value in option.names if option.kind == "choice" else option.kind != "number" or low <= value <= high


@once
def _types(request: type) -> dict[str, Any]:
    return get_type_hints(request)


def _refused(request: Any, name: str, option: Option, value: Any) -> UsageError:
    """The error of a value that a field does not take."""
    (low, high), *kinds = option.ends, *(get_args(kind := _types(type(request))[name]) or (kind,))
    expected = {
        "number": f"a {'whole ' * (option.of is int)}number from {low:,} to {high:,}",
        "choice": f"one of {', '.join(map(repr, option.names))}",
        "text": "text" if option.parse is str else str(kinds[0]),
        "path": "the path of a file or folder",
    }.get(option.kind, "True or False") + ", or None" * (type(None) in kinds)
    shown = repr(value) if len(repr(value)) <= SHOWN else f"{repr(value)[:SHOWN]}…"
    return UsageError(f"{type(request).__name__}: {name} is {shown}; expected {expected}")


def argv(request: Any) -> list[str]:
    """The words behind `headroom` that ask the same: the command, and what differs from the defaults."""
    positions, named = [], []
    for name, value in given(request).items():
        option = options(request)[name][1]
        if value is None:
            continue
        if option.is_position:
            positions.append(option.write(value))
        else:
            named += _words(name, option, value)
    if any(word.startswith("-") for word in positions):
        return [request.command, *named, "--", *positions]
    return [request.command, *positions, *named]


def program(requests: Sequence[Any]) -> str:
    """A program that runs the requests one after the other, from the same store, and prints what each gives."""
    if not requests:
        return ""
    is_clone = __name__.startswith("engine.")  # an installation has the engine in the package `headroom`
    names = sorted({type(request).__name__ for request in requests})
    lines = ["# run in the folder of the clone, with the Python that the app runs with"] if is_clone else []
    lines += [f"from headroom import {', '.join(names)}", ""]
    lines += [_printed(request) for request in requests]
    return "\n".join(lines)


def _words(name: str, option: Option, value: Any) -> list[str]:
    words = option_name(name, option)
    if option.kind == "flag":
        return [words]
    if option.kind == "switch":
        return [words if value else f"--no-{words[2:]}"]
    text = _number(value) if option.of is float else option.write(value)
    return [f"{words}={text}"] if text.startswith("-") else [words, text]


def _number(value: float) -> str:
    return short if float(short := f"{value:g}") == value else repr(value)


def expression(request: Any) -> str:
    """Returns a request as Python, in one line or several; fields that say how results leave the command line are left
    out."""
    of = options(request)
    fields = [f"{name}={value!r}" for name, value in given(request).items() if not of[name][1].is_output]
    name, line = type(request).__name__, ", ".join(fields)
    if len(line) + len(name) < WIDTH - len("print(().run())"):
        return f"{name}({line})"
    return "\n".join([f"{name}(", *(f"    {each}," for each in fields), ")"])


def _printed(request: Any) -> str:
    """The line that prints what a request gives, or several where it is long."""
    return f"print({expression(request)}.run())"
