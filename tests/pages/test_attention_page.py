"""The Attention screen in one process: what goes to the browser, heads and text in the address, and its limits."""

import json
import re
import shlex
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest

from engine.__main__ import main
from engine.errors import UsageError
from engine.heads.attention import BEGINNING, HeadView, Overview
from engine.heads.induction import InductionScores
from engine.models.masks import Mask, parse_heads, parse_mask
from engine.shapes import ModelShape
from pages.ui.attention import charts, tables
from pages.ui.attention.view import overview_packet, pattern_packet
from tests.conftest import make_tiny_opt
from tests.pages.conftest import (
    frames_of,
    go_to,
    labels,
    press,
    printed_by_the_program,
    same_on_the_command_line,
    settled,
)

SHAPE = ModelShape(2, 4, 4, 32, 8, 64, 512, 256)


def unpacked(packet):
    """(meta, arrays) as the browser reads them."""
    start = 4 + int.from_bytes(packet[:4], "little")
    assert start % 4 == 0
    meta = json.loads(packet[4:start])
    arrays = {}
    for name, (kind, at, count) in meta.pop("arrays").items():
        assert (start + at) % 4 == 0, "typed arrays want their numbers where they can be read"
        arrays[name] = np.frombuffer(packet, f"<{kind}", count, start + at)
    return meta, arrays


def table_of(packet, name, n):
    """The (n, n) numbers of a pattern's packet."""
    meta, arrays = unpacked(packet)
    unit, whole = 1 / 65535 if name == "attention" else meta["unit"], np.zeros((n, n))
    if "k" in meta:
        np.put_along_axis(whole, arrays[f"{name}_at"].reshape(n, -1).astype(int), arrays[name].reshape(n, -1) * unit, 1)
    else:
        whole[np.tril_indices(n)] = arrays[name] * unit
    return whole


def a_view(n, seed=0):
    rng = np.random.default_rng(seed)
    scores = np.where(np.tri(n, dtype=bool), rng.normal(size=(n, n)) * 3, -np.inf)
    pattern = np.exp(scores - scores.max(1, keepdims=True))
    return HeadView(
        (pattern / pattern.sum(1, keepdims=True)).astype(np.float32),
        np.tril(rng.normal(size=(n, n))).astype(np.float32),
    )


def an_overview(pieces, layers=2, heads=4, seed=0):
    rng, n = np.random.default_rng(seed), len(pieces)
    ends = np.cumsum([len(piece) for piece in pieces[1:]])
    return Overview(
        "".join(pieces[1:]), np.arange(n), ends, 0, rng.integers(0, 255, (layers, heads, n, n)).astype(np.uint8),
        rng.normal(size=(layers, heads, n)).astype(np.float16), rng.random((layers, n)), rng.random(n), rng.random(n),
        rng.random(n),
    )  # fmt: skip


@pytest.fixture
def open_screen(open_app):
    return partial(open_app, "attention")


def packets(at):
    """(overview's bytes, pattern's bytes or None) as they go to the browser."""
    found = {part.proto.component_name: part.proto.bytes for part in at.get("bidi_component")}
    return found["headroom_attention_view"], found.get("headroom_attention_pattern")


@pytest.mark.parametrize("n", [2, 60, 256])
def test_a_short_pattern_arrives_whole_in_two_bytes_a_number(n):
    view = a_view(n)
    packet = pattern_packet("text", ["L1H0"], view, {})
    assert np.abs(table_of(packet, "attention", n) - view.pattern).max() <= 0.5 / 65535 + 1e-7
    largest = np.abs(view.raised_nats).max()
    assert np.abs(table_of(packet, "nats", n) - view.raised_nats).max() <= 0.5 * largest / 32767 + 1e-6
    assert len(packet) <= 2 * 2 * n * (n + 1) // 2 + 400


@pytest.mark.parametrize("n", [257, 1024])
def test_of_a_long_pattern_the_largest_of_each_row_arrive(n):
    view = a_view(n)
    packet = pattern_packet("text", ["L1H0"], view, {})
    for name, sent in (("pattern", table_of(packet, "attention", n)), ("raised_nats", table_of(packet, "nats", n))):
        true = getattr(view, name)
        for row in (5, 40, n - 1):
            largest = np.argsort(-np.abs(true[row]))[: min(20, row + 1)]
            assert np.allclose(sent[row, largest], true[row, largest], atol=1e-3)
            assert (sent[row] != 0).sum() <= 32
    assert len(packet) <= n * 32 * 2 * 4 + 400


def test_several_heads_are_the_mean_of_patterns_and_the_sum_of_nats():
    views = [a_view(9, seed) for seed in range(3)]
    both = tables.combined(views)
    assert np.allclose(both.pattern[5], [np.mean([view.pattern[5, s] for view in views]) for s in range(9)])
    assert both.raised_nats[7, 2] == pytest.approx(sum(view.raised_nats[7, 2] for view in views), abs=1e-5)


