"""Small models that learn: a run, what was learned at every snapshot, and the same of another run next to it."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from engine.errors import HeadroomError
from engine.training.phase_change import copying_forms, heads_form, window
from engine.training.recipe import Recipe, recipe_of
from engine.training.trajectory import Trajectory
from engine.views.forms import kit
from engine.views.view import Column, Part, View
from engine.views.words import counted, number, percent, plain

TOKENS = Column("Training tokens", ",d")
COPIES = {"first_copy": "first copy", "second_copy": "second copy"}
LOG = {
    "tokens": TOKENS,
    "loss": Column("Loss, nats a token", ".3f"),
    "icl": Column("In-context score, nats", "+.3f"),
    "first_copy": Column("First copy, nats", ".2f"),
    "second_copy": Column("Second copy, nats", ".2f"),
}
SNAPSHOTS = {
    "step": Column("Step", ",d"),
    **{name: LOG[name] for name in ("tokens", "first_copy", "second_copy")},
    "prefix_matching": Column("Best prefix matching, share", ".2f"),
    "icl": LOG["icl"],
    "loss": LOG["loss"],
}
OTHER = ("version", "snapshots", "tokens")  # fields of a recipe that do not change what is learned by a snapshot


def run_view(log: Sequence[Mapping[str, Any]], about: str, best: Mapping[str, float], missing: Sequence[int]) -> View:
    """What a run has learned by the lines of its log; `best`: the highest scores of its heads by name."""
    notes = [about, *([f"Deleted since: {', '.join(f'step{step}' for step in missing)}."] if missing else [])]
    if not log:
        return View("", notes=notes)
    last = log[-1]
    heads = "".join(f", the best {name.replace('_', ' ')} {number(score)}" for name, score in best.items())
    finding = (
        f"**The loss is {number(last['loss'], 3)} nats a token after {last['tokens']:,} tokens**, and of repeated "
        f"tokens {number(last['second_copy'])} (first copy {number(last['first_copy'])}); the in-context score is "
        f"{number(last['icl'], 3, sign=True)}{heads}."
    )
    rows = [{name: line.get(name) for name in ("step", *LOG)} for line in log]
    return View(finding, [Part("Loss in training", rows, LOG, partial(kit.curves, x="tokens", y="loss"))], notes)


def trajectory_view(found: Trajectory, control: Trajectory | None = None) -> View:
    """When induction heads form in a run, and copying with them, next to another run, its `control`."""
    runs = [found] if control is None else [found, control]
    names = names_of(runs)
    first, gain = [*_copies(runs, names), *_heads(runs, names)], _gain(runs, names)
    notes = [difference(found, control)] if control is not None else []
    notes += [note for each in runs if each.about for note in _notes(each)]
    return View(
        training_finding(found, control), [*first, *gain], [note for note in notes if note], on_slide=len(first)
    )


def _notes(found: Trajectory) -> list[str]:
    """What a run was measured on: what a file says that may be from anybody."""
    about, same = found.about, found.about.get("same_weights")
    around = f", ± {about['around']} tokens" if about.get("around") else ""
    return [
        f"{found.label}: {counted(len(found.steps), 'snapshot')} to {found.tokens[-1]:,.0f} tokens, on "
        f"{about.get('n_texts')} texts of {about.get('n_ctx')} tokens ({about.get('text')}).",
        f"In-context score: token {about.get('late')} less {about.get('early')}{around}. {phase_change(found)}",
        *(f"Steps {pair} have the same weights." for pair in (same if isinstance(same, list) else ())),
    ]


def training_finding(run: Trajectory, control: Trajectory | None = None) -> str:
    """Returns when induction heads and copying form, and whether they do in the control; without scores of heads, when
    the in-context score falls."""
    if np.isnan(run.best("prefix_matching")).all():
        return f"**{phase_change(run)}**"
    finding = f"**{_formed(run)}**"
    if control is None or np.isnan(control.best("prefix_matching")).all():
        return f"{finding}."
    has_neither = heads_form(control) is None and copying_forms(control) is None
    if has_neither and heads_form(run) is None:
        return f"{finding}."
    name = plain(names_of([run, control])[1])
    if has_neither and copying_forms(run) is not None:
        return f"{finding[:-2]}; the run with {name} has neither.**"
    words = _formed(control)
    return f"{finding}; {name}: {words[:1].lower()}{words[1:]}."


def _formed(run: Trajectory) -> str:
    heads, copying = heads_form(run), copying_forms(run)
    if heads is None:
        return f"No induction head forms by {in_tokens(run.tokens[-1])}"
    sentence = f"Induction heads form at {in_tokens(heads.middle)}"
    if copying is None:
        return sentence if np.isnan(run.second_copy).all() else f"{sentence}, and random tokens are hardly copied"
    if copying.start <= heads.end and heads.start <= copying.end:
        return f"{sentence}, and copying with them"
    return f"{sentence}, and copying at {in_tokens(copying.middle)}"


def phase_change(found: Trajectory) -> str:
    """Returns when the in-context gain of a run rises, as a sentence."""
    where = window(found.tokens, found.icl)
    if where is None:
        return "No phase change: the in-context gain never rises steeply."
    rise = number(float(found.icl[where.first] - found.icl[where.last]))
    share = "" if math.isnan(where.share) else f", {percent(where.share, 0)} of its whole change"
    span = f"{in_tokens(where.start)} to {in_tokens(where.end)}"
    return f"Phase change from {span}: the in-context gain rises by {rise} nats{share}."


def difference(found: Trajectory, control: Trajectory) -> str:
    """Returns what the recipes of two runs differ in, as a sentence; "" if that is unknown."""
    recipes = [_recipe(each) for each in (found, control)]
    if recipes[0] is None or recipes[1] is None:
        return ""
    one, other = (recipe.as_json() | {"hapax": recipe.hapax} for recipe in recipes if recipe)
    differ = [name for name in one if one[name] != other[name] and name not in OTHER]
    if not differ:
        return "Both runs have the same settings."
    values = [f"({_value(one[name])} and {_value(other[name])})" for name in differ]
    names = [FIELDS.get(name, name.replace("_", " ")) for name in differ]
    return f"The two runs differ only in {', '.join(map(' '.join, zip(names, values, strict=True)))}."


FIELDS = {
    "n_layers": "the number of layers", "n_heads": "heads", "n_ctx": "context", "d_model": "width", "mlp": "FFNs",
    "n_vocab": "vocabulary", "batch": "rows a step", "rate": "learning rate", "repeats": "share of repeats",
    "hapax": "no loss on copies", "smeared": "smeared keys",
}  # fmt: skip


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "–".join(map(str, value)) if isinstance(value, list) else str(value)


def names_of(runs: Sequence[Trajectory]) -> list[str]:
    """Returns a short name of each run, such as "2 layers": with the run's own where two would have the same."""
    recipes = [_recipe(each) for each in runs]
    short = [recipe.in_short if recipe else run.label for run, recipe in zip(runs, recipes, strict=True)]
    return [f"{name} ({run.name})" if short.count(name) > 1 else name for name, run in zip(short, runs, strict=True)]


