"""What a model takes, computed from its config alone: the counts are those of real models and real passes."""

import os
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace

import pytest

from engine.accuracy.evaluation import evaluation
from engine.architecture.family import shape_of
from engine.architecture.model_config import LAYERS_HEADS_WIDTH, ModelConfig, opt_config
from engine.checkpoints.config_lookup import read_model_config
from engine.errors import UsageError
from engine.importance import activity
from engine.importance.activity import gate_gradients
from engine.kernels.kernel_choice import processor
from engine.models.loading import LoadSpec
from engine.models.masks import Mask
from engine.placement.devices import CPU, GPUS, LIBRARY_BYTES, Device, Machine, known_gpu, machine_of
from engine.placement.needs import kept_bytes, load_needs, study_needs
from engine.placement.placement import place
from engine.plans.forecast import forecast, study_parts, study_points
from engine.plans.planning import planned
from engine.questions.encoding import batches, encode_questions, pack
from engine.questions.requests import TaskSpec
from engine.studies.study import paper_points, pool_of
from engine.studies.surveys import StudySettings
from engine.timing import observed_timings
from engine.timing import observed_timings as rates
from engine.timing.observed_timings import operations_a_token, scaled_timing
from engine.timing.workload import all_characters
from tests.engine.fixtures import (
    EXAMINED,
    STOCK,
    UNTIED,
    held_bytes,
    last,
    loaded,
    questions_in,
    refused_by,
    saved,
    target_in,
    write_questions,
)

CPU_HERE = Device("cpu", 10**10)
PRECISIONS = ("fp32", "bf16", "int8")
SETTING = StudySettings(LoadSpec("demo", "bf16"))


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
    n_quantised = parts.n_layers * parts.layer.n_quantised + parts.embeddings.n_quantised + parts.end.n_quantised
    assert n_quantised == sum(module.weight.numel() for module in linear)
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