def test_heads_in_text_form():
    assert parse_heads("l1h2, L0H3 L1H2", SHAPE) == [(1, 2), (0, 3)]
    assert parse_heads("L1H*", SHAPE) == [(1, 0), (1, 1), (1, 2), (1, 3)]
    assert parse_heads(" ", SHAPE) == []
    for wrong in ("F1", "L9H0", "L1", "<script>"):
        with pytest.raises(UsageError) as error:
            parse_heads(wrong, SHAPE)
        assert "\n" not in str(error.value) and wrong in str(error.value)


def test_the_head_to_begin_with_is_by_prefix_matching_or_by_what_it_does_to_the_labels():
    seen = an_overview(["⟨bos⟩", "a", ":", " 1", "b", ":", " 2"])
    scores = np.zeros((2, 4))
    scores[1, 3] = 0.9
    assert tables.default_heads(seen, scores, "") == [(1, 3)]
    seen.raised_nats[0, 2, [3, 6]] = 20
    seen.raised_nats[1, 1, [1, 2, 4, 5]] = 30  # of other tokens than the labels
    assert tables.default_heads(seen, scores, ":") == [(0, 2)]
    assert tables.default_heads(seen, None, "") == [(1, 1)]
    words = ["⟨bos⟩", *[" to", " be", " or", " not"] * 4]
    twice = replace(an_overview(words), token_ids=np.array([words.index(word) for word in words]))
    repeated = tables.repeated_tokens(twice.token_ids)
    assert np.flatnonzero(repeated).tolist() == [*range(6, 17)], "none follows what it followed before until then"
    twice.raised_nats[1, 0, :5], twice.raised_nats[0, 1, 6:] = 90, 7
    assert tables.default_heads(twice, None, "") == [(0, 1)], "which copies, although another adds more"


def test_heads_are_said_to_be_induction_heads_only_if_all_are():
    mean = {"prefix_matching": np.array([[0.9, 0.1]]), "copying": np.array([[0.9, 0.1]])}
    found = InductionScores(mean, {name: each / 100 for name, each in mean.items()}, dict.fromkeys(mean, 10))
    assert tables.kind_in_words([(0, 0)], found).endswith("earlier copy (induction; prefix matching 0.90).")
    assert tables.kind_in_words([(0, 0), (0, 1)], found) == "**L0H0**, **L0H1**: prefix matching 0.90, 0.10."


def test_rows_of_a_pattern_name_both_tokens_and_the_next():
    seen, view = an_overview(["⟨bos⟩", "a", "b", "c"]), a_view(4)
    rows = tables.pattern_rows(seen, view).set_index(["destination", "source"])
    assert len(rows) == 10  # the triangle
    row = rows.loc[2, 1]
    assert (row.destination_token, row.source_token, row.next_token) == ("b", "a", "c")
    assert row.attention == view.pattern[2, 1] and row.raised_nats == view.raised_nats[2, 1]


