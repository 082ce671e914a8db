"""What the tests of sweeps share: three tasks, a small model, and every row worked out by hand."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from cache import open_store
from engine.accuracy.evaluation import evaluation
from engine.heads.induction import induction
from engine.importance.criteria import CRITERIA
from engine.importance.orders import Orders
from engine.importance.rankings import random_order
from engine.importance.rules import random_order_within_layers
from engine.importance.scores import Scores, importance
from engine.models.loading import LoadSpec
from engine.models.masks import Mask
from engine.models.session import Session
from engine.progress import final
from engine.questions.rendering import TaskSpec, render_questions, select
from engine.studies.surveys import SurveySettings
from engine.studies.sweeps import Swept, sweep
from tests.conftest import make_tiny_opt
from tests.engine.fixtures import loaded, saved, write_questions, zeroed

SIZES = (18, 6, 6)  # questions of the three tasks
N, N_CHUNKS = 18, 2  # of the first: a chunk of 16 and one of 2
INDUCTIVE = 0.03  # prefix matching: a random model has some heads on either side
FEW, MANY = 750, 813  # 12 and 13 of 16 heads: levels at which all rankings differ


@contextmanager
def counted():
    """A list that grows by one with every forward pass of a model, whoever asks for it."""
    passes = []

    def note(module, args, output):
        if type(module).__name__ == "OPTModel":
            passes.append(1)

    handle = torch.nn.modules.module.register_module_forward_hook(note)
    yield passes
    handle.remove()


def no_model(*arguments, **named):
    raise AssertionError("a model was loaded")


def no_importance(*arguments, **named):
    raise AssertionError("importance was computed")


def last(steps):
    found = list(steps)
    value = [step.value for step in found if step.value is not None][-1]
    assert found[-1].value is value and found[-1].done == found[-1].total, "the last step is the whole result"
    return value


def sweep_in(session, setting, wanted, pool):
    """The sweep of the setting's model."""
    return sweep(session.target(setting.spec, setting.bos), setting, wanted, pool)


def swept(session, setting, wanted, pool) -> Swept:
    return last(sweep_in(session, setting, wanted, pool).run(session))


def read_only(session, setting, wanted, pool) -> Swept | None:
    return sweep_in(session, setting, wanted, pool).so_far(session)


def answers_stored(store):
    return sum("/answers/" in key for key in store.keys())


