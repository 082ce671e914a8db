"""Statistics of heads over a corpus equal a plain loop over transformers' own attention weights."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.corpus.descriptions import describe
from engine.corpus.heads import DISTANCES, HeadsInCorpus, deciles, heads_in_corpus
from engine.corpus.loss_without import LossWithout, compared_windows, loss_without
from engine.corpus.windows import Corpus, Windows, corpus_of, windows_of
from engine.errors import HeadroomError, UsageError
from engine.progress import final
from engine.texts.perplexity import Change
from tests.conftest import TEXT
from tests.engine.fixtures import caught, family_folder, refused_by, target_in

LENGTH = 24
# enough for more windows than a pass has, with repeated words in each
TEXTS = " ".join([TEXT, *reversed(TEXT.split(". ")), TEXT.lower()] * 3)


def values_by_head(attention, n_heads, family):
    """The projections of `attention` that give values, and a function from their output (T, ...) to (H, T, d_head)."""
    if family == "gpt2":
        return attention.c_attn, lambda out: out.chunk(3, -1)[2].unflatten(-1, (n_heads, -1)).transpose(0, 1)
    if family == "gpt_neox":
        return attention.query_key_value, lambda out: out.unflatten(-1, (n_heads, 3, -1))[:, :, 2].transpose(0, 1)

    def each(out, d_head=attention.head_dim):
        heads = out.unflatten(-1, (-1, d_head)).transpose(0, 1)
        return heads.repeat_interleave(n_heads // len(heads), 0)

    return attention.v_proj, each


def by_a_plain_loop(model, of, family, rows, shape):
    """Every score, and each window's largest activation, query by query, from transformers' attention weights."""
    heads = (shape.n_layers, shape.n_heads)
    total = {name: np.zeros(heads) for name in ("induction", "same_token", "previous_token", "first_token", "entropy",
                                                "distance", "strong")}  # fmt: skip
    distances, largest, n, n_copied = np.zeros((*heads, len(DISTANCES))), [], 0, 0
    outputs = [each[0] for each in of.layer_modules(model)]
    modules = of.attention_modules(model)
    project, by_head = zip(*(values_by_head(each, shape.n_heads, family) for each in modules), strict=True)
    for ids in rows.tolist():
        with torch.no_grad(), caught(*outputs) as given, caught(*project, outputs=True) as projected:
            ran = model(torch.tensor([ids]), output_attentions=True, output_hidden_states=True)
        copies = [[at for at in range(query) if ids[at] == ids[query]] for query in range(len(ids))]
        n, n_copied = n + len(ids) - 1, n_copied + sum(bool(each) for each in copies)
        best = np.zeros((*heads, 3))
        for layer, head in np.ndindex(*heads):
            pattern = ran.attentions[layer][0, head].double().numpy()
            weight = outputs[layer].weight.double()
            weight = (weight if family == "gpt2" else weight.T).unflatten(0, (shape.n_heads, -1))[head].detach()
            z = given[outputs[layer]].reshape(len(ids), shape.n_heads, -1)[:, head].double()
            value = by_head[layer](projected[project[layer]].reshape(len(ids), -1))[head].double()
            written, norms = ((each @ weight).norm(dim=-1).numpy() for each in (z, value))
            stream = ran.hidden_states[layer][0].norm(dim=-1).numpy()
            for query in range(1, len(ids)):
                row, at = pattern[query], (layer, head)
                total["induction"][at] += sum(row[copy + 1] for copy in copies[query])
                total["same_token"][at] += sum(row[copy] for copy in copies[query])
                total["previous_token"][at] += row[query - 1]
                total["first_token"][at] += row[0]
                total["entropy"][at] -= sum(p * np.log(p) for p in row if p > 0)
                total["strong"][at] += written[query] > 0.1 * stream[query]
                for key in range(query + 1):
                    total["distance"][at] += row[key] * (query - key)
                    place = max(which for which, first in enumerate(DISTANCES) if first <= query - key)
                    distances[(*at, place)] += row[key]
                    if (activation := row[key] * norms[key]) > best[(*at, 0)]:
                        best[at] = activation, query, key
        largest.append(best)
    means = {name: each / (n_copied if name in ("induction", "same_token") else n) for name, each in total.items()}
    return means | {"current_token": distances[..., 0] / n}, distances / n, np.stack(largest)


@pytest.mark.parametrize("family", "opt llama gpt2 gpt_neox".split())
def test_every_number_equals_a_plain_loop(family, tiny_opt, tmp_path, session):
    target = target_in(session, family_folder(family, tiny_opt, tmp_path / "model"), "fp32", bos=family == "opt")
    found = final(heads_in_corpus(target, Corpus("text", TEXTS, 9, LENGTH)).run(session))
    rows = found.windows.token_ids
    assert rows.shape == (9, LENGTH) and len(found) == 9
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model", attn_implementation="eager").eval()
    of = session.models.get(target.spec).family
    means, distances, largest = by_a_plain_loop(model, of, family, rows, target.shape)
    assert means["induction"].max() > 0 and {*found.scores} == {*means}
    for name, each in means.items():
        np.testing.assert_allclose(found.scores[name], each, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(found.distances, distances, atol=1e-5)
    np.testing.assert_allclose(found.activation, largest[..., 0], rtol=1e-5, atol=1e-5)
    assert (found.query == largest[..., 1]).mean() > 0.99 and (found.key == largest[..., 2]).mean() > 0.99


def test_windows_do_not_overlap_and_none_is_made_up(tiny_opt, session):
    target = target_in(session, tiny_opt, "fp32", bos=True)
    tokenizer = session.models.get(target.spec).tokenizer
    ids = tokenizer(TEXTS, add_special_tokens=False).input_ids
    every = final(windows_of(target, Corpus("text", TEXTS, 1000, LENGTH)).run(session))
    assert every.token_ids[:, 1:].ravel().tolist() == ids[: len(every.token_ids) * (LENGTH - 1)]
    assert len(every.token_ids) == every.n_available == len(ids) // (LENGTH - 1)
    assert set(every.token_ids[:, 0].tolist()) == {tokenizer.bos_token_id}
    some = final(windows_of(target, Corpus("text", TEXTS, 4, LENGTH)).run(session))
    places = [every.token_ids.tolist().index(row) for row in some.token_ids.tolist()]
    assert places == sorted({*places}) and len(places) == 4 and some.n_available == every.n_available
    assert every.texts[0] == TEXTS[: len(every.texts[0])]


def test_a_corpus_that_cannot_be_read_is_refused(tiny_opt, tmp_path, session):
    target = target_in(session, tiny_opt, "fp32", bos=True)
    short = windows_of(target, Corpus("text", "two words", 10, LENGTH))
    refused_by(HeadroomError, "choose a longer text", lambda: final(short.run(session)))
    long = Corpus("text", TEXT, 1, 2 * target.shape.n_ctx)
    refused_by(UsageError, "longer than this model's", lambda: windows_of(target, long))
    for source, says in ((tmp_path / "none.txt", "cannot be read"), (tmp_path, "has no .txt or .md file")):
        refused_by(HeadroomError, says, lambda source=source: corpus_of(str(source), session.store))
    (tmp_path / "b.txt").write_text("second")
    (tmp_path / "a.md").write_text("first")
    assert corpus_of(str(tmp_path), session.store).text == "first\n\nsecond"


def known_heads():
    """A HeadsInCorpus of two heads over 20 windows of ten tokens: head 0 looks at the previous token, head 1 at what
    followed an earlier copy in most windows."""
    ids = np.array([[0, 1, 2, 3, 1, 4, 5, 6, 7, 8]] * 20)
    scores = dict.fromkeys(
        ("induction", "same_token", "first_token", "current_token", "entropy", "strong"), np.zeros((1, 2))
    )
    scores |= {"previous_token": np.array([[0.62, 0.1]]), "distance": np.array([[1.0, 5.0]])}
    scores["induction"] = np.array([[0.0, 0.4]])
    activation = np.stack([np.arange(20.0)] * 2, -1)[:, None]
    query, key = np.full((20, 1, 2), 4), np.full((20, 1, 2), 3)
    key[4:, 0, 1], key[:4, 0, 1] = 2, 1
    windows = Windows(ids, ("",) * 20, {at: f"<{at}>" for at in range(9)}, 20, False)
    return HeadsInCorpus(windows, scores, np.zeros((1, 2, len(DISTANCES))), activation, query, key)


def test_a_description_follows_from_its_numbers():
    found = known_heads()
    clauses = {each.rule: each for each in describe(found, (0, 0))}
    assert clauses["attention"].text == "62% of its attention on the previous token"
    assert clauses["fires"].text == "fires most at the previous token in 100% of windows, in all deciles"
    assert clauses["reach"].value == 1.0 and "spread" not in clauses and "writes" not in clauses
    clauses = {each.rule: each for each in describe(found, (0, 1))}
    assert clauses["attention"].value == 0.4 and "where there are any" in clauses["attention"].text
    assert clauses["fires"].text.endswith("in 80% of windows, in 8 of 10 deciles")


def test_examples_are_in_deciles_and_frequent_tokens_are_counted():
    found = known_heads()
    groups = deciles(found.fired((0, 1)))
    assert [len(group) for group in groups] == [2] * 10
    assert [each.window for group in groups for each in group] == [*range(19, -1, -1)]
    assert [each.kind for each in groups[-1]] == ["same_token"] * 2
    assert found.frequent((0, 1), "key") == [("<2>", 0.8), ("<1>", 0.2)]
    assert found.frequent((0, 0), "query") == [("<1>", 1.0)]


@pytest.mark.parametrize(
    ("top", "is_clear"), [((0.3, 0.2, 0.4), True), ((0.1, 0.0, 0.2), False), ((-0.2, -0.3, 0.04), True)]
)
def test_the_loss_without_a_head_differs_clearly_only_if_intervals_are_apart(top, is_clear):
    assert LossWithout(Change(*top), Change(0.1, 0.05, 0.15), 24).is_clear == is_clear


def test_removal_compares_the_top_windows_with_others(tiny_opt, session):
    target = target_in(session, tiny_opt, "fp32", bos=True)
    found = final(heads_in_corpus(target, Corpus("text", TEXTS, 12, LENGTH)).run(session))
    top, other = compared_windows(found, (1, 0))
    activation = found.activation[:, 1, 0]
    assert len(top) == len(other) == 6 and not {*top.tolist()} & {*other.tolist()}
    assert activation[top].min() >= activation[other].max()
    removed = final(loss_without(target, found, (1, 0)).run(session))
    model = AutoModelForCausalLM.from_pretrained(tiny_opt).eval()

    def losses(which):
        ids = torch.from_numpy(found.windows.token_ids[which].astype(np.int64))
        with torch.no_grad():
            logits = model(ids).logits[:, :-1]
        return torch.nn.functional.cross_entropy(logits.mT, ids[:, 1:], reduction="none").mean(1)

    before = [losses(top), losses(other)]
    d_head = target.shape.d_head
    model.model.decoder.layers[1].self_attn.out_proj.weight.data[:, :d_head] = 0
    for change, full, which in zip((removed.top, removed.other), before, (top, other), strict=True):
        assert change.nats == pytest.approx(float((losses(which) - full).mean()), abs=1e-5)
        assert change.low < change.nats < change.high
