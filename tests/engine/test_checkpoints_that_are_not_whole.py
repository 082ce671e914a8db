"""A folder that is not one whole model is refused in one line, and what lies beside a model does not count."""

import gzip
import json
import os
import shutil
import tarfile
import warnings
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.errors import HeadroomError
from engine.models.loading import LoadSpec, identify, load
from tests.engine.fixtures import bare, configured

TOKENS = torch.tensor([[2, 40, 41, 99, 300]])
BOTH = pytest.mark.parametrize("kind", [".safetensors", ".bin"])
NAMES = {".safetensors": "model.safetensors", ".bin": "pytorch_model.bin"}
FC1 = "model.decoder.layers.0.fc1.weight"


@pytest.fixture
def tensors(tiny_opt):
    return load_file(tiny_opt / "model.safetensors")


@pytest.fixture
def folder(tiny_opt, tmp_path):
    """The tiny model's folder without its weights."""
    return bare(tiny_opt, tmp_path / "model")


def save(tensors, file: Path):
    if file.suffix == ".bin":
        torch.save(tensors, file)
    else:
        save_file({name: value.contiguous() for name, value in tensors.items()}, file, {"format": "pt"})


def save_shards(tensors, folder: Path, kind: str, n_files: int = 3, index: bool = True):
    """The tensors in n files; the names of the files."""
    stem, items = NAMES[kind].removesuffix(kind), list(tensors.items())
    names = [f"{stem}-{n + 1:05}-of-{n_files:05}{kind}" for n in range(n_files)]
    for n, name in enumerate(names):
        save(dict(items[n::n_files]), folder / name)
    weight_map = {name: names[n % n_files] for n, (name, _) in enumerate(items)}
    if index:
        (folder / f"{NAMES[kind]}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return names


def refused(folder: Path, *parts: str, precisions=("fp32", "int8")):
    """Both precisions say all these parts in one line."""
    for precision in precisions:
        with pytest.raises(HeadroomError) as caught:
            load(LoadSpec(str(folder), precision))
        said = str(caught.value)
        assert "\n" not in said and "weights_only" not in said and len(said) < 500
        assert all(part in said for part in parts), said


def logits(folder: Path, precision: str = "fp32"):
    return load(LoadSpec(str(folder), precision)).model(TOKENS).logits


def changed(change):
    """The tensors with fc1's weight changed."""
    return lambda tensors: tensors | {FC1: change(tensors[FC1])}


FAULTS = [  # what the files hold, and what is said
    (lambda tensors: dict(sorted(tensors.items())[::2]), ["is missing", "(and 17 more like it)", "again"]),
    (changed(lambda value: value[1:].clone()), [FC1, "is (63, 32) and should be (64, 32)"]),
    (changed(lambda value: value.T.contiguous()), [FC1, "is (32, 64) and should be (64, 32)"]),
    (changed(lambda value: torch.full_like(value, torch.nan)), [FC1, "2,048 of 2,048 values that are not finite"]),
    (changed(lambda value: value.index_fill(0, torch.tensor([63]), torch.inf)),
     [FC1, "32 of 2,048 values that are not finite"]),
    (changed(lambda value: value.to(torch.int8)), [FC1, "of type int8"]),
    (lambda tensors: tensors | {FC1.removeprefix("model."): tensors[FC1] + 1}, [FC1, "under 2 names"]),
]  # fmt: skip


@BOTH
@pytest.mark.parametrize("change, said", FAULTS)
def test_tensors_that_are_not_those_of_the_model_are_named(kind, change, said, folder, tensors):
    save(change(tensors), folder / NAMES[kind])
    refused(folder, *said)


@BOTH
@pytest.mark.parametrize("index", [True, False])
def test_a_missing_shard_is_named_with_an_index_or_without(kind, index, folder, tensors):
    names = save_shards(tensors, folder, kind, index=index)
    (folder / names[1]).unlink()
    refused(folder, "lacks weight file", names[1], precisions=["fp32"])


@BOTH
def test_shards_that_are_whole_need_no_index(kind, folder, tensors, tiny_opt):
    save_shards(tensors, folder, kind, index=False)
    assert torch.equal(logits(folder), logits(tiny_opt))


@BOTH
def test_shards_of_two_splits_without_an_index(kind, folder, tensors):
    save_shards(tensors, folder, kind, 3, index=False)
    save_shards(tensors, folder, kind, 2, index=False)
    refused(folder, "of 2 and of 3", "index", precisions=["fp32"])


@BOTH
def test_only_what_the_index_says_counts(kind, folder, tensors, tiny_opt):
    names = save_shards(tensors, folder, kind)
    before, plain = identify(LoadSpec(str(folder))), logits(folder)
    assert torch.equal(plain, logits(tiny_opt))
    stale = {name: value + 1 for name, value in tensors.items()}
    save_shards(stale, folder, kind, 5, index=False)
    save(stale, folder / f"a_model{kind}")
    after = identify(LoadSpec(str(folder)))
    assert (after.digest, after.n_params) == (before.digest, before.n_params)
    assert torch.equal(logits(folder), plain)
    save({name: value * 2 for name, value in torch_or_safe(folder / names[0]).items()}, folder / names[0])
    assert identify(LoadSpec(str(folder))).digest != before.digest


def torch_or_safe(file: Path):
    return torch.load(file, weights_only=True) if file.suffix == ".bin" else load_file(file)


@BOTH
def test_a_shard_of_another_split_is_seen_by_what_it_holds_twice(kind, folder, tensors):
    names = save_shards(tensors, folder, kind)
    shutil.copy(folder / names[0], folder / names[1])
    refused(folder, "is in two files", names[0], names[1], precisions=["fp32"])


@pytest.mark.parametrize("weight_map, said", [
    ({}, "names no weight files"),
    ([1], "names no weight files"),
    ({"a": "../other/model.safetensors"}, "no .safetensors file of its own folder"),
    ({"a": "/etc/passwd"}, "no .safetensors file of its own folder"),
    ({"a": 3}, "no .safetensors file of its own folder"),
    ({"a": "model.safetensors\0"}, "no .safetensors file of its own folder"),
])  # fmt: skip
def test_an_index_that_names_no_files_of_its_folder(weight_map, said, folder, tensors):
    save(tensors, folder / "model.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    refused(folder, said, precisions=["fp32"])


@BOTH
@pytest.mark.parametrize("n_layers", [1, 3, 4, 10**9])
def test_a_config_with_other_layers_than_the_weights(kind, n_layers, folder, tensors):
    save(tensors, folder / NAMES[kind])
    configured(folder, num_hidden_layers=n_layers)
    refused(folder, f"config.json says {n_layers} layer", "and the weights have 2", precisions=["fp32"])


@BOTH
def test_a_config_without_room_for_a_tensor(kind, folder, tensors):
    save(tensors, folder / NAMES[kind])
    configured(folder, enable_bias=False)
    refused(folder, "no place for model.decoder.layers.0.fc1.bias (and 11 more like it)", "config.json")


@BOTH
@pytest.mark.parametrize("beside", ["an adapter", "a variant"])
def test_what_lies_beside_the_model_does_not_count(kind, beside, folder, tensors, tiny_opt):
    save(tensors, folder / NAMES[kind])
    before = identify(LoadSpec(str(folder)))
    if beside == "an adapter":
        save({"base_model.model.lora_A.weight": torch.ones(4, 4)}, folder / "adapter_model.safetensors")
        (folder / "adapter_config.json").write_text("{}")
    else:
        save({n: v.half() + 1 for n, v in tensors.items()}, folder / NAMES[kind].replace(".", ".fp16.", 1))
    assert identify(LoadSpec(str(folder))) == before
    assert torch.equal(logits(folder), logits(tiny_opt))


@pytest.mark.parametrize("name, said", [
    ("adapter_model.safetensors", "is an adapter"),
    ("model.fp16.safetensors", "is a variant: rename it model.safetensors"),
    ("model.fp16-00001-of-00002.safetensors", "rename it model-00001-of-00002.safetensors"),
    ("weights.safetensors", "rename it model.safetensors"),
    ("consolidated.safetensors", "in the format of Meta and Mistral AI: use"),
    ("bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", "zero_to_fp32.py"),
    ("__0_0.distcp", "accelerate merge-weights"),
    ("optimizer.pt", "belongs to training: save the model itself"),
    ("tf_model.h5", "another library"),
    ("below/model.safetensors", "the folder below in it has some"),
    ("notes.txt", "add them"),
])  # fmt: skip
def test_a_folder_with_something_else_than_weights_says_what_it_is(name, said, folder, tensors):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"weights of a kind")
    refused(folder, "has no weights", *([Path(name).name] if "/" not in name and "notes" not in name else []), said,
            precisions=["fp32"])  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"_use_new_zipfile_serialization": False}])
