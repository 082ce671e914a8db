"""The commands about texts write what the functions give, and refuse bad input in one plain line."""

import json

import numpy as np
import pandas as pd
import pytest

from engine.demo import passages
from engine.errors import UsageError
from engine.models.loading import Models
from engine.models.masks import parse_mask
from engine.models.session import Session
from engine.progress import final
from engine.texts.continuation import How, continuation
from engine.texts.passages import N_TEXTS
from engine.texts.tokenloss import token_losses
from tests.cli.conftest import refused
from tests.conftest import TEXT
from tests.engine.fixtures import target_in


@pytest.fixture
def text(tmp_path):
    file = tmp_path / "own.txt"
    file.write_text(TEXT, encoding="utf-8")
    return file


def test_losses_are_written_token_by_token(cli, tiny_opt, text, tmp_path, monkeypatch):
    out = tmp_path / "losses.csv"
    options = ("--model", tiny_opt, "--precision", "fp32", "--mask", "L1H2 F0", "--json")
    code, printed, _ = cli("losses", *options, "--text", text, "--out", out)
    found, frame = json.loads(printed), pd.read_csv(out)
    assert code == 0 and list(frame) == ["index", "token", "loss_full_nats", "loss_masked_nats", "diff_nats"]
    assert found["n_tokens"] == len(frame) == frame["index"].iloc[-1]
    from cache import open_store

    session = Session(open_store())
    target = target_in(session, tiny_opt)
    for column, mask in (("loss_full_nats", ""), ("loss_masked_nats", "L1H2 F0")):
        monkeypatch.setattr(Models, "get", lambda *_: pytest.fail("what the command stored was computed again"))
        again = final(token_losses(target, TEXT, parse_mask(mask, target.shape)).run(session))
        np.testing.assert_allclose(frame[column], again.loss_nats, atol=1e-5)
        assert found[column] == pytest.approx(again.loss_nats.mean(), abs=1e-5)
    assert found["icl_score"] == {} and "512 tokens" in found["note"]


def test_texts_of_a_task_have_scores(cli, tiny_opt, tmp_path):
    out = tmp_path / "losses.parquet"
    options = ("--model", tiny_opt, "--precision", "fp32", "--mask", "L1H*", "--solved", "demo_copy", "--texts", 3)
    code, printed, _ = cli("losses", *options, "--out", out, "--json")
    found, frame = json.loads(printed), pd.read_parquet(out)
    assert code == 0 and found["n_texts"] == 3 == frame["text"].nunique()
    for name, column in (("full", "loss_full_nats"), ("masked", "loss_masked_nats")):
        by_text = [part.set_index("index")[column] for _, part in frame.groupby("text")]
        assert found["icl_score"][name]["nats"] == pytest.approx(np.mean([loss[500] - loss[50] for loss in by_text]))
        assert found["icl_score"][name]["n"] == 3
    change = found["icl_score"]["masked"]["nats"] - found["icl_score"]["full"]["nats"]
    assert found["icl_score"]["change"]["nats"] == pytest.approx(change)


def test_another_precision_is_compared(cli, tiny_opt, text, tmp_path):
    out = tmp_path / "losses.csv"
    options = ("--model", tiny_opt, "--precision", "fp32", "--other-precision", "bf16", "--text", text)
    code, printed, _ = cli("losses", *options, "--out", out, "--json")
    assert code == 0 and 0 < pd.read_csv(out)["diff_nats"].abs().max() < 0.5


def test_attribution_is_a_table_of_heads(cli, tmp_path, long_opt):
    options = ("--model", long_opt, "--precision", "fp32", "--passage", "The ferry", "--texts", 2, "--json")
    out = tmp_path / "heads.csv"
    more = ("--kind", "pattern-preserving", "--fill", "mean", "--before-and-after", "L0H0")
    code, printed, _ = cli("attribute", *options, *more, "--out", out)
    frame = pd.read_csv(out)
    assert code == 0 and len(frame) == 8 and json.loads(printed)["n_texts"] == 2
    columns = ["layer", "head", "icl_score_change_nats", "low", "high", "before_and_after_nats"]
    assert list(frame) == columns and np.isfinite(frame.to_numpy()).all()


