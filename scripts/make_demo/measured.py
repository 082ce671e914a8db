"""One model measured for the report, through the app's own functions and store: nothing is measured twice."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from engine.accuracy.evaluation import Answers, evaluation
from engine.demo import passages
from engine.heads.induction import InductionScores, induction
from engine.importance.orders import Pruning, Ranking, orders_of
from engine.models.loading import LoadSpec
from engine.models.masks import Mask, parse_edits
from engine.models.session import Session, Target
from engine.progress import final
from engine.questions.rendering import TaskSpec, render_questions, select
from engine.studies.removal import AccuracyWithout, induction_heads, line_of, random_heads_mask, without
from engine.studies.surveys import SurveySettings, survey, together
from engine.texts.continuation import How, continuation
from engine.texts.passages import slices
from engine.texts.perplexity import Perplexity, perplexity
from engine.texts.tokenloss import token_losses
from scripts.make_demo.bars import Removed

RANKING_QUESTIONS = 64  # of the train split, as on the screens
LEVELS = (0, 100, 200, 300, 400, 500)  # permille of the heads
WINDOWS = 4  # of each held-out piece, that are read once with BOS in front and once without
FEWER = 8  # tokens: room in a window for BOS, and for what a slice by itself may have more
TWICE = "Privet Drive, twice"


@dataclass(frozen=True)
class Measured:
    """The measured model at `address`, on `n` validation questions of each family (None: all)."""

    session: Session
    address: str
    n: int | None = None

    def target(self, precision: str = "fp32", bos: bool | None = None) -> Target:
        """The model in one precision."""
        return self.session.target(LoadSpec(self.address, precision), bos)

    @property
    def full(self) -> Mask:
        return Mask.full(self.target().shape)

    def answers(
        self, family: str, shots: int, mask: Mask | None = None, precision: str = "fp32", n: int | None = None
    ) -> Answers:
        """The answers to a family's questions."""
        questions = select(
            render_questions(TaskSpec(family, shots), None, self.session.store), n or self.n, "stratified"
        )
        return final(evaluation(self.target(precision), questions, mask or self.full).run(self.session))

    def change(self, family: str, shots: int, mask: Mask, n: int | None = None) -> AccuracyWithout:
        """A family under this mask and under none."""
        return line_of(self.answers(family, shots, n=n), self.answers(family, shots, mask, n=n))

    def induction(self) -> InductionScores:
        """Olsson's scores, as every screen has them."""
        return final(induction(self.target()).run(self.session))

    def heads(self) -> tuple[int, ...]:
        """The induction heads that the story on Prune removes, by flat index."""
        return induction_heads(self.induction())

    def removed(self, family: str, needs: str, n_draws: int, n_drawn: int | None) -> Removed:
        """A family without the induction heads; `n_draws` others on `n_drawn` questions where it needs examples."""
        heads, shape = self.heads(), self.target().shape
        gone, n_draws = without(shape, heads), n_draws * (needs == "examples")
        draws = [self.change(family, 5, random_heads_mask(shape, heads, seed), n_drawn) for seed in range(n_draws)]
        return Removed(needs, self.change(family, 5, gone), self.change(family, 0, gone), tuple(draws))

    def importance(self, families: Sequence[str], what: str) -> np.ndarray:
        """(L, H) mean over families of a head score at 5 shots."""
        setting = SurveySettings(self.target().spec, n_ranking=RANKING_QUESTIONS)
        tasks = [TaskSpec(name, 5) for name in families]
        found = final(survey(self.target(), setting, tasks, what).run(self.session))
        return together(setting, found.scores).scores

    def pruned(self, family: str, heads_by: str = "heads") -> dict[int, AccuracyWithout]:
        """A family at 5 shots at every level of its own importance, by that head score."""
        target = self.target()
        ranking = Ranking("importance", n_questions=RANKING_QUESTIONS, heads_by=heads_by)
        wanted = Pruning(TaskSpec(family, 5), ranking, max(LEVELS), 0, parse_edits("", target.shape))
        orders = final(orders_of(target, wanted).run(self.session))
        return {level: self.change(family, 5, orders.mask(level, 0)) for level in LEVELS}

    def bits(self, texts: Sequence[str], bos: bool) -> float:
        """Bits a byte of texts, each read as the app reads one: BOS once in front or none, windows without overlap."""
        return bits_a_byte(self.perplexities(self.target(bos=bos), texts))

    def perplexities(self, target: Target, texts: Sequence[str]) -> list[Perplexity]:
        """Of each of the texts, with nothing pruned."""
        return [final(perplexity(target, text, self.full).run(self.session)) for text in texts]

    def with_and_without_bos(self, pieces: Sequence[str]) -> dict[str, tuple[float, float]]:
        """By place of a window in its piece, (with BOS in front, without) in bits a byte over the same tokens."""
        targets = [self.target(bos=bos) for bos in (True, False)]
        length = targets[0].shape.n_ctx - FEWER
        tokenizer = self.session.models.get(targets[0].spec).tokenizer
        cut = [slices(piece, tokenizer, length, WINDOWS) for piece in pieces]
        places = {
            "the first window of each piece": [each[0] for each in cut if each],
            f"the next {WINDOWS - 1} windows": [text for each in cut for text in each[1:]],
        }
        found = {}
        for place, texts in places.items():
            if texts:
                # with BOS the first token has a loss too, without it has none
                bos, none = (self.perplexities(of, texts) for of in targets)
                found[place] = (
                    bits_a_byte([replace(each, loss_nats=each.loss_nats[1:]) for each in bos]),
                    bits_a_byte(none),
                )
        return found

    def copies(self, mask: Mask) -> tuple[float, float]:
        """Mean loss in nats of the first and the second copy in the passage that is said twice."""
        text = next(passage.text for passage in passages() if passage.title == TWICE)
        found = final(token_losses(self.target(), text, mask).run(self.session))
        first = found.ends <= len(text) // 2
        return float(np.nanmean(found.loss_nats[first])), float(np.nanmean(found.loss_nats[~first]))

    def sample(self, beginning: str, n_tokens: int = 160) -> str:
        """A continuation at temperature 0.7, seed 0, as the Continuation screen gives it."""
        how = How(n_tokens, 700, 0)
        return beginning + final(continuation(self.target(), beginning, self.full, how).run(self.session)).text


def bits_a_byte(found: Sequence[Perplexity]) -> float:
    """Of several texts together: their mean loss a token times their tokens a byte, in bits."""
    nats = sum(each.nats * each.n_tokens for each in found)
    return nats / math.log(2) / sum(each.n_bytes for each in found)
