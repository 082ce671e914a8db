"""What a model would take, reckoned from its shape alone: the counts are those of real models and real passes."""

import os
from collections import Counter
from contextlib import contextmanager
from dataclasses import astuple, replace
from functools import partial

import pytest

from engine.accuracy.evaluation import evaluation
from engine.accuracy.passes import hidden_states
from engine.accuracy.scoring import read_rows
from engine.architecture.family import shape_of
from engine.architecture.opt_sizes import LAYERS_HEADS_WIDTH, opt_config, opt_parts
from engine.checkpoints.model_config import ModelConfig, read_model_config
from engine.errors import UsageError
from engine.importance import gradients
from engine.importance.gradients import gate_gradients
from engine.kernels.kernel_choice import processor
from engine.models.loading import LoadSpec
from engine.models.masks import Mask
from engine.placement.allotment import DISK, MAIN, NOWHERE, Passes, allotted
from engine.placement.hardware import GPUS, Device, Machine, known_gpu, machine_of
from engine.placement.memory_needed import LIBRARY_BYTES, WORKSPACE_BYTES, needed_bytes
from engine.placement.pass_memory import TokenCounts, kept_bytes
from engine.plans import forecast as forecasts
from engine.plans.forecast import study_points, study_work
from engine.plans.planning import planned
from engine.questions.encoding import batches, encode_questions, joined, pack
from engine.questions.lengths import SHOTS, known_tasks, lengths_of, measured_lengths, reading_of
from engine.questions.requests import TaskSpec
from engine.questions.tasks import HARNESS_TASKS, embedded_tasks
from engine.studies.study import paper_points, pool_of
from engine.studies.surveys import StudySettings
from engine.timing import observed_timings as rates
from engine.timing import throughput as paces
from engine.timing.operations import forward, gradient
from engine.timing.throughput import Typical, throughput_of
from tests.benchmarks.measure import SHARED
from tests.engine.fixtures import FAMILIES, STOCK, UNTIED, last, loaded, questions_in, target_in, write_questions
from tests.write_lengths import lengths_here, opt_tokenizer

CPU_HERE = Device("cpu", 10**10)
PRECISIONS = ("fp32", "bf16", "int8")
PASSES = Passes(TokenCounts(2048, 2048 * 500, 2048), TokenCounts(500, 500 * 500, 500))


def outline_in(folder) -> ModelConfig:
    return read_model_config(str(folder))


@pytest.mark.parametrize("size", LAYERS_HEADS_WIDTH)
def test_published_shapes_are_those_that_transformers_counts(size):
    import torch
    import transformers as t

    config = dict(opt_config(size))
    with torch.device("meta"):
        model = t.OPTForCausalLM(t.OPTConfig(**config))
    parts, decoder = opt_parts(size), model.model.decoder
    assert parts.n_params == model.num_parameters()
    assert {sum(p.numel() for p in layer.parameters()) for layer in decoder.layers} == {parts.layer.n_params}
    linear = [m for m in model.modules() if isinstance(m, torch.nn.Linear) and m is not model.get_output_embeddings()]
    assert parts.n_quantised == sum(module.weight.numel() for module in linear)
    n_outputs = parts.n_layers * parts.layer.n_outputs + parts.embeddings.n_outputs + parts.end.n_outputs
    assert n_outputs == sum(module.out_features for module in linear)
    assert read_model_config(f"facebook/opt-{size}").shape == shape_of(t.OPTConfig(**config).to_dict())
    millions = float(size[:-1]) * (1000 if size.endswith("b") else 1)
    assert parts.n_params / 1e6 == pytest.approx(millions, rel=0.06), "as it is called"


