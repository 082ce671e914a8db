"""What a model takes, computed from its config alone: the counts are those of real models and real passes."""

from contextlib import contextmanager

import pytest

from engine.architecture.family import shape_of
from engine.architecture.model_config import LAYERS_HEADS_WIDTH, ModelConfig, opt_config
from engine.checkpoints.config_lookup import read_model_config
from engine.importance import activity
from engine.importance.activity import gate_gradients
from engine.placement.devices import LIBRARY_BYTES
from engine.placement.needs import Needs, as_stored, kept_bytes, load_needs, measuring_needs
from engine.placement.placement import place
from engine.questions.encoding import batches, encode_questions, pack
from tests.engine.fixtures import EXAMINED, UNTIED, held_bytes, loaded, questions_in, saved, write_questions

PRECISIONS = ("fp32", "bf16", "int8")


def config_in(folder) -> ModelConfig:
    return read_model_config(str(folder))


def opt(size) -> ModelConfig:
    return read_model_config(f"facebook/opt-{size}")


@pytest.mark.parametrize("size", LAYERS_HEADS_WIDTH)
def test_published_shapes_are_those_that_transformers_counts(size):
    import torch
    import transformers as t

    config = dict(opt_config(size))
    with torch.device("meta"):
        model = t.OPTForCausalLM(t.OPTConfig(**config))
    parts, decoder = opt(size).parts, model.model.decoder
    assert parts.n_params == model.num_parameters()
    assert {sum(p.numel() for p in layer.parameters()) for layer in decoder.layers} == {parts.layer.n_params}
    linear = [m for m in model.modules() if isinstance(m, torch.nn.Linear) and m is not model.get_output_embeddings()]
    n_quantized = parts.n_layers * parts.layer.n_quantized + parts.embeddings.n_quantized + parts.end.n_quantized
    assert n_quantized == sum(module.weight.numel() for module in linear)
    n_outputs = parts.n_layers * parts.layer.n_outputs + parts.embeddings.n_outputs + parts.end.n_outputs
    assert n_outputs == sum(module.out_features for module in linear)
    assert opt(size).shape == shape_of(t.OPTConfig(**config).to_dict())
    millions = float(size[:-1]) * (1000 if size.endswith("b") else 1)
    assert parts.n_params / 1e6 == pytest.approx(millions, rel=0.06), "as it is called"


@pytest.mark.thorough
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("family", [*EXAMINED, UNTIED])
def test_bytes_are_those_that_a_loaded_model_holds(family, precision, folder_of, model_of):
    model, parts = model_of(family, precision).model, config_in(folder_of(family)).parts
    buffers = sum(each.numel() * each.element_size() for each in model.buffers())
    assert parts.n_bytes(precision) == held_bytes(model) - buffers
    layers = [held_bytes(layer) for layer in model_of(family, precision).family.layer_list(model)]
    own = parts.layer.n_bytes(precision)
    assert all(own <= held <= own + buffers for held in layers)


@pytest.fixture(scope="module")
def rows_of(model_of, tmp_path_factory):
    """A function that gives the rows of eight questions, longest first as they are grouped."""
    file = write_questions(tmp_path_factory.mktemp("questions") / "some.jsonl", 8)

    def rows(family):
        loaded = model_of(family)
        encoded = encode_questions(questions_in(file).at(range(8)), loaded.tokenizer, True, 256)
        return [row for choices in encoded for row in pack(choices)]

    return rows


def golds(rows):
    """Rows of the first choice alone, as gradient passes read them."""
    return [row for each in rows for row in pack(each.choices[:1])]


def with_layers(n_layers, folder, to):
    """That model with so many layers, of random weights."""
    import transformers as t

    config = t.AutoConfig.from_pretrained(folder, num_hidden_layers=n_layers)
    return saved(t.AutoModelForCausalLM.from_config(config), to, folder)


def kept_for_gradients(of_model, rows, monkeypatch) -> int:
    """Bytes that a gradient pass keeps beside the weights: what torch saves, and the branches whose gradients are asked
    for."""
    import torch

    weights = {each.untyped_storage().data_ptr() for each in of_model.model.parameters()}
    kept = []  # tensors, so that none's memory serves another

    def keep(tensor):
        kept.append(tensor)
        return tensor

    watched = activity._gated

    @contextmanager
    def seen(loaded):
        with watched(loaded) as branches:
            yield branches
            kept.extend(branches)

    with monkeypatch.context() as patch, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        patch.setattr(activity, "_gated", seen)
        gate_gradients(of_model, rows)
    storages = {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in kept}
    return sum(n for where, n in storages.items() if where not in weights)


@pytest.mark.parametrize("family, precision", [("opt", "fp32"), ("opt", "bf16"), ("opt", "int8"), ("llama", "fp32")])
def test_what_a_layer_keeps_for_gradients_is_what_torch_keeps(
    family, precision, folder_of, rows_of, tmp_path, monkeypatch
):
    """The difference that three more layers make, so that nothing else counts."""
    rows, kept = golds(batches(rows_of(family))[0]), {}
    for n_layers in (2, 5):
        folder = with_layers(n_layers, folder_of(family), tmp_path / str(n_layers))
        kept[n_layers] = kept_for_gradients(loaded(folder, precision), rows, monkeypatch)
    expected = 3 * kept_bytes(config_in(folder), precision, sum(len(row.tokens) for row in rows), on_cpu=True)
    assert expected == pytest.approx(kept[5] - kept[2], rel=0.1)


def test_filling_takes_places_in_order():
    """By hand: 10 layers of 3 bytes, 4 where they are not run, 5 for the ends, 2 on every device that runs layers."""
    needs = Needs(10, {"weights": 4, "gradients": 3}, 5, {"workspace": 2})
    assert needs.total == 10 * 7 + 5 + 2
    assert place(needs, {"gpu0": 77}) == ("gpu0",) * 10 and len(place(needs, {"gpu0": 76})) == 9
    assert place(needs, {"gpu0": 60, "gpu1": 60}) == ("gpu0",) * 7 + ("gpu1",) * 3
    assert place(needs, {"gpu0": 30, "cpu": LIBRARY_BYTES + 8, "disk": 10**10}) == (
        ("gpu0",) * 2 + ("cpu",) * 2 + ("disk",) * 6
    ), "the first GPU keeps room for a layer that is moved there"
    assert place(needs, {"gpu0": 6, "cpu": 10**10, "disk": 10**10}) == (), "no room for the ends"


def test_measuring_needs_what_a_load_needs_and_the_gradients(tiny_opt):
    """However questions are batched."""
    model = config_in(tiny_opt)
    of_load, found = load_needs(as_stored(model), "int8"), measuring_needs(model, "int8")
    assert found.running == of_load.running and found.ends == of_load.ends
    assert found.total - model.shape.n_layers * found.layer["gradients"] == of_load.total
