"""`check --heads` agrees with a table of scores that a plain loop over a model's own attentions made, in the forms that
such tables have, and not with one of other heads."""

import json

import numpy as np
import pytest
import torch
from scipy.stats import hypergeom, spearmanr
from transformers import AutoModelForCausalLM

from engine.demo import FOLDER
from engine.errors import HeadroomError
from engine.importance.published_heads import compare_heads, read_heads
from engine.shapes import ModelShape
from tests.cli.conftest import refused

SHAPE = ModelShape(2, 3, 3, 6, 2, 8, 16, 16)
SCORES = np.arange(6.0).reshape(2, 3)


@pytest.fixture(scope="module")
def scores():
    """(L, H) attention of the included model's heads to what followed the same token before, on repeated tokens."""
    model = AutoModelForCausalLM.from_pretrained(FOLDER / "model", attn_implementation="eager").float().eval()
    generator, found = np.random.default_rng(5), []
    for _ in range(4):
        ids = np.tile(generator.choice(np.arange(300, 900), 12, replace=False), 3)
        with torch.no_grad():
            seen = model(torch.tensor(ids[None]), output_attentions=True).attentions
        pattern = torch.stack(seen)[:, 0].numpy()
        found += [sum(pattern[:, :, at, back] for back in (at - 11, at - 23) if back > 0) for at in range(12, 36)]
    return np.mean(found, axis=0)


def rows(scores, head="head_idx"):
    return [{"layer": int(i), head: int(j), "score": float(value)} for (i, j), value in np.ndenumerate(scores)]


def test_the_included_model_agrees_with_a_loop_and_not_with_other_heads(cli, scores, tmp_path):
    file = tmp_path / "heads.json"
    told = {}
    for name, values in (("same", scores), ("others", scores[::-1, ::-1])):
        file.write_text(json.dumps(rows(values)))
        code, printed, _ = cli("check", "--model", "demo", "--heads", file, "--score", "prefix", "--json")
        told[name] = json.loads(printed)
        assert (code == 0) == told[name]["agree"] == (name == "same"), told[name]
    same = told["same"]
    assert same["srcc"] > 0.8 and same["n_shared"] >= same["n_top"] - 1
    best = same["top"][0]
    assert best["published"] == pytest.approx(scores.max()) and best["rank"] == 1
    assert best["ours"] == pytest.approx(best["published"], abs=0.1)
    _, printed, _ = cli("check", "--model", "demo", "--heads", file, "--score", "prefix")
    assert "prefix differs: " in printed.splitlines()[-1]


def test_every_form_of_a_table_is_read(tmp_path):
    lines = ["Layer,head,other,token", *(f"{i},{j},0,{SCORES[i, j]}" for i, j in np.ndindex(2, 3))]
    forms = {
        "rows.json": (json.dumps(rows(SCORES)), ""),
        "heads.json": (json.dumps(rows(SCORES, "head")), "score"),
        "matrix.json": (json.dumps(SCORES.tolist()), ""),
        "several.json": (json.dumps({"a": rows(SCORES), "b": rows(-SCORES)}), "a"),
        "table.csv": ("\n".join(lines), "token"),
    }
    for name, (text, series) in forms.items():
        (tmp_path / name).write_text(text)
        np.testing.assert_array_equal(read_heads(tmp_path / name, SHAPE, series), SCORES, err_msg=name)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "has no scores"),
        ("{", "cannot be read"),
        ('[{"layer": 0, "score": 1}]', "cannot be read"),
        (json.dumps(rows(SCORES)[:-1]), "no score of L1H2"),
        (json.dumps(rows(np.ones((2, 4)))), "head L0H3, but the model has 2 layers of 3 heads"),
        (json.dumps({"a": rows(SCORES), "b": rows(SCORES)}), "--series one of a, b"),
        (json.dumps([[1, 2, float("nan")], [1, 2, 3]]), "no score of L0H2"),
    ],
)
def test_a_bad_table_gets_one_line(text, reason, tmp_path):
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(HeadroomError, match=reason) as refusal:
        read_heads(tmp_path / "bad.json", SHAPE)
    assert "\n" not in str(refusal.value)


def test_a_missing_table_gets_one_line(cli, tmp_path):
    refused(cli("check", "--model", "demo", "--heads", tmp_path / "none.csv"), 1, "cannot be read")


def test_what_is_shared_and_its_probability_equal_scipy():
    ours, published = np.random.default_rng(2).normal(size=(2, 10, 6))
    published = published + ours
    found = compare_heads(ours, published)
    best = [set(np.argsort(-each.ravel())[:6].tolist()) for each in (ours, published)]
    assert (found.n_top, found.n_shared) == (6, len(best[0] & best[1])) and found.n_shared > 0
    assert found.p_shared == pytest.approx(hypergeom.sf(found.n_shared - 1, 60, 6, 6))
    assert found.srcc == pytest.approx(spearmanr(ours.ravel(), published.ravel())[0])