def held_bytes(model) -> int:
    """Bytes of a model in memory: parameters, buffers, and the scales beside its int8 matrices."""
    held = {each.data_ptr(): each.numel() * each.element_size() for each in (*model.parameters(), *model.buffers())}
    for module in model.modules():
        if type(module).__name__ in ("Linear8bitLt", "Int8Linear"):
            scales = module.weight.SCB if module.weight.SCB is not None else module.state.SCB
            held[scales.data_ptr()] = scales.numel() * scales.element_size()
    return sum(held.values())


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("family", [*FAMILIES, UNTIED])
def test_bytes_are_those_that_a_loaded_model_holds(family, precision, folder_of, model_of):
    model, parts = model_of(family, precision).model, outline_in(folder_of(family)).parts
    buffers = sum(each.numel() * each.element_size() for each in model.buffers())
    assert parts.n_bytes(precision) == held_bytes(model) - buffers
    layers = [held_bytes(layer) for layer in model_of(family, precision).family.layer_list(model)]
    own = parts.layer.n_bytes(precision)
    assert all(own <= held <= own + buffers for held in layers)


def counted(run) -> int:
    """The operations of products that torch itself counts; attention on a CPU by its formula for that on a GPU."""
    import torch
    from torch.utils import flop_counter as counting

    def by(formula):
        counts = partial(formula)
        counts._get_raw = True  # it takes tensors, as torch's own registered formulas do
        return counts

    aten = torch.ops.aten
    attention = {
        aten._scaled_dot_product_flash_attention_for_cpu: by(counting.sdpa_flop),
        aten._scaled_dot_product_flash_attention_for_cpu_backward: by(counting.sdpa_backward_flop),
    }
    with counting.FlopCounterMode(display=False, custom_mapping=attention) as counter:
        run()
    return counter.get_total_flops()


@pytest.fixture(scope="module")
def rows_of(model_of, tmp_path_factory):
    """A function that gives the rows of eight questions, longest first as they are grouped."""
    file = write_questions(tmp_path_factory.mktemp("questions") / "some.jsonl", 8)

    def rows(family):
        loaded = model_of(family)
        encoded = encode_questions(questions_in(file).at(range(8)), loaded.tokenizer, True, 256)
        return [row for choices in encoded for row in pack(choices)]

    return rows


@pytest.mark.parametrize("family", [*STOCK, UNTIED])
def test_operations_of_a_pass_are_those_that_torch_counts(family, folder_of, model_of, rows_of):
    model, groups = model_of(family), batches(rows_of(family))
    rows = [row for group in groups for row in group]
    found = counted(lambda: read_rows(model, rows, hidden_states(model, groups)))
    assert forward(outline_in(folder_of(family)), reading_of(rows)).total == pytest.approx(found, rel=0.01)


def golds(rows):
    """Rows of the first choice alone, as gradient passes read them."""
    return [row for each in rows for row in pack(each.choices[:1])]


# torch's counter does not follow the gradients of GPT-NeoX's layers
@pytest.mark.parametrize("family", [family for family in STOCK if family != "gpt_neox"])
def test_operations_of_a_gradient_pass_are_those_that_torch_counts(family, folder_of, model_of, rows_of):
    rows = golds(batches(rows_of(family))[0])
    found = counted(lambda: gate_gradients(model_of(family), rows))
    assert gradient(outline_in(folder_of(family)), reading_of(rows)).total == pytest.approx(found, rel=0.01)


def with_layers(n_layers, folder, to):
    """That model with so many layers, of random weights."""
    import shutil

    import transformers as t

    config = t.AutoConfig.from_pretrained(folder, num_hidden_layers=n_layers)
    t.AutoModelForCausalLM.from_config(config).save_pretrained(to)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder / name, to)
    return to