def _recipe(found: Trajectory) -> Recipe | None:
    try:
        return recipe_of(found.recipe) if found.recipe else None
    except HeadroomError:  # another trainer's
        return None


def snapshot_rows(found: Trajectory) -> list[dict[str, Any]]:
    """Returns a row for each snapshot, with the prefix matching of each head under its name."""
    values: dict[str, np.ndarray] = {
        "step": found.steps, "tokens": found.tokens.astype(int), "first_copy": found.first_copy,
        "second_copy": found.second_copy, "prefix_matching": found.best("prefix_matching"), "icl": found.icl,
        "gain": -found.icl, "loss": found.loss,
    }  # fmt: skip
    scores = found.heads.get("prefix_matching", np.zeros((len(found.steps), 0, 0)))
    for layer, head in np.ndindex(scores.shape[1:]):
        values[f"L{layer}H{head}"] = scores[:, layer, head]
    return [{name: array[at].item() for name, array in values.items()} for at in range(len(found.steps))]


def last_of(runs: Sequence[Trajectory]) -> float:
    """Returns the end of the axis of tokens, where the longest run ends or will end: rounded up to two digits, as the
    last label would not be drawn if a run of 9,999,360 ended just before it."""
    recipes = [_recipe(each) for each in runs]
    tokens = max(
        max(recipe.tokens if recipe else 0, float(run.tokens[-1])) for recipe, run in zip(recipes, runs, strict=True)
    )
    unit = 10.0 ** (math.floor(math.log10(tokens)) - 1)
    return unit * math.ceil(tokens / unit)