class ByHand:
    """Importance, orders and accuracies of a model by single calls, in a store of its own."""

    def __init__(self, setting, store):
        self.setting, self.store, self.session = setting, store, Session(store)
        self.target = self.session.target(setting.spec, setting.bos)
        self.shape, self.folder = self.target.shape, self.target.identity.folder
        self.rendered = {}

    def asked(self, task):
        if task not in self.rendered:
            self.rendered[task] = render_questions(task, None, self.store)
        return select(self.rendered[task], None, "stratified")

    def answers(self, task, mask):
        return final(evaluation(self.target, self.asked(task), mask).run(self.session))

    def scores(self, task, what, mask=None) -> Scores:
        return final(importance(self.target, self.asked(task), what, mask).run(self.session))

    def order(self, point, pool, kind):
        """Least important first, from the definitions of the rankings."""
        size = self.shape.n_heads_total if kind == "heads" else self.shape.n_layers
        if point.by == "random":
            return random_order(size, point.seed)
        names = {"task": [point.of], "aggregate": pool, "others": [name for name in pool if name != point.task.name]}
        tasks = [replace(point.task, name=name) for name in names.get(point.by, [point.task.name])]
        criterion = CRITERIA.get(point.by, CRITERIA["importance"])
        found = [self.scores(task, criterion.score(kind)) for task in tasks]
        mean = np.mean([scores.scores.ravel() for scores in found], axis=0)
        ties = [np.zeros(size) if scores.tie_break is None else scores.tie_break.ravel() for scores in found]
        ties = np.mean(ties, axis=0)
        ranked = np.array(sorted(range(size), key=lambda index: (mean[index], ties[index], index)))
        if point.by == "within-layers" and kind == "heads":
            return random_order_within_layers(self.shape, ranked, point.seed)
        if point.by.startswith("induction") and kind == "heads":
            prefix = final(induction(self.target, "olsson").run(self.session)).mean["prefix_matching"].ravel()
            if point.by == "induction-first":
                return np.array(sorted(range(size), key=lambda head: (-prefix[head], head)))
            return np.array(sorted(ranked, key=lambda head: bool(prefix[head] >= INDUCTIVE)))
        return ranked[::-1] if point.by == "reversed" else ranked

    def mask(self, point, pool):
        heads, ffns = self.order(point, pool, "heads"), self.order(point, pool, "ffns")
        return Orders(self.shape, heads, ffns).mask(point.heads_permille, point.ffns_permille)

    def check(self, row, mask, store):
        """The row's numbers by counting, and that the sweep asked for this mask."""
        full, without = (self.answers(row.point.task, each).correct for each in (Mask.full(self.shape), mask))
        gained = sum(bool(after and not before) for before, after in zip(full, without, strict=True))
        lost = sum(bool(before and not after) for before, after in zip(full, without, strict=True))
        assert (row.n, row.gained, row.lost) == (len(full), gained, lost)
        assert row.acc == np.mean(without)
        wilson = stats.binomtest(int(sum(without)), len(full)).proportion_ci(0.95, method="wilson")
        assert (row.low, row.high) == pytest.approx((wilson.low, wilson.high), abs=1e-9)
        p = stats.binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
        assert row.p_mcnemar == pytest.approx(p)
        assert (row.n_heads_pruned, row.n_ffns_pruned) == (mask.n_heads_pruned, mask.n_ffns_pruned)
        questions = self.asked(row.point.task)
        n_choices = [len(question.contexts) for question in questions.rendered.questions]
        assert row.chance == pytest.approx(np.mean([1 / n for n in n_choices]))
        measured = evaluation(self.target, questions, mask).so_far(Session(store))
        assert len(measured) == len(full), f"the sweep did not measure {mask.text()!r} for {row.point}"


@pytest.fixture(scope="session")
def tasks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    files = [
        write_questions(folder / f"{name}.jsonl", n, seed)
        for name, n, seed in zip("abc", SIZES, (3, 4, 5), strict=True)
    ]
    return [TaskSpec(str(file)) for file in files]


@pytest.fixture(scope="session")
def pool(tasks):
    return [task.name for task in tasks]


@pytest.fixture(scope="session")
def setting(tmp_path_factory):
    """A model of 2 layers x 8 heads."""
    return SurveySettings(LoadSpec(str(make_tiny_opt(tmp_path_factory.mktemp("model"), n_heads=8)), "fp32"), bos=True)


@pytest.fixture(scope="session")
def by_hand(setting, tasks, tmp_path_factory):
    store = open_store(tmp_path_factory.mktemp("by_hand") / "results")
    by_hand = ByHand(setting, store)
    for task in tasks:
        for split in ("train", "validation"):
            by_hand.asked(replace(task, split=split))
    yield by_hand
    store.close()


@pytest.fixture(autouse=True)
def some_heads_are_inductive(monkeypatch):
    """Of the small model, which learned nothing."""
    monkeypatch.setattr("engine.importance.rules.INDUCTION_FROM", INDUCTIVE)


@pytest.fixture
def store(by_hand, tmp_path):
    """A store of this test's own in which nothing is measured; the questions are rendered, which takes long."""
    store = open_store(tmp_path / "results")
    for key in by_hand.store.keys():
        if "/requests/" in key:
            store.put(key, by_hand.store.get(key))
    yield store
    store.close()


@pytest.fixture
def session(store, by_hand):
    """That store, and the model that `by_hand` has loaded."""
    return Session(store, by_hand.session.models)


def without_columns(folder, mask, target):
    """The model in `folder` with W_O's columns of the heads that `mask` prunes set to 0, and its FFNs' last layer."""
    return saved(zeroed(loaded(folder), mask), target, folder)


def one_plain_line(text):
    return text and "\n" not in text and "Traceback" not in text and "unexpected" not in text
