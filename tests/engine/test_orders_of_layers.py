"""Whole layers go in the order that a plain loop finds: by block influence, the oracle, the greedy search; what is
stored is not measured again."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.accuracy.evaluation import evaluation
from engine.importance.layers import LAYERS_BY, block_influence, greedy, layer_order, n_passes
from engine.importance.orders import Pruning, Ranking, evidence, orders_of
from engine.importance.rules import QUICK, Evidence
from engine.models.in_memory import Models
from engine.models.masks import Mask, parse_edits, parse_mask, without_layers
from engine.progress import final
from engine.questions.encoding import encode_questions
from engine.records import decode
from tests.engine.fixtures import EXAMINED, caught, finished, questions_in, target_in, write_questions


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return write_questions(tmp_path_factory.mktemp("task") / "own.jsonl", 20)


def asked(session, folder, file, n=18, precision="fp32"):
    """(session, target, questions of the train split): more than a chunk, and not the whole of the next."""
    return session, target_in(session, folder, precision, bos=True), questions_in(file, session, n, split="train")


def plain_influence(model, questions):
    """1 - mean cosine over the hidden states that transformers itself gives, question by question: (L,)."""
    base = model.model.base_model
    turned, end = [], model.family.layer_list(model.model)[-1]
    for question, choices in zip(questions, encode_questions(questions, model.tokenizer, True, 256), strict=True):
        tokens = torch.tensor([choices[question.golds[0]].inputs])
        with torch.no_grad(), caught(end, outputs=True) as seen:
            states = base(tokens, output_hidden_states=True, use_cache=False).hidden_states
        last = seen[end][0] if model.family.is_adapted else seen[end]
        states = [*states[:-1], last]  # transformers gives the last state behind the final norm
        cosines = []
        for before, behind in zip(states[:-1], states[1:], strict=True):
            a, b = before[0].numpy().astype(float), behind[0].numpy().astype(float)
            cosines.append((a * b).sum(1) / np.sqrt((a**2).sum(1) * (b**2).sum(1)))
        turned.append(1 - np.array(cosines))
    return np.concatenate(turned, axis=1).mean(1)


@pytest.mark.thorough
@pytest.mark.parametrize("family", EXAMINED)
def test_block_influence_is_one_minus_the_mean_cosine(family, folder_of, file, session):
    about = asked(session, folder_of(family), file)
    found = final(block_influence(*about[1:]).run(about[0]))
    model = finished(session.loaded(about[1]))
    hooks = [layer._forward_hooks for layer in model.family.layer_list(model.model)]
    assert not any(hooks)
    expected = plain_influence(model, about[2].at(about[2].order[:18]))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_array_equal(layer_order(*about[1:], "influence", 1).stored(about[0]), np.argsort(expected))


def test_block_influence_in_int8_leaves_padding_out(folder_of, file, session, monkeypatch):
    """bitsandbytes' own layers read padded rows: what stands there is no token."""
    about, in_fp32 = (asked(session, folder_of("opt"), file, 18, precision) for precision in ("int8", "fp32"))
    found, exact = (final(block_influence(*each[1:]).run(session)) for each in (about, in_fp32))
    np.testing.assert_allclose(found, exact, rtol=0.05)


def plain_greedy(about):
    """Each layer in turn dropped besides what is gone, by whole evaluations; the best stays out."""
    shape, gone = about[1].shape, []
    full = Mask.full(shape)
    while len(gone) < shape.n_layers:
        left = [layer for layer in range(shape.n_layers) if layer not in gone]
        answers = {
            layer: final(evaluation(*about[1:], without_layers(full, [*gone, layer])).run(about[0])) for layer in left
        }
        kept = {layer: (each.correct.mean(), each.gold_log_likelihood_nats.mean()) for layer, each in answers.items()}
        gone.append(max(left, key=lambda layer, kept=kept: kept[layer]))
    return gone


@pytest.mark.parametrize("family", ["opt", "llama"])
def test_the_greedy_search_drops_what_costs_least_again_and_again(family, folder_of, file, session):
    about = asked(session, folder_of(family), file)
    steps = greedy(*about[1:], 3).run(about[0])
    counts = []
    for step in steps:
        counts.append((step.done, step.total))
        if step.value:  # the first step stands, and is not lost
            break
    steps.close()
    assert len(greedy(*about[1:], 3).so_far(session)) == 1
    assert layer_order(*about[1:], "greedy", 2).stored(session) is None
    found = final(greedy(*about[1:], 3).run(about[0]))
    counts += [(6 * 18, 6 * 18)]
    assert counts == sorted(counts) and n_passes(about[1].shape, "greedy", 3) == 6
    assert [step.layer for step in found] == plain_greedy(about)
    first_two = final(layer_order(*about[1:], "greedy", 2).run(session))
    np.testing.assert_array_equal(first_two, [step.layer for step in found[:2]])


