"""`import headroom` alone gives the numbers of screens: measured again, in a store of its own, by what the docs say."""

import pytest

import headroom

PASSAGE = "Privet Drive, twice"


@pytest.fixture
def asked(tiny_opt, tmp_path):
    """What every request here names: the model that the screens show, and a store in which nothing is measured yet."""
    return {"model": str(tiny_opt), "precision": "fp32", "cache": str(tmp_path / "own")}


def close(values):
    return pytest.approx(list(values), rel=1e-4, abs=1e-6, nan_ok=True)


@pytest.mark.slow("measures a screen's numbers twice")
def test_prune(shown_on, asked, questions):
    [large], tables = shown_on("", heads="40", order="random")
    result = headroom.Evaluate(**asked, task=str(questions), prune_heads="40", order="random").run()
    assert f"{100 * result.frame()['acc'].item():.1f}%" == large and not result.fields["cached"]
    assert result.fields["heads_pruned"] == tables["Heads and FFNs"]["pruned"].sum() > 0
    full = headroom.Evaluate(**asked, task=str(questions)).run()
    for model, each in (("full", full), ("pruned", result)):
        answers = each.value
        rows = [
            (question.doc_id, *row)
            for question, row in zip(answers.questions, answers.log_likelihood_nats, strict=True)
        ]
        found = [nats for _, *row in sorted(rows) for nats in row]
        shown = tables["Questions and choices"].sort_values(["question", "choice"], kind="stable")
        assert found == close(shown[f"{model}_log_likelihood_nats"])


@pytest.mark.slow("measures a screen's numbers twice")
def test_heads(shown_on, asked, questions):
    _, tables = shown_on("heads", "Measure 1 missing", colors="Measured cost")
    request = headroom.ScoreImportance(
        **asked, task=str(questions), score="heads-oracle", limit=64, sample="stratified"
    )
    found, shown = request.run().frame(), tables["Heads"].dropna(subset=["score"])
    assert shown["name"].tolist() == [f"L{layer}H{head}" for layer in range(2) for head in range(4)]
    assert (100 * found["score"]).tolist() == close(shown["score"])


@pytest.mark.slow("measures a screen's numbers twice")
def test_induction(shown_on, asked):
    _, tables = shown_on("heads", "Measure induction", colors="Induction", heads_table="True")
    found, shown = headroom.ScoreInduction(**asked).run().frame(), tables["All scores"]
    for score in ("prefix_matching", "copying", "previous_token", "duplicate_token", "ov_eigen", "qk_trace"):
        assert found[score].tolist() == close(shown[score]), score


@pytest.mark.slow("measures a screen's numbers twice")
def test_text(shown_on, asked):
    _, tables = shown_on("text", text_text=PASSAGE, mask="L0H1", order="random")
    found, shown = (
        headroom.MeasureLosses(**asked, passage=PASSAGE, mask="L0H1").run().frame(),
        tables["Losses by token"],
    )
    assert found["loss_full_nats"].tolist() == close(shown["loss_full_nats"])
    assert found["loss_masked_nats"].tolist() == close(shown["loss_pruned_nats"])


@pytest.mark.slow("measures a screen's numbers twice")
def test_attention(shown_on, asked):
    _, tables = shown_on("text", text_text=PASSAGE, text_head="L0H1", text_shade="Attention")
    result = headroom.MeasureAttention(**asked, passage=PASSAGE, heads="L0H1").run()
    [view], shown = result.value.values(), tables["Attention"]
    drawn = view.pattern[shown["destination"], shown["source"]]
    assert drawn.tolist() == close(shown["attention"])
