"""Heads whose pattern is replaced by an ideal one: the patterns, losses and answers against plain loops, and a model
whose heads were built to be what the patterns say."""

import math

import numpy as np
import pytest
import torch

from engine.errors import UsageError
from engine.heads.idealized import (
    PATTERNS,
    SIDES,
    Ideal,
    ideal_answers,
    ideal_losses,
    ideal_pattern,
    recovered_in_questions,
    recovered_in_texts,
)
from engine.models.masks import Mask, parse_mask
from engine.progress import final
from engine.questions.encoding import Encoded, Row, encode_questions, pack
from tests.conftest import TEXT
from tests.engine.fixtures import EXAMINED, STOCK, loaded, questions_in, refused_by, target_in, write_questions
from tests.engine.test_circuits_of_hand_built_models import built


def plain_pattern(kind, tokens):
    """Where the head looks in a text, token by token."""
    found = np.zeros((len(tokens), len(tokens)))
    for at, token in enumerate(tokens):
        if kind == "previous":
            places = [max(0, at - 1)]
        elif kind == "uniform":
            places = list(range(at + 1))
        else:
            places = [other for other in range(1, at + 1) if tokens[other - 1] == token] or [0]
        for place in places:
            found[at, place] = 1 / len(places)
    return found


def plain_log_p(model, tokens, ablated, ideal):
    """(T, V) log-probabilities of an OPT with its norms in front, computed matrix by matrix; `ideal` is the pattern of
    the heads in question, None their own; those of `ablated` give nothing."""
    decoder, shape = model.model.model.decoder, model.identity.shape
    heads, kind = ideal
    n, hidden = len(tokens), shape.d_head
    future = torch.full((n, n), -math.inf).triu(1)
    with torch.no_grad():
        x = decoder.embed_tokens.weight[list(tokens)] + decoder.embed_positions.weight[2 : 2 + n]
        for number, layer in enumerate(decoder.layers):
            attention, read, outputs = layer.self_attn, layer.self_attn_layer_norm(x), []
            for head in range(shape.n_heads):
                rows = slice(head * hidden, (head + 1) * hidden)
                q, k, v = (read @ each.weight[rows].T + each.bias[rows]
                           for each in (attention.q_proj, attention.k_proj, attention.v_proj))  # fmt: skip
                pattern = (q @ k.T / math.sqrt(hidden) + future).softmax(-1)
                if (number, head) in heads and kind:
                    pattern = torch.tensor(plain_pattern(kind, tokens), dtype=torch.float32)
                outputs.append(pattern @ v * ((number, head) not in ablated))
            x = x + torch.cat(outputs, -1) @ attention.out_proj.weight.T + attention.out_proj.bias
            x = x + layer.fc2(torch.relu(layer.fc1(layer.final_layer_norm(x))))
        return (decoder.final_layer_norm(x) @ model.model.get_output_embeddings().weight.T).log_softmax(-1)


def row_of(tokens):
    return Row((), tuple(tokens), tuple(range(len(tokens))), (0,) * len(tokens), ())


@pytest.mark.parametrize("kind", PATTERNS)
def test_in_a_packed_row_each_choice_sees_what_it_would_see_alone(kind):
    choices = [Encoded(0, 0, (9, 1, 2, 3, 1, 7, 2), (7, 2), 0), Encoded(0, 1, (9, 1, 2, 3, 1, 2, 3, 3), (2, 3, 3), 0)]
    (row,) = pack(choices)
    assert len(row.tokens) < sum(len(choice.inputs) for choice in choices)
    found = ideal_pattern(kind, row)
    for number, choice in enumerate(choices):
        mine = [at for at, branch in enumerate(row.branch) if branch in (0, number + 1)]
        assert np.allclose(found[np.ix_(mine, mine)], plain_pattern(kind, choice.inputs))


def test_losses_equal_a_plain_loop(folder_of, session):
    folder = folder_of("opt")
    target, model = target_in(session, folder, bos=True), loaded(folder)
    ideal = Ideal(((0, 1), (1, 3)), parse_mask("L0H2 F1", target.shape))
    losses = final(ideal_losses(target, [TEXT], ideal).run(session))
    tokens = [2, *model.tokenizer(TEXT, add_special_tokens=False).input_ids][: len(losses["full"][0])]
    with torch.no_grad():  # a pruned FFN gives exactly nothing
        for part in (model.model.model.decoder.layers[1].fc2.weight, model.model.model.decoder.layers[1].fc2.bias):
            part.zero_()
    for side in SIDES:
        gone = {(0, 2)} | (set(ideal.heads) if side == "ablated" else set())
        log_p = plain_log_p(model, tokens, gone, (ideal.heads, side if side in PATTERNS else None))
        expected = -log_p[range(len(tokens) - 1), tokens[1:]].numpy()
        assert np.allclose(losses[side][0][: len(expected)], expected, atol=1e-4)