def test_attention_is_written_for_each_head(cli, tiny_opt, text, tmp_path):
    table, arrays = tmp_path / "heads.csv", tmp_path / "heads.npz"
    options = ("--model", tiny_opt, "--precision", "fp32", "--text", text, "--heads", "L1H*,l0h3", "--json")
    for out in (table, arrays):
        code, printed, _ = cli("attention", *options, "--out", out)
        assert code == 0
    found, frame = np.load(arrays), pd.read_csv(table)
    n = json.loads(printed)["n_tokens"]
    assert found["pattern"].shape == found["raised_nats"].shape == (5, n, n)
    np.testing.assert_allclose(found["pattern"].sum(-1), 1, atol=5e-3)
    for number, name in enumerate(("L1H0", "L1H1", "L1H2", "L1H3", "L0H3")):
        rows = frame[frame["head"] == name]
        assert rows["attention"].sum() == pytest.approx(n, abs=0.1)
        at = rows.iloc[7]
        assert found["pattern"][number, int(at["destination"]), int(at["source"])] == pytest.approx(at["attention"])


@pytest.fixture(scope="module")
def long_opt(tmp_path_factory):
    """A tiny OPT whose window holds a score's 512 tokens."""
    import json
    import shutil

    from transformers import AutoConfig, AutoModelForCausalLM

    from tests.conftest import make_tiny_opt

    folder = make_tiny_opt(tmp_path_factory.mktemp("tiny"))
    config = AutoConfig.from_pretrained(folder)
    config.max_position_embeddings = 600
    to = tmp_path_factory.mktemp("long")
    AutoModelForCausalLM.from_config(config).save_pretrained(to)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder / name, to)
    assert json.loads((to / "config.json").read_text())["max_position_embeddings"] == 600
    return to


@pytest.mark.parametrize(
    ("command", "options", "code", "part"),
    [
        ("losses", ("--passage", "Nothing"), 2, "'Nothing'"),
        ("losses", (), 2, "exactly one of --text"),
        ("losses", ("--passage", "The ferry", "--solved", "demo_copy"), 2, "exactly one of --text"),
        ("losses", ("--text", "gone.txt"), 1, "gone.txt"),
        ("losses", ("--passage", "The ferry", "--mask", "L99H9"), 2, "L99H9"),
        ("losses", ("--passage", "The ferry", "--stride", "999"), 2, "999"),
        ("losses", ("--passage", "The ferry", "--other-model", "gone/"), 1, "gone"),
        ("attribute", ("--passage", "Three languages", "--kind", "pattern-preserving"), 1, "512 tokens"),
        ("attribute", ("--passage", "Three languages", "--kind", "half"), 2, "'half'"),
        ("attribute", ("--passage", "The ferry", "--fill", "median"), 2, "median"),
        ("attribute", ("--solved", "no_such_task"), 2, "no_such_task"),
        ("attention", ("--passage", "The ferry", "--heads", "3,5"), 2, "'3'"),
        ("attention", ("--passage", "The ferry", "--heads", ","), 2, "names no head"),
        ("attention", ("--passage", "The ferry", "--heads", "L99H0"), 2, "L99H0"),
    ],
)
def test_bad_options(command, options, code, part, cli, tmp_path):
    refused(cli(command, "--precision", "fp32", *options, "--out", tmp_path / "out.csv"), code, part)


@pytest.mark.parametrize(
    ("arguments", "n_texts"),
    [
        (("losses", "--solved", "demo_copy"), N_TEXTS),
        (("attribute", "--solved", "demo_copy"), N_TEXTS),
        (("attribute", "--passage", "The ferry"), N_TEXTS),
        (("losses", "--passage", "The ferry", "--texts", "3"), 3),
    ],
)
def test_texts_are_as_many_as_on_screen_where_no_number_is_given(arguments, n_texts, cli, tmp_path, monkeypatch):
    def counted(target, source, *more):
        raise UsageError(f"{source.n_texts} texts are asked for")

    monkeypatch.setattr("engine.requests.texts.texts_of", counted)
    refused(cli(*arguments, "--out", tmp_path / "out.csv"), 2, f"{n_texts} texts are asked for")


