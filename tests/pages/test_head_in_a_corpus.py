"""Head over a corpus, and among all heads: what is read, listed, searched, opened elsewhere, and chosen by a box."""

from functools import partial

import numpy as np
import pytest

from engine.corpus.loss_without import LossWithout
from engine.studies.one_head import TITLES
from engine.texts.perplexity import Change
from pages.ui.head import all_heads, corpus_tables, in_corpus
from tests.conftest import TEXT
from tests.pages.conftest import charts_of, frames_of, labels, press, said, same_on_the_command_line


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text(" ".join([TEXT, *reversed(TEXT.split(". "))] * 12))
    return path


@pytest.fixture
def open_head(open_app):
    return partial(open_app, "head", head="L1H2", head_tasks="demo_copy", head_shots="0")


@pytest.mark.slow("reads a corpus, measures losses, and runs the command too")
def test_a_corpus_is_read_and_says_what_the_command_says(open_head, corpus, tmp_path, capsys):
    at = open_head(head_part=in_corpus.TITLE, head_corpus=str(corpus), head_windows="6")
    assert not any("Tokens back" in str(each) for each in charts_of(at))
    assert in_corpus.SHOWS in said(at)
    press(at, "Read the corpus")
    assert in_corpus.SHOWS not in said(at)
    assert "6 windows of 256 tokens:" in said(at) and "Read the corpus" not in " ".join(labels(at))
    press(at, "Measure the loss without it")
    found = same_on_the_command_line(at, capsys, number=1, out=tmp_path / "heads.csv")
    assert found["cached"] and found["windows"] == 6
    assert all(clause["text"] in said(at) for clause in found["clauses"])
    top = found["removal"]["top"]["nats"]
    assert f"{top:+.3f} nats a token".replace("-", "−") in said(at)
    [distances] = [frames["distances"] for frames in frames_of(at) if "distances" in frames]
    assert distances["share"].sum() == pytest.approx(1, abs=1e-5)
    assert f":violet-background[{found['examples'][0]['query_token'].strip()}" in said(at)
    at.text_input(key=in_corpus.SEARCH).set_value("no such text")
    assert "0 of 6 windows have “no such text”" in said(at.run())
    at.text_input(key=in_corpus.SEARCH).set_value("")
    at.run()
    next(each for each in at.button if each.key == "corpus passage 0").click()
    at.run()
    assert at.session_state["passage_text"].startswith("Corpus window")


def test_a_corpus_that_is_missing_is_one_line(open_head, tmp_path):
    at = open_head(head_part=in_corpus.TITLE, head_corpus=str(tmp_path / "none.txt"))
    press(at, "Read the corpus") if any("Read the corpus" in label for label in labels(at)) else None
    assert "cannot be read" in said(at)


def test_all_heads_are_dots_and_a_box_chooses_some(open_head, monkeypatch):
    at = press(open_head(head_part=all_heads.TITLE), TITLES["scores"])
    heads = next(frames["heads"] for frames in frames_of(at) if "x" in frames.get("heads", ()))
    assert len(heads) == 8 and heads["mine"].sum() == 1 and heads["layer"].tolist() == [0] * 4 + [1] * 4
    opened, state = [], {}
    monkeypatch.setattr(all_heads, "go_to", opened.append)
    monkeypatch.setattr(all_heads.st, "session_state", state)
    low, high = heads["x"].iloc[0], heads["x"].iloc[1]
    state["dots"] = {"selection": {"box": {"x": [high, low], "y": [heads["y"].max(), heads["y"].min()]}}}
    all_heads._selected("dots", heads)
    between = heads["x"].between(min(low, high), max(low, high))
    assert state[all_heads.BOXED] == tuple(heads["name"][between]) and not opened
    state["dots"] = {"selection": {"head": [{"layer": 1, "head": 3}], "box": {}}}
    all_heads._selected("dots", heads)
    assert opened == ["L1H3"] and state[all_heads.BOXED] == ()


def test_a_third_score_is_the_color():
    scores = {name: np.arange(6.0).reshape(2, 3) * at for at, name in enumerate("abc", start=1)}
    rows = all_heads.rows_of(scores, "a", "b", "c", "L1H0")
    assert rows["color"].tolist() == [0, 3, 6, 9, 12, 15] and rows["name"][rows["mine"]].tolist() == ["L1H0"]
    assert all_heads.rows_of(scores, "a", "b", all_heads.LAYER, "")["color"].tolist() == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("top", "says"),
    [((0.3, 0.2, 0.4), "the model **needs it more where it fires**."), ((0.1, 0.0, 0.2), "no clear difference.")],
)
def test_the_loss_without_a_head_has_a_verdict_only_if_intervals_are_apart(top, says):
    said = corpus_tables.loss_in_words(LossWithout(Change(*top), Change(0.1, 0.05, 0.15), 24), "L1H2")
    assert said.startswith("Without L1H2: **") and "on its top 24 windows" in said and said.endswith(says)