@pytest.mark.parametrize("content, said", [
    (lambda tensors: {"step": 3, "model": tensors}, "under the key 'model'"),
    (lambda tensors: list(tensors.values()), "holds a value of type list"),
    (lambda tensors: tensors[FC1], "holds one tensor"),
    (lambda tensors: {"step": 3}, "holds no t"),
    (lambda tensors: 7, "holds a"),
    (lambda tensors: {"state": {0: {"exp_avg": tensors[FC1]}}, "param_groups": []}, "the state of an optimizer"),
])  # fmt: skip
def test_a_bin_file_that_is_no_table_of_tensors(content, said, options, folder, tensors):
    torch.save(content(tensors), folder / "pytorch_model.bin", **options)
    refused(folder, *(["does not hold a table"] if options else [said]), precisions=["fp32"])


@BOTH
def test_an_empty_shard(kind, folder, tensors):
    names = save_shards(tensors, folder, kind)
    save({}, folder / names[2])
    refused(folder, names[2], "holds no tensors", precisions=["fp32"])
    (folder / names[2]).write_bytes(b"")
    refused(folder, names[2], "is empty, cut short", precisions=["fp32"])


@BOTH
def test_a_file_that_is_cut_short(kind, folder, tensors):
    file = folder / NAMES[kind]
    save(tensors, file)
    whole = file.read_bytes()
    for length in (1, 7, 100, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        refused(folder, file.name, "download", precisions=["fp32"])


def test_a_bin_file_of_before_torch_1_6_that_is_cut_short_or_holds_code(folder, tensors, tmp_path):
    file, old = folder / "pytorch_model.bin", {"_use_new_zipfile_serialization": False}
    torch.save(tensors, file, **old)
    whole = file.read_bytes()
    for length in (20, 60, 300, 3000, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        refused(folder, "cut short", "again", precisions=["fp32"])
    for options in (old, {}):
        torch.save({"a": Attack(tmp_path / "canary")}, file, **options)
        refused(folder, "more than weights", "safetensors", precisions=["fp32"])
        assert not (tmp_path / "canary").exists()


class Attack:
    def __init__(self, canary):
        self.canary = canary

    def __reduce__(self):
        return Path.write_text, (self.canary, "executed")


def test_a_bin_file_that_was_packed_anew_is_read_too(folder, tensors, tiny_opt):
    save(tensors, folder / "plain.bin")
    with (
        zipfile.ZipFile(folder / "plain.bin") as plain,
        zipfile.ZipFile(folder / "pytorch_model.bin", "w", 8) as packed,
    ):
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    assert torch.equal(logits(folder), logits(tiny_opt))


def made_tar(file):
    with tarfile.open(file, "w") as archive:
        archive.add(__file__, "pickle")


def made_torchscript(file):
    with warnings.catch_warnings(action="ignore"):  # it is deprecated
        torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), file)


