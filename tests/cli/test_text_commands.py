"""The commands about texts write what the functions give, and refuse bad input in one plain line."""

import numpy as np
import pandas as pd
import pytest
from transformers import AutoTokenizer

from cache import open_store
from engine.demo import passages
from engine.errors import UsageError
from engine.models.in_memory import Models
from engine.models.masks import parse_mask
from engine.models.session import Session
from engine.progress import final
from engine.questions.rendering import TaskSpec, render_questions
from engine.texts.continuation import How, continuation
from engine.texts.passages import N_TEXTS
from engine.texts.tokenloss import token_losses
from tests.cli.conftest import own_text, refused
from tests.conftest import TEXT
from tests.engine.fixtures import target_in, write_questions


@pytest.fixture
def text(tmp_path):
    return own_text(tmp_path, TEXT)


def test_losses_are_written_token_by_token(told, tiny, tiny_opt, text, tmp_path, monkeypatch):
    out = tmp_path / "losses.csv"
    found = told("losses", *tiny, "--mask", "L1H2 F0", "--text", text, "--out", out)
    frame = pd.read_csv(out)
    assert list(frame) == ["index", "token", "loss_full_nats", "loss_masked_nats", "diff_nats"]
    assert found["n_tokens"] == len(frame) == frame["index"].iloc[-1]
    session = Session(open_store())
    target = target_in(session, tiny_opt)
    for column, mask in (("loss_full_nats", ""), ("loss_masked_nats", "L1H2 F0")):
        monkeypatch.setattr(Models, "get", lambda *_: pytest.fail("what the command stored was computed again"))
        again = final(token_losses(target, TEXT, parse_mask(mask, target.shape)).run(session))
        np.testing.assert_allclose(frame[column], again.loss_nats, atol=1e-5)
        assert found[column] == pytest.approx(again.loss_nats.mean(), abs=1e-5)
    assert found["icl_score"] == {} and "512 tokens" in found["note"]


def test_texts_of_a_task_have_scores(told, tiny, tmp_path):
    out = tmp_path / "losses.parquet"
    found = told("losses", *tiny, "--mask", "L1H*", "--from-task", "demo_copy", "--texts", 3, "--out", out)
    frame = pd.read_parquet(out)
    assert found["n_texts"] == 3 == frame["text"].nunique()
    for name, column in (("full", "loss_full_nats"), ("masked", "loss_masked_nats")):
        by_text = [part.set_index("index")[column] for _, part in frame.groupby("text")]
        assert found["icl_score"][name]["nats"] == pytest.approx(np.mean([loss[500] - loss[50] for loss in by_text]))
        assert found["icl_score"][name]["n"] == 3
    change = found["icl_score"]["masked"]["nats"] - found["icl_score"]["full"]["nats"]
    assert found["icl_score"]["change"]["nats"] == pytest.approx(change)


def test_another_precision_is_compared(told, tiny, text, tmp_path):
    out = tmp_path / "losses.csv"
    told("losses", *tiny, "--other-precision", "bf16", "--text", text, "--out", out)
    assert 0 < pd.read_csv(out)["diff_nats"].abs().max() < 0.5


def test_attribution_is_a_table_of_heads(told, tmp_path, wide_opt):
    options = ("--model", wide_opt, "--precision", "fp32", "--passage", "The ferry", "--texts", 2)
    out = tmp_path / "heads.csv"
    more = ("--kind", "pattern-preserving", "--fill", "mean", "--second-mask", "L0H0")
    assert told("attribute", *options, *more, "--out", out)["n_texts"] == 2
    frame = pd.read_csv(out)
    assert len(frame) == 8
    columns = ["layer", "head", "icl_score_change_nats", "low", "high", "before_and_after_nats"]
    assert list(frame) == columns and np.isfinite(frame.to_numpy()).all()


def test_attention_is_written_for_each_head(told, tiny, text, tmp_path):
    table, arrays = tmp_path / "heads.csv", tmp_path / "heads.npz"
    for out in (table, arrays):
        n = told("attention", *tiny, "--text", text, "--heads", "L1H*,l0h3", "--out", out)["n_tokens"]
    found, frame = np.load(arrays), pd.read_csv(table)
    assert found["pattern"].shape == found["raised_nats"].shape == (5, n, n)
    np.testing.assert_allclose(found["pattern"].sum(-1), 1, atol=5e-3)
    for number, name in enumerate(("L1H0", "L1H1", "L1H2", "L1H3", "L0H3")):
        rows = frame[frame["head"] == name]
        assert rows["attention"].sum() == pytest.approx(n, abs=0.1)
        at = rows.iloc[7]
        assert found["pattern"][number, int(at["destination"]), int(at["source"])] == pytest.approx(at["attention"])


def test_the_lens_is_a_table_of_layers_and_tokens(told, tiny, text, tmp_path):
    out = tmp_path / "lens.csv"
    found = told("lens", *tiny, "--text", text, "--out", out)
    frame = pd.read_csv(out, keep_default_na=False)
    assert frame["after"].unique().tolist() == ["start", "0", "1"] and len(frame) == 3 * found["n_tokens"]
    asked = frame[frame["next_rank"] > 0]
    right = (asked["next_rank"] == 1).groupby(asked["after"], sort=False).mean()
    assert right.tolist() == pytest.approx(found["right_by_layer"])


