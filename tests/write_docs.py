"""Writes docs/command-line.md from the parser of the command line, the tables of criteria and of pruning orders in
docs/numbers.md, and the model families in docs/models.md and README.md:
`.venv/bin/python -m tests.write_docs`.
"""

import argparse
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import engine.cli
from engine.requests.base import OfModel

PAGE = Path(__file__).resolve().parent.parent / "docs" / "command-line.md"
NUMBERS, MODELS = PAGE.with_name("numbers.md"), PAGE.with_name("models.md")
README = PAGE.parent.parent / "README.md"
OTHERS = "Everything else"  # commands that are not on the bench
ALL, MODEL, SOME = "all commands", "the model", "some commands"  # whose options are shared

OPENING = """\
# The command line

<!-- Generated from the parser by `.venv/bin/python -m tests.write_docs`; do not edit by hand. -->

Every measurement of the app is also a command, and both use the same store. `pip install .` installs the `headroom`
command; in a clone, after `make run`, it is `.venv/bin/headroom`. Without a command, it opens the app.

```sh
headroom evaluate --task demo_translation --shots 5 --prune-heads 40
headroom evaluate --model facebook/opt-125m --task piqa --mask "L3H5 L4H* F7 F2-5" --questions-out answers.jsonl
headroom importance --task demo_translation --shots 5 --score heads --out heads.csv
headroom sweep --tasks demo_outfit,demo_copy --head-levels 0,20,40,60 --out curves.csv --ray --workers 2
headroom sweep --preset paper --precision fp32 --out study
headroom train --layers 2 --repeats 0.5 --context 128 --batch 8 --learning-rate 0.001 --tokens 6000000 --out runs/half
headroom trajectory RUN --quantities loss,icl,induction --out trajectory.csv
```

- **Output.** With `--json`, standard output is exactly one JSON object. Progress and messages go to standard error.
- **Exit codes.** 0: success; 1: failure, with a one-line error; 2: invalid usage; 130: canceled. Finished work is
  saved: run the same command again to resume.
- **The paper study.** `sweep --preset paper` writes a folder with tables, figures, and one HTML report, which says
  which of the paper's claims hold. To measure it on several GPUs or machines, add `--ray` ([many workers](workers.md)).
- **Options** below a command are its own; those that it shares with others are [at the end](#shared-options).
"""


@cache
def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    return engine.cli.parser()


def commands_of(parser: argparse.ArgumentParser) -> dict[str, tuple[str, argparse.ArgumentParser]]:
    """What each command gives, in words, and its own parser."""
    [action] = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    words = {each.dest: each.help or "" for each in action._choices_actions}
    return {name: (words[name], action.choices[name]) for name in words}


def page(parser: argparse.ArgumentParser) -> str:
    """The whole page: the commands by the groups of the bench, each with its own options, and the shared options."""
    commands, requests = commands_of(parser), engine.cli.REQUESTS
    taken: dict[str, list[str]] = {}
    for name, (_, each) in commands.items():
        for option in _options(each):
            taken.setdefault(_row(option), []).append(name)
    shared = {row: by for row, by in taken.items() if len(by) > 1}
    of_model = {each.command for each in requests if issubclass(each, OfModel)}
    kinds = {row: ALL if by == [*commands] else MODEL if of_model <= {*by} else SOME for row, by in shared.items()}
    lines = [OPENING]
    for group in sorted({each.group: "" for each in requests}, key=lambda group: not group):
        lines += [f"## {group or OTHERS}", "", "| Command, or option | Meaning |", "|:--|:--|"]
        for name in [each.command for each in requests if each.group == group]:
            words, each = commands[name]
            rows = [_row(option) for option in _options(each)]
            hidden = (ALL, MODEL) if name in of_model else (ALL,)
            also = [f"options of {MODEL}"] if name in of_model else []
            also += [_name(row) for row in rows if row in shared and kinds[row] not in hidden]
            words += f". Shared: {', '.join(also)}" if also else ""
            lines += [f"| **{name}** | {words} |"]
            lines += [row for row in rows if row not in shared]
        lines += [""]
    lines += ["## Shared options", "", "| Option | Meaning |", "|:--|:--|"]
    names = [_name(row) for row in shared]
    for kind in (ALL, MODEL, SOME):
        lines += [f"| **of {kind}** | |"]
        for row in (row for row in shared if kinds[row] == kind):
            where = f"; in {', '.join(shared[row])}" if names.count(_name(row)) > 1 else ""
            lines += [row.removesuffix(" |") + where + " |"]
    return "\n".join(lines) + "\n"


