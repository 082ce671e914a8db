"""What is told of one head equals plain loops over the whole matrices, on small models of every family."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.heads.attention import overview
from engine.heads.circuits import circuit_rows, feeding, ov_tokens
from engine.heads.idealized import PATTERNS, Ideal, ideal_losses, recovered_in_texts
from engine.heads.in_text import LEAST, head_in_texts, head_on_probe, most_looked_at, most_raised
from engine.heads.induction import induction
from engine.heads.probes import prefix_matching
from engine.importance.criteria import CRITERIA, ON_REQUEST
from engine.importance.scores import Scores
from engine.models.in_memory import Models
from engine.models.masks import Mask
from engine.progress import final
from engine.questions.rendering import TaskSpec
from engine.requests.heads import _partners
from engine.studies.one_head import LOOKING, PARTS, HeadRequest, built_in, portrait
from engine.studies.portrait import Portrait
from engine.studies.surveys import SurveySettings
from tests.conftest import TEXT
from tests.engine.fixtures import FAMILIES, target_in, write_questions
from tests.engine.test_logit_attributions import head_alone

HEAD = (1, 2)


def gain(norm):
    """What a norm multiplies by; Gemma's by one more than its weights."""
    return norm.weight.detach().double() + ("Gemma" in type(norm).__name__)


def plain_norm(rows, norm):
    if norm is None:
        return rows
    rows = rows if "RMSNorm" in type(norm).__name__ else rows - rows.mean(-1, keepdim=True)
    return rows * gain(norm)


def by_unit_vectors(module, width):
    """The matrix of any linear module, rows = inputs."""
    with torch.no_grad():
        return (module(torch.eye(width)) - module(torch.zeros(1, width))).double()


