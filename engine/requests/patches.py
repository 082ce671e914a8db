"""Activation patching between two prompts: `PatchPrompts`."""

from dataclasses import MISSING, dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from engine.demo import OTHER_PROMPT, PROMPT
from engine.errors import UsageError
from engine.heads.patching import HEADS, KINDS, Patching, PatchMap, patch_map
from engine.requests.base import OfModel, RequestRun, Result
from engine.requests.fields import choice, numbers_of, output, string
from engine.requests.output import TABLES, file_of, table_file
from engine.views.patches import patch_view

N_LARGEST = 5


@dataclass(frozen=True, kw_only=True)
class PatchPrompts(OfModel):
    """Measure which layer and position carry what makes two prompts end differently. The value is a PatchMap."""

    command: ClassVar[str] = "patch"
    group: ClassVar[str] = "Text"
    prompt: str = string(MISSING, "prompt A, which is read with activations of prompt B", what="prompt", example=PROMPT)
    other_prompt: str = string(MISSING, "prompt B, with as many tokens as A", what="prompt", example=OTHER_PROMPT)
    patched: str = choice(
        "stream",
        tuple(KINDS),
        "what is taken from B: stream (default), attention, ffn, or heads (one head at the last token)",
    )
    answers: str | None = string(
        None, "the answers after A and after B, such as Rome,Paris (default: the likeliest next token of each)"
    )
    pair: str | None = string(
        None, "positions I,J: only B's activation at I, put into A at J, over all layers (from 0; -1 is the last token)"
    )
    out: str | None = output(TABLES)

    def measure(self, run: RequestRun) -> Result:
        import pandas as pd

        found = run.value(patch_map(self.target(run.session), self.wanted()))
        rows = patch_rows(found)
        largest = sorted(rows, key=lambda row: -abs(row["effect"]))[: N_LARGEST if found.is_clear else 0]
        before, after = found.differences
        fields: dict[str, Any] = {
            "answers": [*found.answers], "difference_a": before, "difference_b": after, "rounding": found.rounding,
            "patched": self.patched, "largest": largest, "out": self.out,
        }  # fmt: skip
        table = partial(pd.DataFrame, rows)  # also where the difference is too small to be shown
        files = file_of(self.out, lambda suffix: table_file(suffix, table()))
        return Result(found, fields, patch_view(found, rows), files, table=table)

    def wanted(self) -> Patching:
        """Returns what is patched; UsageError if there are not two answers or positions."""
        answers, pair = None, None
        if self.answers is not None:
            answers = tuple(each.strip() for each in self.answers.split(","))
            if len(answers) != 2 or not all(answers):
                raise UsageError(f"--answers {self.answers!r}: expected two answers, such as Rome,Paris")
        if self.pair is not None:
            at = numbers_of("--pair", self.pair)  # of two that are equal it gives one
            if not 1 <= len(at) <= 2:
                raise UsageError(f"--pair {self.pair!r}: expected two positions, such as 3,5")
            pair = at[0], at[-1]
        return Patching(self.prompt, self.other_prompt, self.patched, answers, pair)


def patch_rows(found: PatchMap) -> list[dict[str, Any]]:
    """Returns one row per layer and position, with both prompts' tokens there, or of heads per layer and head, or of a
    pair per layer; and the effect (0 as in A, 1 as in B)."""
    if found.kind == HEADS:
        named: list[dict[str, Any]] = [{"head": head} for head in range(len(found.effects[0]))]
    elif found.pair is not None:
        (i, j), (of_a, of_b) = found.pair, found.tokens
        named = [{"position_b": i, "token_b": of_b[i], "position": j, "token_a": of_a[j]}]
    else:
        places = zip(*found.tokens, strict=True)
        named = [{"position": at, "token_a": a, "token_b": b} for at, (a, b) in enumerate(places)]
    return [{"layer": layer, **place, "effect": float(np.float32(effect))}
            for layer, effects in sorted(found.effects.items())
            for place, effect in zip(named, effects, strict=True)]  # fmt: skip
