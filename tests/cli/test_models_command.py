"""`headroom models --check` checks one model and fails if one of the checks does."""

import json

from engine.models import masks, self_check


def test_a_model_is_checked(cli, tiny_opt):
    code, out, _ = cli("models", "--check", tiny_opt)
    assert code == 0 and out.splitlines()[-1] == "all 8 checks passed"
    assert f"{self_check.SLICED}: passed" in out.splitlines()


def test_a_check_that_fails_is_named_and_ends_the_command_with_1(cli, tiny_opt, monkeypatch):
    self_check._checked_copy.cache_clear()
    real = masks._instead_of_heads
    monkeypatch.setattr(masks, "_instead_of_heads", lambda kept, *rest: real(kept[1:] + kept[:1], *rest))
    code, out, _ = cli("models", "--check", tiny_opt, "--json")
    self_check._checked_copy.cache_clear()
    found = json.loads(out)
    assert code == 1 and not found["passed"]
    failed = {check["name"] for check in found["checks"] if check["error"]}
    assert self_check.COLUMNS in failed and self_check.PLAIN not in failed


def test_a_model_that_is_not_here_is_not_downloaded(cli):
    code, out, lines = cli("models", "--check", "facebook/opt-125m")
    assert code == 1 and not out and "not on this computer" in lines[-1]
