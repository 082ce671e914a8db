"""What a comparison of kinds of heads finds, in one or two sentences."""

from collections.abc import Sequence

from engine.shapes import ModelShape
from engine.studies.mechanisms import KINDS, RANDOM, LostGain, Mechanisms, overlaps

NEARLY = 0.75  # share of the heads of two kinds that makes them nearly the same


def mechanisms_finding(found: Mechanisms, shape: ModelShape) -> str:
    """Returns one or two sentences on the kinds that in-context learning needs here; "" before they are measured."""
    share = max(found.settings.shares)
    rows = [each for each in found.answered if each.kind in KINDS and each.share == share and not each.excludes]
    drawn = [each for each in found.answered if each.kind == RANDOM and each.share == share]
    if len(rows) < len(found.scores) or not rows or len(drawn) < found.settings.n_random:
        return ""
    if found.gain <= 0:
        return "Examples add nothing here that could be lost."
    one = found.settings.shots == 1
    examples = "1 example" if one else f"{found.settings.shots} examples"
    clear = sorted(filter(found.beyond_random, rows), key=lambda each: -found.lost(each).points)
    if not clear:
        return (
            f"No kind of heads is needed clearly more than random heads for the {found.gain:.0f} points that "
            f"{examples} {'adds' if one else 'add'}."
        )
    most, lost, n = clear[0], found.lost(clear[0]), len(clear[0].heads)
    kind = most.kind.replace(" ", "-")
    top = f"{n} top {kind} heads" if n > 1 else f"top {kind} head"
    at_random = found.gain - found.at_random(share)[1]
    left = f"{round(found.gain - lost.points)}".replace("-", "−")
    points = "1 point" if round(found.gain) == 1 else f"{found.gain:.0f} points"
    words = f"{examples[:1].upper()}{examples[1:]} {'adds' if one else 'add'} {points}; without the {top}, "
    words += f"{_what_examples_add(found.gain, lost, left)}. Without as many random heads {at_random:.0f} or more."
    as_much = {each.kind: len({*each.heads} & {*most.heads}) for each in clear[1:]
               if not found.lost(most, each).is_clear}  # fmt: skip
    same = [kind for kind, shared in as_much.items() if shared >= NEARLY * n]
    if same:
        if alike := [kind for kind in same if as_much[kind] == n]:
            words += f" {_listed([most.kind, *alike]).capitalize()} heads are the same{f' {n}' if n > 1 else ''}."
        if nearly := [kind for kind in same if kind not in alike]:
            too = " too" if alike else ""
            words += f" {_listed([most.kind, *nearly]).capitalize()} heads are nearly the same{too}."
    if others := [kind for kind in as_much if kind not in same]:
        words += f" {_listed(others).capitalize()} heads cost about as much."
    alone = _finding_of_exclusive(found, share) if found.settings.excludes else ""
    return f"{words} {alone}".strip()


def finding_of_scores(found: Mechanisms, shape: ModelShape) -> str:
    """Returns which two kinds share most of their top heads; "" with fewer than two."""
    rows = overlaps(shape, found.scores)
    if not rows:
        return ""
    most = max(rows, key=lambda row: row["shared"])
    n, chance = most["n"], most["n"] ** 2 / shape.n_heads_total
    words = f"Of their {n} top heads, {_listed([most['a'], most['b']])} heads share the most: {most['shared']}"
    return words + (f" (by chance {chance:.0f})." if round(chance) else ".")


def _what_examples_add(gain: float, lost: LostGain, left: str) -> str:
    """Returns how many points examples add without some heads, `left` in words."""
    if round(gain - lost.points) > 0:
        return f"only {left}"
    return f"none: answers get worse ({left})" if lost.low > gain else "none" + f" ({left})" * (left != "0")


def _finding_of_exclusive(found: Mechanisms, share: int) -> str:
    """Returns one sentence on the heads of each kind that are of no other; "" before all of them are measured."""
    rows = [each for each in found.answered if each.excludes and each.share == share]
    if len(rows) < len(found.scores):
        return ""
    if alone := [each.kind for each in rows if found.beyond_random(each)]:
        return f"Of heads of one kind alone, only {_listed(alone)} heads cost clearly more than random ones."
    return "No kind alone costs clearly more than random heads: those that matter are of several kinds."


def _listed(kinds: Sequence[str]) -> str:
    names = [kind.replace(" ", "-") for kind in kinds]
    if len(names) < 3:
        return " and ".join(names)
    return f"{', '.join(names[:-1])}, and {names[-1]}"
