"""A request written out: as the words of a shell command, and as a short Python program."""

from collections.abc import Sequence
from typing import Any

from engine.requests.base import Request
from engine.requests.fields import Option, given, option_name, options

WIDTH = 100  # of a line of a program


def argv(request: Request) -> list[str]:
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


def program(requests: Sequence[Request]) -> str:
    """A program that runs the requests one after the other, from the same store, and prints what each gives."""
    if not requests:
        return ""
    package = __name__.removesuffix(".words")  # in a clone "engine.requests", installed in the package `headroom`
    is_clone = package == "engine.requests"
    names = sorted({type(request).__name__ for request in requests})
    lines = ["# run in the folder of the clone, with the Python that the app runs with"] if is_clone else []
    lines += [f"from {package} import {', '.join(names)}", ""]
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


def _printed(request: Request) -> str:
    """The line that prints what a request gives, or several where it is long."""
    of = options(request)
    fields = [f"{name}={value!r}" for name, value in given(request).items() if not of[name][1].is_output]
    name, line = type(request).__name__, ", ".join(fields)
    if len(line) + len(name) < WIDTH - len("print(().run())"):
        return f"print({name}({line}).run())"
    return "\n".join([f"print({name}(", *(f"    {each}," for each in fields), ").run())"])
