"""Function-vector scores equal a plain loop of full passes with hooks, and find the head of a model built to have
one."""

from string import ascii_uppercase

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.architecture.family import family_of
from engine.errors import HeadroomError
from engine.heads import function_vectors as module
from engine.heads.function_vectors import function_vectors, mean_outputs
from engine.heads.vector_prompt import guesses_with_vector
from engine.heads.vector_switch import SPLITS, TEST, TRAIN, VectorSwitch, vector_switch
from engine.importance.scores import importance
from engine.measurement import single
from engine.models.added_vector import function_vector
from engine.progress import final
from engine.questions.word_pairs import Pair, PairTask
from tests.engine.fixtures import WORD_PAIRS, caught, family_folder, loaded, refused_by, target_in
from tests.engine.test_circuits_of_hand_built_models import built


@pytest.fixture
def few(monkeypatch):
    """Fewer prompts: a plain loop takes a full pass per head and prompt."""
    monkeypatch.setattr(module, "N_CLEAN", 3)
    monkeypatch.setattr(module, "N_SHUFFLED", 2)


@pytest.mark.parametrize("family", "opt llama gpt2 gpt_neox".split())
def test_scores_equal_a_full_pass_per_head(family, tiny_opt, tmp_path, session, few):
    folder = family_folder(family, tiny_opt, tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer, target = AutoTokenizer.from_pretrained(folder), target_in(session, folder, "fp32", bos=True)
    outs, task = family_of(target.identity.config).layer_modules(model), WORD_PAIRS.tokenized(tokenizer)

    def p_after(text, change, layers=range(3)):
        """(V,) probabilities after a text whose z at the last token is given to `change`, layer by layer."""
        ids = torch.tensor([[2, *tokenizer(text, add_special_tokens=False).input_ids]])
        hooks = [outs[at][0].register_forward_pre_hook(lambda _, args, at=at: change(at, args[0][0, -1]))
                 for at in layers]  # fmt: skip
        with torch.no_grad():
            found = model(ids).logits[0, -1].softmax(-1)
        for hook in hooks:
            hook.remove()
        return found.numpy()

    means, expected = torch.zeros(3, 32), []

    def add(at, z):
        means[at] += z / 3

    for number in range(3):
        p_after(task.prompt("train", number).contexts[0], add)
    for number in range(2):
        question = task.prompt("test", number, shuffled=True)
        [token] = {pair.token for pair in task.test if question.continuations == (f" {pair.answer}",)}
        before = p_after(question.contexts[0], print, ())[token]
        for layer, head in np.ndindex(3, 4):

            def put(at, z, mine=slice(8 * head, 8 * head + 8)):
                z[mine] = means[at, mine]

            expected.append(p_after(question.contexts[0], put, [layer])[token] - before)
    found = final(function_vectors(target, [WORD_PAIRS]).run(session))
    np.testing.assert_allclose(found.rise.ravel(), expected, atol=1e-7, rtol=1e-3)
    assert np.abs(expected).max() > 1e-5 and len(found.shuffled) == 2


@pytest.mark.parametrize("family", "opt llama gpt2 gpt_neox".split())
def test_the_vector_is_what_the_heads_write_on_average_after_solved_prompts(family, tiny_opt, tmp_path, session, few):
    folder = family_folder(family, tiny_opt, tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer, target = AutoTokenizer.from_pretrained(folder), target_in(session, folder, "fp32", bos=True)
    outs, task = [out for out, _ in family_of(target.identity.config).layer_modules(model)], WORD_PAIRS.tokenized
    expected, heads = torch.zeros(32), [(0, 2), (1, 3), (2, 0)]
    for number in range(3):
        text = task(tokenizer).prompt("train", number).contexts[0]
        with caught(*outs) as seen, torch.no_grad():
            model(torch.tensor([[2, *tokenizer(text, add_special_tokens=False).input_ids]]))
        for layer, head in heads:
            weight, mine = outs[layer].weight.detach(), slice(8 * head, 8 * head + 8)
            expected += seen[outs[layer]][0, -1, mine] @ (weight if family == "gpt2" else weight.T)[mine] / 3
    piece = mean_outputs(target, WORD_PAIRS, task)
    z = final(single(target, piece, lambda record: record.arrays["z"]).run(session))
    torch.testing.assert_close(function_vector(loaded(folder), heads, z), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", "opt llama gpt2 gpt_neox".split())
def test_a_prompt_with_the_vector_is_a_full_pass_with_a_hook(family, tiny_opt, tmp_path, session, few, monkeypatch):
    monkeypatch.setattr(module, "included_tasks", lambda folder: [WORD_PAIRS])
    folder = family_folder(family, tiny_opt, tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer, target = AutoTokenizer.from_pretrained(folder), target_in(session, folder, "fp32", bos=True)
    prompt = "A letter came to the market"
    found = final(guesses_with_vector(target, WORD_PAIRS, prompt).run(session))
    means = single(target, mean_outputs(target, WORD_PAIRS, WORD_PAIRS.tokenized), lambda record: record.arrays["z"])
    vector = function_vector(loaded(folder), found.heads, final(means.run(session)))
    ids = torch.tensor([[2, *tokenizer(prompt, add_special_tokens=False).input_ids]])

    def add(layer, args, kwargs):
        stream = (args[0] if args else kwargs["hidden_states"]).clone()
        stream[0, -1] += vector
        return ((stream, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": stream})

    for row, layer in enumerate([None, *family_of(target.identity.config).layer_list(model)]):
        hook = None if layer is None else layer.register_forward_pre_hook(add, with_kwargs=True)
        with torch.no_grad():
            p = model(ids).logits[0, -1].softmax(-1)
        if hook is not None:
            hook.remove()
        assert found.p[row] == pytest.approx(p[found.token_ids[row].tolist()].numpy(), rel=1e-4)
        assert found.likeliest(row) == (tokenizer.decode([int(p.argmax())]), pytest.approx(float(p.max()), rel=1e-4))
    assert (np.abs(found.p[1:, 0] - found.p[0, 0]) > 1e-6).any(), "the vector changes something"


def test_the_criterion_reads_the_included_tasks_and_no_questions(tiny_opt, session, few, monkeypatch):
    monkeypatch.setattr(module, "included_tasks", lambda folder: [WORD_PAIRS])
    target = target_in(session, tiny_opt, "fp32")
    found = final(importance(target, None, "heads-function-vector").run(session))
    known = function_vectors(target, [WORD_PAIRS]).stored(session)
    assert known is not None and found.n == 2 and np.array_equal(found.scores, known.mean)


def test_a_task_with_too_few_pairs_is_left_out_and_none_is_an_error(tiny_opt, session, few):
    target = target_in(session, tiny_opt, "fp32")
    same = PairTask("same", tuple(Pair(f"{n}", "same", n % 2 == 0) for n in range(30)))
    refused_by(HeadroomError, "too often the same", lambda: final(function_vectors(target, [same]).run(session)))
    assert len(final(function_vectors(target, [same, WORD_PAIRS]).run(session)).rise) == 2
    [receipt] = [record.receipt for key in session.store.keys() if (record := session.record(key)) is not None
                 and record.receipt.get("task") == "same" and "z" in record.arrays]  # fmt: skip
    assert receipt["dropped_pairs"] == 29


def test_the_head_that_tells_that_examples_are_right_is_found(tiny_opt, tmp_path, session):
    """Layer 0, head 2 looks at the token before, and an FFN finds right pairs of it and the token itself. Layer 1, head
    5 averages that over the prompt, and an FFN gives the answer where it is told so: all that examples do here."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_opt)
    words = [pair.answer for pair in WORD_PAIRS.pairs if len(tokenizer.tokenize(f" {pair.answer}")) == 1]
    pairs = tuple(
        Pair(letter, word, at % 4 > 0) for at, (letter, word) in enumerate(zip(ascii_uppercase, words, strict=False))
    )
    n, token, letter, before, told = len(pairs), 0, 64, 128, 192  # places in the residual stream, of 64 each
    position, head, other = 256, slice(2 * 64, 3 * 64), slice(5 * 64, 6 * 64)

    def change(decoder):
        (first, second), each = decoder.layers, torch.arange(n)
        decoder.embed_tokens.weight.zero_()
        for at, (question, answer, *_) in enumerate(pairs):
            decoder.embed_tokens.weight[tokenizer(question).input_ids[-1], letter + at] = 1
            decoder.embed_tokens.weight[tokenizer(f" {answer}").input_ids[-1], token + at] = 1
        decoder.embed_positions.weight[2:66, position : position + 64] = torch.eye(64)
        for matrix in ("q_proj", "k_proj", "v_proj"):
            getattr(first.self_attn, matrix).weight.zero_()
            getattr(second.self_attn, matrix).weight.zero_()
        first.self_attn.q_proj.weight[head, position : position + 64] = 2 * torch.eye(64).roll(-1, 0)
        first.self_attn.k_proj.weight[head, position : position + 64] = torch.eye(64)
        first.self_attn.v_proj.weight[head, letter : letter + 64] = torch.eye(64)
        first.self_attn.out_proj.weight[before : before + 64, head] = torch.eye(64) / 16
        second.self_attn.v_proj.weight[other.start, told] = 1
        second.self_attn.out_proj.weight[told + 1, other.start] = 0.3
        for layer in (first, second):
            layer.fc1.weight.zero_()
            layer.fc1.bias[:] = -20  # of two features, which are 13 or more each, both
        first.fc1.weight[each, token + each] = first.fc1.weight[each, before + each] = 1
        first.fc2.weight[told, each] = 0.5
        second.fc1.weight[each, letter + each] = second.fc1.weight[each, told + 1] = 1
        second.fc2.weight[token + each, each] = 1

    built(tiny_opt, tmp_path / "model", change, n_layers=2, ffn_dim=32)
    task = PairTask("built", pairs, form="{}")
    found = final(function_vectors(target_in(session, tmp_path / "model", "fp32"), [task]).run(session))
    assert found.shuffled.max() < 0.1 and found.mean[1, 5] > 0.9
    assert np.abs(np.delete(found.mean.ravel(), 8 + 5)).max() < 1e-3
    switch = final(vector_switch(target_in(session, tmp_path / "model", "fp32"), task, found).run(session))
    assert switch.heads == ((1, 5),), "a tenth of the heads"
    for split, asked in (("train", task.train), ("test", task.test)):
        assert switch.switched[split].shape == (2, len(asked)) and switch.switched[split].all()
        assert switch.few[split].mean() > 0.9 and not switch.zero[split].any()
    assert switch.best_layer == 0 and switch.lift.difference == 1


def test_the_layer_is_chosen_on_train_pairs_and_judged_on_test_pairs():
    none, train, test = np.zeros(50, bool), np.zeros((3, 50), bool), np.zeros((3, 50), bool)
    train[1, :20], test[1, :30], test[2, :40] = True, True, True
    found = VectorSwitch((), {}, dict.fromkeys(SPLITS, none), {TRAIN: train, TEST: test})
    assert found.best_layer == 1 and found.lift.difference == 0.6