def numbers(text: str) -> str:
    """The text of docs/numbers.md, with the criteria and orders as engine.importance describes them."""
    from engine.importance.criteria import CRITERIA
    from engine.importance.rules import RULES

    header = "| Criterion | Pruned last | Cost | Source |\n|:--|:--|:--|:--|\n"
    rows = [(f"`{name}`", each.help, each.cost, each.paper) for name, each in CRITERIA.items()]
    text = _with_rows(text, header, rows)
    header = "| Order | Pruned first | Where |\n|:--|:--|:--|\n"
    where = {(True, True): "all commands", (True, False): "all but `sweep`", (False, True): "`sweep`"}
    rows = [
        (f"`{name}`", each.help, where[each.is_of_one, each.is_of_many])
        for name, each in RULES.items()
        if name not in CRITERIA
    ]
    return _with_rows(text, header, rows)


def models(text: str) -> str:
    """The text of docs/models.md, with the families that transformers has classes for."""
    from engine.architecture.families import FAMILIES

    header = "| Family | `model_type` in config.json | A small model to try | Download |\n|---|---|---|---:|\n"
    rows = [(each.models or each.name, f"`{kind}`", f"`{each.to_try.model}`", f"{each.to_try.gigabytes} GB")
            for kind, each in FAMILIES.items() if each.to_try]  # fmt: skip
    return _with_rows(text, header, rows)


def readme(text: str) -> str:
    """The text of README.md, with the names of these families."""
    from engine.architecture.family import supported_families

    return re.sub(r"\| Any .+? model: an id", f"| Any {supported_families()} model: an id", text)


def _with_rows(text: str, header: str, rows: Iterable[Iterable[str]]) -> str:
    """The text with these rows below the header of a table."""
    before, after = text.split(header)
    lines = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
    return before + header + "".join(f"| {line} |\n" for line in lines) + re.sub(r"\A(\|.*\n)*", "", after)


def _options(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    return (each for each in parser._actions if each.help != argparse.SUPPRESS and each.dest != "help")


def _row(option: argparse.Action) -> str:
    choices = list(option.choices or ())
    value = "" if option.nargs == 0 else f" {option.metavar or option.dest.upper()}"
    names = f"`{', '.join(option.option_strings)}{value}`" if option.option_strings else f"`{option.dest}`"
    words = (option.help or "").replace("%", "%%").replace("%%(", "%(") % vars(option)
    said = [words.replace("<", "&lt;").replace("|", "\\|")] if words else []
    if choices:
        said.append(f"one of {', '.join(f'`{choice}`' for choice in choices)}")
    if option.required and option.option_strings:
        said.append("required")
    return f"| {names} | {'; '.join(said)} |".replace("\n", " ")


def _name(row: str) -> str:
    """The option itself, of a row of a table."""
    return f"`{row.split('`')[1].split()[0].rstrip(',')}`"


WRITTEN = {NUMBERS: numbers, MODELS: models, README: readme}  # in part

if __name__ == "__main__":
    PAGE.write_text(page(parser()), encoding="utf-8")
    for file, written in WRITTEN.items():
        file.write_text(written(file.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"Written: {', '.join(map(str, (PAGE, *WRITTEN)))}")
