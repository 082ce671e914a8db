"""What a comparison of kinds of heads finds, in one or two sentences."""

from collections.abc import Sequence

from engine.shapes import ModelShape
from engine.studies.mechanisms import KINDS, RANDOM, Mechanisms

MOST_NAMED = 4  # heads in the finding


def finding(found: Mechanisms, shape: ModelShape) -> str:
    """Returns one or two sentences on the kinds that in-context learning needs here; "" before they are measured."""
    share = max(found.settings.shares)
    rows = [each for each in found.answered if each.kind in KINDS and each.share == share and not each.excludes]
    drawn = [each for each in found.answered if each.kind == RANDOM and each.share == share]
    if len(rows) < len(found.scores) or not rows or len(drawn) < found.settings.n_random:
        return ""
    if found.gain <= 0:
        return "Examples add nothing here that could be lost."
    added = "1 example adds" if found.settings.shots == 1 else f"{found.settings.shots} examples add"
    clear = sorted(filter(found.beyond_random, rows), key=lambda each: -found.lost(each).points)
    if not clear:
        return (
            f"No kind of heads is needed clearly more than random heads for the {found.gain:.0f} points that {added}."
        )
    most, lost, n = clear[0], found.lost(clear[0]), len(clear[0].heads)
    top = f"{n} top {most.kind} heads" if n > 1 else f"top {most.kind} head"
    names = f" ({', '.join(shape.head_names[head] for head in sorted(most.heads))})" if n <= MOST_NAMED else ""
    left, at_random = found.gain - lost.points, found.gain - found.at_random(share)[1]
    less = f"{left:.0f}" if round(left) > 0 else "nothing"
    words = f"{added} {found.gain:.0f} points to the full model, but {less} without the {top}{names}, "
    words += f"and at least {at_random:.0f} without as many random heads."
    if found.settings.excludes and (alone := _finding_of_exclusive(found, share)):
        return f"{words} {alone}"
    same = {n: "the same" if n == 1 else f"the same {n}", 0: "none of these"}
    as_much = []
    for each in clear[1:]:
        if not found.lost(most, each).is_clear:
            k = len({*each.heads} & {*most.heads})
            as_much.append(f"{each.kind} heads ({same.get(k, f'{k} of these {n}')})")
    return f"{words} {_listed(as_much).capitalize()} cost about as much." if as_much else words


def _finding_of_exclusive(found: Mechanisms, share: int) -> str:
    """Returns one sentence on the heads of each kind that are of no other; "" before all of them are measured."""
    rows = [each for each in found.answered if each.excludes and each.share == share]
    if len(rows) < len(found.scores):
        return ""
    if alone := [each.kind for each in rows if found.beyond_random(each)]:
        return f"Of heads of one kind alone, only {_listed(alone)} heads cost clearly more than random ones."
    return "No kind alone costs clearly more than random heads: those that matter are of several kinds."


def _listed(names: Sequence[str]) -> str:
    if len(names) < 3:
        return " and ".join(names)
    return f"{', '.join(names[:-1])}, and {names[-1]}"