def kept_for_gradients(of_model, rows, monkeypatch) -> int:
    """Bytes that a gradient pass keeps beside the weights: what torch saves, and the branches whose gradients are asked
    for."""
    import torch

    weights = {each.untyped_storage().data_ptr() for each in of_model.model.parameters()}
    kept = []  # tensors, so that none's memory serves another

    def keep(tensor):
        kept.append(tensor)
        return tensor

    watched = gradients._watched

    @contextmanager
    def seen(loaded):
        with watched(loaded) as branches:
            yield branches
            kept.extend(branches)

    with monkeypatch.context() as patch, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        patch.setattr(gradients, "_watched", seen)
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
    expected = 3 * kept_bytes(outline_in(folder), precision, reading_of(rows), on_cpu=True)
    assert expected == pytest.approx(kept[5] - kept[2], rel=0.1)


def machines():
    """Names that `--gpus` takes, and a few devices that are too small for some models."""
    return [Machine(n, Device(f"{gb}GB", int(gb * 1e9))) for n in (1, 2, 3, 8) for gb in (2, 6, 24, 80)]


@pytest.mark.parametrize("size", ["125m", "350m", "6.7b", "66b"])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("main_memory", [0, 20 * 10**9, 10**12])
def test_every_layer_lies_somewhere_once(size, precision, main_memory):
    model = read_model_config(f"facebook/opt-{size}")
    for machine in machines():
        found = allotted(model, precision, machine, PASSES, main_memory)
        placed = [layer for share in found.shares for layer in range(share.first, share.stop)]
        assert placed == list(range(model.shape.n_layers)), machine
        on_gpus = [share for share in found.shares if share.device.startswith("GPU")]
        others = {share.device: share.n_bytes["weights"] for share in found.shares if share not in on_gpus}
        assert len(on_gpus) == found.n_used <= machine.n and found.fits == (not others)
        assert (found.from_main, found.from_disk) == (others.get(MAIN, 0), others.get(DISK, 0))
        assert (NOWHERE in others) == (precision == "int8" and not found.fits)
        assert sum(share.n_bytes["weights"] for share in found.shares) == model.parts.n_bytes(precision)
        if found.runs:
            assert all(share.total <= machine.device.n_bytes for share in on_gpus)
            assert found.from_main <= max(0, main_memory - LIBRARY_BYTES)


def test_as_few_gpus_as_will_do_and_as_evenly_as_layers_allow():
    model, gpu = read_model_config("facebook/opt-66b"), GPUS["A100-80GB"]
    found = allotted(model, "int8", Machine(8, gpu), PASSES)
    assert found.n_used == found.n_needed == 2
    [first, second] = found.shares
    layer = sum(second.n_bytes[name] for name in ("weights", "smaller weights", "gradients")) / second.n_layers
    assert abs(first.total - second.total) <= layer
    assert found.place == f"gpu0:{first.n_layers},gpu1:{second.n_layers}"
    one = allotted(model, "bf16", Machine(1, gpu), PASSES, 10**12)
    assert one.runs and not one.fits and one.from_main > 0 == one.from_disk
    assert one.place == f"gpu0:{one.shares[0].n_layers},cpu:{one.shares[1].n_layers}"


def test_no_number_of_gpus_is_enough_where_one_is_too_small():
    found = allotted(read_model_config("facebook/opt-66b"), "fp32", Machine(8, Device("2GB", 2 * 10**9)), PASSES)
    assert found.n_needed is None and not found.fits and not found.runs and found.from_disk > 0


def test_memory_on_this_computer_is_what_a_load_is_refused_by(tiny_opt, session):
    """Beside what gradients keep, and however questions are batched."""
    identity = target_in(session, tiny_opt, "int8").identity
    machine = Machine(1, Device("cpu", 10**10))
    [share] = allotted(outline_in(tiny_opt), "int8", machine, PASSES, 0).shares
    told = needed_bytes(identity, "int8")
    parts = share.n_bytes
    assert parts["workspace"] == WORKSPACE_BYTES and parts["libraries"] == LIBRARY_BYTES
    scales = parts["weights"] - identity.weight_bytes("int8")
    assert share.total - parts["gradients"] - scales == told


