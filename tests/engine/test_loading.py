"""Models: loaded safely from their files, freed before the next one comes, and never from elsewhere."""

import gc
import platform
import shutil
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.architecture.families import FAMILIES
from engine.checkpoints.compact_checkpoint import stock_config
from engine.checkpoints.tensors import stored_tensors
from engine.demo import model_folder
from engine.models import loading
from engine.models.in_memory import Models
from engine.models.loading import LoadSpec, identify, load
from engine.models.patterns import visited
from engine.placement.placement import device_map
from tests.engine.fixtures import STOCK, TINY, bare, configured, family_folder, in_turns, python

TOKENS = torch.tensor([[2, 40, 41, 99, 300]])


def test_the_old_model_is_gone_before_the_new_one_is_loaded(tiny_opt, monkeypatch):
    models = Models()
    old = weakref.ref(models.get(LoadSpec(str(tiny_opt), "fp32")).model)
    seen = []
    real = loading.load
    monkeypatch.setattr(loading, "load", lambda *arguments: seen.append(old() is None) or real(*arguments))
    models.get(LoadSpec(str(tiny_opt), "bf16"))
    assert seen == [True]
    assert models.get(LoadSpec(str(tiny_opt), "bf16")) is models.loaded and len(seen) == 1
    models.unload()
    gc.collect()
    assert models.loaded is None


@pytest.mark.parametrize("family", STOCK)
def test_shape_and_size_are_read_from_the_files(family, tiny_opt, tmp_path):
    folder = family_folder(family, tiny_opt, tmp_path / "model")
    identity = identify(LoadSpec(str(folder)))
    model = load(LoadSpec(str(folder), "fp32")).model
    assert identity.n_params == sum(parameter.numel() for parameter in model.parameters())
    assert (identity.shape.n_layers, identity.shape.n_heads, identity.shape.d_head) == (3, 4, 8)
    n_keys = {"falcon": 1, "falcon-grouped": 2}.get(family, getattr(model.config, "num_key_value_heads", 4))
    assert identity.shape.n_key_value_heads == n_keys


@pytest.mark.parametrize("family", [name for name in STOCK if FAMILIES[TINY[name]].is_adapted])
def test_attention_is_adapted_where_accelerate_brings_layers_too(family, tiny_opt, tmp_path, monkeypatch):
    folder, real, seen = family_folder(family, tiny_opt, tmp_path / "model"), loading.load_tensors, []

    def split(placing, *given):
        places = device_map(replace(placing, layers=("cpu", "gpu0", "cpu")), *given)
        return {name: "cpu" if place == "cpu" else "disk" for name, place in places.items()}

    monkeypatch.setattr(loading, "device_map", split)
    monkeypatch.setattr(
        loading,
        "load_tensors",
        lambda *given, **options: real(*given, **options, offload_folder=str(tmp_path / "disk")),
    )
    model = load(LoadSpec(str(folder), "fp32"))
    with visited(model, lambda layer, pattern, z, values: seen.append(layer)), torch.inference_mode():
        model.model(torch.tensor([[5, 6, 7]]))
    assert seen == [0, 1, 2] and hasattr(model.family.layer_list(model.model)[1], "_hf_hook")


@pytest.mark.thorough
@pytest.mark.parametrize("family, precision", in_turns(STOCK, ["fp32", "bf16", "int8"]))
def test_weights_are_those_that_transformers_loads_by_itself(family, precision, tiny_opt, tmp_path, monkeypatch):
    from transformers.models.falcon import modeling_falcon

    from tests.benchmarks.measure import as_transformers_loads

    # transformers leaves the matrices of this class in 16 bits, whatever precision is asked for
    monkeypatch.setattr(modeling_falcon, "FalconLinear", torch.nn.Linear)

    folder = family_folder(family, tiny_opt, tmp_path / "model")
    theirs = as_transformers_loads(folder, precision).state_dict()
    for found in (folder, pickled(folder, tmp_path / "bin"), pickled(folder, tmp_path / "shards", n_files=3)):
        ours = load(LoadSpec(str(found), precision)).model.state_dict()
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours if isinstance(ours[name], torch.Tensor))


