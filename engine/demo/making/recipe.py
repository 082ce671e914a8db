"""The recipe of the included model: its shape, its rates, and the mix of rows at each step."""

from dataclasses import dataclass
from typing import Any

from engine.training.recipe import Recipe

FIELDS = ("n_layers", "n_heads", "d_model", "n_ctx", "n_vocab", "mlp", "smeared", "step_tokens", "tokens", "warm_up",
          "decay_from", "rate", "rate_of_others", "rate_of_positions", "seed")  # fmt: skip
LABEL = "the embedded model (8 layers, OPT)"


@dataclass(frozen=True)
class Stage:
    """From how many tokens on; shares of the rows (the rest is text), and their tokens, by step.

    `anywhere`: of the text behind a beginning token, the share that is cut out anywhere, not where a paragraph begins.
    """

    begins: int
    repeats: float
    episodes: float
    lengths: tuple[int, ...]
    anywhere: float = 0.0


SHORT, LONG = (128, 128, 128, 512), (256, 256, 256, 512)
STAGES = (
    Stage(0, 0.60, 0.0, SHORT),
    Stage(3_000_000, 0.30, 0.30, SHORT),
    Stage(6_000_000, 0.10, 0.36, LONG),
    Stage(7_500_000, 0.10, 0.36, LONG, 0.5),  # until here text that begins within a sentence cost a nat more a token
    Stage(12_000_000, 0.03, 0.32, LONG, 0.5),
)


@dataclass(frozen=True)
class DemoRecipe(Recipe):
    """Sizes and rates of one run. Tokens are those of the rows, whatever their weights.

    decay_from: share of the tokens after which the rates fall linearly
    rate: of the layers' matrices (Muon)
    rate_of_positions: slow, as noise washes out the sines that they start as
    rate_of_others: of embeddings, biases and norms (AdamW, as for the positions)
    """

    n_layers: int = 8
    n_heads: int = 6
    d_model: int = 192
    n_ctx: int = 512
    mlp: bool = True
    n_vocab: int = 4096
    tokens: int = 34_000_000
    decay_from: float = 0.5
    rate: float = 1e-3
    rate_of_others: float = 1e-3
    rate_of_positions: float = 2e-5

    def __post_init__(self) -> None:
        """The laboratory's bounds do not hold here."""

    @property
    def text_tokens(self) -> int:
        return 0  # rows are drawn from any text, as often as it takes

    def stage(self, step: int) -> Stage:
        """The mix of one step."""
        return next(stage for stage in reversed(STAGES) if step * self.step_tokens >= stage.begins)

    def rates(self, step: int) -> tuple[float, ...]:
        """Of matrices, positions and others: up over the first steps, level, then linearly down to a fiftieth."""
        progress = step / self.n_steps
        down = 1.0 if progress < self.decay_from else (1 - progress) / (1 - self.decay_from)
        share = min(1.0, (step + 1) / self.warm_up) * max(0.02, down)
        return self.rate * share, self.rate_of_positions * share, self.rate_of_others * share

    def snapshot_steps(self) -> tuple[int, ...]:
        """The steps before which the model is kept: a quarter of a million tokens apart up to six, two after that."""
        every = [*range(0, 6_000_000, 250_000), *range(6_000_000, self.tokens, 2_000_000)]
        return tuple(sorted({min(tokens // self.step_tokens, self.n_steps) for tokens in (*every, self.tokens)}))

    def as_json(self) -> dict[str, Any]:
        """The JSON that is stored with the run and with the model."""
        repeats = {stage.repeats: stage.begins for stage in reversed(STAGES)}
        fading = ", ".join(f"{share:.0%} from {repeats[share] / 1e6:.0f} M tokens" for share in sorted(repeats)[::-1])
        words = f"prose and Python, question episodes, repeated random tokens ({fading}); Muon and AdamW"
        own = {"trainer": "engine.demo.making.runs", "label": LABEL, "positions": "learned", "words": words}
        return own | {name: getattr(self, name) for name in FIELDS}