def test_the_oracle_orders_layers_by_the_accuracy_lost(folder_of, file, session):
    about = asked(session, folder_of("opt"), file)
    found = final(layer_order(*about[1:], "oracle", 1).run(about[0]))
    left = [final(evaluation(*about[1:], parse_mask(f"B{layer}", about[1].shape)).run(about[0])) for layer in range(3)]
    kept = [(each.correct.mean(), each.gold_log_likelihood_nats.mean()) for each in left]
    assert found.tolist() == sorted(range(3), key=lambda layer: kept[layer], reverse=True)


@pytest.mark.parametrize("by", LAYERS_BY)
def test_layers_go_besides_heads_and_ffns(by, folder_of, file, session, monkeypatch):
    _, target, _ = asked(session, folder_of("opt"), file)
    task, edits = questions_in(file, session).task, parse_edits("L2H1 keep F0", target.shape)
    pruning = Pruning(task, Ranking("random", n_questions=6, layers_by=by), 500, 0, edits, 700)
    assert pruning.n_layers_dropped == 2 and pruning.missing(Evidence()) == ["layers"]
    assert "700" in str(pruning) and pruning.at("layers", 0).missing(Evidence()) == []
    orders = final(orders_of(target, pruning).run(session))
    mask = pruning.mask(orders)
    assert mask == edits.on(without_layers(orders.mask(500, 0), orders.layers[:2]))
    assert len(mask.layers_dropped) in (1, 2) and pruning.by_level
    monkeypatch.setattr(Models, "get", lambda *_: pytest.fail("the model was loaded"))
    known = evidence(target, task, pruning.ranking, [], 2).so_far(session)
    assert pruning.known_mask(target.shape, known) == mask
    further = evidence(target, task, pruning.ranking, [], 3).so_far(session)
    assert (pruning.at("layers", 1000).known_mask(target.shape, further) is None) == (by == "greedy")


@pytest.mark.parametrize("layers_permille", [0, 500])
def test_each_part_of_a_ranking_is_named_and_counted_by_itself(folder_of, file, session, layers_permille):
    _, target, _ = asked(session, folder_of("opt"), file)
    task, nothing = questions_in(file, session).task, parse_edits("", target.shape)
    pruning = Pruning(task, Ranking(n_questions=6), 500, 500, nothing, layers_permille)
    *steps, _ = [step for step in orders_of(target, pruning).run(session) if not step.is_loading]
    last = {step.message: (step.done, step.total) for step in steps}
    layers = {"ranking layers": (6, 6)} if layers_permille else {}
    expected = {"ranking heads": (6, 6), "ranking FFNs": (6 * 4, 6 * 4)} | layers
    assert last == expected, "the oracle answers in full, then per FFN"
    names = [step.message for step in steps]
    assert names == sorted(names, key=[*expected].index)
    parts = [step.part for step in steps]
    assert parts == sorted(parts) and parts[0] == 0.0 and parts[-1] == 1.0
    assert any(step.message == "ranking FFNs" and not step.done for step in steps), "named before its first answers"


@pytest.mark.parametrize("n_questions, n", [(None, 8), (6, 6)])
def test_quick_gradient_is_gradient_from_eight_questions(folder_of, file, session, n_questions, n):
    _, target, _ = asked(session, folder_of("opt"), file)
    task, nothing = questions_in(file, session).task, parse_edits("", target.shape)
    pruning = Pruning(task, Ranking(QUICK, n_questions=n_questions), 500, 500, nothing)
    found = final(orders_of(target, pruning).run(session))
    expected = orders_of(target, replace(pruning, ranking=Ranking("gradient", n_questions=n))).stored(session)
    assert found.heads.tolist() == expected.heads.tolist() and found.ffns.tolist() == expected.ffns.tolist()


@pytest.mark.parametrize("names, sizes", [([QUICK], [8]), (["gradient", QUICK], [16]), ([QUICK, "gradient"], [8, 16])])
def test_a_quick_order_measures_its_questions_alone_unless_a_chunk_is_stored(folder_of, file, session, names, sizes):
    _, target, _ = asked(session, folder_of("opt"), file)
    task, nothing = questions_in(file, session).task, parse_edits("", target.shape)
    for name in names:
        final(orders_of(target, Pruning(task, Ranking(name, n_questions=16), 500, 500, nothing)).run(session))
    records = [decode(session.store.get(key)) for key in session.store.keys() if "/importance/" in key]
    assert sorted(len(record.arrays["gold"]) for record in records) == sizes
