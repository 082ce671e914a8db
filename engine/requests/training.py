"""Small models that learn: `TrainModel`, `MeasureTrajectory`, what was learned at every snapshot, and `JudgeRuns`."""

import argparse
import os
import time
from dataclasses import MISSING, asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from engine.checkpoints.names import SHIPPED
from engine.demo import run_records
from engine.errors import HeadroomError, UsageError
from engine.files import named, read_regular
from engine.models.session import Session, Target
from engine.progress import TimeLeft
from engine.requests.accuracy import Evaluate
from engine.requests.base import Request, RequestRun, Result
from engine.requests.fields import choice, flag, names_of, number, output, path, string, switch
from engine.requests.output import TABLES, file_of, table_file
from engine.requests.shared_fields import MOST, MOST_SEED, MOST_THREADS
from engine.requests.texts import read_text
from engine.training.findings import findings
from engine.training.measuring import (
    N_ABLATED,
    N_ABLATED_TEXTS,
    N_TEXTS,
    QUANTITIES,
    WITHOUT_ABLATIONS,
    TrajectoryPlan,
    target_at,
    trajectory,
)
from engine.training.phase_change import window
from engine.training.recipe import FEWEST_VOCABULARY, MAX_TOKENS, RECIPES, Recipe
from engine.training.trajectory import Trajectory, decode, encode, series_of
from engine.views.sweep import training_view
from engine.views.training import run_view, trajectory_view

POSITIONS = ("rotary", "shortformer")
RENAMED = {
    "layers": "n_layers", "heads": "n_heads", "width": "d_model", "context": "n_ctx", "vocabulary": "n_vocab",
    "short_context": "short", "learning_rate": "rate",
}  # fmt: skip


def _help(words: str, field: str) -> str:
    value = getattr(Recipe, field)
    return f"{words} (default: {f'{value:,}' if isinstance(value, int) else f'{value:g}'})"


def _period(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    try:
        return int(first), int(last if dash else first)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"--period is {text!r}; write two whole numbers like 8-64") from error


@dataclass(frozen=True, kw_only=True)
class TrainModel(Request):
    """Train a small model from random weights, with snapshots. The value is the last line of the log."""

    command: ClassVar[str] = "train"
    out: str = path(
        "", "folder of the run; an unfinished run with the same settings is resumed", is_required=True, metavar="RUN"
    )
    recipe: str | None = choice(
        None,
        RECIPES,
        "named recipe to start from; other options override its settings (default: two attention-only "
        "layers, trained on text)",
    )
    layers: int | None = number(None, (1, 6), _help("number of layers", "n_layers"))
    heads: int | None = number(None, (1, 64), _help("attention heads per layer", "n_heads"))
    width: int | None = number(
        None, (2, 4096), _help("width of the residual stream; a multiple of twice --heads", "d_model")
    )
    context: int | None = number(None, (16, 4096), _help("row length, in tokens", "n_ctx"))
    short_context: int | None = number(
        None,
        (0, 4096),
        "row length, in tokens, for three of every four steps; the number of tokens per step stays the "
        "same (default: 0, always the full context)",
    )
    smeared: bool | None = switch(
        "smeared keys, as in Olsson et al.: each key includes a learned share of the previous key (default: no)"
    )
    hapax: bool | None = switch(
        "no loss on what an induction head would predict: tokens whose pair with the one before is not new in the "
        "row (default: no)"
    )
    mlp: bool | None = switch("a gated FFN after the attention of each layer (default: no)")
    positions: str | None = choice(
        None,
        POSITIONS,
        "position encoding: rotary (default), or shortformer (added to queries and keys only, as in Olsson et al.)",
    )
    vocabulary: int | None = number(
        None, (FEWEST_VOCABULARY, 65536), _help("vocabulary size of the byte-level BPE tokenizer", "n_vocab")
    )
    batch: int | None = number(None, (1, 65536), _help("rows per step", "batch"))
    learning_rate: float | None = number(None, (0, 1), _help("learning rate of AdamW after the warm-up", "rate"), float)
    warm_up: int | None = number(None, (0, MAX_TOKENS), _help("warm-up steps", "warm_up"))
    tokens: int | None = number(None, (1, MAX_TOKENS), _help("number of training tokens, each used once", "tokens"))
    repeats: float | None = number(
        None,
        (0, 1),
        _help("share of rows, from 0 to 1, that are repeated random tokens instead of text", "repeats"),
        float,
    )
    repeats_until: float | None = number(
        None,
        (0, 1),
        _help("share of training, from 0 to 1, after which no more repeated rows are used", "repeats_until"),
        float,
    )
    period: tuple[int, int] | None = string(
        None,
        "range of repeat periods, drawn for each row (default: {}-{})".format(*Recipe.period),
        parse=_period,
        write="{0[0]}-{0[1]}".format,
    )
    alphabet: int | None = number(None, (0, 65535), "number of distinct tokens in repeats (default: 0, all)")
    text: str | None = path(
        None, "file or folder to train on (default: Python source and documentation on this computer)"
    )
    snapshots: int | None = number(
        None,
        (1, 10000),
        _help("number of evenly spaced snapshots, in addition to step 0 and a few early steps", "snapshots"),
    )
    seed: int | None = number(None, (0, MOST_SEED), _help("seed of the weights and the rows", "seed"))
    threads: int | None = number(None, (1, MOST_THREADS), "number of CPU threads (default: all cores but one)")

    def recipe_asked(self) -> Recipe:
        """The recipe that is named, or the default one, with what else is said. UsageError: it cannot be."""
        base = RECIPES[self.recipe].recipe if self.recipe else Recipe()
        given = {RENAMED.get(name, name): value for name, value in vars(self).items() if value is not None}
        return replace(base, **{each.name: given[each.name] for each in fields(Recipe) if each.name in given})

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
        log = made.log()
        line = line or (log or [{}])[-1]
        there = set(made.steps())
        missing = [step for step in recipe.snapshot_steps() if step not in there]
        highest = {name: best(line, name) for name in ("prefix_matching", "previous_token") if name in line}
        numbers = {name: line.get(name) for name in ("tokens", "loss", "icl", "first_copy", "second_copy")}
        fields: dict[str, Any] = {"run": str(made.folder), "recipe": recipe.as_json(), "snapshots": len(there),
                                  "missing": missing, **numbers,
                                  **{f"best_{name}": score for name, score in highest.items()}}  # fmt: skip
        about = f"{made.folder}: {recipe.in_words}, {len(there)} snapshots."
        return Result(line, fields, run_view(log, about, highest, missing))


