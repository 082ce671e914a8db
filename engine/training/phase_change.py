"""The phase change of a run (Olsson et al. 2022), from its curves alone: when induction heads form, and when copying
does; the window in which the in-context score falls, and what changed there.

Pure numpy, and scikit-learn's PCA where paths of several runs are drawn on the same axes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.errors import HeadroomError
from engine.heads.induction import INDUCTION_FROM
from engine.statistics import share_of
from engine.training.trajectory import Trajectory

# fewer nats, or standard deviations of the noise, do not count as a fall: 3 of 1,000 noises have one
LEAST_FALL, NOISES = 0.1, 4
SIDE = 5  # snapshots on either side of a fall, whose medians must lie apart by that
WEIGHTS = (2, 3, 3, 2)  # of the intervals among five snapshots; even ones: the slope of their least-squares line
FEW, FEW_WEIGHTS = 15, (1, 1)  # with fewer snapshots: over three of them
# of the median of the next five distances: a snapshot so near the one before says nothing of slopes
CLOSE, NEXT = 0.4, 5
COPIED = 0.5  # of the loss on a first copy that the second one saves, from which a run counts as copying


@dataclass(frozen=True)
class Rise:
    """The tokens at which a curve has half of its highest value (`middle`), last has a fifth of it before that
    (`start`), and first has four fifths of it (`end`)."""

    start: float
    middle: float
    end: float


def heads_form(trajectory: Trajectory) -> Rise | None:
    """Returns when the best prefix matching of all heads rises; None if none becomes an induction head."""
    return _rise(trajectory.tokens, trajectory.best("prefix_matching"), INDUCTION_FROM)


def copying_forms(trajectory: Trajectory) -> Rise | None:
    """Returns when the share of the loss that a second copy saves rises; None if it never saves half."""
    return _rise(trajectory.tokens, 1 - trajectory.second_copy / trajectory.first_copy, COPIED)


def _rise(tokens: np.ndarray, values: np.ndarray, least: float) -> Rise | None:
    values = np.nan_to_num(values)
    if not len(values) or values.max() < least:
        return None
    share = values / values.max()
    middle, end = (int(np.argmax(share >= least)) for least in (0.5, 0.8))
    start = max(np.flatnonzero(share[:middle] < 0.2), default=0)
    return Rise(*(float(tokens[at]) for at in (start, middle, end)))


@dataclass(frozen=True)
class Window:
    """The window of a phase change: snapshots `first` to `last`, at `start` to `end` tokens, around `steepest`.

    `share`: of the whole change of the in-context score, how much is between the two; nan if the score ends about where
    it began. `smoothed`: over how many snapshots its derivative was.
    """

    first: int
    last: int
    start: float
    end: float
    steepest: int
    share: float
    smoothed: int


def window(tokens: np.ndarray, icl: np.ndarray) -> Window | None:
    """The snapshots around the steepest fall of the in-context score where its derivative by tokens is at least half of
    its extreme.

    Only a fall with something before it counts: training begins with a fall too, while a model learns how frequent
    tokens are, and that one is passed over. So is one that leaves the score (the median of five snapshots on either
    side) less than 0.1 nats lower, or less than 4 standard deviations of its noise. A fall of
    which less than half is left at the end is none either. None where no fall is left.
    """
    at = _apart(tokens, icl)
    if len(at) < 4:
        return None
    x, y = np.asarray(tokens, float)[at] / 1e6, np.asarray(icl, float)[at]
    weights = WEIGHTS if len(at) >= FEW else FEW_WEIGHTS
    rates = _slopes(x, y, weights)
    least = max(LEAST_FALL, NOISES * _noise(y))
    for steepest in np.argsort(rates, kind="stable"):
        first, last = _around(rates, int(steepest))
        if rates[first : last + 1].min() < rates[steepest]:
            continue  # on the flank of a steeper one
        before = np.median(y[max(0, first + 1 - SIDE) : first + 1])
        fallen, kept = before - np.median(y[last : last + SIDE]), before - np.median(y[-SIDE:])
        if rates[steepest] < 0 and first > 0 and fallen >= least and kept >= fallen / 2:
            share = share_of(float(y[last] - y[first]), float(y[-1] - y[0]), least)
            return Window(int(at[first]), int(at[last]), float(tokens[at[first]]), float(tokens[at[last]]),
                          int(at[steepest]), share, len(weights) + 1)  # fmt: skip
    return None


def before_and_after(trajectory: Trajectory, where: Window) -> np.ndarray:
    """(n_texts,) what the window changed: losses of the one token of each text at its end minus at its start, scaled to
    length 1 (Olsson et al., before-and-after vector)."""
    return _unit(trajectory.token_losses[where.last] - trajectory.token_losses[where.first])


def projections(trajectory: Trajectory, where: Window) -> np.ndarray:
    """(A, L, H) what each head's ablation adds to the losses, along the before-and-after vector of the window, nats:
    below 0, without the head the change is undone.

    The ablations are of the first texts only: the vector is cut to those, and scaled to length 1 again.
    """
    vector = before_and_after(trajectory, where)
    return trajectory.ablated_losses @ _unit(vector[: trajectory.ablated_losses.shape[-1]])


def gain_by_tokens(tokens: np.ndarray, loss: np.ndarray) -> np.ndarray:
    """(S,) d loss / d tokens, nats a million tokens, smoothed and between snapshots that lie close as the window's
    derivative is."""
    at = _apart(tokens, loss)
    rates = _slopes(np.asarray(tokens, float)[at] / 1e6, np.asarray(loss, float)[at],
                    WEIGHTS if len(at) >= FEW else FEW_WEIGHTS)  # fmt: skip
    return np.interp(np.asarray(tokens, float), np.asarray(tokens, float)[at], rates)


def joint_components(trajectories: Sequence[Trajectory]) -> list[np.ndarray]:
    """(S, 2) of each run, nats: its path on the two principal components of the per-token-loss vectors of all snapshots
    of all runs; columns centered, not scaled. nan at snapshots that were not measured. HeadroomError: the runs have
    different held-out tokens."""
    from sklearn.decomposition import PCA  # a second to import

    texts = {(each.about.get("text_digest"), each.token_losses.shape[1]) for each in trajectories}
    if len(texts) != 1:
        raise HeadroomError("these runs were measured on different tokens, so their losses cannot be put together; "
                            "take runs with the same text and as many texts")  # fmt: skip
    known = [np.asarray(np.isfinite(each.token_losses).all(1)) for each in trajectories]
    rows = np.concatenate([each.token_losses[there] for each, there in zip(trajectories, known, strict=True)])
    if len(rows) < 2 or not rows.shape[1]:
        raise HeadroomError("the losses of one token of each text were not measured; measure `tokens` first")
    pca = PCA(2 if min(rows.shape) > 1 else 1, svd_solver="full")
    reduced = pca.fit_transform(rows.astype(float))
    paths, start = [], 0
    for there in known:
        path = np.full((len(there), 2), np.nan, np.float32)
        path[there, : reduced.shape[1]] = reduced[start : start + there.sum()]
        start += there.sum()
        paths.append(path)
    return paths


def _apart(tokens: np.ndarray, icl: np.ndarray) -> np.ndarray:
    """Indices of the snapshots with a score that lie not much closer than usual behind the one before."""
    known = np.flatnonzero(np.isfinite(icl))
    if len(known) < 2:
        return known
    return known[apart(np.asarray(tokens, float)[known])]


def apart(tokens: np.ndarray) -> np.ndarray:
    """Indices of the snapshots that do not lie much closer behind the one before than those that follow; the first is
    one."""
    steps, found = np.diff(tokens), [0]
    for at in range(1, len(tokens)):
        first = min(at, max(0, len(steps) - NEXT))
        if tokens[at] - tokens[found[-1]] >= CLOSE * float(np.median(steps[first : first + NEXT])):
            found.append(at)
    return np.array(found)


def _slopes(x: np.ndarray, y: np.ndarray, weights: Sequence[int]) -> np.ndarray:
    """dy / dx at each point: the weighted mean of the slopes of the intervals around it, as many as there are."""
    rises, half, n = np.diff(y) / np.diff(x), len(weights) // 2, len(x)
    found = np.zeros(n)
    for at in range(n):
        first, last = max(0, at - half), min(n - 1, at + half)
        found[at] = np.average(rises[first:last], weights=weights[first - at + half : last - at + half])
    return found


def _around(slopes: np.ndarray, steepest: int) -> tuple[int, int]:
    """First and last index of the stretch around the steepest where the slope is at least half of its."""
    beyond = slopes <= slopes[steepest] / 2 * (1 - 1e-9)  # half of it is half of it, whatever is rounded
    first = last = steepest
    while first > 0 and beyond[first - 1]:
        first -= 1
    while last < len(slopes) - 1 and beyond[last + 1]:
        last += 1
    return first, last


def _noise(y: np.ndarray) -> float:
    """Standard deviation of a curve around its course: from the lower quartile of its second differences, as the upper
    ones are bends of the course itself."""
    return float(np.quantile(np.abs(np.diff(y, 2)), 0.25)) / 0.3186 / 6**0.5  # of a normal |z|; of y's three terms


def _unit(vector: np.ndarray) -> np.ndarray:
    return vector / max(float(np.linalg.norm(vector)), 1e-30)
