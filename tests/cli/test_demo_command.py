"""`headroom demo` states three findings on the included model, each with a command that gives the same numbers."""

import shlex

import pytest


@pytest.mark.slow("measures on the included model")
def test_each_finding_is_what_its_command_says(told, cli, tmp_path):
    found = told("demo")
    pruned, ablated, text = found["findings"]
    assert f"Without its 4 induction heads ({found['heads']})" in ablated["finding"]
    for each in (pruned, ablated):
        said = told(*shlex.split(each["command"])[1:])
        assert said["cached"] and f"{100 * said['acc']:.0f}%" in each["finding"]
    losses = told(*shlex.split(text["command"])[1:-1], tmp_path / "losses.csv")
    masked, full = losses["loss_masked_nats"], losses["loss_full_nats"]
    assert f"costs {masked:.2f} nats a token instead of {full:.2f}" in text["finding"]
    code, printed, _ = cli("demo")
    assert code == 0 and printed.count("headroom ") == 3 and printed.startswith("1. Without 60% of its heads")
