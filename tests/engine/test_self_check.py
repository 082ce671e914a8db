"""Each model is checked once: what Headroom takes its layout for is so. Each check fails where it is not, and a model
that fails is read, but not pruned or scored."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

from engine.accuracy.evaluation import evaluation
from engine.architecture.families import FAMILIES as BY_TYPE
from engine.errors import HeadroomError
from engine.importance.scores import importance
from engine.models import in_memory, masks, patterns, self_check, slicing
from engine.models.in_memory import Models
from engine.models.loading import LoadSpec
from engine.models.masks import Mask, parse_mask
from engine.models.self_check import (
    COLUMNS,
    IDENTITY,
    LOADED_HEAD,
    LOADED_LAYER,
    PLAIN,
    SEEN,
    SLICED,
    VALUES,
    LayoutCheck,
    check_model,
    check_weights,
    known_fault,
)
from engine.models.session import Session
from tests.engine.fixtures import (
    FAMILIES,
    configured,
    family_folder,
    finished,
    last,
    loaded,
    questions_in,
    refused_by,
    target_in,
    write_questions,
)

ALL = [PLAIN, SEEN, COLUMNS, VALUES, IDENTITY, SLICED, LOADED_HEAD, LOADED_LAYER]


@pytest.fixture(autouse=True)
def nothing_remembered():
    self_check._checked_copy.cache_clear()
    yield
    self_check._checked_copy.cache_clear()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_passes_all_checks(family, tiny_opt, tmp_path):
    folder = family_folder(family, tiny_opt, tmp_path / "model")
    model = loaded(folder)
    assert check_model(model) == tuple(map(LayoutCheck, ALL))
    for precision in ("int8", "bf16"):
        assert check_weights(loaded(folder, precision)) == (LayoutCheck(LOADED_HEAD), LayoutCheck(LOADED_LAYER))


def other_layout(kind, **changes):
    """Has a family say something else."""
    return lambda patch: patch.setitem(BY_TYPE, kind, replace(BY_TYPE[kind], **changes))


def in_other_order(of):
    """A function of heads, for other heads than those that it is asked for."""
    return lambda kept, *rest: of(tuple(kept)[1:] + tuple(kept)[:1], *rest)


def next_head(heads, width):
    return slicing_positions([(head + 1) % 4 for head in heads], width)


slicing_positions, WITHOUT = slicing.positions, BY_TYPE["llama"].fields - {"hidden_act"}
STACKED = replace(BY_TYPE["gpt_neox"].attention, packing="stacked")
REVERSED = in_other_order(masks._instead_of_heads)
BROKEN = {
    "a used field is left out": (
        "llama", {"hidden_act": "relu"}, other_layout("llama", fields=WITHOUT), {PLAIN}),
    "attention is not seen": (
        "llama", {}, lambda patch: patch.setattr(patterns, "attention_named", lambda *of: nullcontext()), {SEEN}),
    "heads in another order": (
        "llama", {}, lambda patch: patch.setattr(masks, "_instead_of_heads", REVERSED), {COLUMNS, VALUES, LOADED_HEAD}),
    "values in another order": ("gpt_neox", {}, other_layout("gpt_neox", attention=STACKED), {VALUES}),
    "an FFN elsewhere": (
        "llama", {}, other_layout("llama", norms_after=("", "input_layernorm")), {IDENTITY, SLICED, LOADED_LAYER}),
    "slices of other heads": ("llama", {}, lambda patch: patch.setattr(slicing, "positions", next_head), {SLICED}),
}  # fmt: skip


@pytest.mark.parametrize("how", BROKEN)
def test_each_check_fails_where_its_part_is_wrong(how, tiny_opt, tmp_path, monkeypatch):
    family, config, breaks, failing = BROKEN[how]
    folder = configured(family_folder(family, tiny_opt, tmp_path / "model"), **config)
    breaks(monkeypatch)
    assert failing <= {check.name for check in check_model(loaded(folder)) if check.error}


def test_a_small_model_that_cannot_be_built_is_no_fault_of_the_layout(tiny_opt, monkeypatch):
    monkeypatch.setattr(self_check, "random_model", lambda *of: 1 / 0)
    assert [check.name for check in check_model(loaded(tiny_opt))] == [LOADED_HEAD, LOADED_LAYER]


def test_a_model_is_checked_once_for_a_store(tiny_opt, store, monkeypatch):
    spec, made = LoadSpec(str(tiny_opt), "fp32"), []
    real = self_check.check_copy
    monkeypatch.setattr(self_check, "check_copy", lambda identity: made.append(identity) or real(identity))
    model = Models(store).get(spec)
    assert model.fault == "" == known_fault(spec, model.identity, store) and Models(store).get(spec).fault == ""
    assert len(made) == 1
    check_model(model, store, again=True)
    assert len(made) == 2
    other_layout("opt", norms=("self_attn_layer_norm", "other"))(monkeypatch)
    Models(store).get(spec)
    assert len(made) == 3, "what passed with another layout says nothing"


def test_the_included_model_is_not_checked(monkeypatch):
    monkeypatch.setattr(in_memory, "check_model", lambda *of: 1 / 0)
    assert Models().get(LoadSpec()).fault == ""


@pytest.fixture
def faulty(tiny_opt, store, monkeypatch):
    """A session, and a model that fails: its heads lie in another order than they are pruned in."""
    monkeypatch.setattr(masks, "_instead_of_heads", REVERSED)
    session = Session(store)
    target = target_in(session, tiny_opt, "fp32")
    assert session.models.get(target.spec).fault
    return session, target


def test_a_model_that_fails_is_read_but_not_pruned(faulty, tmp_path):
    session, target = faulty
    questions = questions_in(write_questions(tmp_path / "task.jsonl", 4), session)
    assert last(evaluation(target, questions, Mask.full(target.shape)).run(session)).value
    line = f"can be read but not pruned or scored, as it failed a self-check \\({COLUMNS}: differs by"
    for mask in ("L0H0", "F1", "B0"):
        pruning = evaluation(target, questions, parse_mask(mask, target.shape))
        refused_by(HeadroomError, line, lambda pruning=pruning: finished(pruning.run(session)))
    for what in ("heads", "heads-weight", "heads-wanda"):
        scores = importance(target, questions, what)
        refused_by(HeadroomError, line, lambda scores=scores: finished(scores.run(session)))
    assert known_fault(target.spec, target.identity, session.store).startswith(COLUMNS)