def made_zip(file):
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("hello.txt", "hello")


def made_dangling(file):
    file.symlink_to("../../blobs/0123456789")


LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22\nsize 9\n"
OTHER_KINDS = [
    (lambda file: file.write_text(LFS), ["Git LFS pointer", "git lfs pull"]),
    (made_tar, ["tar archive"]),
    (lambda file: file.write_bytes(b"GGUF\x03\0\0\0" + bytes(1000)), ["GGUF"]),
    (lambda file: file.write_text("<!DOCTYPE html><html><body>Sign in</body></html>"), ["web page", "again"]),
    (lambda file: file.write_bytes(gzip.compress(bytes(1000))), ["gzip"]),
    (Path.mkdir, ["is a folder", "again"]),
    (made_dangling, ["link to a file that is not there", "again"]),
    (os.mkfifo, ["no ordinary file"]),
    (lambda file: file.symlink_to("/dev/zero"), ["no ordinary file"]),
]


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "config.json", "tokenizer.json"])
@pytest.mark.parametrize("make, said", OTHER_KINDS)
def test_a_file_is_said_to_be_what_it_is(make, said, name, folder, tensors):
    if name.endswith(".json"):
        save(tensors, folder / "model.safetensors")
        (folder / name).unlink()
    make(folder / name)
    if name == "tokenizer.json" and not (folder / name).is_file():
        said = ["no tokenizer"]
    refused(folder, *said, precisions=["fp32"])


@pytest.mark.parametrize("name, make, said", [
    ("pytorch_model.bin", made_torchscript, "is a TorchScript archive"),
    ("pytorch_model.bin", made_zip, "zip archive that torch.save did not write"),
    ("model.safetensors", made_torchscript, "is not a safetensors file"),
    ("pytorch_model.bin", lambda file: save_file({"a": torch.ones(2)}, file), "is a safetensors file"),
    ("pytorch_model.bin", lambda file: file.write_bytes(bytes(1000)), "damaged"),
])  # fmt: skip
def test_a_weight_file_of_another_kind(name, make, said, folder):
    make(folder / name)
    refused(folder, name, said, precisions=["fp32"])


@pytest.mark.parametrize("asked, said", [
    ({"quant_method": "gptq", "bits": 4}, "gptq"),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bitsandbytes"),
    ({}, "another"),
    (False, "another"),
])  # fmt: skip
@BOTH
def test_a_config_that_asks_for_a_quantization(kind, asked, said, folder, tensors):
    save(tensors, folder / NAMES[kind])
    configured(folder, quantization_config=asked)
    refused(folder, said, "quantization", "use the model that it was made from", precisions=["fp32"])


@pytest.mark.parametrize("changes", [
    {"hidden_size": 64}, {"ffn_dim": 128}, {"vocab_size": 600}, {"max_position_embeddings": 128},
    {"word_embed_proj_dim": 16}, {"activation_function": "no such"}, {"tie_word_embeddings": None},
    {"tie_word_embeddings": False}, {"hidden_size": "many"}, {"dropout": "much"}, {"do_layer_norm_before": "x"},
    {"word_embed_proj_dim": -16},
])  # fmt: skip
def test_a_config_of_another_model(changes, folder, tensors):
    save(tensors, folder / "model.safetensors")
    configured(folder, **changes)
    refused(folder)


def test_embeddings_without_width_are_refused_before_torch_warns_of_them(folder, tensors):
    save(tensors, folder / "model.safetensors")
    configured(folder, word_embed_proj_dim=0)
    refused(folder, "config.json: word_embed_proj_dim is 0, must be a positive whole number")
