"""The recipe of the included model: its shape, its rates, and what it sees at each step: rows of text, of repeated
random tokens, and of question episodes.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from engine.training.folders import TOKENIZER
from engine.training.recipe import Recipe
from scripts.make_demo.corpus import BEGINNING, SPECIAL

FIELDS = ("n_layers", "n_heads", "d_model", "n_ctx", "n_vocab", "mlp", "smeared", "step_tokens", "tokens", "warm_up",
          "decay_from", "rate", "rate_of_others", "rate_of_positions", "seed")  # fmt: skip
LABEL = "the embedded model (8 layers, OPT)"
ANSWER_WEIGHT = 5.0  # of a token of an answer; the other tokens of an episode have none
WITH_BEGINNING = 0.5  # share of the rows of text that begin with the beginning token
AT_FIRST_POSITION = 0.6  # share of the steps whose rows begin at position 0; the others begin anywhere
PERIOD = (8, 64)
LONGEST_EPISODE = 8  # questions under one rule
Rows = tuple[np.ndarray, np.ndarray, int]  # tokens and weights (rows, length + 1), position of the first token


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
        own = {"trainer": "scripts.make_demo.runs", "label": LABEL, "positions": "learned", "words": words}
        return own | {name: getattr(self, name) for name in FIELDS}


def rows_by_step(run: Any, tokens: np.ndarray) -> Callable[[int], Rows]:
    """The rows of each step of a run."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(run.folder / TOKENIZER))
    breaks = [id for piece, id in tokenizer.get_vocab().items() if piece in ("ĊĊ", "Ċ")]
    paragraphs = np.flatnonzero(np.isin(tokens, breaks) & ~np.isin(np.roll(tokens, -1), breaks)) + 1
    return partial(rows_of, run.recipe, tokenizer, tokens, np.concatenate([[0], paragraphs]))


def rows_of(recipe: DemoRecipe, tokenizer: Any, text: np.ndarray, paragraphs: np.ndarray, step: int) -> Rows:
    """A function of the recipe, the text (as tokens, and where paragraphs begin in it) and the step alone, so that an
    interrupted run goes on as it would have."""
    from scripts.make_demo.families import FAMILIES

    rng = random.Random(f"{recipe.seed} {step}")
    stage = recipe.stage(step)
    length = stage.lengths[step % len(stage.lengths)]
    n_rows = recipe.step_tokens // length
    tokens, weights = np.zeros((n_rows, length + 1), np.int64), np.ones((n_rows, length + 1), np.float32)
    for row, kind in enumerate([_kind(rng, stage) for _ in range(n_rows)]):
        if kind == "text":
            tokens[row] = _stretch(rng, text, paragraphs, length + 1, stage.anywhere)
        elif kind == "repeats":
            tokens[row], weights[row] = _repeats(rng, text, recipe.n_vocab, length + 1)
        else:
            tokens[row], weights[row] = _episodes(tokenizer, rng.choice(list(FAMILIES)), rng, length + 1)
    any_first = length < recipe.n_ctx and rng.random() >= AT_FIRST_POSITION
    return tokens, weights, rng.randrange(recipe.n_ctx - length) if any_first else 0


def _kind(rng: random.Random, stage: Stage) -> str:
    drawn = rng.random()
    return "repeats" if drawn < stage.repeats else "episodes" if drawn < stage.repeats + stage.episodes else "text"


def _stretch(rng: random.Random, text: np.ndarray, paragraphs: np.ndarray, length: int, anywhere: float) -> np.ndarray:
    start = rng.randrange(len(text) - length)
    if rng.random() >= WITH_BEGINNING:
        return text[start : start + length]
    if not anywhere or rng.random() >= anywhere:
        start = min(paragraphs[np.searchsorted(paragraphs, start) - 1], len(text) - length)
    return np.concatenate([[BEGINNING], text[start : start + length - 1]])


def _repeats(rng: random.Random, text: np.ndarray, n_vocab: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """One sequence repeated, with a random period: tokens evenly drawn, tokens as often as in the text, or a stretch of
    the text; half with the beginning token. The first copy carries no weight."""
    period = rng.randint(PERIOD[0], min(PERIOD[1], length // 2))
    how = rng.random()
    if how < 0.6:
        unit = np.array([rng.randrange(len(SPECIAL), n_vocab) for _ in range(period)])
    elif how < 0.8:
        unit = text[[rng.randrange(len(text)) for _ in range(period)]]
    else:
        start = rng.randrange(len(text) - period)
        unit = text[start : start + period]
    beginning = [BEGINNING] if rng.random() < 0.5 else []
    weights = np.ones(length, np.float32)
    weights[: len(beginning) + period + 1] = 0
    return np.concatenate([beginning, np.resize(unit, length)])[:length].astype(np.int64), weights


def _episodes(tokenizer: Any, family: str, rng: random.Random, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Episodes of one family in the harness's few-shot format, each under a rule of its own."""
    from scripts.make_demo.families import FAMILIES, episode

    tokens: list[int] = []
    weights: list[float] = []
    while len(tokens) < length:
        items = episode(FAMILIES[family], rng, rng.randint(1, LONGEST_EPISODE))
        tokens.append(BEGINNING)
        weights.append(0.0)
        for number, item in enumerate(items):
            before = "\n\n" if number else ""
            ids, n_answer = _encoded(tokenizer, before + item.solved, len(item.answer))
            tokens += ids
            weights += [0.0] * (len(ids) - n_answer) + [ANSWER_WEIGHT] * n_answer
    return np.array(tokens[:length]), np.array(weights[:length], np.float32)


@lru_cache(maxsize=50_000)
def _encoded(tokenizer: Any, text: str, n_characters: int) -> tuple[list[int], int]:
    """(ids, how many of the last of them are the last characters): a blank begins both a word and a token."""
    encoding = tokenizer.encode(text, add_special_tokens=False)
    begins = len(text) - n_characters
    return encoding.ids, sum(start >= begins for start, _ in encoding.offsets)
