"""What a run is made by: `Recipe`, every number that decides what a small model becomes, and nothing that does not; and
RECIPES by name, for the command line and the Training screen.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from cache.typed_json import InvalidFile, convert
from engine.errors import UsageError

VERSION = 1  # of what a recipe means; a run of another one is refused in one line
LONG_EVERY = 4  # of so many steps one has rows over the whole context, where others have short ones
LAW = 10**5.7  # tokens at the phase change, over the root of the tokens a step (Aoyama et al., arXiv 2511.16893)
EPSILON, THETA = 1e-6, 10_000.0  # of the norms, of rotary positions
MAX_TOKENS, MAX_SEED = 10_000_000_000, 2**31 - 1
FEWEST_VOCABULARY = 259  # every byte, the beginning of a text, and at least two pairs


@dataclass(frozen=True)
class Recipe:
    """One run. The model: `n_layers` (1 to 6) of attention, with `mlp` of attention and a gated FFN; `smeared` keys, as
    in Olsson et al.; `positions` rotary, or shortformer as theirs (added to queries and keys alone).

    What it sees: `tokens` in all, in steps of `batch` rows of `n_ctx`; with `short` only every fourth step has those,
    the others as many tokens in rows of `short`. A share `repeats` of the rows are random tokens repeated with a period
    drawn for every row, evenly from `period`; after `repeats_until`, a share of the tokens, there are none.
    `alphabet`: so many different tokens are drawn from (0: all). Else the rows are text, each read once. `hapax`: a
    pair of tokens counts in the loss only where its row has it first, so nothing rewards an induction head (arXiv
    2511.05743). The optimizer:
    AdamW, its rate up over `warm_up` steps, then constant.
    """

    n_layers: int = 2
    n_heads: int = 8
    d_model: int = 128
    n_ctx: int = 256
    mlp: bool = False
    smeared: bool = False
    positions: Literal["rotary", "shortformer"] = "rotary"
    n_vocab: int = 512
    batch: int = 4
    rate: float = 2e-3
    warm_up: int = 100
    tokens: int = 3_000_000
    repeats: float = 0.0
    repeats_until: float = 1.0
    period: tuple[int, int] = (8, 32)
    alphabet: int = 0
    seed: int = 0
    snapshots: int = 40
    short: int = 0
    hapax: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "period", tuple(self.period))
        for wrong, what in (
            (not 1 <= self.n_layers <= 6, f"{self.n_layers} layers; give 1 to 6"),
            (self.n_heads < 1 or self.d_model < 1 or self.d_model % self.n_heads or self.d_model // self.n_heads % 2,
             f"a width of {self.d_model} for {self.n_heads} heads; give a multiple of twice the heads"),
            (not 16 <= self.n_ctx <= 4096, f"a context of {self.n_ctx} tokens; give 16 to 4096"),
            (self.n_vocab < FEWEST_VOCABULARY, f"a vocabulary of {self.n_vocab}; give at least {FEWEST_VOCABULARY}"),
            (self.n_vocab > 65536, f"a vocabulary of {self.n_vocab}; give at most 65536"),
            (not 1 <= self.batch <= 65536, f"{self.batch} rows a step; give 1 to 65536"),
            (not 1 <= self.n_heads <= 64, f"{self.n_heads} heads a layer; give 1 to 64"),
            (self.d_model > 4096, f"a width of {self.d_model}; give at most 4096"),
            (self.tokens > MAX_TOKENS, f"{self.tokens} tokens; give at most {MAX_TOKENS}"),
            (self.warm_up < 0, f"a warm-up of {self.warm_up} steps; give 0 or more"),
            (not 0 <= self.seed <= MAX_SEED, f"seed {self.seed}; give 0 to {MAX_SEED}"),
            (self.tokens < self.step_tokens, f"{self.tokens} tokens; give at least one step, {self.step_tokens}"),
            (not 0 <= self.repeats <= 1, f"a share of repeats of {self.repeats}; give 0 to 1"),
            (not 0 < self.repeats_until <= 1, f"repeats until {self.repeats_until}; give a share of the tokens, to 1"),
            (self.repeats > 0 and not 1 <= self.period[0] <= self.period[1] < (self.short or self.n_ctx),
             f"periods {self.period[0]} to {self.period[1]}; give two from 1 to a row less one, in order"),
            (self.alphabet < 0 or self.alphabet > self.n_vocab - 1, f"an alphabet of {self.alphabet}; give 0 for all"),
            (not 0 < self.rate < 1, f"a rate of {self.rate}; give a small number such as 0.002"),
            (self.short < 0 or self.short and (self.step_tokens % self.short or self.short > self.n_ctx),
             f"short rows of {self.short} tokens; give what divides the {self.step_tokens} of a step, or 0 for none"),
            (not 1 <= self.snapshots <= 10_000, f"{self.snapshots} snapshots; give 1 to 10000"),
            (self.positions not in ("rotary", "shortformer"), f"positions {self.positions!r}; rotary or shortformer"),
        ):  # fmt: skip
            if wrong:
                raise UsageError(f"no model can be trained with {what}")

    @property
    def d_mlp(self) -> int:
        """Neurons of an FFN: 8/3 of the width, so that a gated one's three matrices hold what two of 4 d_model would;
        0 without MLPs."""
        return -(-8 * self.d_model // 3 // 16) * 16 if self.mlp else 0

    @property
    def step_tokens(self) -> int:
        """Tokens that are predicted in a step."""
        return self.batch * self.n_ctx

    def row_tokens(self, step: int) -> int:
        """Tokens that are predicted in a row of that step."""
        return self.short if self.short and step % LONG_EVERY != LONG_EVERY - 1 else self.n_ctx

    def rates(self, step: int) -> tuple[float, ...]:
        """The rate of each of the optimizer's groups at that step: up over the first, then constant, so that nothing
        scheduled coincides with the observed effect."""
        return (self.rate * min(1.0, (step + 1) / max(1, self.warm_up)),) * 2

    @property
    def n_steps(self) -> int:
        """Steps of the whole run."""
        return max(1, self.tokens // self.step_tokens)

    @property
    def text_tokens(self) -> int:
        """Tokens of text that the whole run can take at most."""
        return 0 if self.repeats == 1 and self.repeats_until == 1 else self.n_steps * self.step_tokens

    @property
    def digest(self) -> str:
        """SHA-256 over every field, and over what they mean."""
        return hashlib.sha256(json.dumps(self.as_json(), sort_keys=True).encode()).hexdigest()

    @property
    def in_words(self) -> str:
        """Such as "2 layers, attention only", for a label."""
        layers = f"{self.n_layers} layer{'s' if self.n_layers > 1 else ''}"
        kind = "with MLPs" if self.mlp else "attention only"
        words = [layers, kind, *(["smeared keys"] if self.smeared else [])]
        if self.positions != "rotary":
            words.append(f"{self.positions} positions")
        words += ["no loss on copies"] * self.hapax
        return ", ".join([*words, *([self.repeats_in_words] if self.repeats else [])])

    @property
    def repeats_in_words(self) -> str:
        """Such as "75% repeats until 50% of the tokens"."""
        until = "" if self.repeats_until == 1 else f" until {self.repeats_until:.0%} of the tokens"
        return f"{self.repeats:.0%} repeats{until}" if self.repeats else "no repeats"

    @property
    def in_short(self) -> str:
        """Such as "1 layer, smeared keys": the model alone, for a legend."""
        words = [f"{self.n_layers} layer{'s' if self.n_layers > 1 else ''}"]
        words += ["MLPs"] * self.mlp + ["smeared keys"] * self.smeared + ["no loss on copies"] * self.hapax
        return ", ".join(words if self.positions == "rotary" else [*words, f"{self.positions} positions"])

    def as_json(self) -> dict[str, Any]:
        """What `recipe_of` reads; without `hapax` unless it is on, so that older recipes keep their digests."""
        found = {"version": VERSION, **asdict(self), "period": list(self.period)}
        return found if self.hapax else {name: value for name, value in found.items() if name != "hapax"}

    def snapshot_steps(self) -> tuple[int, ...]:
        """The steps after which a snapshot is kept: 0, the end, and between them `snapshots` evenly spaced ones and a
        few early ones at powers of two."""
        even = {round(self.n_steps * part / self.snapshots) for part in range(self.snapshots + 1)}
        early = {2**power for power in range(12) if 2**power < self.n_steps / self.snapshots}
        return tuple(sorted(even | set(sorted(early)[-3:])))


def law_tokens(step_tokens: int) -> float:
    """Tokens at which the law puts the phase change of a run with so many tokens a step."""
    return LAW * step_tokens**0.5


def is_foreign(said: Any) -> bool:
    """Whether a recipe is another trainer's: it names it."""
    return isinstance(said, Mapping) and isinstance(said.get("trainer"), str)