def pickled(folder: Path, to: Path, n_files: int = 1) -> Path:
    """The same model in .bin files, with the unembedding beside the embedding where it is the same tensor."""
    from transformers import AutoModelForCausalLM

    bare(folder, to)
    tensors = list(AutoModelForCausalLM.from_pretrained(folder).state_dict().items())
    names = [f"pytorch_model-{n + 1:05}-of-{n_files:05}.bin" for n in range(n_files)]
    for n, name in enumerate(names if n_files > 1 else ["pytorch_model.bin"]):
        torch.save(dict(tensors[n::n_files]), to / name)
    return to


@pytest.mark.parametrize("is_pickled", [False, True])
def test_one_tensor_is_read_at_a_time(is_pickled, tiny_opt, tmp_path, monkeypatch):
    from engine.checkpoints import tensors

    alive, most, real = [], [], tensors.finite

    def counted(name, tensor, *more):
        alive.append(weakref.ref(tensor))
        most.append(sum(each() is not None for each in alive))
        return real(name, tensor, *more)

    monkeypatch.setattr(tensors, "finite", counted)
    model = load(LoadSpec(str(pickled(tiny_opt, tmp_path / "bin") if is_pickled else tiny_opt), "int8")).model
    n_stored = len({id(each) for each in model.parameters()})
    assert len(most) == n_stored and max(most) <= 2  # the one before may be in hand until the next is there


def test_a_view_in_a_pickled_file_and_the_format_before_are_read_too(tiny_opt, tmp_path):
    plain = load(LoadSpec(str(tiny_opt), "fp32")).model
    for number, options in enumerate(({}, {"_use_new_zipfile_serialization": False})):
        folder = bare(tiny_opt, tmp_path / str(number))
        # every matrix as the transpose of what lies in the file
        state = {k: v.t().contiguous().t() if v.ndim == 2 else v for k, v in plain.state_dict().items()}
        torch.save(state, folder / "pytorch_model.bin", **options)
        assert torch.equal(load(LoadSpec(str(folder), "fp32")).model(TOKENS).logits, plain(TOKENS).logits)


