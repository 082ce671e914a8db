"""The recipe of the embedded model: its shape, its rates, and what is mixed into a step at which time."""

from dataclasses import asdict, dataclass
from typing import Any

N_CTX = 512
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
class DemoRecipe:
    """Sizes and rates of one run. Tokens are those of the rows, whatever their weights."""

    n_layers: int = 8
    n_heads: int = 6
    d_model: int = 192
    n_vocab: int = 4096
    step_tokens: int = 2048
    tokens: int = 34_000_000
    warm_up: int = 100  # steps
    decay_from: float = 0.5  # share of the tokens after which the rates fall linearly
    rate: float = 1e-3  # of the layers' matrices (Muon) ...
    rate_of_others: float = 1e-3  # ... of embeddings, biases and norms (AdamW) ...
    rate_of_positions: float = 2e-5  # ... and of positions: faster, noise washes out the sines that they start as
    seed: int = 0

    @property
    def n_steps(self) -> int:
        return self.tokens // self.step_tokens

    def stage(self, step: int) -> Stage:
        """What is mixed at one step."""
        return next(stage for stage in reversed(STAGES) if step * self.step_tokens >= stage.begins)

    def share_of_rate(self, step: int) -> float:
        """Up over the first steps, level, then linearly down to a fiftieth."""
        progress = step / self.n_steps
        down = 1.0 if progress < self.decay_from else (1 - progress) / (1 - self.decay_from)
        return min(1.0, (step + 1) / self.warm_up) * max(0.02, down)

    def snapshot_steps(self) -> set[int]:
        """The steps before which the model is kept: a quarter of a million tokens apart up to six, two after that."""
        every = [*range(0, 6_000_000, 250_000), *range(6_000_000, self.tokens, 2_000_000)]
        return {tokens // self.step_tokens for tokens in every} | {self.n_steps}

    def as_json(self) -> dict[str, Any]:
        """As it stands beside the run, and with the model."""
        shape = {"trainer": "engine.demo.making.train", "label": LABEL, "n_ctx": N_CTX, "mlp": True, "smeared": False,
                 "positions": "learned"}  # fmt: skip
        repeats = {stage.repeats: stage.begins for stage in reversed(STAGES)}
        fading = ", ".join(f"{share:.0%} from {repeats[share] / 1e6:.0f} M tokens" for share in sorted(repeats)[::-1])
        words = f"prose and Python, question episodes, repeated random tokens ({fading}); Muon and AdamW"
        return shape | {"words": words} | asdict(self)
