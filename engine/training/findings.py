"""The statements of Olsson et al. on training, and one of HAPAX (arXiv 2511.05743), and which of them hold for a set of
runs, with their numbers."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from engine.errors import HeadroomError
from engine.statistics import Judgment, Statement, all_hold
from engine.training.phase_change import Window, apart, gain_by_tokens, joint_components, projections, window
from engine.training.recipe import law_tokens
from engine.training.trajectory import Trajectory

SHARE, INDUCTION, CROSSED, LITTLE, SMALL = 0.75, 0.4, 0.5, 0.2, 0.15  # share; three of prefix matching; nats
STEEPER = 1.2  # times as steep as before: what "not convex" takes
APART = 0.05  # nats: from there on two losses have parted
FACTOR = 4  # within which the law is said to hold
ALIKE = ("n_layers", "mlp", "seed", "batch", "n_ctx", "repeats")  # of a run and its control


@dataclass(frozen=True)
class _Windowed:
    """A trajectory with its window."""

    held: Trajectory
    window: Window | None

    @property
    def m_tokens(self) -> float:
        return float(self.held.tokens[-1]) / 1e6


@dataclass(frozen=True)
class Twins:
    """A run `without` loss on copies, and its twin `with_copies` in the loss."""

    without: Trajectory
    with_copies: Trajectory

    @property
    def seed(self) -> int:
        return int((self.without.recipe or {}).get("seed", 0))

    @property
    def matching(self) -> tuple[float, float]:
        """The highest prefix matching of any head at any snapshot, of both."""
        of_both = [float(np.nanmax(run.best("prefix_matching"))) for run in (self.without, self.with_copies)]
        return of_both[0], of_both[1]

    @property
    def gain_nats(self) -> tuple[float, float]:
        """The in-context gain at the end, of both."""
        return -float(self.without.icl[-1]), -float(self.with_copies.icl[-1])


def findings(trajectories: Sequence[Trajectory]) -> list[Statement]:
    """Every statement, over the runs that it is about. Runs with repeats count too, and their labels say so; runs
    without loss on copies count for the last one alone."""
    known = [each for each in trajectories if each.recipe is not None and not each.recipe.get("hapax")]
    runs = [_Windowed(each, window(each.tokens, each.icl)) for each in known]
    kinds = dict.fromkeys((_said(run, "n_layers") or 0, bool(_said(run, "mlp"))) for run in runs)
    deep = [run for n, mlp in sorted(kinds) if n > 1 for run in _of(runs, n, False, mlp)]
    changing = [run for run in deep if run.window is not None]
    found = [
        (f"At least {SHARE:.0%} of the final in-context gain forms in the window", _each(deep, _share)),
        ("A plain model of 1 layer never has the phase change", _each(_of(runs, 1, False), _never)),
        ("A model of 1 layer with smeared keys has it", _each(_of(runs, 1, True), _does)),
        ("A model of 2 layers with smeared keys has it sooner than its control", _sooner(runs)),
        (f"The best head's prefix matching crosses {CROSSED} in the window", _each(changing, _crosses)),
        ("The loss is not convex in the window", _each(changing, _not_convex)),
        ("The losses of 1 and 2 layers part in the window first", _part(runs)),
        ("The path of the per-token losses turns most in the window", _turns(changing, trajectories)),
        ("Induction heads' ablation undoes what the window changed: their projections are negative",
         _each(changing, partial(_ablations, _projected))),
        ("Ablating induction heads takes the in-context gain, ablating most others raises it",
         _each(changing, partial(_ablations, _ablated))),
        ("The phase change comes at 10^5.7 * sqrt(batch * context) tokens, within a factor of 4",
         _each(changing, _law)),
        ("In-context learning comes without induction heads if copies do not count in the loss (HAPAX)",
         _without_copies(twins(trajectories))),
    ]  # fmt: skip
    return [Statement.judged(text, judgment) for text, judgment in found]


def _of(runs: Iterable[_Windowed], n_layers: int, smeared: bool, mlp: bool = False) -> list[_Windowed]:
    """The runs of such a model; their labels say what repeats they had."""
    kind = (n_layers, smeared, mlp)
    return [run for run in runs if tuple(_said(run, name) for name in ("n_layers", "smeared", "mlp")) == kind]


def _said(run: _Windowed, name: str) -> Any:
    """What a run's recipe says there; None where it, as another trainer's may, says nothing."""
    return (run.held.recipe or {}).get(name)


def _each(runs: Sequence[_Windowed], judge: Callable[[_Windowed], Judgment]) -> Judgment:
    """Whether it holds for every run that it could be judged for."""
    judged = [(holds, f"{_named(run, runs)}: {words}") for run in runs for holds, words in [judge(run)]]
    known = [(holds, words) for holds, words in judged if holds is not None]
    return all_hold(known, "; ".join(words for _, words in judged) or "no such run")


def _named(run: _Windowed, among: Sequence[_Windowed]) -> str:
    """Its label, and its seed and batch where another one has the same."""
    if sum(each.held.label == run.held.label for each in among) < 2:
        return run.held.label
    return f"{run.held.label} (seed {_said(run, 'seed')}, batch {_said(run, 'batch')})"


def _none(run: _Windowed) -> str:
    return f"no phase change by {run.m_tokens:.1f} M tokens"


def _between(where: Window) -> str:
    return f"{where.start / 1e6:.1f} to {where.end / 1e6:.1f} M tokens"


def _share(run: _Windowed) -> Judgment:
    if run.window is None:
        return None, _none(run)
    if math.isnan(run.window.share):
        return None, "the in-context score ends about where it began"
    return run.window.share >= SHARE, f"{run.window.share:.0%} from {_between(run.window)}"


def _never(run: _Windowed) -> Judgment:
    best, change = run.held.best("prefix_matching"), float(run.held.icl[-1] - run.held.icl[0])
    if np.isnan(best).all():
        return None, "heads were not measured"
    if math.isnan(change):
        return None, "it reads no text"
    words = f"best prefix matching at most {np.nanmax(best):.2f}, in-context gain {-change:+.2f} nats in all"
    return bool(np.nanmax(best) < LITTLE and change > -SMALL), f"{words} by {run.m_tokens:.1f} M tokens"


def _does(run: _Windowed) -> Judgment:
    best = run.held.best("prefix_matching")
    if np.isnan(best).all():
        return None, "heads were not measured"
    words = f"best prefix matching {np.nanmax(best):.2f}"
    if run.window is None:
        return False, f"{words}, {_none(run)}"
    return bool(np.nanmax(best) >= INDUCTION), f"{words}, {_between(run.window)}"


def _sooner(runs: Sequence[_Windowed]) -> Judgment:
    """Pairs that differ in the smeared keys alone."""
    judged = list[Judgment]()
    for smeared in (run for run in runs if _said(run, "smeared") and _said(run, "n_layers") == 2):
        for plain in runs:
            if not _said(plain, "smeared") and all(_said(plain, name) == _said(smeared, name) for name in ALIKE):
                a, b = smeared.window, plain.window
                words = (f"{_between(a) if a else _none(smeared)} with smeared keys, "
                         f"{_between(b) if b else _none(plain)} without")  # fmt: skip
                judged.append((a is not None and (b is None or a.start < b.start), words))
                break
    return all_hold(judged, "no such pair of runs")


def _crosses(run: _Windowed) -> Judgment:
    best, where = run.held.best("prefix_matching"), run.window
    if where is None or np.isnan(best).all():
        return None, "heads were not measured"
    above = np.flatnonzero(best >= CROSSED)
    if not len(above):
        return False, f"it never does, {np.nanmax(best):.2f} at most"
    at = int(above[0])
    words = f"at {run.held.tokens[at] / 1e6:.1f} M tokens, the window {_between(where)}"
    return where.first < at <= where.last, words


def _not_convex(run: _Windowed) -> Judgment:
    """Whether the loss falls faster in the window than it did before."""
    where = run.window
    if where is None:
        return None, _none(run)
    rates = gain_by_tokens(run.held.tokens, run.held.loss)
    before = float(np.median(rates[max(0, where.first - 5) : where.first + 1]))
    inside = float(rates[where.first : where.last + 1].min())
    words = f"loss {before:+.2f} nats a M tokens before, {inside:+.2f} at the steepest inside"
    return bool(inside < STEEPER * min(before, 0.0)), words


def _part(runs: Sequence[_Windowed]) -> Judgment:
    """From where on the loss of 2 layers stays below that of 1 layer."""
    judged = list[Judgment]()
    for two in _of(runs, 2, False):
        for one in _of(runs, 1, False):
            same = ("batch", "repeats", "repeats_until", "rate")  # and the text
            alike = [(each.held.about.get("text_digest"), *(_said(each, name) for name in same)) for each in (one, two)]
            if two.window is None or alike[0] != alike[1]:
                continue
            tokens = two.held.tokens[two.held.tokens <= one.held.tokens[-1]]
            ahead = np.interp(tokens, one.held.tokens, one.held.loss) - two.held.loss[: len(tokens)]
            behind = np.flatnonzero(ahead <= APART)
            first = int(behind[-1]) + 1 if len(behind) else 0
            if first == len(tokens):
                judged.append((False, f"{_named(two, runs)}: they are never {APART} nats apart for good"))
            else:
                judged.append((two.window.first < first <= two.window.last,
                             f"{_named(two, runs)}: {APART} nats apart from {tokens[first] / 1e6:.1f} M tokens on, the "
                             f"window {_between(two.window)}"))  # fmt: skip
            break
    return all_hold(judged, "no two such runs on the same text with a window")


def turns(path: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """(S,) the angle in degrees by which a path (S, 2) turns at each snapshot, between two snapshots before and two
    behind; nan at the ends, and where the path hardly moves (a tenth of its longest such piece)."""
    found = np.full(len(path), np.nan)
    at = apart(tokens)  # early snapshots lie close
    ahead = path[at][2:] - path[at][:-2]
    lengths = np.linalg.norm(ahead, axis=1)
    if len(ahead) < 3:
        return found
    for number, (before, behind) in enumerate(zip(range(len(ahead) - 2), range(2, len(ahead)), strict=True), 2):
        if min(lengths[before], lengths[behind]) >= lengths.max() / 10:
            cosine = float(ahead[before] @ ahead[behind]) / (lengths[before] * lengths[behind])
            found[at[number]] = np.degrees(np.arccos(np.clip(cosine, -1, 1)))
    return found


def _turns(changing: Sequence[_Windowed], every: Sequence[Trajectory]) -> Judgment:
    judged = list[Judgment]()
    for run in changing:
        kin = [each for each in every if each.about.get("text_digest") == run.held.about.get("text_digest")
               and each.token_losses.shape[1] == run.held.token_losses.shape[1]]  # fmt: skip
        try:
            path = joint_components(kin)[[each is run.held for each in kin].index(True)]
        except HeadroomError:
            continue
        angles = turns(path, run.held.tokens)
        if run.window is None or np.isnan(angles).all():
            continue
        at = int(np.nanargmax(angles))
        judged.append((run.window.first <= at <= run.window.last,
                     f"{_named(run, changing)}: by {angles[at]:.0f} degrees at {run.held.tokens[at] / 1e6:.1f} M "
                     f"tokens, the window {_between(run.window)}"))  # fmt: skip
    return all_hold(judged, "the one token of each text was not measured in a run with a window")


def _ablations(judge: Callable[[_Windowed, Window, int, np.ndarray], Judgment], run: _Windowed) -> Judgment:
    """What `judge` says of the first ablated snapshot from the window's end on, by its number among them and (L, H)
    whether a head is an induction head there."""
    held, where, scores = run.held, run.window, run.held.heads.get("prefix_matching")
    later = [] if where is None else np.flatnonzero(held.ablated >= where.last)
    if where is None or scores is None or not len(later) or np.isnan(scores[held.ablated[later[0]]]).all():
        return None, "heads were not ablated behind the window"
    is_induction = scores[held.ablated[later[0]]] >= INDUCTION
    if not is_induction.any():
        return None, f"no head has a prefix matching of {INDUCTION} there"
    return judge(run, where, int(later[0]), is_induction)


def _projected(run: _Windowed, where: Window, number: int, is_induction: np.ndarray) -> Judgment:
    values = projections(run.held, where)[number][is_induction]
    words = f"{len(values)} induction heads, {(values < 0).sum()} of them below 0, projections"
    return bool((values < 0).all()), f"{words} {values.min():+.2f} to {values.max():+.2f}"


def _ablated(run: _Windowed, where: Window, number: int, is_induction: np.ndarray) -> Judgment:
    changes = run.held.ablated_icl[number]
    taken, others = changes[is_induction], changes[~is_induction]
    raised = int((others < 0).sum())
    words = f"the gain changes by {-taken.max():+.3f} to {-taken.min():+.3f} nats without an induction head"
    words += f", and rises without {raised} of {len(others)} others"
    return bool((taken > 0).all() and 2 * raised > len(others)), words


def _law(run: _Windowed) -> Judgment:
    held, where = run.held, run.window
    if where is None:
        return None, _none(run)
    seen, steps = float(held.tokens[where.steepest]), int(held.steps[where.steepest])
    # another trainer's steps may grow: what they held until then, in the mean
    said = law_tokens((_said(run, "batch") or 0) * (_said(run, "n_ctx") or 0) or round(seen / steps))
    words = f"{said / 1e6:.1f} M said, {seen / 1e6:.1f} M seen"
    return bool(said / FACTOR <= seen <= said * FACTOR), words


def twins(trajectories: Sequence[Trajectory]) -> list[Twins]:
    """Returns each run without loss on copies with its twin: of the same settings, seed, and text."""

    def alike(run: Trajectory) -> tuple[Any, ...]:
        settings = {name: value for name, value in (run.recipe or {}).items() if name != "hapax"}
        return settings, run.about.get("text_digest")

    known = [each for each in trajectories if each.recipe is not None]
    without, others = (
        [run for run in known if bool((run.recipe or {}).get("hapax")) is hapax] for hapax in (True, False)
    )
    return [Twins(run, twin) for run in without for twin in others if alike(run) == alike(twin)]


def _without_copies(pairs: Sequence[Twins]) -> Judgment:
    """Whether runs without loss on copies have an in-context gain and no induction head, next to their twins."""
    if not pairs:
        return None, "no such run with its twin"
    matching, gain = (np.array([getattr(pair, name) for pair in pairs]) for name in ("matching", "gain_nats"))
    of, words = ("runs" if len(pairs) > 1 else "run"), list[str]()
    for name, values in (("best prefix matching", matching), ("in-context gain in nats", gain)):
        words.append(f"{name} {_spread(values[:, 0])}, of {'its twin' if of == 'run' else 'their twins'} "
                     f"{_spread(values[:, 1])}")  # fmt: skip
    holds = bool(matching[:, 0].max() < INDUCTION and gain[:, 0].min() >= SMALL)
    return holds, f"{len(pairs)} {of} without loss on copies: {'; '.join(words)}"


def _spread(values: np.ndarray) -> str:
    """Returns text such as "0.21 (0.18 to 0.25)"; one value alone."""
    ends = f" ({values.min():.2f} to {values.max():.2f})" if len(values) > 1 else ""
    return f"{values.mean():.2f}{ends}"
