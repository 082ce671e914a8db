"""What the embedded model is meant to show, as bars: plain numbers in, a line each out, "reached" or "MISSED".

An accuracy is 0-1, a change of it in points of a hundred, losses in nats a token, text in bits a byte.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.importance.rankings import TOP_SHARE, n_top, top_overlap
from engine.studies.removal import AccuracyWithout

CLEAR_MATCH = 0.5  # prefix matching of a head that plainly is an induction head
EXAMPLES, COPYING, READING, NOTHING = (
    "examples",
    "copying",
    "reading",
    "nothing",
)  # what a family takes from its context


@dataclass(frozen=True)
class Bar:
    """One statement with its figure and its bar; `reached` None: reported without a bar."""

    text: str
    reached: bool | None = None

    def __str__(self) -> str:
        word = {True: "reached", False: "MISSED ", None: "       "}[self.reached]
        return f"{word}  {self.text}"


def of_accuracy(shots: Mapping[str, Mapping[int, float]], int8: Mapping[str, float]) -> list[Bar]:
    """From each family's accuracy by number of shots, and in int8 at 5."""
    at_five = np.array([found[5] for found in shots.values()])
    rises = sum(found[5] - found[0] >= 0.15 for found in shots.values())
    means = ", ".join(f"{np.mean([found[n] for found in shots.values()]):.3f} at {n}" for n in (0, 1))
    off = {name: 100 * (int8[name] - found[5]) for name, found in shots.items() if name in int8}
    bars = [
        Bar(f"mean at 5 shots {at_five.mean():.3f} (at least 0.80); {means}", bool(at_five.mean() >= 0.80)),
        Bar(f"{rises} of {len(shots)} families rise by 0.15 or more from 0 to 5 shots (at least half)",
            2 * rises >= len(shots)),
    ]  # fmt: skip
    if off:
        mean, worst = float(np.mean([*off.values()])), max(off, key=lambda name: abs(off[name]))
        text = f"int8 differs by {mean:+.1f} points in the mean (within 2), by {off[worst]:+.1f} in {worst}"
        bars.append(Bar(text, abs(mean) <= 2))
    return bars


def of_heads(prefix_matching: np.ndarray) -> list[Bar]:
    """From prefix matching (L, H)."""
    n = int((prefix_matching > CLEAR_MATCH).sum())
    return [Bar(f"{n} heads with prefix matching over {CLEAR_MATCH} (at least 3)", n >= 3)]


@dataclass(frozen=True)
class Removed:
    """What becomes of one family without the induction heads: at 5 shots, without any, and at 5 shots without as many
    others, a draw each."""

    needs: str
    at_five: AccuracyWithout
    at_none: AccuracyWithout
    draws: tuple[AccuracyWithout, ...] = ()


def of_removal(found: Mapping[str, Removed]) -> list[Bar]:
    """The accuracy lost without the induction heads, averaged over the families of each group, and that of the random
    draws."""

    def lost(which: str, *needs: str) -> float:
        lines = [getattr(each, which).points for each in found.values() if each.needs in needs]
        return 0.0 - float(np.mean(lines)) if lines else float("nan")

    examples = lost("at_five", EXAMPLES)
    drawn = np.array([[0.0 - line.points for line in each.draws] for each in found.values() if each.needs == EXAMPLES])
    said = f"without the induction heads the families that need examples lose {examples:.1f} points at 5 shots"
    bars = [Bar(f"{said} (at least 40)", examples >= 40)]
    if drawn.size:
        each = drawn.mean(0)
        said = f"without as many others {each.mean():.1f} (under 10), {each.min():.1f} to {each.max():.1f} by draw"
        bars.append(Bar(f"{said}, {drawn.shape[1]} draws", bool(each.mean() < 10)))
    for which, shots in (("at_none", "no examples, as the story asks"), ("at_five", "5 shots")):
        neither, reading, nothing = lost(which, READING, NOTHING), lost(which, READING), lost(which, NOTHING)
        said = f"those that need no examples and copy nothing lose {neither:.1f} ({shots}; under 5)"
        bars.append(Bar(f"{said}: that read a passage {reading:.1f}, that need nothing {nothing:.1f}", neither < 5))
        copying, others = lost(which, COPYING), lost(which, COPYING, READING, NOTHING)
        bars.append(Bar(f"those that copy lose {copying:.1f}; all but those that need examples {others:.1f} ({shots})"))
    return bars