def recipe_of(said: Mapping[str, Any]) -> Recipe:
    """The Recipe of what `as_json` gave. UsageError: it is of another version, or no recipe."""
    if not isinstance(said, Mapping):
        raise UsageError("the run's recipe is damaged; train it again")
    if said.get("version") != VERSION:
        raise UsageError(
            f"the run was made by another version of Headroom (recipe {said.get('version')!r}, here {VERSION}); "
            "train it again, or open it with that version"
        )
    try:
        return convert(said, Recipe, "recipe")
    except InvalidFile as error:
        raise UsageError(f"the run's recipe cannot be read ({error}); train it again") from error


@dataclass(frozen=True)
class Named:
    """A recipe with its `title`, and `words` that say what it shows; `control` is the name of the recipe that differs
    in one thing and does not show it, "" where there is none."""

    title: str
    words: str
    recipe: Recipe
    control: str = ""


_SMEARED = Recipe(n_layers=1, smeared=True, n_ctx=512, batch=2, short=128, rate=2e-3, tokens=4_000_000, snapshots=50)
# A period has each of so few tokens about once, so that a row's tokens say nothing of which one is next, and there are
# many periods: one layer, which could learn either, learns nothing.
_REPEATS = Recipe(n_layers=2, n_ctx=72, batch=14, rate=1e-3, tokens=1_200_000, repeats=1.0, period=(26, 36),
                  alphabet=24)  # fmt: skip
