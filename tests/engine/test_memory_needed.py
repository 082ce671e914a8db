"""What a load needs is said before it begins, and against what this process may really use."""

import json
from types import SimpleNamespace

import psutil
import pytest

from engine.architecture.family import is_tied
from engine.checkpoints.identity import identify_folder
from engine.models.loading import LoadSpec, load
from engine.placement import devices
from engine.placement.devices import LIBRARY_BYTES, free_bytes, left_in_container
from tests.engine.fixtures import STOCK, TINY, bare, family_folder, in_turns, python

GB = 10**9
V2 = "0::/user.slice/job\n"
V1 = "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n1:name=systemd:/docker/abc\n"


def made(root, groups, of_process):
    """A root with those control group files, and what /proc says of this process."""
    files = {"proc/self/cgroup": of_process, **{f"sys/fs/cgroup/{name}": text for name, text in groups.items()}}
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    return root


@pytest.mark.parametrize(
    "of_process, groups, left",
    [
        (V2, {"user.slice/job/memory.max": 4 * GB, "user.slice/job/memory.current": GB}, 3 * GB),
        (V2, {"user.slice/job/memory.max": "max", "user.slice/job/memory.current": GB}, None),
        (V2, {"user.slice/job/memory.max": "max", "user.slice/job/memory.high": 2 * GB,
              "user.slice/job/memory.current": GB}, GB),
        (V2, {"user.slice/job/memory.max": 4 * GB, "user.slice/job/memory.current": 3 * GB,
              "user.slice/job/memory.stat": f"anon {GB}\ninactive_file {2 * GB}"}, 3 * GB),
        (V2, {"user.slice/memory.max": 2 * GB, "user.slice/memory.current": GB,  # the parent's is the tighter one
              "user.slice/job/memory.max": 9 * GB, "user.slice/job/memory.current": GB}, GB),
        (V2, {"memory.max": 2 * GB, "memory.current": GB}, GB),  # a container that sees its own group as the topmost
        (V2, {"user.slice/job/memory.max": GB, "user.slice/job/memory.current": 2 * GB}, 0),
        (V1, {"memory/docker/abc/memory.limit_in_bytes": 4 * GB, "memory/docker/abc/memory.usage_in_bytes": 3 * GB,
              "memory/docker/abc/memory.stat": f"inactive_file 1\ntotal_inactive_file {GB}"}, 2 * GB),
        (V1, {"memory/memory.limit_in_bytes": 4 * GB, "memory/memory.usage_in_bytes": GB}, 3 * GB),
        ("5:cpu:/docker/abc\n", {"memory/memory.limit_in_bytes": 4 * GB, "memory/memory.usage_in_bytes": GB}, None),
        ("no such thing", {}, None),
    ],
)  # fmt: skip
def test_a_container_leaves_what_its_limit_leaves(of_process, groups, left, tmp_path):
    assert left_in_container(made(tmp_path, groups, of_process)) == left


def test_without_control_groups_nothing_is_limited(tmp_path):
    assert left_in_container(tmp_path) is None


def test_a_containers_limit_counts_where_it_is_tighter_than_the_machine(monkeypatch):
    monkeypatch.setattr(devices, "device_class", lambda: "cpu")
    for left in (GB // 100, None, 10**18):
        monkeypatch.setattr(devices, "left_in_container", lambda left=left: left)
        at_most = psutil.virtual_memory().available if left is None else left
        assert free_bytes() <= at_most + LIBRARY_BYTES + GB // 2
    assert free_bytes() < psutil.virtual_memory().total + LIBRARY_BYTES


def test_mapped_files_of_libraries_are_not_free_twice(monkeypatch):
    """In a container of 0.5 GB, 0.35 of it held, the libraries' file pages were added to what is free."""
    held = SimpleNamespace(rss=600_000_000, shared=400_000_000)
    monkeypatch.setattr(psutil.Process, "memory_info", lambda process: held)
    monkeypatch.setattr(devices, "left_in_container", lambda: 150_000_000)
    assert devices.main_memory_bytes() == 350_000_000
    held.rss += GB
    assert devices.main_memory_bytes() == 150_000_000 + LIBRARY_BYTES


EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight")
OPT_SIZES = {  # layers, heads, width, FFN, width of the embedding, as published
    "350m": (24, 16, 1024, 4096, 512), "66b": (64, 72, 9216, 36864, 9216),
}  # fmt: skip


def on_meta(name):
    """The model of that name without values; the four families' tiny ones too."""
    import torch
    import transformers as t

    if name in OPT_SIZES:
        layers, heads, width, ffn, embedding = OPT_SIZES[name]
        config = t.OPTConfig(num_hidden_layers=layers, num_attention_heads=heads, hidden_size=width, ffn_dim=ffn,
                             word_embed_proj_dim=embedding, vocab_size=50272, max_position_embeddings=2048,
                             do_layer_norm_before=name != "350m")  # fmt: skip
    else:
        kinds = {"llama": t.LlamaConfig, "gpt2": t.GPT2Config, "gpt_neox": t.GPTNeoXConfig}
        more = {"llama": {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
                          "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 128256,
                          "max_position_embeddings": 8192},
                "gpt_neox": {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12,
                             "num_hidden_layers": 12, "vocab_size": 50304}}  # fmt: skip
        config = kinds[name.split()[0]](**more.get(name.split()[0], {}), tie_word_embeddings=name.endswith("tied"))
    with torch.device("meta"):
        return t.AutoModelForCausalLM.from_config(config)


def written(model, folder, tiny_opt, dtype="F16", with_head=False):
    """A folder with that model's config and a weight file of true shapes whose values are a hole on the disk."""
    import shutil
    import struct

    shutil.copy(tiny_opt / "tokenizer.json", folder)
    model.config.save_pretrained(folder)
    header, at, size = {}, 0, {"F16": 2, "F32": 4}[dtype]
    for name, value in model.state_dict().items():
        if with_head or name != "lm_head.weight" or not model.config.tie_word_embeddings:
            n_bytes = value.numel() * size
            header[name] = {"dtype": dtype, "shape": list(value.shape), "data_offsets": [at, at + n_bytes]}
            at += n_bytes
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)
    return identify_folder("someone/model", folder, "a commit")