@pytest.mark.parametrize("family", [each for each in (*STOCK, UNTIED) if each != "opt-350m"])  # it projects embeddings
def test_operations_a_token_are_the_matrix_products_that_torch_counts(family, folder_of, model_of):
    """Of a whole row, whose last layer is computed at every position as transformers does."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    model, tokens = model_of(family), torch.arange(3, 43)[None]
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        hidden = model.model(tokens, output_hidden_states=True).hidden_states[-1]
    by_product = counter.get_flop_counts()["Global"]
    not_counted = "bmm" if model.family.attends_by == "eager" else "attention"  # the products of attention itself
    found = sum(n for product, n in by_product.items() if not_counted not in str(product))
    unembedding = 2 * hidden.shape[-1] * model.identity.shape.n_vocab
    assert operations_a_token(config_in(folder_of(family))) == found / tokens.numel() - unembedding


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


def machines():
    """Machines some of which are too small for some models."""
    return [Machine(n, Device(f"{gb}GB", int(gb * 1e9))) for n in (1, 2, 3, 8) for gb in (2, 6, 24, 80)]


def forecast_of(model, precision, machine, main_memory=0, store=None):
    setting = replace(SETTING, spec=LoadSpec("demo", precision))
    return forecast(NO_TIMINGS if store is None else store, model, machine, setting, [], main_memory)


class NO_TIMINGS:
    keys = staticmethod(lambda: ())


@pytest.mark.parametrize("size", ["125m", "350m", "6.7b", "66b"])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("main_memory", [0, 20 * 10**9, 10**12])
def test_every_layer_lies_somewhere_once(size, precision, main_memory):
    model = opt(size)
    for machine in machines():
        found = forecast_of(model, precision, machine, main_memory)
        placed = [layer for share in found.shares for layer in range(share.first, share.stop)]
        assert placed == list(range(len(placed))) and found.runs == (len(placed) == model.shape.n_layers), machine
        gpus = [share for share in found.shares if share.place.startswith("gpu")]
        assert len(gpus) == found.n_used <= machine.n and (not found.fits or gpus == list(found.shares))
        assert found.runs or precision == "int8" or not gpus[0].n_bytes or found.n_needed is None
        assert all(share.total <= machine.device.n_bytes for share in gpus if share.stop > share.first)
        if found.runs:
            assert sum(share.n_bytes["weights"] for share in found.shares) == model.parts.n_bytes(precision)
            main = [share for share in found.shares if share.place == CPU]
            assert all(share.total <= max(main_memory, LIBRARY_BYTES) for share in main)


def test_as_few_gpus_as_will_do_and_as_evenly_as_layers_allow():
    gpu = machine_of("A100-80GB").device
    found = forecast_of(opt("66b"), "int8", Machine(8, gpu))
    assert found.n_used == found.n_needed == 2 and found.n_workers == 4
    [first, second] = found.shares
    layer = sum(second.n_bytes[name] for name in ("weights", "pruned copy", "gradients")) / second.stop
    assert abs(first.total - second.total) <= 2 * layer
    assert found.place == f"gpu0:{first.stop},gpu1:{64 - first.stop}"
    one = forecast_of(opt("66b"), "bf16", Machine(1, gpu), 10**12)
    assert one.runs and not one.fits and [*one.fetched_bytes] == [CPU]
    assert one.place == f"gpu0:{one.shares[0].stop},cpu:{64 - one.shares[0].stop}"


def test_no_number_of_gpus_is_enough_where_one_is_too_small():
    found = forecast_of(opt("66b"), "fp32", Machine(8, Device("2GB", 2 * 10**9)))
    assert found.n_needed is None and not found.fits and not found.runs and not found.place


def test_filling_takes_places_in_order_and_evenly_the_fullest_holds_as_little_as_possible():
    """By hand: 10 layers of 3 bytes, 4 where they are not run, 5 for the ends, 2 on every device that runs layers."""
    from engine.placement.needs import Needs

    needs = Needs(10, {"weights": 4, "gradients": 3}, 5, {"workspace": 2})
    assert needs.total == 10 * 7 + 5 + 2
    assert place(needs, {"gpu0": 77}) == ("gpu0",) * 10 and len(place(needs, {"gpu0": 76})) == 9
    assert place(needs, {"gpu0": 60, "gpu1": 60}) == ("gpu0",) * 7 + ("gpu1",) * 3
    assert place(needs, {"gpu0": 60, "gpu1": 60}, "even") == ("gpu0",) * 5 + ("gpu1",) * 5
    assert place(needs, {"gpu0": 30, "cpu": LIBRARY_BYTES + 8, "disk": 10**10}) == (
        ("gpu0",) * 2 + ("cpu",) * 2 + ("disk",) * 6
    ), "the first GPU keeps room for a layer that is moved there"
    assert place(needs, {"gpu0": 6, "cpu": 10**10, "disk": 10**10}) == (), "no room for the ends"


def test_memory_on_this_computer_is_what_a_load_is_refused_by(tiny_opt, session):
    """Next to what gradients keep, and however questions are batched."""
    identity = target_in(session, tiny_opt, "int8").identity
    model = config_in(tiny_opt)
    of_load = load_needs(identity.model_config, "int8", CPU)
    study = study_needs(model, "int8", CPU, 256)
    assert study.running == of_load.running and study.ends == of_load.ends
    assert study.total - model.shape.n_layers * study.layer["gradients"] == of_load.total


@pytest.mark.parametrize(
    "typed, n, name",
    [("2xA100-80GB", 2, "A100-80GB"), ("A100-80GB", 1, "A100-80GB"), (" 8 x h100 80gb", 8, "H100-80GB"),
     ("L4", 1, "L4-24GB"), ("4xRTX 4090", 4, "RTX4090-24GB"), ("2x80GB", 2, "80GB"), ("CPU", 1, "cpu")],
)  # fmt: skip
def test_gpus_as_they_are_typed(typed, n, name):
    found = machine_of(typed)
    assert (found.n, found.device.name) == (n, name)
    assert found.device.name in (*GPUS, "80GB", "cpu")


@pytest.mark.parametrize("typed", ["", "A100", "2x", "x", "0xL4", "9999xL4", "-x1", "0GB", "2xcpu", "1e3xL4", "é"])
def test_what_names_no_gpus_is_refused_in_a_line(typed):
    refused_by(UsageError, "--gpus is", lambda: machine_of(typed))


def test_every_gpu_is_known_by_its_name_and_by_what_its_driver_calls_it():
    assert [machine_of(f"3x{name}").device.name for name in GPUS] == [*GPUS]
    assert machine_of("H200").device.n_bytes == 141 * 10**9
    drivers = {"NVIDIA A100-SXM4-80GB": "A100-80GB", "NVIDIA A100-PCIE-40GB": "A100-40GB", "Tesla T4": "T4-16GB",
               "NVIDIA H100 80GB HBM3": "H100-80GB", "NVIDIA H200": "H200-141GB", "NVIDIA L40S": "L40S-48GB",
               "NVIDIA GeForce RTX 4090": "RTX4090-24GB", "Tesla V100-SXM2-32GB": "V100-32GB",
               "NVIDIA RTX A6000": "A6000-48GB", "NVIDIA A10G": None, "Quadro P400": None}  # fmt: skip
    assert {told: known_gpu(told) for told in drivers} == drivers


def timed(size, precision="bf16", pace=1e12, gradient=2.0, **more):
    """A model timed here at so many operations a second, at four characters a token."""
    model = opt(size)
    forward = operations_a_token(model) / pace / 4
    here = {"processor": processor(), "cores": os.cpu_count()}
    gradients = gradient and gradient * forward
    return rates.Timed(model.name, model.config, precision, forward, gradients, **here | more)


def scaled(monkeypatch, known, size, device=CPU_HERE):
    monkeypatch.setattr(observed_timings, "timed_passes", lambda store: iter(known))
    return scaled_timing(None, opt(size), "bf16", device)


@pytest.mark.parametrize("size", LAYERS_HEADS_WIDTH)
def test_a_time_is_scaled_by_operations_from_the_nearest_model(size, monkeypatch):
    known = [timed("125m", pace=2e11), timed("66b", pace=1e12), timed("66b", "int8", pace=9e12)]
    found, model = scaled(monkeypatch, known, size), opt(size)
    near, pace = ("125m", 2e11) if size in ("125m", "350m", "1.3b") else ("66b", 1e12)
    assert f"opt-{near} in bf16" in found.source
    expected = operations_a_token(model) / pace / 4
    assert found.seconds({"forward": 1000}) == pytest.approx(1000 * expected)
    assert found.seconds({"forward": 10, "gradient": 5}) == pytest.approx(20 * expected)


def test_gradients_that_were_not_timed_take_a_usual_multiple(monkeypatch):
    found = scaled(monkeypatch, [timed("1.3b", gradient=None)], "1.3b")
    assert found.s_a_character["gradient"] == rates.FACTOR["gradient"] * found.s_a_character["forward"]


def test_a_timing_counts_on_devices_like_its_own_alone(monkeypatch):
    elsewhere, on_gpu = timed("1.3b", cores=999), timed("1.3b", gpu="NVIDIA L4")
    assert scaled(monkeypatch, [elsewhere, on_gpu], "1.3b") is None
    assert "NVIDIA L4" in scaled(monkeypatch, [elsewhere, on_gpu], "1.3b", machine_of("L4").device).source
    assert scaled(monkeypatch, [elsewhere, on_gpu], "1.3b", machine_of("T4").device) is None
    assert scaled(monkeypatch, [timed("1.3b")], "1.3b", Device("24GB", 24 * 10**9)) is None


def test_what_was_evaluated_here_is_known_with_its_shape(session, tiny_opt, tmp_path):
    target = target_in(session, tiny_opt, "fp32")
    last(
        evaluation(target, questions_in(write_questions(tmp_path / "some.jsonl")), Mask.full(target.shape)).run(session)
    )
    [found] = rates.timed_passes(session.store)
    assert shape_of(found.config) == target.shape and found.n_params == target.identity.n_params
    assert found.precision == "fp32" and found.is_on(CPU_HERE) and found.gradient_s_a_character is None
    assert rates.seconds_for(session.store, target, "forward", 1000) == pytest.approx(1000 * found.s_a_character)


def test_the_study_is_the_cells_that_a_plan_of_it_has(session):
    names, shots = ("demo_sort", "demo_copy", "demo_cloze"), (0, 1)
    tasks = [TaskSpec(name, count) for name in names for count in shots]
    setting = StudySettings(LoadSpec("demo", "fp32"), n_questions=4, n_ranking=4)
    wanted = [point for points in paper_points(tasks).values() for point in points]
    cells = planned(session, setting, wanted, pool_of(names), {"heads": tasks, "ffns": tasks}).plan.cells
    shape = read_model_config("demo").shape
    judged, ranked = ({task: of(task, session.store) for task in tasks} for of in (setting.judged, setting.ranked))
    parts = study_parts(shape, judged, ranked)
    scores = Counter(cell.scores for cell in cells if cell.scores)
    assert [each.n_cells for each in parts.values()] == [scores["heads"], scores["ffns"], len(cells) - scores.total()]
    found = Counter(study_points(shape, tasks))
    assert found == Counter(cell.points for cell in cells if cell.points) and set(found.values()) == {1}
    by_plan = sum(cell.characters for cell in cells if cell.points)
    told = parts["accuracies"].work.characters
    assert told["forward"] + rates.FACTOR["gradient"] * told["gradient"] == pytest.approx(by_plan)
    assert parts["importance of heads"].work.characters["gradient"] == pytest.approx(
        sum(all_characters(each, gradients=True, every_choice=False) for each in ranked.values())
    )
