"""Every measurement is read again without a model, is never given for another one, and goes on where it was left."""

from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest

from cache import Store
from engine.accuracy.evaluation import evaluation
from engine.corpus.heads import heads_in_corpus
from engine.corpus.windows import Corpus
from engine.heads.ablation import Ablating, head_ablations
from engine.heads.attention import head_views, overview
from engine.heads.circuits import feeding, ov_tokens
from engine.heads.function_vectors import function_vectors
from engine.heads.idealized import Ideal, ideal_answers, ideal_losses
from engine.heads.in_text import head_in_texts
from engine.heads.induction import induction
from engine.heads.logit_lens import logit_lens
from engine.importance.estimates import gradients
from engine.importance.layers import block_influence, greedy
from engine.importance.scores import importance
from engine.models.loading import ways_of
from engine.models.masks import Mask, parse_mask
from engine.models.session import Session
from engine.progress import final
from engine.studies.precision import precision_effects
from engine.texts import perplexity as of_perplexity
from engine.texts import tokenloss
from engine.texts.continuation import How, continuation, next_tokens
from engine.texts.perplexity import perplexity
from engine.texts.tokenloss import token_losses
from tests.conftest import TEXT
from tests.engine.fixtures import WORD_PAIRS, last, left_when, questions_in, target_in, write_questions

LONG, TEXTS = " ".join([TEXT, TEXT.upper(), TEXT]), [TEXT[:300], TEXT[200:500]]


def in_bf16(target):
    """The same model in bf16."""
    spec = replace(target.spec, precision="bf16")
    return replace(target, spec=spec, products=ways_of(spec, target.identity))


MASKED = {  # of a target, questions and a mask
    "answers": evaluation,
    "losses": lambda target, questions, mask: token_losses(target, LONG, mask),
    "perplexity": lambda target, questions, mask: perplexity(target, LONG, mask),
    "ablations": lambda target, questions, mask: head_ablations(target, TEXTS, Ablating(mask)),
    "ablations by means": lambda target, questions, mask: head_ablations(
        target, TEXTS[:1], Ablating(mask, "pattern-preserving", "mean")
    ),
    "overview": lambda target, questions, mask: overview(target, TEXT, mask),
    "views": lambda target, questions, mask: head_views(target, TEXT, mask, [(1, 0), (0, 0)]),
    "ideal losses": lambda target, questions, mask: ideal_losses(target, TEXTS, Ideal(((0, 1),), mask)),
    "ideal answers": lambda target, questions, mask: ideal_answers(target, questions, Ideal(((0, 1),), mask)),
    "importance under a mask": lambda target, questions, mask: importance(target, questions, "gate", mask),
    "a continuation": lambda target, questions, mask: continuation(target, TEXT[:99], mask, How(4)),
    "a logit lens": lambda target, questions, mask: logit_lens(target, TEXT, mask),
    "next tokens": lambda target, questions, mask: next_tokens(target, TEXT[:99], [mask]),
}
OF_THE_WHOLE = {
    "importance": lambda target, questions, mask: importance(target, questions, "heads"),
    "activity": lambda target, questions, mask: importance(target, questions, "heads-wanda"),
    "gradients": lambda target, questions, mask: gradients(target, questions),
    "another precision": lambda target, questions, mask: precision_effects(
        [in_bf16(target), target], LONG, questions, questions
    ),
    "influence": lambda target, questions, mask: block_influence(target, questions),
    "the greedy search": lambda target, questions, mask: greedy(target, questions, 2),
    "a corpus": lambda target, questions, mask: heads_in_corpus(target, Corpus("text", LONG, 20, 24)),
    "induction": lambda target, questions, mask: induction(target, "olsson", 0),
    "function vectors": lambda target, questions, mask: function_vectors(target, [WORD_PAIRS]),
    "in texts": lambda target, questions, mask: head_in_texts(target, dict(enumerate(TEXTS)), (1, 0)),
    "OV": lambda target, questions, mask: ov_tokens(target, TEXT, (1, 0)),
    "what feeds a head": lambda target, questions, mask: feeding(target, (1, 0)),
}
KINDS = MASKED | OF_THE_WHOLE
IN_PARTS = ("answers", "losses", "perplexity", "ablations", "importance", "gradients", "influence", "the greedy search",
            "ideal losses", "in texts", "a corpus")  # fmt: skip
OF_QUESTIONS = ("answers", "ideal answers", "importance", "importance under a mask", "activity", "gradients",
                "another precision", "influence", "the greedy search")  # fmt: skip
WITHOUT_BOS = ("OV", "what feeds a head", "induction")  # they read weights alone, or tokens of their own


@pytest.fixture
def about(session, tiny_opt, tmp_path, monkeypatch):
    """(target with BOS, questions of three chunks, a mask); a pass holds a window of a text."""
    for module in (tokenloss, of_perplexity):
        monkeypatch.setattr(module, "BATCH_TOKENS", 256)
    target = target_in(session, tiny_opt, bos=True)
    questions = questions_in(write_questions(tmp_path / "own.jsonl", 40), session)
    return target, questions, parse_mask("L0H0 F1", target.shape)


def assert_same(a, b):
    """Two values are the same, array by array."""
    assert type(a) is type(b)
    if is_dataclass(a):
        a, b = ({each.name: getattr(value, each.name) for each in fields(value)} for value in (a, b))
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        a, b = ([value[name] for name in a] for value in (a, b))
    if isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            assert_same(one, other)
    else:
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_measured_is_read_again_without_a_model(kind, about, session):
    target, questions, mask = about
    wanted = KINDS[kind](*about)
    assert wanted.stored(session) is None and not wanted.stored_part(session).is_complete
    assert sum(wanted.left(session).characters.values()) > 0 and session.models.loaded is None
    steps = list(wanted.run(session))
    assert [step.done for step in steps] == sorted(step.done for step in steps)
    assert steps[-1].done == steps[-1].total and not steps[-1].cached
    idle = Session(session.store)
    again = last(wanted.run(idle))
    assert again.cached and idle.models.loaded is None and not wanted.left(idle).characters
    for value in (again.value, wanted.stored(idle)):
        assert_same(value, final(steps))
    others = [(replace(target, spec=replace(target.spec, precision="bf16")), questions, mask)]
    others += [(replace(target, identity=replace(target.identity, digest="0" * 32)), questions, mask)]
    others += [] if kind in WITHOUT_BOS else [(replace(target, bos=False), questions, mask)]
    others += [(target, questions, Mask.full(target.shape))] if kind in MASKED else []
    others += [(target, replace(questions, order=questions.order[::-1]), mask)] if kind in OF_QUESTIONS else []
    for other in others:
        assert KINDS[kind](*other).stored(session) is None


@pytest.mark.parametrize("kind", IN_PARTS)
def test_what_is_left_goes_on_where_it_was(kind, about, session):
    wanted, known = KINDS[kind](*about), set(session.store.keys())
    steps = wanted.run(session)
    step = left_when(steps)
    kept = {key: session.store.get(key) for key in {*session.store.keys()} - known if "rates/" not in key}
    assert 0 < step.done < step.total and kept and wanted.stored(session) is None
    assert_same(wanted.so_far(session), step.value)
    whole = final(wanted.run(session))
    assert {key: session.store.get(key) for key in kept} == kept, "what was finished is measured again"
    assert_same(whole, final(wanted.run(Session(Store(session.store.directory / "other"), session.models))))
