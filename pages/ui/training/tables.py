"""Runs as tables, one row per drawn item, and as sentences: DataFrames, no streamlit.

Every row over training has the range of tokens, from `since` to `until`, for which it is the nearest: the marker in the
charts finds it by that. Tokens are those trained on; losses are nats per token.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from engine.training.phase_change import gain_rates, index_slopes, projections, slope_indices
from pages.ui.page.tables import number, visible
from pages.ui.training.runs import DrawnRun

KINDS = ("previous token", "induction", "other")
PHASE_CHANGE, REPEATS_END = "phase change", "repeats end"
IS_ONE = 0.3  # the share of attention, at the end of a run, from which a head is called one of the first two


def over_training(runs: Sequence[DrawnRun]) -> pd.DataFrame:
    """Returns one row per snapshot of each run: loss, in-context gain, and d loss / d ln(tokens)."""
    frames = []
    for each in runs:
        x = each.trajectory
        frame = pd.DataFrame({"run": each.label, **_spans(x.tokens)})
        frames.append(frame.assign(loss=x.loss, gain=-x.icl, gain_rate=gain_rates(x.tokens, x.loss)))
    return pd.concat(frames, ignore_index=True)


def windows(runs: Sequence[DrawnRun]) -> pd.DataFrame:
    """Returns what happens in each run, from `start` to `end`: the phase change, and the moments at which its repeats
    end and, before the longest run, it ends itself."""
    longest = max((float(each.trajectory.tokens[-1]) for each in runs), default=0.0)
    rows = []
    for each in runs:
        end, repeats_end = float(each.trajectory.tokens[-1]), repeats_until(each)
        spans = [(each.window.start, each.window.end, PHASE_CHANGE)] if each.window else []
        spans += [(repeats_end, repeats_end, REPEATS_END)] if repeats_end else []
        spans += [(end, end, f"run ends at {in_tokens(end)}")] if end < 0.95 * longest else []
        rows += [(each.label, *span) for span in spans]
    return pd.DataFrame(rows, columns=["run", "start", "end", "what"])


def repeats_until(run: DrawnRun) -> float | None:
    """Returns the tokens from which a run that began with repeats reads text alone; None for other runs."""
    recipe = run.trajectory.recipe or {}
    share = float(recipe.get("repeats_until") or 1)
    return share * float(run.trajectory.tokens[-1]) if recipe.get("repeats") and share < 1 else None


def head_scores(run: DrawnRun, score: str) -> pd.DataFrame:
    """Returns one row per snapshot and head: one of the six scores."""
    x = run.trajectory
    if score not in x.heads:
        return pd.DataFrame(columns=["run", "tokens", "since", "until", "layer", "head", "name", "value"])
    return _by_head(run, np.arange(len(x.steps)), value=x.heads[score])


def slopes(run: DrawnRun) -> pd.DataFrame:
    """Returns one row per snapshot and stretch of the context: d loss / d ln(index), nats."""
    x = run.trajectory
    found, at = index_slopes(x.by_index), slope_indices(x.by_index.shape[1])
    spans = _spans(x.tokens)
    n_bins = found.shape[1]
    frame = pd.DataFrame({name: np.repeat(values, n_bins) for name, values in spans.items()})
    frame = frame.assign(run=run.label, slope=found.ravel())
    frame["first"], frame["last"] = np.tile(at.first, len(found)), np.tile(at.last, len(found))
    return frame.dropna(subset=["slope"])


def paths(runs: Sequence[DrawnRun], found: Sequence[np.ndarray]) -> pd.DataFrame:
    """Returns one row per snapshot: its position on the two components, whether in the window, A or B at its ends."""
    frames = []
    for each, path in zip(runs, found, strict=True):
        x, where = each.trajectory, each.window
        at = np.arange(len(x.steps))
        frame = pd.DataFrame({"run": each.label, "step": x.steps, **_spans(x.tokens), "x": path[:, 0], "y": path[:, 1]})
        inside = (at >= where.first) & (at <= where.last) if where else np.zeros(len(at), bool)
        mark = ["A" if where and i == where.first else "B" if where and i == where.last else "" for i in at]
        frames.append(frame.assign(order=at, inside=inside, mark=mark))
    return pd.concat(frames, ignore_index=True).dropna(subset=["x"])


def ablations(run: DrawnRun) -> pd.DataFrame:
    """Returns a row for each snapshot at which heads were ablated, and head: the change of the in-context score and
    gain without it, the loss change along the before-and-after vector (nan without a window), and the kind of head."""
    x = run.trajectory
    if not len(x.ablated):
        return pd.DataFrame(
            columns=["run", "tokens", "since", "until", "layer", "head", "name", "kind", "score", "gain", "along"]
        )
    along = np.full(x.ablated_icl.shape, np.nan)
    if run.window is not None and x.ablated_losses.size:
        along = projections(x, run.window)
    frame = _by_head(run, x.ablated, score=x.ablated_icl, gain=-x.ablated_icl, along=along)
    kind = kinds(run)
    return frame.assign(kind=kind[frame["layer"].to_numpy(), frame["head"].to_numpy()])


def kinds(run: DrawnRun) -> np.ndarray:
    """Returns (L, H) the kind of each head at the end of the run, one of KINDS."""
    x = run.trajectory
    shape = x.ablated_icl.shape[1:]
    found = np.full(shape, KINDS[2], dtype=object)
    for score, kind in (("previous_token", KINDS[0]), ("prefix_matching", KINDS[1])):
        if score in x.heads and x.heads[score].shape[1:] == shape:
            found[x.heads[score][-1] > IS_ONE] = kind
    return found


def two_tokens(runs: Sequence[DrawnRun], passage: str, places: Sequence[int]) -> pd.DataFrame:
    """Returns one row per snapshot and token: the loss at `places` (from 0) of a passage, in every run with it."""
    frames = []
    for each in runs:
        x = each.trajectory
        read = x.passages.get(passage)
        for place in places:
            if read is not None and place < len(read.pieces):
                token = f"{visible(read.pieces[place])} ({place + 1})"
                frames.append(pd.DataFrame({"run": each.label, **_spans(x.tokens), "token": token,
                                            "loss": read.losses[:, place]}))  # fmt: skip
    columns = ["run", "tokens", "since", "until", "token", "loss"]
    return pd.concat(frames, ignore_index=True).dropna(subset=["loss"]) if frames else pd.DataFrame(columns=columns)


def ends_of(run: DrawnRun) -> tuple[int, int]:
    """Returns the snapshots whose difference tints a passage: the ends of the window, or of a run without one."""
    return (run.window.first, run.window.last) if run.window else (0, len(run.trajectory.steps) - 1)


def change(run: DrawnRun, passage: str) -> pd.DataFrame:
    """Returns one row per token of a passage: its loss at the window's start and end, and the difference."""
    read = run.trajectory.passages[passage]
    first, last = ends_of(run)
    frame = pd.DataFrame({"piece": list(read.pieces), "token": [visible(piece) for piece in read.pieces]})
    return frame.assign(
        before=read.losses[first], after=read.losses[last], change=read.losses[last] - read.losses[first]
    )