@pytest.mark.parametrize(
    ("command", "options", "code", "part"),
    [
        ("losses", ("--passage", "Nothing"), 2, "'Nothing'"),
        ("losses", ("--passage", "The ferry", "--from-task", "demo_copy"), 2, "exactly one of --text"),
        ("losses", ("--passage", "The ferry", "--mask", "L99H9"), 2, "L99H9"),
        ("losses", ("--passage", "The ferry", "--stride", "999"), 2, "999"),
        ("losses", ("--passage", "The ferry", "--other-model", "gone/"), 1, "gone"),
        ("attribute", ("--passage", "Three languages", "--kind", "pattern-preserving"), 1, "512 tokens"),
        ("attribute", ("--from-task", "no_such_task"), 2, "no_such_task"),
        ("attention", ("--passage", "The ferry", "--heads", "3,5"), 2, "'3'"),
        ("attention", ("--passage", "The ferry", "--heads", ","), 2, "names no head"),
    ],
)
def test_bad_options(command, options, code, part, cli, tmp_path):
    refused(cli(command, "--precision", "fp32", *options, "--out", tmp_path / "out.csv"), code, part)


@pytest.mark.parametrize(
    ("arguments", "n_texts"),
    [
        (("losses", "--from-task", "demo_copy"), N_TEXTS),
        (("attribute", "--from-task", "demo_copy"), N_TEXTS),
        (("attribute", "--passage", "The ferry"), N_TEXTS),
        (("losses", "--passage", "The ferry", "--texts", "3"), 3),
    ],
)
def test_texts_are_as_many_as_on_screen_where_no_number_is_given(arguments, n_texts, cli, tmp_path, monkeypatch):
    def counted(target, source, *more):
        raise UsageError(f"{source.n_texts} texts are asked for")

    monkeypatch.setattr("engine.requests.texts.texts_of", counted)
    refused(cli(*arguments, "--out", tmp_path / "out.csv"), 2, f"{n_texts} texts are asked for")


def test_bad_files(cli, tmp_path):
    file = tmp_path / "own.txt"
    for raw, part in ((b"\xff\xfe", "not UTF-8"), (b"  ", "only whitespace"), (b"x" * 1_000_001, "1,000,001")):
        file.write_bytes(raw)
        refused(cli("losses", "--text", file, "--out", tmp_path / "out.csv"), 1, part)
    refused(cli("losses", "--passage", passages()[0].title, "--out", tmp_path / "out.txt"), 2, "must end in")


def test_a_prompt_is_continued_by_both_models(told, tiny, tiny_opt, tmp_path):
    out = tmp_path / "said.csv"
    options = ("--mask", "L1H2 F0", "--prompt", TEXT[:60], "--tokens", 5, "--temperature", 0.7, "--seed", 4)
    found = told("continue", *tiny, *options, "--out", out)
    frame = pd.read_csv(out, keep_default_na=False)
    assert frame.groupby("model")["index"].apply(list).to_dict() == {
        "full": [1, 2, 3, 4, 5], "masked": [1, 2, 3, 4, 5]}  # fmt: skip
    session = Session(open_store())
    target, how = target_in(session, tiny_opt), How(5, 700, 4)
    for name, mask in (("full", ""), ("masked", "L1H2 F0")):
        alone = final(continuation(target, TEXT[:60], parse_mask(mask, target.shape), how).run(session))
        assert found["said"][name] == alone.text
        assert frame.loc[frame["model"].eq(name), "token_id"].tolist() == alone.token_ids.tolist()
    assert len(found["next"]) >= 10 and 0 <= found["next"][0]["masked"] <= found["next"][0]["full"] <= 1


def test_idealized_heads_in_a_text_and_a_task(told, tiny, text):
    words = ("idealize", *tiny, "--heads", "L0H1,L1H*", "--text", text, "--task", "demo_copy", "--limit", 8)
    found = told(*words)
    assert found["heads"] == ["L0H1", "L1H0", "L1H1", "L1H2", "L1H3"]
    assert found["texts"]["n"] == 1 and found["texts"]["n_tokens"] == found["texts"]["n_scored"] > 200
    losses = found["texts"]["loss_nats"]
    assert list(losses) == ["full", "ablated", "previous", "prefix", "uniform"]
    for kind, each in found["texts"]["recovered"].items():
        effect = losses["ablated"] - losses["full"]
        assert each["effect_nats"] == pytest.approx(effect, abs=1e-5)
        if each["share"] is not None:
            assert each["share"] == pytest.approx((losses["ablated"] - losses[kind]) / effect, rel=1e-3, abs=1e-3)
    assert found["questions"]["n"] == 8 and set(found["questions"]["acc"]) == set(losses)
    again = told(*words)
    assert again["cached"] and again["texts"] == found["texts"] and again["questions"] == found["questions"]


def test_what_does_not_fit_the_window_is_said(cli, tiny, tiny_opt, tmp_path):
    """Of questions, as counted by the tokenizer alone; and how a longer text is read."""
    task = write_questions(tmp_path / "own.jsonl", 6)
    asked = ("evaluate", *tiny, "--task", task, "--shots", 2, "--no-bos")
    questions = render_questions(TaskSpec(str(task), 2)).questions
    tokenizer = AutoTokenizer.from_pretrained(tiny_opt)
    texts = [
        [context + choice for context, choice in zip(each.contexts, each.continuations, strict=True)]
        for each in questions
    ]
    n_cut = sum(max(len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in each) > 257
                for each in texts)  # fmt: skip
    assert 0 < n_cut
    _, out, _ = cli(*asked, "--against", "bf16")
    words = f": {n_cut} of 6 questions do not fit the model's window: their first tokens, of the examples, are left out"
    assert sum(line.endswith(words) for line in out.splitlines()) == 2
    assert "do not fit" not in cli(*asked[:-3], "--shots", 0)[1]
    file = tmp_path / "long.txt"
    file.write_text(TEXT * 9, encoding="utf-8")
    losses = ("losses", *tiny, "--mask", "L0H0", "--text", file, "--out", tmp_path / "losses.csv")
    assert "read in windows of 256 tokens, a new one every 128" in cli(*losses)[1]