_HALF = Recipe(n_layers=2, n_ctx=128, batch=8, rate=1e-3, tokens=6_500_000, repeats=0.5, period=(8, 32))
_CURRICULUM = Recipe(n_layers=2, n_ctx=512, batch=2, short=128, rate=1e-3, tokens=10_000_000, repeats=0.75,
                     repeats_until=0.5, snapshots=60)  # fmt: skip
RECIPES = {
    "smeared": Named("1 layer, smeared keys, on text",
                     "Each key has a part of the key before it, so one layer is enough for induction heads.",
                     _SMEARED, "plain"),
    "plain": Named("1 plain layer, on text", "The same without smeared keys: no induction head can form.",
                   replace(_SMEARED, smeared=False)),
    "smeared-2-layers": Named("2 layers, smeared keys, on text", "Smeared keys, and a second layer.",
                              replace(_SMEARED, n_layers=2), "plain-2-layers"),
    "plain-2-layers": Named("2 plain layers, on text", "The same without smeared keys.",
                            replace(_SMEARED, n_layers=2, smeared=False)),
    **{f"smeared-seed-{seed}": Named(f"1 layer, smeared keys, on text, seed {seed}",
                                     "The first of all with another seed.", replace(_SMEARED, seed=seed))
       for seed in (1, 2)},
    "smeared-hapax": Named("1 layer, smeared keys, on text, no loss on copies",
                           "What an induction head would predict does not count in the loss.",
                           replace(_SMEARED, hapax=True), "smeared"),
    **{f"smeared-hapax-seed-{seed}": Named(f"1 layer, smeared keys, on text, no loss on copies, seed {seed}",
                                           "The same with another seed.", replace(_SMEARED, hapax=True, seed=seed),
                                           f"smeared-seed-{seed}")
       for seed in (1, 2)},
    "two-layers": Named("2 layers, on repeated random tokens",
                        "Random tokens repeated with a random period in every row: the whole circuit forms, a head "
                        "that looks at the token before and one that matches prefixes.",
                        _REPEATS, "one-layer"),
    "one-layer": Named("1 layer, on repeated random tokens", "The same without a second layer: it never gets there.",
                       replace(_REPEATS, n_layers=1)),
    "half": Named("2 plain layers, half text, half repeats",
                  "A long plateau, then the phase change, in the middle of learning real text.", _HALF),
    "curriculum": Named("2 plain layers, repeats first, then text alone",
                        "Three rows in four are repeats until half of the tokens; what formed by then stays on text.",
                        _CURRICULUM, "curriculum-1-layer"),
    **{f"curriculum-{name}": Named(f"{title}, repeats first, then text alone", "The curriculum with one thing changed.",
                                   replace(_CURRICULUM, **changed))
       for name, title, changed in (
           ("1-layer", "1 plain layer", {"n_layers": 1}), ("3-layers", "3 plain layers", {"n_layers": 3}),
           ("mlp", "2 layers with MLPs", {"mlp": True}), ("seed-1", "2 plain layers, seed 1", {"seed": 1}),
           ("batch-4", "2 plain layers, 4 rows a step", {"batch": 4}))},
}  # fmt: skip