@pytest.mark.parametrize(
    "typed, n, name",
    [("2xA100-80GB", 2, "A100-80GB"), ("A100-80GB", 1, "A100-80GB"), (" 8 x h100 80gb", 8, "H100-80GB"),
     ("L4", 1, "L4-24GB"), ("4xRTX 4090", 4, "RTX4090-24GB"), ("2x80GB", 2, "80GB"), ("CPU", 1, "cpu")],
)  # fmt: skip
def test_gpus_as_they_are_typed(typed, n, name):
    found = machine_of(typed)
    assert (found.n, found.device.name) == (n, name)
    assert found.device.name not in GPUS or found.device == GPUS[found.device.name]


@pytest.mark.parametrize("typed", ["", "A100", "2x", "x", "0xL4", "9999xL4", "-x1", "0GB", "2xcpu", "1e3xL4", "é"])
def test_what_names_no_gpus_is_refused_in_a_line(typed):
    with pytest.raises(UsageError, match="--gpus is") as told:
        machine_of(typed)
    assert "\n" not in str(told.value)


def test_every_gpu_is_known_by_its_name_and_by_what_its_driver_calls_it():
    assert {name: machine_of(f"3x{name}").device for name in GPUS} == GPUS
    drivers = {"NVIDIA A100-SXM4-80GB": "A100-80GB", "NVIDIA A100-PCIE-40GB": "A100-40GB", "Tesla T4": "T4-16GB",
               "NVIDIA H100 80GB HBM3": "H100-80GB", "NVIDIA H200": "H200-141GB", "NVIDIA L40S": "L40S-48GB",
               "NVIDIA GeForce RTX 4090": "RTX4090-24GB", "Tesla V100-SXM2-32GB": "V100-32GB",
               "NVIDIA RTX A6000": "A6000-48GB", "NVIDIA A10G": None, "Quadro P400": None}  # fmt: skip
    assert {told: known_gpu(told) for told in drivers} == drivers
    for gpu in GPUS.values():  # no chip is slower in fewer bits, but those that lack them
        assert gpu.n_bytes and gpu.peaks["fp32"] <= gpu.peaks["bf16"]
        assert gpu.peaks["int8"] == 0 or gpu.peaks["bf16"] < gpu.peaks["int8"]


PLACE = Typical(partial(forward, reading=TokenCounts(1000, 200_000, 60)), 4200.0,
                partial(gradient, reading=TokenCounts(300, 70_000, 9)), 2500.0)  # fmt: skip


def taken(model, operations_a_second, values_a_second):
    """(seconds a character, seconds a character of gradients) of a processor of that pace."""
    did, back = PLACE.forward(model), PLACE.back(model)
    return tuple((of.total / operations_a_second + (of.values + of.back_values) / values_a_second) / n
                 for of, n in ((did, PLACE.characters), (back, PLACE.characters_back)))  # fmt: skip


def timed(size, precision="bf16", gradients=True, pace=(7e11, 5e8), **more):
    model = read_model_config(f"facebook/opt-{size}")
    forth, back = taken(model, *pace)
    here = {"processor": processor(), "cores": os.cpu_count()}
    return rates.Timed(model.name, model.config, precision, forth, back if gradients else None, **here | more)


def pace_by(monkeypatch, known, size, device=CPU_HERE):
    monkeypatch.setattr(paces, "timed_passes", lambda store: iter(known))
    return throughput_of(None, device, read_model_config(f"facebook/opt-{size}"), "bf16", PLACE)


@pytest.mark.parametrize("size", LAYERS_HEADS_WIDTH)
def test_two_widths_that_were_timed_give_the_time_of_any_other(size, monkeypatch):
    found = pace_by(monkeypatch, [timed("125m"), timed("1.3b"), timed("66b", "int8", pace=(1e12, 1e9))], size)
    model = read_model_config(f"facebook/opt-{size}")
    assert found.is_measured
    for seconds, of, n in zip(taken(model, 7e11, 5e8), (PLACE.forward(model), PLACE.back(model)),
                              (PLACE.characters, PLACE.characters_back), strict=True):  # fmt: skip
        assert found.seconds(of) == pytest.approx(seconds * n)