def two_that_part(run: DrawnRun, passage: str) -> list[int]:
    """Returns the tokens (from 0) that the window improves most and worsens most."""
    found = change(run, passage)["change"].to_numpy(float)
    return [] if np.isnan(found).all() else sorted({int(np.nanargmin(found)), int(np.nanargmax(found))})


def at_each(run: DrawnRun) -> list[str]:
    """Returns the text on each snapshot of a run, shown next to its name."""
    x = run.trajectory
    found = []
    for at, tokens in enumerate(x.tokens):
        value = _best(x.heads, "prefix_matching", at)
        match = f", best match {value}" if value else ""
        found.append(f"{in_tokens(tokens)}: gain {number(-x.icl[at], sign=True)}{match}")
    return found


def in_tokens(tokens: float) -> str:
    """Returns text such as "0.82 M tokens"."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if tokens >= size:
            return f"{tokens / size:.3g} {letter} tokens"
    return f"{tokens:.0f} tokens"


def _best(heads: Mapping[str, np.ndarray], score: str, at: int) -> str:
    if score not in heads or np.isnan(heads[score][at]).all():
        return ""
    layer, head = np.unravel_index(int(np.nanargmax(heads[score][at])), heads[score].shape[1:])
    return f"{number(float(heads[score][at, layer, head]))} (L{layer}H{head})"


def _spans(tokens: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the tokens of snapshots, and the range for which each is the nearest."""
    middles = (tokens[1:] + tokens[:-1]) / 2.0
    far = 2.0 * float(tokens[-1]) + 1.0
    return {"tokens": tokens, "since": np.concatenate([[-1.0], middles]), "until": np.concatenate([middles, [far]])}


def _by_head(run: DrawnRun, at: np.ndarray, **values: np.ndarray) -> pd.DataFrame:
    """Returns a row for each of the snapshots `at` and each head; every one of `values` is (A, L, H)."""
    x = run.trajectory
    n_layers, n_heads = next(iter(values.values())).shape[1:]
    layer, head = (part.ravel() for part in np.indices((n_layers, n_heads)))
    n, spans = n_layers * n_heads, _spans(x.tokens[at])
    frame = pd.DataFrame({name: np.repeat(column, n) for name, column in spans.items()})
    frame = frame.assign(run=run.label, layer=np.tile(layer, len(at)), head=np.tile(head, len(at)))
    frame["name"] = [f"L{a}H{b}" for a, b in zip(frame["layer"], frame["head"], strict=True)]
    for name, value in values.items():
        frame[name] = value.reshape(len(at) * n)
    return frame.dropna(subset=list(values)[:1])