def of_importance(name: str, importance: np.ndarray, prefix_matching: np.ndarray, is_bar: bool = True) -> list[Bar]:
    """From scores (L, H) of importance, called `name`, and of prefix matching: of the `TOP_SHARE` most important heads
    the share that are among as many of the highest prefix matching, and Spearman's rho with scipy's two-sided p."""
    from scipy.stats import spearmanr

    share, n = top_overlap(importance, prefix_matching), n_top(importance.size)
    rho, p = map(float, spearmanr(importance.ravel(), prefix_matching.ravel()))
    best = np.argsort(-importance.ravel(), kind="stable")[:n]
    n_last = int((best // importance.shape[1] == len(importance) - 1).sum())
    said = f"{name}: of the {n} most important heads ({100 * TOP_SHARE:.0f}%) {round(share * n)} are among the {n} of "
    said += f"highest prefix matching (at least a third); {n_last} are of the last layer"
    agree = f"{name}: Spearman with prefix matching {rho:+.2f}, p = {p:.3g} (positive, p < 0.05)"
    if not is_bar:
        return [Bar(said), Bar(agree)]
    return [Bar(said, share >= 1 / 3), Bar(agree, rho > 0 and p < 0.05)]


def by_layer_norm(scores: np.ndarray) -> np.ndarray:
    """(L, H) scores with each layer divided by its L2 norm, as the released code of Michel et al. 2019 does."""
    norms = np.sqrt((scores**2).sum(1, keepdims=True))
    return np.divide(scores, norms, out=np.zeros_like(scores), where=norms > 0)


def of_pruning(found: Mapping[str, Mapping[int, AccuracyWithout]]) -> list[Bar]:
    """From each family's Line by level (permille of its heads pruned by importance)."""
    levels = sorted({level for lines in found.values() for level in lines})
    points = {level: float(np.mean([lines[level].points for lines in found.values()])) for level in levels}
    risen = {name: [level for level, line in lines.items() if rises(line)] for name, lines in found.items()}
    named = [f"{name} at {'/'.join(f'{level // 10}' for level in at)}%" for name, at in risen.items() if at]
    n, never = len(found), sum(not at for at in risen.values())
    wanted = n - n // 9  # 16 of 18
    means = ", ".join(f"{level // 10}%: {points[level]:+.1f}" for level in levels)
    said = f"in {never} of {n} families accuracy never rises significantly (at least {wanted})"
    return [
        Bar(f"mean change by importance, points: {means} (none below -5)", min(points.values()) >= -5),
        Bar(": ".join([said, *([", ".join(named)] if named else [])]), never >= wanted),
    ]


def rises(line: AccuracyWithout) -> bool:
    """Whether pruning gains accuracy by McNemar's exact test at 5%."""
    return line.change.is_significant and line.change.gained > line.change.lost


def of_text(with_bos: float, without: float, places: Mapping[str, tuple[float, float]]) -> list[Bar]:
    """From bits a byte of held-out prose: read as the app reads it, with BOS once in front and without; and by place,
    over the same tokens, with BOS in front of each window and without."""
    said = f"held-out prose {with_bos:.3f} bits a byte with BOS in front, {without:.3f} without (under 1.65)"
    bars = [Bar(said, max(with_bos, without) < 1.65)]
    for place, (bos, none) in places.items():
        text = f"{place}: {bos:.3f} with BOS, {none:.3f} without (within 0.05)"
        bars.append(Bar(text, abs(bos - none) <= 0.05))
    return bars


def of_passage(full: Sequence[float], gone: Sequence[float] | None) -> list[Bar]:
    """From the mean loss of the first and of the second copy of a passage said twice, by the full model and without its
    induction heads (None: it has none)."""
    first, second = full
    bars = [
        Bar(f"Privet Drive, first copy {first:.2f} nats a token (under 6)", first < 6),
        Bar(f"second copy {second:.2f} (at least 2 lower)", first - second >= 2),
    ]
    if gone is not None:
        bars += [
            Bar(f"without the induction heads the second copy {gone[1]:.2f} (at least 1 worse)", gone[1] - second >= 1),
            Bar(f"and the first copy {gone[0]:.2f} (within 0.3)", abs(gone[0] - first) <= 0.3),
        ]
    return bars