def test_one_that_was_timed_gives_itself_and_the_nearest_of_several_counts(monkeypatch):
    for known in ([timed("1.3b")], [timed("1.3b", gradients=False)], [timed("1.3b"), timed("13b", pace=(1e13, 1e9))]):
        found, model = pace_by(monkeypatch, known, "1.3b"), read_model_config("facebook/opt-1.3b")
        assert found.seconds(PLACE.forward(model)) == pytest.approx(known[0].s_a_character * PLACE.characters)
        assert "opt-1.3b" in found.said


def test_int8_makes_16_bits_of_the_weights_that_gradients_pass_through_once_a_pass(monkeypatch):
    model = read_model_config("facebook/opt-1.3b")
    one, three = (gradient(model, TokenCounts(600, 120_000, 9), passes) for passes in (1, 3))
    assert one.remade == 24 * 12 * 2048**2 - 3 * 2048**2, "not what makes the first layer's queries, keys, values"
    assert three == replace(one, remade=3 * one.remade)
    in_16 = pace_by(monkeypatch, [timed("125m")], "1.3b")
    assert in_16.seconds(three) == in_16.seconds(one)
    monkeypatch.setattr(paces, "timed_passes", lambda store: iter([timed("1.3b", "int8")]))
    known = timed("1.3b", "int8").gradient_s_a_character * PLACE.characters_back
    for device in (CPU_HERE, GPUS["A100-80GB"]):
        found = throughput_of(None, device, model, "int8", PLACE)
        longer = found.seconds(three) - found.seconds(one)
        assert longer == pytest.approx(2 * one.remade * paces.REMADE / found.back_values) and longer > 0
        assert not found.is_measured or found.seconds(PLACE.back(model)) == pytest.approx(known)


def test_a_rate_counts_on_devices_like_its_own_alone(monkeypatch):
    elsewhere, on_gpu = timed("1.3b", cores=999), timed("1.3b", gpu="NVIDIA L4")
    assert pace_by(monkeypatch, [elsewhere, on_gpu], "1.3b") is None
    assert pace_by(monkeypatch, [elsewhere, on_gpu], "1.3b", GPUS["L4-24GB"]).is_measured
    assumed = pace_by(monkeypatch, [elsewhere, on_gpu], "1.3b", GPUS["T4-16GB"])
    assert not assumed.is_measured and assumed.said.startswith("assumed: ")
    assert pace_by(monkeypatch, [timed("1.3b")], "1.3b", Device("24GB", 24 * 10**9)) is None


def test_weights_bound_passes_over_few_tokens(monkeypatch):
    found, model = pace_by(monkeypatch, [], "13b", GPUS["A100-80GB"]), read_model_config("facebook/opt-13b")
    few, many = (forward(model, TokenCounts(n, n, 1)) for n in (1, 10_000))
    weights = model.parts.n_bytes("bf16")
    assert found.seconds(few, weights) == pytest.approx(weights / (2039e9 * paces.UTILISED["memory"]))
    assert found.seconds(many, weights) == found.seconds(many) > many.total / 312e12


def test_what_was_evaluated_here_is_known_with_its_shape(session, tiny_opt, tmp_path):
    target = target_in(session, tiny_opt, "fp32")
    last(
        evaluation(target, questions_in(write_questions(tmp_path / "some.jsonl")), Mask.full(target.shape)).run(session)
    )
    [found] = rates.timed_passes(session.store)
    assert shape_of(found.config) == target.shape and found.n_params == target.identity.n_params
    assert found.precision == "fp32" and found.is_on(CPU_HERE) and found.gradient_s_a_character is None
    assert rates.seconds_for(session.store, target, "forward", 1000) == pytest.approx(1000 * found.s_a_character)