def in_tokens(tokens: float) -> str:
    """Returns text such as "0.82 M tokens"."""
    size, letter = next((each for each in ((1e9, "G"), (1e6, "M")) if tokens >= each[0]), (1e6, "M"))
    return f"{float(f'{tokens / size:.2g}'):g} {letter} tokens"


def _parts(runs: Sequence[Trajectory], names: Sequence[str], title: str, caption: str, **kwargs: Any) -> list[Part]:
    """A chart for each run; the values of `kwargs` are those of all, or functions of a run."""
    found = []
    for run, name in zip(runs, names, strict=True):
        of_run = {key: value(run) if callable(value) else value for key, value in kwargs.items()}
        draw = partial(kit.lines, x="tokens", last=last_of(runs), **of_run)
        found.append(Part(f"{title}, {name}", snapshot_rows(run), SNAPSHOTS, draw, caption, width=1 / len(runs)))
    return found


def _band(found: Trajectory) -> tuple[float, float] | None:
    rise = heads_form(found)
    return None if rise is None else (rise.start, rise.end)


def _copies(runs: Sequence[Trajectory], names: Sequence[str]) -> list[Part]:
    if any(np.isnan(each.second_copy).all() for each in runs):
        return []
    top = math.ceil(max(float(np.nanmax([each.first_copy, each.second_copy])) for each in runs))
    caption = "**Loss on a random sequence and its repeat**: only a model that copies predicts the second copy"
    return _parts(runs, names, "Loss on copies", caption, fields=COPIES, y="Loss, nats", ends=(0, top), band=_band)


def _heads(runs: Sequence[Trajectory], names: Sequence[str]) -> list[Part]:
    if any(np.isnan(each.best("prefix_matching")).all() for each in runs):
        return []

    def layers(found: Trajectory) -> dict[str, int]:
        return {f"L{layer}H{head}": layer for layer, head in np.ndindex(found.heads["prefix_matching"].shape[1:])}

    caption = "**Prefix matching, a line for each head**: attention to what followed an earlier copy of the token"
    return _parts(runs, names, "Prefix matching", caption, fields=lambda run: {head: head for head in layers(run)},
                  y="Share of attention", ends=(0, 1), layers=layers, band=_band)  # fmt: skip


def _gain(runs: Sequence[Trajectory], names: Sequence[str]) -> list[Part]:
    if any(np.isnan(each.icl).all() for each in runs):
        return []
    gains = np.concatenate([-each.icl for each in runs])
    ends = math.floor(10 * np.nanmin(gains)) / 10, math.ceil(10 * np.nanmax(gains)) / 10

    def band(found: Trajectory) -> tuple[float, float] | None:
        where = window(found.tokens, found.icl)
        return None if where is None else (where.start, where.end)

    caption = "**In-context gain**: the loss of an early token of a text less that of a late one; shaded: phase change"
    return _parts(runs, names, "In-context gain", caption, fields={"gain": "gain"}, y="Nats", ends=ends, band=band)