@pytest.mark.parametrize("n", [5, 64, 150])
def test_the_picture_has_cells_of_tokens_or_of_squares(n):
    from engine.views.pictures import to_svg

    seen, view = an_overview(["⟨bos⟩", *(f" t{i}" for i in range(n - 1))]), a_view(n)
    cells = tables.map_cells(seen, view)
    width = -(-n // 64)
    assert cells["attention"].max() == view.pattern.max()
    corner = cells[(cells["destination"] == cells["destination"].max()) & (cells["source"] == 0)].iloc[0]
    assert corner.attention == view.pattern[-((n - 1) % width + 1) :, :width].max()
    assert to_svg(charts.pattern_map(cells), "title").startswith(b"<svg")
    assert tables.in_words(seen, view, ["L0H1"]).startswith(f"L0H1 on {n} tokens: ")


def test_the_overview_names_pruned_heads_and_adds_up():
    seen = an_overview(["⟨bos⟩", "<script>", "é", "", "\n"])
    packet = overview_packet("k", "a name", seen, parse_mask("L1H2 F0", SHAPE), None, ":")
    meta, arrays = unpacked(packet)
    assert meta["pieces"] == seen.pieces and meta["pruned"] == ["L1H2"] and meta["rows"] == ":"
    assert "scores" not in arrays and arrays["thumbnails"].size == seen.thumbnails.size
    assert np.allclose(arrays["raised"] * meta["unit"], seen.raised_nats.ravel(), atol=1e-3)
    scored = overview_packet("k", "a name", seen, Mask.full(SHAPE), np.eye(2, 4), "")
    assert unpacked(scored)[1]["scores"].tolist() == np.eye(2, 4).ravel().tolist()


def test_the_screen_sends_the_chosen_heads_and_the_command_and_the_program_agree(
    measures_ahead, open_screen, tmp_path, capsys
):
    at = open_screen(attention_heads="L1H0,L0H3", attention_text="Pattern labels", attention_mask="L0H1")
    overview, pattern = packets(at)
    meta, arrays = unpacked(overview)
    assert meta["name"] == "Pattern labels" and meta["pruned"] == ["L0H1"] and "scores" in arrays
    assert unpacked(pattern)[0]["heads"] == ["L1H0", "L0H3"]
    assert same_on_the_command_line(at, capsys, out=tmp_path / "attention.csv")["cached"]
    written = pd.read_csv(tmp_path / "attention.csv")
    n = len(meta["pieces"])
    true = np.zeros((2, n, n))
    for number, head in enumerate(("L1H0", "L0H3")):
        rows = written[written["head"] == head]
        true[number][rows["destination"], rows["source"]] = rows["attention"]
    assert np.abs(table_of(pattern, "attention", n) - true.mean(0)).max() < 1e-3
    printed = printed_by_the_program(at)
    share = re.search(r"(\d+)% (?:of attention )?to the first token", printed)[1]
    assert float(share) == pytest.approx(100 * true.mean(0)[1:, 0].mean(), abs=0.6)
    assert printed.startswith("L1H0 and L0H3 give ") and f"over {n} tokens" in printed


def test_the_lens_of_a_pruned_model_is_next_to_that_of_the_full_one(open_screen, tmp_path):
    at = open_screen(run=False, attention_text="Pattern labels", attention_mask="L0H* F1")
    at.session_state["attention_lens"] = True
    at = settled(at)
    grids = [each["cells"] for each in frames_of(at) if "guess" in each.get("cells", ())]
    full, pruned, *_ = [each for each in grids if each["index"].nunique() > 1]
    assert len(full) == len(pruned) and (full["next_p"].to_numpy() != pruned["next_p"].to_numpy()).any()
    words = shlex.split(next(each.value for each in at.code if " lens " in each.value))
    words = words[words.index("lens") :]
    words[words.index("--out") + 1] = str(tmp_path / "lens.csv")
    assert main(words) == 0
    written = pd.read_csv(tmp_path / "lens.csv")
    shown = written[written["index"].isin(pruned["index"])]
    np.testing.assert_allclose(pruned["next_p"], shown["next_p"], rtol=1e-5)


def test_the_head_that_opens_stays_when_it_is_pruned(measures_ahead, open_screen):
    [usual] = unpacked(packets(open_screen())[1])[0]["heads"]
    at = open_screen(attention_mask=usual)
    assert unpacked(packets(at)[1])[0]["heads"] == [usual]
    assert any("Pruned, so that it adds nothing" in each.value for each in at.markdown)


def test_a_bad_address_gets_one_plain_line(open_screen):
    at = open_screen(attention_heads="<img src=x onerror=alert(1)>")
    assert len(at.error) == 1 and "\n" not in at.error[0].value
    assert packets(at)[1] is None, "no pattern for heads that there are not"


def test_a_preset_sets_text_and_rows_and_keeps_the_head(open_screen):
    at = press(open_screen(attention_heads="L0H0"), "Pattern labels")
    meta, _ = unpacked(packets(at)[0])
    assert meta["name"] == "Pattern labels" and meta["rows"] == ":"
    press(at, "Translation")
    assert unpacked(packets(at)[0])[0]["rows"] == "" and unpacked(packets(at)[1])[0]["heads"] == ["L0H0"]


def test_the_view_opens_at_a_name_that_returns():
    def first(*pieces):
        return tables.places_to_start(an_overview([BEGINNING, *pieces]))

    said = ("The", " cat", " of", " Mrs", ".", " D", "urs", "ley", ".", " The", " cat", " s", "aw", " D", "urs", "ley")
    assert first(*said) == [15], "of its tokens the longest, the first of equals; no word that begins a sentence"
    assert first("One", " two", " a", " seven", "k") == [1, 2, 4], "without a name, whatever can be read"
    assert first("a", "b", ":") == []


def test_translation_is_not_offered_of_a_model_that_knows_one_language(open_screen):
    offered = labels(open_screen(model="demo"))
    assert "Translation" not in offered and "Pattern labels" in offered


def test_a_long_text_is_cut_and_said_to_be(open_screen):
    at = open_screen(attention_text="The ferry")
    meta, _ = unpacked(packets(at)[0])
    assert len(meta["pieces"]) == SHAPE.n_ctx
    assert any("do not fit" in caption.value for caption in at.caption)


def test_a_thousand_tokens_and_every_head(open_screen, tmp_path):
    folder = make_tiny_opt(tmp_path, n_ctx=1024)
    at = open_screen(model=str(folder), attention_text="The ferry", attention_heads="L*H*")
    overview, pattern = packets(at)
    assert len(unpacked(overview)[0]["pieces"]) == 1024
    meta, _ = unpacked(pattern)
    assert len(meta["heads"]) == 8 and meta["k"] == 32
    assert len(pattern) < 270_000 and len(overview) < 200_000
    rows = table_of(pattern, "attention", 1024).sum(1)
    assert rows.max() <= 1.001 and rows[0] == pytest.approx(1, abs=1e-3)


def test_heads_selected_on_the_induction_screen_are_shown_here(open_app, tiny_opt):
    at = open_app("induction")
    at.session_state["heads_selected"], at.session_state["heads_selected_in"] = ("L0H1", "L1H3"), "scatter"
    settled(at)
    next(button for button in at.button if button.label == "See where they attend").click().run()
    go_to(at, "attention")
    assert at.text_input(key="attention_heads").value == "L0H1,L1H3"
    assert unpacked(packets(at)[1])[0]["heads"] == ["L0H1", "L1H3"]
