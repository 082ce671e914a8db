"""What a lower precision disturbs: outputs of heads and FFNs as by plain loops, and each figure from single results."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from engine.accuracy.evaluation import evaluation
from engine.importance.scores import importance
from engine.models.masks import Mask
from engine.progress import final
from engine.studies import precision as module
from engine.studies.precision import outputs, precision_effects, relative_difference
from engine.texts.perplexity import perplexity
from engine.views.importance import components, precision_view
from engine.views.view import plain_text
from tests.conftest import TEXT
from tests.engine.fixtures import caught, questions_in, target_in, write_questions


def ratio(own, reference):
    """The mean over tokens of the length of the difference, as a share of the reference's, vector by vector."""
    pairs = zip(own.float().tolist(), reference.float().tolist(), strict=True)
    return np.mean([np.linalg.norm(np.subtract(a, b)) / np.linalg.norm(b) for a, b in pairs])


def by_hand(reference, other, ids):
    """(heads, ffns) of the other model: by a pass for each layer, with its input replaced, and a call of each FFN."""
    n_heads = reference.identity.shape.n_heads
    heads, ffns = [], []
    modules = [each.family.layer_modules(each.model) for each in (reference, other)]
    layers = other.family.layer_list(other.model)
    with torch.inference_mode():
        outs, ends = zip(*modules[0], strict=True)
        with caught(*outs) as z, caught(*outs, outputs=True) as attention, caught(*ends, outputs=True) as ffn:
            inputs = reference.model(ids, output_hidden_states=True).hidden_states
        for at, ((out, _), layer) in enumerate(zip(modules[1], layers, strict=True)):
            fed = inputs[at].to(other.model.dtype)

            def feed(module, args, kwargs, fed=fed):
                return ((fed, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": fed})

            with layer.register_forward_pre_hook(feed, with_kwargs=True), caught(out) as own:
                other.model(ids)
            pairs = (each[0].unflatten(-1, (n_heads, -1)).unbind(1) for each in (own[out], z[outs[at]]))
            heads.append([ratio(*pair) for pair in zip(*pairs, strict=True)])
            middle = fed + attention[outs[at]].to(fed)
            if hasattr(layer, "mlp"):
                written = layer.mlp(layer.post_attention_layernorm(middle))
            else:
                written = layer.fc2(layer.activation_fn(layer.fc1(layer.final_layer_norm(middle))))
            ffns.append(ratio(written[0], ffn[ends[at]].flatten(0, -2)))
    return np.array(heads), np.array(ffns)


@pytest.mark.slow("loads a model in two precisions")
@pytest.mark.parametrize("family, precision", [("opt", "int8"), ("llama", "bf16")])
def test_outputs_differ_as_by_plain_loops(family, precision, model_of, folder_of, session, tmp_path):
    targets = [target_in(session, folder_of(family), each) for each in ("fp32", precision)]
    questions = questions_in(write_questions(tmp_path / "own.jsonl"), session, 4)
    found = final(precision_effects(targets, TEXT, questions, questions).run(session)).disturbed[targets[1].spec]
    reference, other = model_of(family), model_of(family, precision)
    encoded = reference.tokenizer(TEXT, add_special_tokens=targets[0].bos, return_tensors="pt").input_ids
    heads, ffns = by_hand(reference, other, encoded[:, : module.N_TOKENS])
    np.testing.assert_allclose(found["heads"], heads, rtol=2e-3)
    np.testing.assert_allclose(found["ffns"], ffns, rtol=2e-3)
    assert 1e-4 < heads.mean() < 0.2
    assert (found["heads_end_to_end"][1:] > found["heads"][1:]).mean() > 0.5, "differences pile up"
    ends = [each.family.layer_modules(each.model)[-1][1] for each in (reference, other)]
    with torch.inference_mode(), caught(*ends, outputs=True) as ffn:
        for each in (reference, other):
            each.model(encoded[:, : module.N_TOKENS])
    last = ratio(*(ffn[end].flatten(0, -2) for end in ends[::-1]))
    assert found["ffns_end_to_end"][-1] == pytest.approx(last, rel=2e-3)


def test_a_model_next_to_itself_differs_nowhere_even_if_it_is_fed(model_of):
    own = outputs(model_of("opt"), TEXT, True)
    fed = outputs(model_of("opt"), TEXT, True, own)
    for name in own:
        assert all(torch.equal(*pair) for pair in zip(own[name], fed[name], strict=True))


def test_tokens_at_which_the_reference_is_0_do_not_count():
    own, reference = torch.tensor([[3.0, 4.0], [1.0, 1.0]]), torch.tensor([[3.0, 0.0], [0.0, 0.0]])
    assert relative_difference(own, reference) == pytest.approx(4 / 3)


@pytest.mark.slow("loads a model in three precisions")
def test_a_row_is_made_of_single_results(tiny_opt, session, tmp_path, monkeypatch):
    loads, load = [], type(session.models).get
    monkeypatch.setattr(type(session.models), "get", lambda models, spec: loads.append(spec) or load(models, spec))
    questions = questions_in(write_questions(tmp_path / "own.jsonl"), session, 12)
    targets = [target_in(session, tiny_opt, each) for each in ("fp32", "bf16", "int8")]
    targets[2] = session.target(replace(targets[2].spec, int8_threshold=0.0))
    found = final(precision_effects(targets, TEXT, questions, questions).run(session))
    assert list(dict.fromkeys(loads)) == [each.spec for each in targets]
    assert sum(a != b for a, b in zip(loads, loads[1:], strict=False)) == 2, "each model is loaded once"
    first, full = targets[1], Mask.full(targets[1].shape)
    row, (rights, golds, losses) = found.row(first.spec), ([], [], [])
    for target in targets[:2]:
        answers = final(evaluation(target, questions, full).run(session))
        rights.append(answers.correct)
        golds.append(answers.gold_log_likelihood_nats)
        losses.append(final(perplexity(target, TEXT, full).run(session)).loss_nats)
    assert row["points_lost"] == pytest.approx(100 * (rights[0].mean() - rights[1].mean()))
    assert row["nats_lost"] == pytest.approx(np.mean(golds[0] - golds[1]))
    assert row["nats_low"] < row["nats_lost"] < row["nats_high"]
    assert row["loss_change"] == pytest.approx(np.mean(losses[1].astype(float) - losses[0]))
    assert row["perplexity"] == pytest.approx(np.exp(losses[1].mean(dtype=float)))
    scores = final(importance(first, questions, "heads-one-divisor").run(session)).scores
    rho = spearmanr(scores.ravel(), found.disturbed[first.spec]["heads"].ravel()).statistic
    assert row["heads_srcc"] == pytest.approx(rho) and row["heads_low"] < rho < row["heads_high"]
    rows = components(found, first.spec)
    assert len(rows) == 8 + 2 and rows[0]["name"] == "L0H0" and rows[-1]["name"] == "F1"
    ranks = [each["rank"] for each in rows[:8]]
    assert sorted(ranks) == [*range(1, 9)] and ranks.index(1) == scores.argmax()
    view = precision_view(found, "own")
    assert f"rank correlation {row['heads_srcc']:+.2f}".replace("-", "−") in plain_text(view.finding)
    most = max(rows, key=lambda each: each["disturbed"])
    assert view.parts[0].caption.startswith(f"Most disturbed: {most['name']} ")
    assert [each["name"] for each in view.parts[-1].rows] == ["bf16", "int8, threshold 0"]