@pytest.mark.parametrize("name", [*OPT_SIZES, "llama", "llama tied", "gpt2 tied", "gpt_neox"])
@pytest.mark.parametrize("dtype, with_head", [("F16", False), ("F32", True)])
def test_parameters_and_bytes_are_those_that_transformers_has(name, dtype, with_head, tiny_opt, tmp_path):
    import torch
    from transformers.pytorch_utils import Conv1D

    model = on_meta(name)
    identity = written(model, tmp_path, tiny_opt, dtype, with_head)
    n_params = model.num_parameters()
    assert identity.n_params == n_params, "within 1% was asked"
    assert identity.model_config.parts.n_params == identity.n_params
    for precision, size in (("fp32", 4), ("bf16", 2)):
        assert identity.weight_bytes(precision) == size * n_params
    held_as = model.get_input_embeddings().weight.numel() * {"F16": 2, "F32": 4}[dtype]
    assert identity.largest_bytes >= held_as and identity.model_config.loading_bytes("int8") == identity.largest_bytes
    assert identity.model_config.loading_bytes("fp32") == (0 if dtype == "F32" else identity.largest_bytes)
    linear = [each for each in model.modules() if isinstance(each, (torch.nn.Linear, Conv1D))]
    quantized = sum(each.weight.numel() for each in linear if each is not model.get_output_embeddings())
    layers = [each for each in linear if each is not model.get_output_embeddings()]
    scales = 4 * sum(each.weight.shape[isinstance(each, Conv1D)] for each in layers)
    assert identity.weight_bytes("int8") == 2 * n_params - quantized + scales


@pytest.mark.parametrize("kind", sorted({TINY[name] for name in STOCK}))
def test_a_config_that_does_not_say_whether_it_is_tied(kind):
    from transformers import CONFIG_MAPPING

    assert is_tied({"model_type": kind}) == CONFIG_MAPPING[kind]().tie_word_embeddings
    assert is_tied({"model_type": kind, "tie_word_embeddings": True})
    assert not is_tied({"model_type": kind, "tie_word_embeddings": False})


@pytest.mark.thorough
@pytest.mark.parametrize("family, is_old", in_turns(STOCK, [True, False]))
def test_a_bin_file_is_counted_by_its_tensors(family, is_old, tiny_opt, tmp_path):
    """With the unembedding and the buffers of older files in it, whatever its values take."""
    import torch
    from safetensors.torch import load_file

    plain = family_folder(family, tiny_opt, tmp_path / "plain")
    folder = bare(plain, tmp_path / "bin")
    state = {name: value.float() for name, value in load_file(plain / "model.safetensors").items()}
    for name in list(state):
        if name.endswith("attn.c_attn.weight"):
            state[name.replace("c_attn.weight", "bias")] = torch.ones(1, 1, 256, 256, dtype=torch.uint8)
            state[name.replace("c_attn.weight", "masked_bias")] = torch.tensor(-1e4)
        if name.endswith(".attention.dense.weight"):
            state[name.replace("dense.weight", "bias")] = torch.ones(1, 1, 256, 256, dtype=torch.bool)
            state[name.replace("dense.weight", "rotary_emb.inv_freq")] = torch.ones(4)
    if is_tied(json.loads((plain / "config.json").read_text())):
        embedding = next(name for name in state if name.endswith(EMBEDDINGS))
        state["lm_head.weight"] = state[embedding]
    if family == "gpt2":  # as it lies on the hub
        state = {name.removeprefix("transformer."): value for name, value in state.items()}
    torch.save(state, folder / "pytorch_model.bin", _use_new_zipfile_serialization=not is_old)
    identity, expected = (identify_folder("a model", each, "a commit") for each in (folder, plain))
    assert identity.n_params == expected.n_params
    at_once = (folder / "pytorch_model.bin").stat().st_size if is_old else expected.largest_bytes
    assert identity.largest_bytes == at_once
    model = load(LoadSpec(str(folder), "fp32")).model
    assert identity.n_params == model.num_parameters()
    tokens = torch.tensor([[2, 40, 41]])
    assert torch.equal(model(tokens).logits, load(LoadSpec(str(plain), "fp32")).model(tokens).logits)


def test_a_models_files_are_read_without_torch(tiny_opt, tmp_path):
    import torch
    from safetensors.torch import load_file

    folder = bare(tiny_opt, tmp_path / "bin")
    torch.save(load_file(tiny_opt / "model.safetensors"), folder / "pytorch_model.bin")
    code = "import sys\nfrom engine.models.loading import LoadSpec, identify\n"
    code += "print(identify(LoadSpec(sys.argv[1])).n_params, 'torch' in sys.modules)"
    assert python(code, folder).split() == [str(identify_folder("m", tiny_opt, None).n_params), "False"]
