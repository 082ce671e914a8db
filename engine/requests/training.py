"""A small model trained from nothing: `TrainModel`."""

import os
import time
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from engine.errors import UsageError
from engine.files import named
from engine.progress import TimeLeft
from engine.requests.base import MOST_SEED, MOST_THREADS, Request, RequestRun, Result
from engine.requests.fields import choice, number, path, string, switch
from engine.training.recipe import FEWEST_VOCABULARY, MAX_TOKENS, Recipe
from engine.training.recipes import RECIPES

POSITIONS = ("rotary", "shortformer")
FIELDS = {"layers": "n_layers", "heads": "n_heads", "width": "d_model", "context": "n_ctx", "vocabulary": "n_vocab"}
SAME = ("mlp", "smeared", "positions", "batch", "rate", "warm_up", "tokens", "repeats", "repeats_until", "period",
        "alphabet", "seed", "snapshots", "short")  # fmt: skip


def _help(words: str, field: str) -> str:
    value = getattr(Recipe, field)
    return f"{words} (default: {f'{value:,}' if isinstance(value, int) else f'{value:g}'})"


def _period(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    try:
        return int(first), int(last if dash else first)
    except ValueError as error:
        raise ValueError(f"--period is {text!r}; write two whole numbers like 8-64") from error


@dataclass(frozen=True, kw_only=True)
class TrainModel(Request):
    """A small model trained from nothing, with snapshots that are models; the value is the last line of the log."""

    command: ClassVar[str] = "train"
    gives: ClassVar[str] = "a small model trained from nothing, with snapshots that are models"

    out: str = path(
        "the folder of the run; where the same run was begun there, it goes on",
        is_required=True,
        default="",
        metavar="RUN",
    )
    recipe: str | None = choice(
        RECIPES, "a recipe by name, which the other options change (default: 2 layers of attention on text)"
    )
    layers: int | None = number((1, 6), _help("layers", "n_layers"))
    heads: int | None = number((1, 64), _help("attention heads a layer", "n_heads"))
    width: int | None = number((2, 4096), _help("width of the stream, a multiple of twice the heads", "d_model"))
    context: int | None = number((16, 4096), _help("tokens a row", "n_ctx"))
    short: int | None = number(
        (0, 4096),
        "tokens of the rows of three steps in four, as many in all; 0 (default): every row is as long as the context",
    )
    smeared: bool | None = switch(
        "smeared keys, as in Olsson et al.: each key has a trained share of the key before it (default: no)"
    )
    mlp: bool | None = switch("a gated FFN behind the attention of each layer (default: no)")
    positions: str | None = choice(
        POSITIONS, "rotary (default), or shortformer: added to queries and keys alone, as in Olsson et al."
    )
    vocabulary: int | None = number((FEWEST_VOCABULARY, 65536), _help("tokens of its own byte-level BPE", "n_vocab"))
    batch: int | None = number((1, 65536), _help("rows a step", "batch"))
    rate: float | None = number((0, 1), _help("learning rate of AdamW behind its warm-up", "rate"), float)
    warm_up: int | None = number((0, MAX_TOKENS), _help("steps over which the rate rises", "warm_up"))
    tokens: int | None = number((1, MAX_TOKENS), _help("tokens to train on in all, each once", "tokens"))
    repeats: float | None = number(
        (0, 1), _help("share of rows, 0 to 1, that are random tokens repeated instead of text", "repeats"), float
    )
    repeats_until: float | None = number(
        (0, 1), _help("share of the tokens behind which no row is a repeat", "repeats_until"), float
    )
    period: tuple[int, int] | None = string(
        "periods of the repeats, drawn anew for every row (default: {}-{})".format(*Recipe.period),
        metavar="A-B",
        parse=_period,
        write="{0[0]}-{0[1]}".format,
    )
    alphabet: int | None = number((0, 65535), "different tokens that repeats are made of (default: 0, all)")
    text: str | None = path("a file or folder to train on (default: Python source and documentation here)")
    snapshots: int | None = number(
        (1, 10000), _help("snapshots, evenly spaced; a few early ones and the beginning come besides", "snapshots")
    )
    seed: int | None = number((0, MOST_SEED), _help("of the weights and the rows", "seed"))
    threads: int | None = number(
        (1, MOST_THREADS), "CPU threads, for as long as the run lives (default: one core is left free)"
    )

    def recipe_asked(self) -> Recipe:
        """The recipe that is named, or the default one, with what else is said. UsageError: it cannot be."""
        base = RECIPES[self.recipe].recipe if self.recipe else Recipe()
        given = {field: getattr(self, name) for name, field in (*FIELDS.items(), *((name, name) for name in SAME))}
        return replace(base, **{field: value for field, value in given.items() if value is not None})

    def measure(self, run: RequestRun) -> Result:
        from engine.training.running import begin, best, train

        if not self.out:
            raise UsageError("a run needs a folder of its own; give out, --out on the command line")
        folder = named(self.out, "--out").absolute()
        text = named(self.text, "--text").absolute() if self.text else None
        recipe = self.recipe_asked()
        run.report(0, recipe.tokens, "reading text and making the vocabulary", None)
        made = begin(folder, recipe, text, self.threads or max(1, (os.cpu_count() or 2) - 1))
        time_left, line = TimeLeft(time.monotonic()), {}
        for step in train(made):
            time_left.told(now_s := time.monotonic(), step)
            line = step.value or line
            run.report(step.done, step.total, step.message, time_left.left_s(now_s))
        line = line or (made.log() or [{}])[-1]
        there = set(made.steps())
        missing = [step for step in recipe.snapshot_steps() if step not in there]
        heads = {f"best_{name}": best(line, name) for name in ("prefix_matching", "previous_token") if name in line}
        numbers = {name: line.get(name) for name in ("tokens", "loss", "icl", "first_copy", "second_copy")}
        fields: dict[str, Any] = {"run": str(made.folder), "recipe": recipe.as_json(), "snapshots": len(there),
                                  "missing": missing, **numbers, **heads}  # fmt: skip
        lines = [f"{made.folder}: {recipe.in_words}, {len(there)} snapshots"]
        if line:
            lines.append(f"loss {line['loss']:.3f} nats a token, in-context score {line['icl']:+.3f}, second copy "
                         f"{line['second_copy']:.2f} nats (first {line['first_copy']:.2f}), best prefix matching "
                         f"{best(line):.2f}, best previous token {best(line, 'previous_token'):.2f}")  # fmt: skip
        if missing:
            lines.append(f"deleted since: {', '.join(f'step{step}' for step in missing)}")
        return Result(line, fields, "\n".join(lines))