@pytest.mark.parametrize("command", ["losses", "attribute"])
def test_bad_files(command, cli, tmp_path):
    file = tmp_path / "own.txt"
    for raw, part in ((b"\xff\xfe", "not UTF-8"), (b"  ", "only whitespace"), (b"x" * 1_000_001, "1,000,001")):
        file.write_bytes(raw)
        refused(cli(command, "--text", file, "--out", tmp_path / "out.csv"), 1, part)
    refused(cli(command, "--passage", passages()[0].title, "--out", tmp_path / "out.txt"), 2, "must end in")


def test_a_prompt_is_continued_by_both_models(cli, tiny_opt, tmp_path):
    out = tmp_path / "said.csv"
    options = ("--model", tiny_opt, "--precision", "fp32", "--mask", "L1H2 F0", "--prompt", TEXT[:60], "--tokens", 5)
    code, printed, _ = cli("continue", *options, "--temperature", 0.7, "--seed", 4, "--out", out, "--json")
    found, frame = json.loads(printed), pd.read_csv(out, keep_default_na=False)
    assert code == 0 and frame.groupby("model")["index"].apply(list).to_dict() == {
        "full": [1, 2, 3, 4, 5], "masked": [1, 2, 3, 4, 5]}  # fmt: skip
    from cache import open_store

    session = Session(open_store())
    target, how = target_in(session, tiny_opt), How(5, 700, 4)
    for name, mask in (("full", ""), ("masked", "L1H2 F0")):
        alone = final(continuation(target, TEXT[:60], parse_mask(mask, target.shape), how).run(session))
        assert found["said"][name] == alone.text
        assert frame.loc[frame["model"].eq(name), "token_id"].tolist() == alone.token_ids.tolist()
    assert len(found["next"]) >= 10 and 0 <= found["next"][0]["masked"] <= found["next"][0]["full"] <= 1


@pytest.mark.parametrize("more, words", [(("--tokens", 0), "choose 1 to 256"), (("--temperature", 3), "choose 0 to"),
                                         (("--mask", "L9H9"), "L9H9")])  # fmt: skip
def test_a_continuation_that_cannot_be_is_one_line(cli, tiny_opt, tmp_path, more, words):
    options = ("--model", tiny_opt, "--precision", "fp32", "--prompt", "One", "--out", tmp_path / "said.csv")
    refused(cli("continue", *options, *more), 2, words)


def test_idealised_heads_in_a_text_and_a_task(cli, tiny_opt, text, tmp_path):
    model = ("--model", tiny_opt, "--precision", "fp32", "--heads", "L0H1,L1H*", "--json")
    code, printed, _ = cli("idealise", *model, "--text", text, "--task", "demo_copy", "--limit", 8)
    found = json.loads(printed)
    assert code == 0 and found["heads"] == ["L0H1", "L1H0", "L1H1", "L1H2", "L1H3"]
    assert found["texts"]["n"] == 1 and found["texts"]["n_tokens"] == found["texts"]["n_scored"] > 200
    losses = found["texts"]["loss_nats"]
    assert list(losses) == ["full", "ablated", "previous", "prefix", "uniform"]
    for kind, each in found["texts"]["recovered"].items():
        effect = losses["ablated"] - losses["full"]
        assert each["effect_nats"] == pytest.approx(effect, abs=1e-5)
        if each["share"] is not None:
            assert each["share"] == pytest.approx((losses["ablated"] - losses[kind]) / effect, rel=1e-3, abs=1e-3)
    assert found["questions"]["n"] == 8 and set(found["questions"]["acc"]) == set(losses)
    again = json.loads(cli("idealise", *model, "--text", text, "--task", "demo_copy", "--limit", 8)[1])
    assert again["cached"] and again["texts"] == found["texts"] and again["questions"] == found["questions"]


def test_idealise_says_what_is_missing(cli, tiny_opt):
    model = ("--model", tiny_opt, "--precision", "fp32")
    refused(cli("idealise", *model, "--heads", "L0H1"), 2, "--passage")
    refused(cli("idealise", *model, "--heads", "", "--task", "demo_copy"), 2, "no head is named")
    refused(cli("idealise", *model, "--heads", "L0H1", "--mask", "L0H*", "--task", "demo_copy"), 2, "pruned already")
