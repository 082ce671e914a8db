"""`headroom patch` prints the largest effects, and writes a row per layer and position."""

import pandas as pd

from tests.conftest import TEXT


def test_the_command_prints_the_largest_effects_and_writes_all(tiny_opt, tmp_path, cli, told):
    a, b = TEXT[:40], TEXT[:19] + TEXT[19:40].swapcase()
    options = ("--model", tiny_opt, "--precision", "fp32", "--prompt", a)
    code, _, lines = cli("patch", *options, "--other-prompt", "the river")
    assert code == 1 and "write them equally long" in lines[0]
    code, _, lines = cli("patch", *options, "--other-prompt", b, "--answers", "Paris")
    assert code == 2 and "'Paris': expected two answers" in lines[0]
    words = TEXT.split()
    answers = ("--answers", f"{words[0]},{words[1]}")
    other = " ".join(reversed(a.split(" ")))
    found = told(
        "patch", *options, "--other-prompt", other, *answers, "--patched", "attention", "--out", tmp_path / "rows.csv"
    )
    rows = pd.read_csv(tmp_path / "rows.csv", keep_default_na=False)
    n = rows["position"].nunique()
    assert len(rows) == 2 * n and rows["layer"].unique().tolist() == [0, 1]
    assert found["largest"][0]["effect"] == rows["effect"].astype(float).loc[lambda each: each.abs().idxmax()]
    _, printed, _ = cli("patch", *options, "--other-prompt", other, *answers, "--patched", "attention")
    assert "attention output of layer" in printed and "% of the difference comes back" in printed
    pair = (*answers, "--patched", "attention", "--pair", f"{n - 2},{n - 1}", "--out", tmp_path / "pair.csv")
    moved = told("patch", *options, "--other-prompt", other, *pair)
    of_pair = pd.read_csv(tmp_path / "pair.csv", keep_default_na=False)
    assert of_pair[["position_b", "position"]].drop_duplicates().values.tolist() == [[n - 2, n - 1]]
    assert of_pair["layer"].tolist() == [0, 1] and moved["largest"][0]["effect"] == max(of_pair["effect"], key=abs)