def matrices(model, layer, head):
    """(norm, W_Q, W_K, W_V, W_O) of one head, read by unit vectors; `qkv` layouts written out here."""
    shape, family = model.identity.shape, model.family
    attention = family.attention_modules(model.model)[layer]
    d, n = shape.d_head, shape.n_heads
    whole = [by_unit_vectors(getattr(attention, name), shape.d_model) for name in family.attention.qkv]
    rows = slice(head * d, (head + 1) * d)
    if family.attention.packing == "by head":
        # GPT-NeoX: query, key and value side by side; Falcon: queries that share two
        sharing = n // shape.n_key_value_heads
        group = whole[0].unflatten(1, (-1, sharing + 2, d))[:, head // sharing]
        query, key, value = group[:, head % sharing], group[:, -2], group[:, -1]
    elif family.attention.packing == "stacked":  # Phi-3: all queries, then fewer keys and values
        n_keys = (whole[0].shape[1] // d - n) // 2
        at = [n + head // (n // n_keys), n + n_keys + head // (n // n_keys)]
        query, key, value = whole[0][:, rows], *(whole[0][:, each * d : (each + 1) * d] for each in at)
    elif len(whole) == 1:  # GPT-2: all queries, all keys, all values
        query, key, value = (whole[0][:, at * n * d : (at + 1) * n * d][:, rows] for at in range(3))
    else:
        groups = n // (whole[1].shape[1] // d)  # of Llama several heads share keys and values
        shared = slice(head // groups * d, (head // groups + 1) * d)
        query, key, value = whole[0][:, rows], whole[1][:, shared], whole[2][:, shared]
    if family.norms_all_heads:  # OLMo 2: the gains of all heads one behind the other
        query, key = query * gain(attention.q_norm)[rows], key * gain(attention.k_norm)[shared]
    elif family.qk_norms:
        query, key = query * gain(attention.q_norm), key * gain(attention.k_norm)
    out = by_unit_vectors(family.layer_modules(model.model)[layer][0], n * d)[rows]
    out = out * getattr(model.model.config, "residual_multiplier", 1.0)
    module = family.layer_list(model.model)[layer]
    if family.norms_after[0]:
        out = plain_norm(out, getattr(module, family.norms_after[0]))
    before = family.norms[0] and not family.norms_come_behind(model.model)
    norm = getattr(module, family.norms[0]) if before else None
    return norm, query, key, value, out


def embedded(model):
    embed = model.model.get_input_embeddings()
    rows = embed.weight.detach().double() * getattr(embed, "scalar_embed_scale", 1.0)
    rows = rows * getattr(model.model.config, "embedding_multiplier", 1.0)
    if model.family.embedding_norm:
        rows = model.model.base_model.word_embeddings_layernorm(rows.float()).detach().double()
    project = model.family.projection(model.model, "project_in")
    return rows if project is None else rows @ project.weight.detach().double().T


def read_out(model, rows):
    """Logits of what is written, by the final norm without its scale and the unembedding."""
    rows = plain_norm(rows, model.family.final_norm(model.model))
    project = model.family.projection(model.model, "project_out")
    rows = rows if project is None else rows @ project.weight.detach().double().T
    return rows @ model.model.get_output_embeddings().weight.detach().double().T


@pytest.mark.parametrize("family", FAMILIES)
def test_what_ov_raises_equals_the_full_matrix(family, folder_of, model_of, session):
    model, target = model_of(family), target_in(session, folder_of(family))
    found = final(ov_tokens(target, TEXT[:80], HEAD).run(session))
    norm, _, _, value, out = matrices(model, *HEAD)
    with torch.no_grad():
        full = read_out(model, plain_norm(embedded(model), norm) @ value @ out).numpy()
    full = full - full.mean(1, keepdims=True)
    ids = model.tokenizer(TEXT[:80], add_special_tokens=False).input_ids
    assert found.token_ids.tolist() == list(dict.fromkeys(ids))
    for at, token in enumerate(found.token_ids):
        row = full[token] / full[token].std()
        np.testing.assert_allclose(found.raised[at], np.sort(row)[::-1][:10], atol=1e-3)
        np.testing.assert_allclose(found.lowered[at], np.sort(row)[:10], atol=1e-3)
        np.testing.assert_allclose(row[found.raised_ids[at]], found.raised[at], atol=1e-3)
        assert found.own[at] == pytest.approx(row[token], abs=1e-3)
        assert abs(found.own_rank[at] - 1 - (row > row[token]).sum()) <= 1  # of two that are nearly equal


@pytest.mark.parametrize("family", FAMILIES)
def test_which_heads_feed_it_equals_the_full_matrices(family, folder_of, model_of, session):
    model, target = model_of(family), target_in(session, folder_of(family))
    shape, (layer, head) = target.shape, (2, 1)
    found = final(feeding(target, (layer, head)).run(session))
    tokens = embedded(model)
    norm, query, key, _, _ = matrices(model, layer, head)

    def folded(matrix, norm):
        """The same matrix for rows that have not been through the norm."""
        with torch.no_grad():
            return plain_norm(torch.eye(shape.d_model).double(), norm) @ matrix

    circuit = folded(query, norm) @ folded(key, norm).T
    for earlier in range(layer):
        for other in range(shape.n_heads):
            before, _, _, value, out = matrices(model, earlier, other)
            written = folded(value, before) @ out
            with torch.no_grad():
                scores = tokens @ circuit @ (tokens @ written).T  # (n_vocab, n_vocab)
                composed = (circuit @ written.T).norm() / (circuit.norm() * written.norm())
            trace = float("nan") if model.family.qk_norms else float(scores.trace())
            assert found.trace[earlier, other] == pytest.approx(trace, rel=1e-3, abs=1e-2, nan_ok=True)
            assert found.composition[earlier, other] == pytest.approx(float(composed), rel=1e-3)
    assert feeding(target, (0, head)).stored(session).trace.shape == (0, shape.n_heads)
    # Elhage et al.: random matrices compose by about 1 / sqrt(d_model), and by more where d_head is small beside it
    assert 0.5 / shape.d_model**0.5 < found.random.mean() < 3 / shape.d_model**0.5


@pytest.mark.parametrize("family", ["opt", "llama"])
def test_the_parts_of_earlier_heads_add_up_to_the_trace_of_the_induction_screen(family, folder_of, session):
    target = target_in(session, folder_of(family))
    scores = final(induction(target, "olsson").run(session))
    found = Portrait(target.shape, (2, 3), {"olsson": scores}, feeding=final(feeding(target, (2, 3)).run(session)))
    assert found.partners.sum() == pytest.approx(found.score("qk_trace"), rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("family, by", [("opt", "part"), ("gemma3", "composition")])
def test_the_heads_that_feed_it_are_listed_by_composition_if_they_have_no_trace(family, by, folder_of, session):
    target = target_in(session, folder_of(family))
    scores = final(induction(target, "olsson").run(session))
    found = Portrait(target.shape, (2, 3), {"olsson": scores}, feeding=final(feeding(target, (2, 3)).run(session)))
    listed = _partners(found)
    assert listed == sorted(listed, key=lambda each: -each[by]) and len(listed) == 8
    assert all(np.isnan(each["trace"]) == (by == "composition") for each in listed)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_it_raises_in_a_text_equals_its_part_alone(family, folder_of, model_of, session):
    """Of the next token what the Attention screen says; of all others the same reading, by a plain sum over norms."""
    model, target = model_of(family), target_in(session, folder_of(family), bos=True)
    text = TEXT[:150]
    found = final(head_in_texts(target, {"it": text}, HEAD).run(session))["it"]
    seen = final(overview(target, text, Mask.full(target.shape)).run(session))
    expected = seen.raised_nats[HEAD][1:].astype(float)
    np.testing.assert_allclose(found.raised_next[:-1], expected, atol=2e-2)
    assert np.isnan(found.raised_next[-1]) and found.pieces == seen.pieces
    for at in range(len(expected)):  # where the next token is among those raised most, it is so by the same
        listed = found.raised_ids[at].tolist()
        if (token := int(found.token_ids[at + 1])) in listed:
            assert found.raised_nats[at, listed.index(token)] == pytest.approx(found.raised_next[at], abs=1e-3)
        else:
            assert found.raised_nats[at].min() >= found.raised_next[at] - 1e-3
    assert (np.diff(found.raised_nats, axis=1) <= 0).all()
    if family in ("opt", "llama"):
        largest = head_alone(model, found.token_ids, HEAD).sort(-1, descending=True).values[:-1, :5]
        np.testing.assert_allclose(found.raised_nats[:-1], largest, atol=1e-3)


def test_the_pattern_on_random_tokens_is_the_one_that_is_scored(folder_of, model_of, session):
    model, target = model_of("llama"), target_in(session, folder_of("llama"))
    found = final(head_on_probe(target, HEAD).run(session))
    score = prefix_matching(model, 25, [np.random.default_rng((0, 0))])["prefix_matching"][0][HEAD]
    rows = [found.pattern[at, [s for s in range(2, at) if (at - s + 1) % 25 == 0]].sum() for at in range(26, 101)]
    assert np.mean(rows) == pytest.approx(score, abs=1e-3)
    assert len(found.pieces) == 101 and found.pieces[1:26] == found.pieces[26:51]


def test_the_pairs_and_tokens_that_are_told_are_the_largest(folder_of, session):
    found = final(head_in_texts(target_in(session, folder_of("gpt2")), {"it": TEXT[:200]}, HEAD).run(session))["it"]
    kept = found.pattern[found.pattern > 0]
    assert kept.min() == pytest.approx(LEAST, abs=1e-3) and 0.3 < np.tril(found.pattern).sum(1).min() <= 1.005
    listed = most_looked_at(found, 5)
    assert all(each.source > 0 for each in listed)
    best = np.where(np.arange(len(found.pattern)) > 0, found.pattern, 0)
    words = [piece.strip() for piece in found.pieces]
    blank = [at for at, word in enumerate(words) if not word]
    best[blank], best[:, blank] = 0, 0
    assert listed[0].attention == best.max()
    assert len({(words[each.destination], words[each.source]) for each in listed}) == 5
    at = most_raised(found, 5)
    assert np.all(np.diff(found.raised_nats[at, 0]) <= 0) and len(at) == len(set(found.raised_ids[at, 0].tolist())) > 1
    seen = np.flatnonzero(found.pattern[:, 0])
    assert found.to_first[seen] == pytest.approx(found.pattern[seen, 0], abs=5e-3)


def test_rows_have_no_scale(model_of):
    rows = circuit_rows(model_of("opt"), HEAD, torch.arange(10, 20))
    np.testing.assert_allclose(rows.mean(1), 0, atol=1e-5)
    np.testing.assert_allclose(rows.square().mean(1), 1, atol=1e-4)


@pytest.fixture
def asked(tmp_path, folder_of, session):
    target = target_in(session, folder_of("opt"))
    task = TaskSpec(str(write_questions(tmp_path / "mine.jsonl", 12)))
    return target, HeadRequest(HEAD, SurveySettings(target.spec, n_ranking=8), (task,), " fox")


def test_all_of_a_head_is_measured_once_and_found_again(asked, session, monkeypatch):
    target, of = asked
    before = portrait(target, of).so_far(session)
    assert set(before.left) == {*PARTS} - {"context"}
    forecasts = {name: part.left.seconds_by_size(session.store, target) for name, part in before.left.items()}
    assert all(seconds > 0 or name == "heads-weight" for name, seconds in forecasts.items())  # weights read nothing
    found = final(portrait(target, of).run(session))
    assert not found.left and set(found.failed) == {"context"}  # its window is too short for that
    monkeypatch.setattr(Models, "get", lambda *_: pytest.fail("what is stored was computed again"))
    again = portrait(target, of).so_far(session)
    assert not again.left
    [effect] = found.effects.values()
    full, without = found.answers[of.tasks[0]]
    assert effect.points / 100 == pytest.approx(float(without.correct.mean()) - float(full.correct.mean()))
    low, high = effect.change.interval
    assert low <= effect.points / 100 <= high and effect.change.n == 8
    assert {place.what for place in again.places} == {
        each.heads for name, each in CRITERIA.items() if name not in ON_REQUEST
    }
    for place in again.places:
        scores = found.importance[place.what, place.task].scores
        assert place.score == scores[HEAD]
        assert (scores > place.score).sum() < place.rank <= (scores >= place.score).sum()
    assert set(found.losses) == set(found.texts) and found.typed.strings[int(found.typed.token_ids[0])]
    assert found.rank("prefix_matching") == 1 + (found.scores["olsson"].mean["prefix_matching"]
                                                 > found.score("prefix_matching")).sum()  # fmt: skip


def test_without_tasks_the_model_and_the_texts_are_looked_at_alone(asked):
    _, of = asked
    assert replace(of, tasks=()).parts == LOOKING and of.name == "L1H2"


def test_importance_of_equal_scores_goes_by_the_tie_break(folder_of, session):
    shape, task = target_in(session, folder_of("opt")).shape, TaskSpec("demo_copy")
    ties = np.arange(12.0).reshape(3, 4)
    scores = Scores("heads-oracle", 8, np.zeros((3, 4)), ties)
    [place] = Portrait(shape, HEAD, importance={("heads-oracle", task): scores}).places
    assert place.rank == 12 - int(ties[HEAD])


def test_what_an_ideal_pattern_recovers_is_that_of_the_head_alone(asked, session):
    target, of = asked
    found = final(portrait(target, of, ["ideal-texts", "ideal-tasks"]).run(session))
    ideal = Ideal((of.head,), Mask.full(target.shape))
    losses = ideal_losses(target, list(built_in().values()), ideal).stored(session)
    assert set(found.recovered) == {None, of.tasks[0]}
    alone = {kind: recovered_in_texts(losses, kind) for kind in PATTERNS}
    assert {kind: each.effect_nats for kind, each in found.recovered[None].items()} == {
        kind: each.effect_nats for kind, each in alone.items()
    }
    without = found.ideal_answers[of.tasks[0]]["ablated"]
    answers = final(portrait(target, of, ["tasks"]).run(session)).answers[of.tasks[0]]
    assert np.array_equal(without.log_likelihood_nats, answers[1].log_likelihood_nats, equal_nan=True)
