"""An added function vector changes answers and continuations as a plain hook at the last token of the context does, on
pruned models too."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch

from engine.accuracy.evaluation import evaluation
from engine.accuracy.scoring import score
from engine.errors import UsageError
from engine.heads import function_vectors
from engine.heads.fills import filled_evaluation
from engine.heads.vector_switch import added_vector, switched_on
from engine.models.added_vector import AddedVector
from engine.models.masks import Mask, parse_mask, pruned
from engine.progress import final
from engine.questions.encoding import encode_questions
from engine.questions.rendering import Question
from engine.requests import vectors as vector_module
from engine.requests.vectors import vector_named
from engine.texts.continuation import How, continuation, next_tokens
from tests.engine.fixtures import WORD_PAIRS, finished, loaded, questions_in, refused_by, target_in, write_questions

FAMILIES = "opt llama gpt2 gpt_neox".split()
HEADS, LAYER, N_TOKENS = ((0, 2), (1, 3), (2, 0)), 1, 5
PROMPT, MASK = "A letter came to the market", "L0H1 L1H2 F1"


@pytest.fixture
def added():
    """A vector large enough to change answers."""
    z = np.random.default_rng(0).normal(scale=4, size=(3, 4, 8)).astype(np.float32)
    return AddedVector("made up", HEADS, z, LAYER)


def written(model, vector):
    """The vector by the model's own weights."""
    found = torch.zeros(32)
    for layer, head in vector.heads:
        weight = model.family.layer_modules(model.model)[layer][0].weight.detach()
        weight = weight if type(model.model).__name__.startswith("GPT2") else weight.T
        found += torch.from_numpy(vector.z[layer, head]) @ weight[8 * head : 8 * head + 8]
    return found


@contextmanager
def hooked(model, layer, vector, position):
    """While open, the layer's input has the vector added at one position of its only row."""

    def add(module, args, kwargs):
        stream = (args[0] if args else kwargs["hidden_states"]).clone()
        stream[0, position] += vector
        return ((stream, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": stream})

    module = model.family.layer_list(model.model)[layer]
    with module.register_forward_pre_hook(add, with_kwargs=True), torch.no_grad():
        yield


def plain(model, questions, bos, vector):
    """The log-likelihood of each choice, by a pass of its own."""
    found = []
    for choices in encode_questions(questions, model.tokenizer, bos, model.identity.shape.n_ctx):
        for choice in choices:
            n = len(choice.targets)
            with hooked(model, LAYER, vector, len(choice.inputs) - n):
                log_p = model.model(torch.tensor([choice.inputs])).logits[0, -n:].log_softmax(-1)
            found.append(log_p[range(n), choice.targets].sum().item())
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_are_those_of_a_plain_hook(family, folder_of, tmp_path, session, added):
    folder = folder_of(family)
    target, model = target_in(session, folder, "fp32"), loaded(folder)
    questions, vector = questions_in(write_questions(tmp_path / "q.jsonl", 2)), written(model, added)
    for mask in (Mask.full(target.shape), parse_mask(MASK, target.shape)):
        without = final(evaluation(target, questions, mask).run(session)).log_likelihood_nats
        found = final(evaluation(target, questions, mask, added=added).run(session)).log_likelihood_nats
        with pruned(model, mask):
            expected = plain(model, questions.rendered.questions, target.bos, vector)
        np.testing.assert_allclose(found[~np.isnan(found)], expected, atol=1e-5)
        assert np.nanmax(np.abs(found - without)) > 0.1, "the vector changes answers"


@pytest.mark.parametrize("family", FAMILIES)
def test_continuations_are_those_of_a_plain_hook(family, folder_of, session, added):
    """Each token takes a pass of its own over all tokens so far, with the vector at the last one of the prompt."""
    folder = folder_of(family)
    target, model = target_in(session, folder, "fp32"), loaded(folder)
    mask, full, vector = parse_mask(MASK, target.shape), Mask.full(target.shape), written(model, added)
    start = [model.tokenizer.bos_token_id] * target.bos
    ids = [*start, *model.tokenizer(PROMPT, add_special_tokens=False).input_ids]
    given, log_p = list(ids), []
    for _ in range(N_TOKENS):
        with pruned(model, mask), hooked(model, LAYER, vector, len(ids) - 1):
            log_p.append(model.model(torch.tensor([given])).logits[0, -1].log_softmax(-1))
        given.append(int(log_p[-1].argmax()))
    found = final(continuation(target, PROMPT, mask, How(N_TOKENS), added=added).run(session))
    assert found.token_ids.tolist() == given[len(ids) :]
    np.testing.assert_allclose(found.log_p, [each.max().item() for each in log_p], atol=1e-5)
    likeliest = final(next_tokens(target, PROMPT, [full, mask], added=added).run(session))
    np.testing.assert_allclose(likeliest.log_p[2], log_p[0][likeliest.token_ids], atol=1e-5)
    assert np.abs(likeliest.log_p[2] - likeliest.log_p[1]).max() > 0.1, "the vector changes the next token"


def test_a_context_that_begins_another_gets_its_own_vector(folder_of, session, added):
    """Choices whose contexts end at different tokens share no row: one holds the last token of the other."""
    model = loaded(folder_of("opt"))
    contexts = PROMPT, f"{PROMPT} and the old woman"
    question = Question(0, contexts, (" asked in June",) * 2, (0,), (1, 1), "")
    encoded = encode_questions([question], model.tokenizer, True, model.identity.shape.n_ctx)
    found, _ = finished(score(model, encoded, added.in_model(model)))
    np.testing.assert_allclose(found[0], plain(model, [question], True, written(model, added)), atol=1e-5)


def test_a_name_gives_the_layer_or_the_best_one(tiny_opt, session, monkeypatch):
    for name, n in (("N_CLEAN", 2), ("N_SHUFFLED", 1)):
        monkeypatch.setattr(function_vectors, name, n)
    for module in (function_vectors, vector_module):
        monkeypatch.setattr(module, "included_tasks", lambda folder: [WORD_PAIRS])
    target, name = target_in(session, tiny_opt, "fp32"), WORD_PAIRS.name
    switch = final(switched_on(target, WORD_PAIRS).run(session))
    best, first = (final(vector_named(target, text).run(session)) for text in (name, f"{name}@0"))
    assert (best.layer, first.layer) == (switch.best_layer, 0) and best.heads == first.heads == switch.heads
    assert final(added_vector(target, WORD_PAIRS, 1).run(session)).key() == {**first.key(), "layer": 1}
    refused_by(UsageError, "layer '2' of the vector .* is not one of 0 to 1", lambda: vector_named(target, f"{name}@2"))
    refused_by(UsageError, "task 'magic' has no word pairs", lambda: vector_named(target, "magic"))


def test_no_vector_is_added_where_attention_is_cut(folder_of, session, tmp_path, added):
    target, asked = target_in(session, folder_of("opt"), "fp32"), questions_in(write_questions(tmp_path / "q.jsonl", 2))
    mask = parse_mask("L0H0", target.shape)
    wanted = target, asked, lambda: asked, mask, "knockout", added
    refused_by(UsageError, "choose zero or mean", lambda: filled_evaluation(*wanted))