def test_the_table_of_lengths_has_every_task_of_the_harness():
    assert {*HARNESS_TASKS, *embedded_tasks()} == set(known_tasks())
    for task in known_tasks():
        few, one, many = (lengths_of(TaskSpec(task, shots)) for shots in SHOTS)
        assert few.tokens < one.tokens < many.tokens <= many.padded
        for each in (few, one, many):
            assert each.gold_tokens <= each.tokens * 1.001 and each.gold_places <= each.places * 1.001
            assert each.passes <= each.groups and 2 < each.characters / each.tokens < 7
        between = lengths_of(TaskSpec(task, 3))
        assert between.tokens == pytest.approx((one.tokens + many.tokens) / 2)
    with pytest.raises(UsageError, match="'mine.jsonl' are is not known"):
        lengths_of(TaskSpec("mine.jsonl"))


def test_lengths_are_those_of_the_rows_that_passes_read(model_of, tmp_path):
    file = write_questions(tmp_path / "some.jsonl", 40)
    questions = questions_in(file, limit=40)
    some = questions.at(questions.order[:40])
    encoded = encode_questions(some, model_of("opt").tokenizer, True, 256)
    found = measured_lengths(encoded, [question.golds[0] for question in some], 4000)
    rows = [pack(choices) for choices in encoded]
    assert found.characters == 100
    assert found.tokens == pytest.approx(sum(len(row.tokens) for each in rows for row in each) / 40)
    assert found.longest == max(len(row.tokens) for each in rows for row in each)
    rights = [choices[question.golds[0]] for choices, question in zip(encoded, some, strict=True)]
    assert found.gold_tokens == pytest.approx(sum(len(right.inputs) for right in rights) / 40)
    assert found.gold_pairs == pytest.approx(sum(len(right.inputs) ** 2 for right in rights) / 40)
    assert found.gold_places == pytest.approx(sum(len(right.targets) for right in rights) / 40)
    groups = [batches([row for each in rows[at : at + 16] for row in each]) for at in (0, 16, 32)]
    assert found.groups == sum(map(len, groups)) / 40 and found.passes == sum(len(joined(g)) for g in groups) / 40


@pytest.mark.skipif(not (SHARED / "opt-tokenizer").is_dir(), reason="needs OPT's own tokenizer")
@pytest.mark.parametrize("name", ["demo_copy", "demo_cloze"])
def test_the_table_of_lengths_is_what_is_measured(name):
    for shots in SHOTS:
        task = TaskSpec(name, shots)
        assert astuple(lengths_here(task, opt_tokenizer())) == pytest.approx(astuple(lengths_of(task)), rel=1e-3)


def test_the_study_is_the_cells_that_a_plan_of_it_has(session):
    names, shots = ("demo_sort", "demo_copy", "demo_cloze"), (0, 1)
    tasks = [TaskSpec(name, count) for name in names for count in shots]
    setting = StudySettings(LoadSpec("demo", "fp32"), n_questions=4, n_ranking=4)
    wanted = [point for points in paper_points(tasks).values() for point in points]
    cells = planned(session, setting, wanted, pool_of(names), {"heads": tasks, "ffns": tasks}).plan.cells
    model = read_model_config("demo")
    work = study_work(model, tasks, 4, 4, False)
    scores = Counter(cell.scores for cell in cells if cell.scores)
    assert [each.cells for each in work.values()] == [scores["heads"], scores["ffns"], len(cells) - scores.total()]
    found = Counter(study_points(model.shape, tasks))
    assert found == Counter(cell.points for cell in cells if cell.points) and set(found.values()) == {1}
    assert study_work(model, tasks, 8, 4, False)["accuracies"].operations.total == pytest.approx(
        work["accuracies"].operations.total
        + sum(forecasts.scored(model, point.task, False, *left(point)).times(4).operations.total
              for points in found for point in points))  # fmt: skip


def left(point):
    return 1 - point.heads_permille / 1000, 1 - point.ffns_permille / 1000