MOST_BYTES = 20_000_000  # of a text
RECORD = ".safetensors"
SCALED = "scaled down for contexts shorter than 512 tokens"


@dataclass(frozen=True, kw_only=True)
class MeasureTrajectory(Request):
    """Measure every snapshot of a training run or a published series. The value is a Trajectory."""

    command: ClassVar[str] = "trajectory"
    group: ClassVar[str] = "Training"
    precision: ClassVar[str] = "fp32"

    series: str = string(
        MISSING,
        "folder of a run, RUN@step{0,512}, a published series such as "
        "EleutherAI/pythia-70m@step{0,512,1000}, or a file written by --record, which is shown without "
        "measuring",
        is_position=True,
        example=f"{SHIPPED}curriculum",
    )
    control: str | None = string(
        None, "another run, series or file of --record, which is measured in the same way and shown next to it"
    )
    quantities: str | None = string(
        None,
        f"comma-separated quantities to measure: {', '.join(QUANTITIES)} "
        "(default: all except ablations, which take longest)",
    )
    texts: int = number(N_TEXTS, (1, MOST), f"number of held-out texts (default: {N_TEXTS}, or all if there are fewer)")
    ablation_texts: int = number(
        N_ABLATED_TEXTS, (1, MOST), f"number of these texts for ablations (default: {N_ABLATED_TEXTS})"
    )
    ablation_snapshots: int = number(
        N_ABLATED,
        (1, MOST),
        f"number of snapshots for ablations, most of them around the phase change (default: {N_ABLATED})",
    )
    early: int | None = number(None, (1, MOST), f"earlier token index of the in-context score (default: 50, {SCALED})")
    late: int | None = number(None, (1, MOST), f"later token index of the in-context score (default: 500, {SCALED})")
    average_tokens: int = number(
        0,
        (0, MOST),
        "average the loss over this many tokens on each side of both indices (default: 0, as in the paper)",
    )
    text: str | None = path(None, "UTF-8 text file to use instead of the held-out text and passages")
    step_tokens: int | None = number(
        None,
        (1, 10**9),
        "number of tokens per training step of a published series (required for series other than Pythia)",
    )
    out: str | None = output(TABLES)
    record: str | None = output((RECORD,), "file to write the complete record to: .safetensors")
    download: bool = flag("download missing snapshots from the Hub")

    @property
    def wanted(self) -> tuple[str, ...]:
        """The measured quantities."""
        return tuple(names_of(self.quantities, WITHOUT_ABLATIONS))

    def target(self, session: Session) -> Target:
        return target_at(session, series_of(self.series, self.step_tokens))

    def measure(self, run: RequestRun) -> Result:
        found = self._trajectory(self.series, run)
        control = None if self.control is None else self._trajectory(self.control, run)
        fields = _numbers(found) | {"out": self.out, "save": self.record}
        fields |= {} if control is None else {"control": _numbers(control)}
        files = file_of(self.out, lambda suffix: table_file(suffix, table(found, self.wanted)))
        files |= file_of(self.record, lambda suffix: encode(found))
        return Result(found, fields, trajectory_view(found, control), files, table=partial(table, found, self.wanted))

    def _trajectory(self, said: str, run: RequestRun) -> Trajectory:
        if said.endswith(RECORD):
            return _record(said)
        text = read_text(self.text, MOST_BYTES) if self.text else ""
        plan = TrajectoryPlan(
            self.wanted, self.texts, self.ablation_texts, self.ablation_snapshots, self.early or 0, self.late or 0,
            self.average_tokens, text, Path(self.text).name if self.text else "",
        )  # fmt: skip
        series = series_of(said, self.step_tokens)
        return run.value(trajectory(target_at(run.session, series), series, plan))


