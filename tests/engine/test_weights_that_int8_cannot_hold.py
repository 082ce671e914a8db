"""A matrix with a weight beyond fp16 is named in one line before int8 is made of it, with what to choose; in bf16 the
model opens. Which values these are is what bitsandbytes says of them."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.accuracy.evaluation import answers_measured
from engine.architecture.families import FAMILIES
from engine.checkpoints.tensors import finite
from engine.errors import HeadroomError
from engine.kernels.bitsandbytes_internals import bitsandbytes
from engine.models.masks import Mask
from engine.questions.encoding import Encoded
from tests.conftest import IS_THOROUGH
from tests.engine.fixtures import (
    STOCK,
    TINY,
    family_folder,
    in_turns,
    loaded,
    questions_in,
    refused_by,
    write_questions,
)

VALUES = [7e4, -7e4, 65408.0, 1e38, -1e30]
HELD = [65400.0, -65279.0, 1e-3, 0.0]
TYPES = [torch.float32, torch.bfloat16, torch.float16]
# OPT-350m, which has matrices next to its embedding, and one of each layout of queries, keys and values
LAYOUTS = ["opt-350m", *{FAMILIES[TINY[name]].attention.packing: name for name in reversed(STOCK)}.values()]
TRIED = LAYOUTS if IS_THOROUGH else LAYOUTS[:3]


@pytest.fixture(scope="module")
def folder_of(tiny_opt, tmp_path_factory):
    root = tmp_path_factory.mktemp("families")
    return {family: family_folder(family, tiny_opt, root / family) for family in TRIED}


def as_bitsandbytes(value, dtype):
    """Whether a matrix of int8 made of one weight of this value and others of 1 gives numbers that are near it."""
    weight = torch.ones(16, 16, dtype=dtype)
    weight[0, 0] = value
    held = bitsandbytes().nn.Int8Params(weight.bfloat16(), has_fp16_weights=False, requires_grad=False).to("cpu")
    return bool(held.SCB.isfinite().all())


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("value", VALUES + HELD)
def test_the_limit_is_that_of_bitsandbytes(value, dtype):
    weight = torch.ones(4, 4, dtype=dtype)
    weight[1, 2] = value
    if not weight.isfinite().all():
        return  # the type of the file does not hold it
    assert finite("a", weight) is weight, "other precisions hold it"
    if as_bitsandbytes(value, dtype):
        assert finite("a", weight, is_quantized=True) is weight
    else:
        refused_by(HeadroomError, r"^a: its largest value is .*choose bf16",
                   lambda: finite("a", weight, is_quantized=True))  # fmt: skip


def test_weights_that_would_all_become_zeros_are_refused_and_zeros_are_not():
    assert finite("a", torch.zeros(3, 3), is_quantized=True).sum() == 0
    refused_by(HeadroomError, "largest value is 1e-09", lambda: finite("a", torch.full((3, 3), 1e-9), True))


@pytest.mark.parametrize("family, value", in_turns(TRIED, VALUES))
def test_every_matrix_that_becomes_int8_is_checked_and_no_other(family, value, folder_of):
    """The last layer's matrices, and those next to the embedding; norms and embeddings stay as they are."""
    folder = folder_of[family]
    file = folder / "model.safetensors"
    plain = load_file(file)
    classes = ("Linear8bitLt", "Int8Linear")
    model = loaded(folder, "int8").model
    matrices = {f"{name}.weight" for name, part in model.named_modules() if type(part).__name__ in classes}
    last = str(max(int(part) for name in matrices for part in name.split(".") if part.isdigit()))
    tried = [name for name in plain if last in name.split(".") or not any(map(str.isdigit, name.split(".")))]
    becomes = {name for name in tried if any(each.endswith(name) for each in matrices)}
    others = [name for name in tried if name not in becomes]
    for name in [*becomes, *(others if IS_THOROUGH else others[:1])]:
        changed = plain[name].clone()
        changed.flatten()[-1] = value
        save_file(plain | {name: changed}, file, {"format": "pt"})
        if name in becomes:
            said = refused_by(HeadroomError, "choose bf16", lambda: loaded(folder, "int8"))
            assert said.startswith(f"{name}: its largest value is {abs(value):.3g}")
        else:
            loaded(folder, "int8")
    save_file(plain, file, {"format": "pt"})


def test_such_a_model_opens_in_bf16(folder_of):
    file = folder_of["opt-350m"] / "model.safetensors"
    plain = load_file(file)
    name = next(name for name in plain if "fc2.weight" in name)
    save_file(plain | {name: plain[name].index_fill(0, torch.tensor([0]), 7e4)}, file, {"format": "pt"})
    with torch.inference_mode():
        assert loaded(file.parent, "bf16").model(torch.tensor([[2, 3, 4]])).logits.isfinite().all()
    save_file(plain, file, {"format": "pt"})


def test_log_likelihoods_that_are_not_numbers_are_refused(tiny_opt, tmp_path):
    questions = questions_in(write_questions(tmp_path / "own.jsonl", 2))
    mask = Mask.full(loaded(tiny_opt).identity.shape)
    encoded = [[Encoded(0, 0, (2,), (3,), 0)] * len(each.contexts) for each in questions.at((0, 1))]
    scores = np.full((2, 4), np.nan)
    refused_by(HeadroomError, "choose bf16 or fp32",
               lambda: answers_measured(questions, mask, encoded, (scores, scores > 0)))  # fmt: skip
