"""A window of all layers is the length of the context: within it a model says what transformers says with the window. A
window of some layers is in every pass, as transformers has it."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.accuracy.passes import compute_prefix, hidden_states, passes
from engine.architecture import families
from engine.architecture.family import shape_of
from engine.errors import HeadroomError
from engine.questions.encoding import Row
from tests.engine.fixtures import STOCK, TINY, family_folder, loaded

WITH_WINDOW = [name for name in STOCK if families.FAMILIES[TINY[name]].window is not None]
WINDOWED = [name for name in WITH_WINDOW if not families.FAMILIES[TINY[name]].builds_window]
ON = {"max_position_embeddings": 96, "sliding_window": 64, "use_sliding_window": True, "max_window_layers": 0}
IDS = torch.arange(2, 98)[None]


def logits(model, n):
    with torch.inference_mode():
        return model(IDS[:, :n]).logits[0]


@pytest.mark.parametrize("family", WINDOWED)
def test_within_the_window_attention_is_whole_and_beyond_it_is_not(family, tiny_opt, tmp_path):
    folder = family_folder(family, tiny_opt, tmp_path / "model", **ON)
    ours, theirs = loaded(folder), AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    assert ours.identity.shape.n_ctx == 64 and theirs.config.sliding_window == 64
    torch.testing.assert_close(logits(ours.model, 64), logits(theirs, 64), atol=1e-5, rtol=1e-5)
    assert (logits(ours.model, 65)[-1] - logits(theirs, 65)[-1]).abs().max() > 1e-3, "one token more is cut off"
    assert ours.identity.config["sliding_window"] == 64, "an export keeps it"


@pytest.mark.parametrize("family", WINDOWED)
@pytest.mark.parametrize("said", [{"sliding_window": None}, {"sliding_window": 4096}])
def test_a_window_that_is_not_there_or_longer_than_the_context_changes_nothing(family, said):
    assert shape_of(config_of(family, **said)).n_ctx == 96


@pytest.mark.parametrize("family", [name for name in WITH_WINDOW if name not in WINDOWED])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_a_window_of_some_layers_is_that_of_transformers_in_packed_passes(family, precision, tiny_opt, tmp_path):
    """Rows longer than the window, alone and behind a prefix that is computed once."""
    folder = family_folder(family, tiny_opt, tmp_path / "model", **ON | {"sliding_window": 16})
    model = loaded(folder, precision)
    assert model.identity.shape.n_ctx == 96
    ids, close = list(range(2, 98)), {"fp32": 1e-5, "bf16": 0.1, "int8": 0.2}[precision]

    def row(n, first):
        """The tokens from `first` to n of one text, all of which are read."""
        positions = tuple(range(first, n))
        return Row((), tuple(ids[first:n]), positions, (0,) * (n - first), tuple((0, at, 0) for at in range(n - first)))

    with torch.inference_mode():
        for first, prefix in ((0, None), (10, compute_prefix(model, ids[:10]))):
            for groups in passes(model, [row(n, first) for n in (70, 12, 90)]):
                ends = [1 + each.positions[-1] for group in groups for each in group]
                plain = [model.model.base_model(torch.tensor([ids[:n]])).last_hidden_state[0, first:] for n in ends]
                found = hidden_states(model, groups, prefix)
                torch.testing.assert_close(found, torch.cat(plain), atol=close, rtol=close)


@pytest.mark.parametrize("family", WINDOWED)
@pytest.mark.parametrize("window", [0, -1, "4096", True])
def test_a_window_that_makes_no_sense_is_refused(family, window):
    with pytest.raises(HeadroomError, match="sliding_window is .* must be a positive whole number"):
        shape_of(config_of(family, sliding_window=window))


def config_of(family, **said):
    return {"model_type": TINY[family], "num_hidden_layers": 3, "num_attention_heads": 4, "hidden_size": 32,
            "vocab_size": 512} | ON | said  # fmt: skip


def test_qwen2_has_a_window_only_where_its_config_turns_it_on():
    assert [shape_of(config_of("qwen2", use_sliding_window=on)).n_ctx for on in (True, False, None)] == [64, 96, 96]


def test_mistral_has_a_window_unless_its_config_says_that_it_has_none():
    config = config_of("mistral", max_position_embeddings=32768)
    del config["sliding_window"]
    assert shape_of(config).n_ctx == 4096