@pytest.mark.parametrize("bos", [True, False])
def test_a_text_is_read_whole_window_by_window(bos, folder_of, model_of, session):
    """Windows of the model's 256 tokens, each by itself; fewer than 32 tokens at the end are left out."""
    target, tokenizer = target_in(session, folder_of("opt"), bos=bos), model_of("opt").tokenizer
    whole, ideal = TEXT * 3, Ideal(((1, 2),), Mask.full(target_in(session, folder_of("opt")).shape))
    tokens = tokenizer(whole, add_special_tokens=False).input_ids
    for n in (2 * 256 + 40, 2 * 256 + 10):
        text = tokenizer.decode(tokens[:n])
        assert tokenizer(text, add_special_tokens=False).input_ids == tokens[:n]
        losses = final(ideal_losses(target, [text], ideal).run(session))
        again = ideal_losses(target, [text, text], ideal).stored(session)
        for side in SIDES:
            found = losses[side][0]
            parts = [tokenizer.decode(tokens[:n][at : at + 256]) for at in (0, 256, 512)]
            alone = [final(ideal_losses(target, [part], ideal).run(session))[side][0] for part in parts]
            assert len(found) == n == sum(map(len, alone))
            np.testing.assert_allclose(found[:512], np.concatenate(alone[:2]), atol=1e-5)
            np.testing.assert_allclose(found[512:], alone[2] if n == 552 else np.nan, atol=1e-5)
            for each in again[side]:
                np.testing.assert_array_equal(each, found)
        n_read = n if n == 552 else 512
        assert recovered_in_texts(losses, "prefix").n_scored == n_read - (0 if bos else n_read // 256 + (n == 552))


def test_answers_equal_a_plain_loop(folder_of, tmp_path, session):
    folder = folder_of("opt")
    target, model = target_in(session, folder), loaded(folder)
    questions = questions_in(write_questions(tmp_path / "task.jsonl", n=6), session)
    ideal = Ideal(((1, 0), (2, 2)), Mask.full(target.shape))
    answers = final(ideal_answers(target, questions, ideal).run(session))
    encoded = encode_questions(questions.at(questions.order), model.tokenizer, target.bos, target.shape.n_ctx)
    for side in SIDES:
        gone = set(ideal.heads) if side == "ablated" else set()
        for row, choices in enumerate(encoded):
            for choice in choices:
                log_p = plain_log_p(model, choice.inputs, gone, (ideal.heads, side if side in PATTERNS else None))
                places = range(len(choice.inputs) - len(choice.targets), len(choice.inputs))
                expected = float(log_p[places, choice.targets].sum())
                assert answers[side].log_likelihood_nats[row, choice.choice] == pytest.approx(expected, abs=2e-4)


@pytest.mark.thorough
@pytest.mark.parametrize("family", [name for name in EXAMINED if name in STOCK])
def test_a_uniform_head_of_any_family_is_one_whose_queries_are_nothing(family, folder_of, model_of, session):
    """With all heads of a layer uniform the model is that whose queries there are 0."""
    folder = folder_of(family)
    target, model = target_in(session, folder), model_of(family)
    ideal = Ideal(tuple((1, head) for head in range(target.shape.n_heads)), Mask.full(target.shape))
    uniform = final(ideal_losses(target, [TEXT[:80]], ideal).run(session))["uniform"][0]
    tokens = model.tokenizer(TEXT[:80], add_special_tokens=False).input_ids
    tokens = ([2] if target.bos else []) + tokens
    attention = model.family.attention_modules(model.model)[1]

    def silenced(module, args, output):
        output = output.clone()
        width = target.shape.n_heads * target.shape.d_head
        if model.family.attention.packing == "by head":
            n_keys = target.shape.n_key_value_heads
            output.view(*output.shape[:-1], n_keys, -1, target.shape.d_head)[..., :-2, :] = 0
        else:
            output[..., :width] = 0
        return output

    def everywhere(module, args, given):
        return args, given | (
            {each: torch.zeros_like(given[each]) for each in ("alibi", "position_bias") if given.get(each) is not None}
        )

    hook = getattr(attention, model.family.attention.qkv[0]).register_forward_hook(silenced)
    with torch.no_grad(), attention.register_forward_pre_hook(everywhere, with_kwargs=True):
        log_p = model.model(input_ids=torch.tensor([tokens])).logits[0].log_softmax(-1)
    hook.remove()
    expected = -log_p[range(len(tokens) - 1), tokens[1:]].numpy()
    assert np.allclose(uniform[-len(expected) :], expected, atol=1e-4)


def built_to_induce(tiny_opt, folder):
    """An attention-only OPT: L0H3 looks at the token before by its positions' phases and writes it down, L1H5 looks for
    its own token among what was written and raises what it finds; where it finds nothing it rests on BOS."""
    d_head, at = 64, slice(256, 320)  # 0 to 255 the tokens, then phases, then what is written

    def change(decoder):
        tokens, positions = decoder.embed_tokens.weight, decoder.embed_positions.weight
        tokens.zero_()
        tokens[:, :256] = torch.randn(512, 256) / 16
        tokens[2] = 0  # BOS says nothing
        positions.zero_()
        rates = torch.linspace(0.05, 3.0, 32)
        angles = torch.arange(len(positions))[:, None] * rates
        positions[:, at] = torch.cat([angles.cos(), angles.sin()], 1) / 32**0.5
        positions[2, 384] = 1.0  # position 0, where BOS is
        back = torch.block_diag(*[torch.tensor([[math.cos(r), math.sin(r)], [-math.sin(r), math.cos(r)]])
                                  for r in rates.tolist()])  # fmt: skip
        pairs = torch.arange(64).view(2, 32).T.flatten()  # (cos, sin) of one rate side by side
        turned = torch.zeros(64, 64)
        turned[pairs[:, None], pairs] = back
        first, second = (layer.self_attn for layer in decoder.layers)
        basis = torch.linalg.qr(torch.randn(256, d_head))[0]
        basis[:, -1] = 0  # the last dimension of a head is for resting
        rows = slice(3 * d_head, 4 * d_head)
        for projection in (first.q_proj, first.k_proj, first.v_proj, second.q_proj, second.k_proj, second.v_proj):
            projection.weight.zero_()
        first.q_proj.weight[rows, at] = 3 * turned
        first.k_proj.weight[rows, at] = 3 * torch.eye(64)
        first.v_proj.weight[rows, :256] = basis.T
        first.out_proj.weight[320:384, rows] = torch.eye(64) / 4
        rows = slice(5 * d_head, 6 * d_head)
        second.q_proj.weight[rows, :256] = 6 * basis.T
        second.k_proj.weight[rows, 320:384] = 6 * torch.eye(64)
        second.q_proj.bias[6 * d_head - 1] = 5
        second.k_proj.weight[6 * d_head - 1, 384] = 25
        second.v_proj.weight[rows, :256] = basis.T
        second.out_proj.weight[:256, rows] = 2 * basis

    built(tiny_opt, folder, change, n_layers=2, n_ctx=256)
    return folder


def test_a_model_built_to_induce_loses_nothing_by_ideal_patterns(tiny_opt, tmp_path, session):
    folder = built_to_induce(tiny_opt, tmp_path / "built")
    target = target_in(session, folder, bos=True)
    words = "river boats bread road letters children morning stones".split()
    generator = np.random.default_rng(0)
    texts = [" ".join([*(first := [str(word) for word in generator.permutation(words)]), *first]) for _ in range(6)]
    for heads, kind in ((((0, 3),), "previous"), (((1, 5),), "prefix")):
        losses = final(ideal_losses(target, texts, Ideal(heads, Mask.full(target.shape))).run(session))
        found = recovered_in_texts(losses, kind)
        assert found.effect_low > 0.2 and found.share > 0.99, (heads, found)
        others = [recovered_in_texts(losses, other) for other in PATTERNS if other != kind]
        assert all(other.share < 0.7 for other in others), others


def test_the_share_is_of_sums_and_undefined_where_there_is_no_effect():
    generator = np.random.default_rng(1)
    full = [generator.normal(3, 1, 200), generator.normal(3, 1, 100)]
    losses = {"full": full, "ablated": [text + 1 for text in full], "previous": [text + 0.25 for text in full]}
    found = recovered_in_texts(losses, "previous")
    assert (found.effect_nats, found.share) == (pytest.approx(1), pytest.approx(0.75))
    assert found.low == pytest.approx(0.75) and found.n == 7 + 4
    noise = {**losses, "ablated": [text + generator.normal(0, 1, len(text)) for text in full]}
    none = recovered_in_texts(noise, "previous")
    assert none.effect_low < 0 < none.effect_high and math.isnan(none.share)
    helps = recovered_in_texts({**losses, "ablated": [text - 1 for text in full]}, "previous")
    assert helps.effect_high < 0 and math.isnan(helps.share) and math.isnan(helps.low)


def test_bootstrap_of_questions_equals_a_plain_loop(tiny_opt, tmp_path, session):
    target = target_in(session, tiny_opt)
    questions = questions_in(write_questions(tmp_path / "task.jsonl", n=12), session)
    ideal = Ideal(tuple((0, head) for head in range(4)), Mask.full(target.shape))
    answers = final(ideal_answers(target, questions, ideal).run(session))
    found = recovered_in_questions(answers, "uniform")
    gold = {side: -answers[side].gold_log_likelihood_nats for side in answers}
    effect, kept = gold["ablated"] - gold["full"], gold["ablated"] - gold["uniform"]
    generator = np.random.default_rng(5)
    drawn = [generator.integers(0, 12, 12) for _ in range(4000)]
    low, high = np.quantile([effect[draw].mean() for draw in drawn], (0.025, 0.975))
    assert found.effect_nats == pytest.approx(effect.mean())
    spread = effect.std() / math.sqrt(12)
    assert abs(found.effect_low - low) < 0.15 * spread and abs(found.effect_high - high) < 0.15 * spread
    if not math.isnan(found.share):
        assert found.share == pytest.approx(kept.sum() / effect.sum())


def test_heads_that_are_pruned_or_none_at_all_are_refused(tiny_opt, session):
    shape = target_in(session, tiny_opt).shape
    refused_by(UsageError, "L0H1 is pruned already", lambda: Ideal(((0, 1),), parse_mask("L0H1", shape)))
    refused_by(UsageError, "no head is named", lambda: Ideal((), Mask.full(shape)))
