"""The command that trains a small model from nothing: `train`."""

import argparse
import os
import time
from argparse import Namespace
from dataclasses import replace
from typing import Any

from engine.cli.options import MOST_SEED, MOST_THREADS, Parser, shared
from engine.cli.output import Report, print_result
from engine.files import named
from engine.models.session import Session
from engine.progress import TimeLeft
from engine.training.recipe import FEWEST_VOCABULARY, MAX_TOKENS, Recipe
from engine.training.recipes import RECIPES

POSITIONS = ("rotary", "shortformer")
FIELDS = {"layers": "n_layers", "heads": "n_heads", "width": "d_model", "context": "n_ctx", "vocabulary": "n_vocab"}
SAME = ("mlp", "smeared", "positions", "batch", "rate", "warm_up", "tokens", "repeats", "repeats_until", "period",
        "alphabet", "seed", "snapshots", "short")  # fmt: skip


def add_parsers(commands: Any) -> None:
    """The parser of train."""
    words = "a small model trained from nothing, with snapshots that are models"
    parser: Parser = commands.add_parser("train", parents=[shared()], help=words)
    help = "the folder of the run; where the same run was begun there, it goes on"
    parser.add_argument("--out", required=True, metavar="RUN", help=help)
    help = "a recipe by name, which the other options change (default: 2 layers of attention on text)"
    parser.add_choice("--recipe", RECIPES, help)
    parser.add_number("--layers", (1, 6), _help("layers", "n_layers"))
    parser.add_number("--heads", (1, 64), _help("attention heads a layer", "n_heads"))
    parser.add_number("--width", (2, 4096), _help("width of the stream, a multiple of twice the heads", "d_model"))
    parser.add_number("--context", (16, 4096), _help("tokens a row", "n_ctx"))
    help = "tokens of the rows of three steps in four, as many in all; 0 (default): every row is as long as the context"
    parser.add_number("--short", (0, 4096), help)
    both = argparse.BooleanOptionalAction
    help = "smeared keys, as in Olsson et al.: each key has a trained share of the key before it (default: no)"
    parser.add_argument("--smeared", action=both, help=help)
    parser.add_argument("--mlp", action=both, help="a gated FFN behind the attention of each layer (default: no)")
    help = "rotary (default), or shortformer: added to queries and keys alone, as in Olsson et al."
    parser.add_choice("--positions", POSITIONS, help)
    ends = (FEWEST_VOCABULARY, 65536)
    parser.add_number("--vocabulary", ends, _help("tokens of its own byte-level BPE", "n_vocab"))
    parser.add_number("--batch", (1, 65536), _help("rows a step", "batch"))
    parser.add_number("--rate", (0, 1), _help("learning rate of AdamW behind its warm-up", "rate"), float)
    parser.add_number("--warm-up", (0, MAX_TOKENS), _help("steps over which the rate rises", "warm_up"))
    parser.add_number("--tokens", (1, MAX_TOKENS), _help("tokens to train on in all, each once", "tokens"))
    help = _help("share of rows, 0 to 1, that are random tokens repeated instead of text", "repeats")
    parser.add_number("--repeats", (0, 1), help, float)
    help = _help("share of the tokens behind which no row is a repeat", "repeats_until")
    parser.add_number("--repeats-until", (0, 1), help, float)
    help = "periods of the repeats, drawn anew for every row (default: {}-{})".format(*Recipe.period)
    parser.add_argument("--period", metavar="A-B", type=_period, help=help)
    parser.add_number("--alphabet", (0, 65535), "different tokens that repeats are made of (default: 0, all)")
    parser.add_argument("--text", help="a file or folder to train on (default: Python source and documentation here)")
    help = "snapshots, evenly spaced; a few early ones and the beginning come besides"
    parser.add_number("--snapshots", (1, 10000), _help(help, "snapshots"))
    parser.add_number("--seed", (0, MOST_SEED), _help("of the weights and the rows", "seed"))
    help = "CPU threads, for as long as the run lives (default: one core is left free)"
    parser.add_number("--threads", (1, MOST_THREADS), help)
    parser.set_defaults(run=_train)


def _train(options: Namespace, session: Session, report: Report) -> int:
    from engine.training.running import begin, best, train

    started, folder = time.monotonic(), named(options.out, "--out").absolute()
    text = named(options.text, "--text").absolute() if options.text else None
    recipe = recipe_from(options)
    report(0, recipe.tokens, "reading text and making the vocabulary", None)
    run = begin(folder, recipe, text, options.threads or max(1, (os.cpu_count() or 2) - 1))
    time_left, line = TimeLeft(time.monotonic()), {}
    for step in train(run):
        time_left.told(now_s := time.monotonic(), step)
        line = step.value or line
        report(step.done, step.total, step.message, time_left.left_s(now_s))
    line = line or (run.log() or [{}])[-1]
    there = set(run.steps())
    missing = [step for step in recipe.snapshot_steps() if step not in there]
    heads = {f"best_{name}": best(line, name) for name in ("prefix_matching", "previous_token") if name in line}
    numbers = {name: line.get(name) for name in ("tokens", "loss", "icl", "first_copy", "second_copy")}
    fields = {"run": str(run.folder), "recipe": recipe.as_json(), "snapshots": len(there), "missing": missing,
              **numbers, **heads, "seconds": time.monotonic() - started}  # fmt: skip
    lines = [f"{run.folder}: {recipe.in_words}, {len(there)} snapshots"]
    if line:
        lines.append(f"loss {line['loss']:.3f} nats a token, in-context score {line['icl']:+.3f}, second copy "
                     f"{line['second_copy']:.2f} nats (first {line['first_copy']:.2f}), best prefix matching "
                     f"{best(line):.2f}, best previous token {best(line, 'previous_token'):.2f}")  # fmt: skip
    if missing:
        lines.append(f"deleted since: {', '.join(f'step{step}' for step in missing)}")
    print_result(options, fields, "\n".join(lines))
    return 0


def recipe_from(options: Namespace) -> Recipe:
    """The recipe that the options name, or the default one, with what else they say. UsageError: it cannot be."""
    base = RECIPES[options.recipe].recipe if options.recipe else Recipe()
    given = {field: getattr(options, name) for name, field in (*FIELDS.items(), *((name, name) for name in SAME))}
    return replace(base, **{field: value for field, value in given.items() if value is not None})


def _help(words: str, field: str) -> str:
    value = getattr(Recipe, field)
    return f"{words} (default: {f'{value:,}' if isinstance(value, int) else f'{value:g}'})"


def _period(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    try:
        return int(first), int(last if dash else first)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"--period is {text!r}; write two whole numbers like 8-64") from error