def test_tensors_of_a_pickled_file_are_read_by_many_threads_at_once(tmp_path):
    state = {f"{n}.weight": torch.full((100, 100), float(n)) for n in range(64)}
    torch.save(state, tmp_path / "pytorch_model.bin")
    with stored_tensors(tmp_path, False) as found, ThreadPoolExecutor(8) as threads:
        for _ in range(20):
            read = threads.map(lambda each: each[...], found.values())
            assert all(torch.equal(each, state[name]) for name, each in zip(found, read, strict=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_pickled_files_are_counted_whatever_they_hold(dtype, tiny_opt, tmp_path):
    folder = pickled(model_folder(), tmp_path / "bin")
    state = {k: v.to(dtype) for k, v in torch.load(folder / "pytorch_model.bin", weights_only=True).items()}
    torch.save({k: v for k, v in state.items() if k != "lm_head.weight"}, folder / "pytorch_model.bin")
    counted, plain = identify(LoadSpec(str(folder))), identify(LoadSpec("demo"))
    for precision in ("int8", "bf16", "fp32"):
        assert counted.weight_bytes(precision) == pytest.approx(plain.weight_bytes(precision), rel=0.05)


def test_a_weight_file_is_digested_once_with_a_store_or_without(session, tiny_opt, tmp_path):
    from engine.checkpoints import identity as checkpoints

    folder = Path(shutil.copytree(tiny_opt, tmp_path / "model"))
    before, models = checkpoints._content_digest.cache_info().misses, Models()
    for precision in ("fp32", "bf16", "fp32"):
        models.get(LoadSpec(str(folder), precision))
    digests = {identify(LoadSpec(str(folder)), store).digest for store in (None, session.store, session.store)}
    assert checkpoints._content_digest.cache_info().misses == before + 1
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + bytes(4))
    assert identify(LoadSpec(str(folder))).digest not in digests


def test_code_in_a_model_folder_is_never_run(tiny_opt, tmp_path):
    folder = Path(shutil.copytree(tiny_opt, tmp_path / "code"))
    canary = tmp_path / "canary"
    (folder / "modeling_evil.py").write_text(f"open({str(canary)!r}, 'w').write('executed')")
    auto_map = {"AutoModelForCausalLM": "modeling_evil.Evil", "AutoConfig": "modeling_evil.EvilConfig"}
    configured(folder, auto_map=auto_map)
    load(LoadSpec(str(folder), "fp32"))
    assert not canary.exists()


@pytest.mark.parametrize("fields", [
    {"attn_implementation": "kernels-community/x"}, {"_attn_implementation": "kernels-community/x"},
    {"_attn_implementation_internal": "kernels-community/x"}, {"attn_implementation": "flash_attention_2"},
    {"attn_implementation": {"": "kernels-community/x"}}, {"attn_implementation": ["x"]},
    {"attn_implementation": "paged|eager"}, {"attn_implementation": "eager", "output_attentions": True},
    {"experts_implementation": "kernels-community/x"}, {"use_kernels": True}, {"kernel_config": {"RMSNorm": "a/b:C"}},
    {"custom_pipelines": {"text-generation": {"impl": "evil.Evil"}}}, {"base_model_tp_plan": {"x": "y"}},
    {"compression_config": {"quant_method": "x"}}, {"return_dict": False}, {"name_or_path": 3}, {"_name_or_path": [1]},
    {"is_decoder": False, "add_cross_attention": True}, {"chunk_size_feed_forward": -1}, {"license": {"a": 1}},
    {"layer_types": ["x"]}, {"text_config": {"model_type": "llama"}}, {"architectures": [7]}, {"forward": "x"},
])  # fmt: skip
def test_config_fields_that_choose_kernels_or_code_are_ignored(fields, tiny_opt, tmp_path):
    folder = configured(Path(shutil.copytree(tiny_opt, tmp_path / "model")), **fields)
    plain, loaded = load(LoadSpec(str(tiny_opt), "fp32")), load(LoadSpec(str(folder), "fp32"))
    assert torch.equal(loaded.model(TOKENS).logits, plain.model(TOKENS).logits)
    assert loaded.model.config.to_dict() == plain.model.config.to_dict()


def test_config_fields_of_a_small_export_are_limited_too():
    config = {"model_type": "pruned_opt", "num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 4,
              "vocab_size": 9, "max_position_embeddings": 8, "per_layer_config": {}, "kept_heads": [[0]],
              "attn_implementation": "kernels-community/x"}  # fmt: skip
    assert {*config} - {*stock_config(config)} == {"per_layer_config", "kept_heads", "attn_implementation"}


def test_the_embedded_model_takes_the_same_path():
    loaded = load(LoadSpec("demo", "int8"))
    assert type(loaded.model).__name__ == "OPTForCausalLM" and loaded.identity.folder == model_folder()
    assert loaded.tokenizer("a river")["input_ids"][0] == 2 and loaded.identity.default_bos
    assert sum(file.stat().st_size for file in model_folder().iterdir()) < 30_000_000


ARENAS = """
import ctypes, sys, threading
from engine.memory import bound_growth
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
if sys.argv[1] == "shared":
    bound_growth()
together = threading.Barrier(12)
threads = [threading.Thread(target=lambda: (together.wait(), libc.malloc(1000), together.wait())) for _ in range(12)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
file = ctypes.c_void_p(libc.fopen(sys.argv[2].encode(), b"w"))
libc.malloc_info(0, file), libc.fclose(file)
print(open(sys.argv[2]).read().count("<heap nr="))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="these are arenas of glibc's")
def test_all_threads_share_two_arenas(tmp_path):
    counts = [int(python(ARENAS, how, tmp_path / how)) for how in ("shared", "not shared")]
    assert counts[0] <= 2 < counts[1]
