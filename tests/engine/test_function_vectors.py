"""Function-vector scores equal a plain loop of full passes with hooks, and find the head of a model built to have
one."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.architecture.family import family_of
from engine.errors import HeadroomError
from engine.heads import function_vectors as module
from engine.heads.function_vectors import function_vectors
from engine.importance.importance import importance
from engine.progress import final
from engine.questions.word_pairs import Pair, PairTask
from tests.engine.fixtures import WORD_PAIRS, family_folder, refused_by, target_in


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