@dataclass(frozen=True, kw_only=True)
class JudgeRuns(Request):
    """Judge the claims of the paper on induction heads about training, by runs. The value is their Statements."""

    command: ClassVar[str] = "judge"
    group: ClassVar[str] = "Training"

    runs: str | None = string(
        None, "comma-separated files written by trajectory --record (default: the runs that come with Headroom)"
    )

    def target(self, session: Session) -> Target:
        return Evaluate(task="demo_copy").target(session)  # of the included model, as it measures none

    def measure(self, run: RequestRun) -> Result:
        files = [each.strip() for each in self.runs.split(",")] if self.runs else run_records()
        runs = [_record(str(file)) for file in files]
        found = findings(runs)
        names = [each.name for each in runs]
        fields = {"runs": names, "statements": [asdict(each) for each in found]}
        return Result(found, fields, training_view(found, names))


def _record(file: str) -> Trajectory:
    """The trajectory in a record; HeadroomError: it cannot be read."""
    try:
        return decode(read_regular(named(file, "SERIES")))
    except OSError as error:
        raise HeadroomError(f"cannot read {file} ({error.strerror}); give another record") from error


def _numbers(found: Trajectory) -> dict[str, Any]:
    """The fields of --json on one run."""
    where = window(found.tokens, found.icl)
    return {
        "name": found.name, "label": found.label, "recipe": found.recipe, "about": dict(found.about),
        "steps": found.steps.tolist(), "tokens": found.tokens.tolist(), "ablated": found.ablated.tolist(),
        "loss": found.loss, "icl": found.icl, "best_prefix_matching": found.best("prefix_matching"),
        "window": where and {"start_tokens": where.start, "end_tokens": where.end, "share": where.share,
                             "steepest_tokens": int(found.tokens[where.steepest]), "smoothed": where.smoothed},
    }  # fmt: skip


def table(found: Trajectory, what: tuple[str, ...]) -> Any:
    """A DataFrame with a row a number: step, tokens, quantity, layer, head, value; layer and head empty where a
    quantity is of the whole model."""
    import pandas as pd

    columns: dict[str, list[Any]] = {name: [] for name in ("at", "quantity", "layer", "head", "value")}

    def add(quantity: str, values: np.ndarray, at: np.ndarray | None = None) -> None:
        """Values (snapshot,) or (snapshot, layer, head)."""
        places = np.argwhere(np.isfinite(values))
        rows = places[:, 0] if at is None else at[places[:, 0]]
        columns["at"] += rows.tolist()
        columns["quantity"] += [quantity] * len(places)
        for axis, name in enumerate(("layer", "head"), 1):
            columns[name] += places[:, axis].tolist() if values.ndim == 3 else [None] * len(places)
        columns["value"] += values[tuple(places.T)].tolist()

    of = {
        "loss": {"loss": found.loss},
        "icl": {"icl": found.icl},
        "copies": {"first_copy": found.first_copy, "second_copy": found.second_copy},
        "index": {f"loss@{index + 1}": values for index, values in enumerate(found.by_index.T)},
        "tokens": {f"token of text {text + 1}": found.token_losses[:, text]
                   for text in range(found.token_losses.shape[1])},
        "induction": found.heads,
        "passages": {f"{title}@{token + 1}": passage.losses[:, token] for title, passage in found.passages.items()
                     for token in range(len(passage.pieces))},
    }  # fmt: skip
    for name, quantities in of.items():
        for quantity, values in quantities.items() if name in what else ():
            add(quantity, values)
    if "ablations" in what and len(found.ablated):
        add("icl without the head", found.ablated_icl, found.ablated)
        for text in range(found.ablated_losses.shape[3]):
            add(f"token of text {text + 1} without the head", found.ablated_losses[..., text], found.ablated)
    at = columns.pop("at")
    frame = pd.DataFrame({"step": found.steps[at], "tokens": found.tokens[at]} | columns)
    return frame.astype({"layer": "Int64", "head": "Int64"})
