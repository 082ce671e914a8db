"""A GGUF file is converted once into a model folder, which computes what transformers computes with the same file; what
cannot be read is refused in one line."""

import json
import shutil
import struct
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS

from engine.checkpoints import conversion, gguf_header
from engine.checkpoints.config_lookup import read_model_config
from engine.checkpoints.conversion import conversions, conversions_folder, convert, converted
from engine.checkpoints.gguf_config import read_gguf_config
from engine.checkpoints.names import model_name
from engine.errors import HeadroomError
from engine.models.loading import LoadSpec, identify, load, stamp
from engine.progress import Stopped, announce, final, is_to_stop, tell
from tests.conftest import IS_THOROUGH, some_of
from tests.engine.fixtures import family_folder, in_turns, refused_by
from tests.engine.gguf_files import write_gguf

# transformers reads only these values of fields that GGUF files may state otherwise
AS_READ = {
    "gemma2": {"query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    "gemma3": {"query_pre_attn_scalar": 256, "sliding_window_pattern": 6, "num_hidden_layers": 6, "head_dim": 16},
    "phi3": {"partial_rotary_factor": 1.0},
    "qwen3": {"head_dim": 128},
    "gpt2": {"n_positions": 1024},
    "falcon": {"ffn_hidden_size": 128},
}
# unless thorough, those whose tensors are not only renamed
READ = [each for each in gguf_header.ARCHITECTURES if IS_THOROUGH or each in TENSOR_PROCESSORS]
KINDS = ("Q8_0", "F32", "F16", "BF16", "Q4_0")
IDS = list(range(5, 60))


@pytest.fixture(scope="module")
def folder(tiny_opt, tmp_path_factory):
    """The folder of a tiny Llama."""
    return family_folder("llama", tiny_opt, tmp_path_factory.mktemp("llama") / "model")


@pytest.fixture(scope="module")
def original(folder):
    """The GGUF file that is written from it."""
    return write_gguf(folder, folder.parent / "original.gguf", "Q8_0")


@pytest.fixture
def file(original, tmp_path):
    """A copy of that file."""
    return shutil.copy(original, tmp_path / "tiny.gguf")


def logits(model, ids=IDS):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0]


def ours(file, store):
    return logits(load(LoadSpec(str(file), "fp32"), store).model)


def theirs(file):
    options = {"gguf_file": file.name, "dtype": torch.float32}
    return logits(transformers.AutoModelForCausalLM.from_pretrained(str(file.parent), **options))


@pytest.mark.slow("loads a model twice, once by transformers' own reader")
@pytest.mark.parametrize("family, kind", in_turns(READ, KINDS))
def test_it_computes_what_transformers_does_with_the_same_file(family, kind, tiny_opt, tmp_path, store):
    folder = family_folder(family, tiny_opt, tmp_path / "model", **AS_READ.get(family, {}))
    file = write_gguf(folder, tmp_path / "tiny.gguf", kind)
    assert (ours(file, store) - theirs(file)).abs().max() < 1e-5
    if kind == "F32":
        assert (ours(file, store) - ours(folder, store)).abs().max() < 1e-5


LLAMA3 = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 5e5,
          "original_max_position_embeddings": 8192}  # fmt: skip
LEFT_OUT = {
    "llama": ({"rope_parameters": LLAMA3}, {"rope.freq_base": 5e5}),
    "qwen2": ({"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
              {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}),
    "gemma2": ({"query_pre_attn_scalar": 256}, {}),
    "phi3": ({}, {}),
    "stablelm": ({"partial_rotary_factor": 0.5}, {}),
    "starcoder2": ({"rope_theta": 1e6}, {}),
    "qwen3": ({}, {}),
    "gpt2": ({}, {}),
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("family", some_of(LEFT_OUT, 4))
def test_what_transformers_leaves_out_is_taken_from_the_file(family, tiny_opt, tmp_path, store):
    config, fields = LEFT_OUT[family]
    folder = family_folder(family, tiny_opt, tmp_path / "model", **config)
    more = {"rope_freqs.weight": llama3_factors(folder)} if family == "llama" else {}
    file = write_gguf(folder, tmp_path / "tiny.gguf", more=more, **fields)
    assert (ours(file, store) - ours(folder, store)).abs().max() < 1e-5


def llama3_factors(folder):
    """What transformers divides angles by in this model."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).model
    turned = model.rotary_emb.inv_freq.numpy()
    return 5e5 ** -(np.arange(len(turned)) / len(turned)) / turned


@pytest.mark.parametrize("fields, match", [
    ({"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}, "yarn"),
    ({"attention.sliding_window": 100}, "sliding_window 100"),
    ({"rope.dimension_count": 4}, "rope.dimension_count 4 in heads of 8"),
])  # fmt: skip
def test_a_field_that_cannot_be_followed_is_refused(fields, match, folder, tmp_path, store):
    file = write_gguf(folder, tmp_path / "tiny.gguf", **fields)
    refused_by(HeadroomError, match, lambda: identify(LoadSpec(str(file)), store))


def test_scores_of_the_27b_models_of_gemma_are_scaled_as_llama_cpp_does(file):
    header = gguf_header.read_header(file)
    for architecture, n_layers, width, scalar in (("gemma2", 46, 4608, 144), ("gemma3", 62, 5376, 168)):
        stated = {"block_count": n_layers, "attention.head_count": 32, "embedding_length": width,
                  "feed_forward_length": 4 * width, "context_length": 8192, "attention.head_count_kv": 16}  # fmt: skip
        fields = {f"{architecture}.{name}": value for name, value in stated.items()}
        fields = {"general.architecture": architecture, gguf_header.TOKENS: ["a"]} | fields
        assert read_gguf_config(replace(header, fields=fields))["query_pre_attn_scalar"] == scalar


def test_other_scaled_positions_are_refused(folder, tmp_path, store):
    file = write_gguf(folder, tmp_path / "tiny.gguf", more={"rope_freqs.weight": np.array([1, 1, 9, 2])})
    refused_by(HeadroomError, "scaled positions", lambda: identify(LoadSpec(str(file)), store))


def test_it_is_an_ordinary_folder(file, folder, store, tmp_path):
    spec = LoadSpec(str(file))
    identity = identify(spec, store)
    assert identity.name == str(file) and identity.folder == converted(file, store)
    assert identity.folder.parent == conversions_folder(store)
    moved = shutil.copytree(identity.folder, tmp_path / "moved")
    assert identify(LoadSpec(str(moved)), store).digest == identity.digest == identify(spec, store).digest
    assert identity.n_params == identify(LoadSpec(str(folder)), store).n_params
    assert read_model_config(str(file)).shape == identity.shape
    assert model_name(f" {file} ").gguf == file and spec.in_words == "tiny.gguf in int8"
    before = stamp(spec)
    file.write_bytes(file.read_bytes() + bytes(32))
    assert stamp(spec) != before


def test_the_tokenizer_is_the_one_that_transformers_reads(folder, tmp_path, store):
    template = "{% for m in messages %}{{ bos_token + m.content }}{% endfor %}"
    fields = {"tokenizer.ggml.add_bos_token": True, "tokenizer.chat_template": template}
    file = write_gguf(folder, tmp_path / "tiny.gguf", **fields)
    known = transformers.AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer", "bos_token": "no"}')
    found = transformers.AutoTokenizer.from_pretrained(str(identify(LoadSpec(str(file)), store).folder))
    text = "The river was low</s> that  summer."
    assert found(text).input_ids == known(text).input_ids and found(text).input_ids[0] == 2
    for name in ("special_tokens_map", "all_special_ids", "bos_token_id", "eos_token_id", "chat_template"):
        assert getattr(found, name) == getattr(known, name), name
    assert found.get_vocab() == known.get_vocab()


def test_it_is_announced_and_converted_once(file, store, tmp_path, monkeypatch):
    lines, steps = [], []
    announce.set(lines.append)
    tell.set(lambda done, total, message, left_s: steps.append((done, total, message)))
    try:
        identify(LoadSpec(str(file)), store)
        assert len(lines) == 1 and "to write to" in lines[0] and "free on the disk" in lines[0]
        assert "converting tiny.gguf" in {message for *_, message in steps}
        assert [done for done, *_ in steps] == sorted(done for done, *_ in steps)
        other = shutil.copy(file, tmp_path / "another name")
        assert converted(other, store) is None, "nobody has read it yet"
        assert identify(LoadSpec(str(other)), store).folder == identify(LoadSpec(str(file)), store).folder
        assert len(lines) == 1
    finally:
        announce.set(lambda line: None)
        tell.set(lambda *progress: None)
    shutil.rmtree(conversions_folder(store))
    assert converted(file, store) is None
    assert identify(LoadSpec(str(file)), store).folder.is_dir()


def test_one_that_is_interrupted_leaves_nothing(file, store):
    for n_steps in (1, 3, 8):
        steps = convert(file, store)
        for _ in range(n_steps):
            next(steps)
        steps.close()
        assert not [*conversions_folder(store).glob("*")] and converted(file, store) is None
    is_to_stop.set(lambda: True)
    try:
        with pytest.raises(Stopped):
            identify(LoadSpec(str(file)), store)
    finally:
        is_to_stop.set(lambda: False)
    assert not [*conversions_folder(store).glob("*")]
    killed = conversions_folder(store) / "making-before"
    killed.mkdir()
    assert final(convert(file, store)).is_dir() and not killed.exists()


def test_one_of_another_version_is_converted_again(file, store):
    about = final(convert(file, store)) / conversion.ABOUT
    about.write_text(json.dumps(json.loads(about.read_text()) | {"transformers": "4.0"}))
    assert converted(file, store) is None
    assert final(convert(file, store)) == converted(file, store)


def test_a_full_disk_is_refused_before_anything_is_written(file, store, monkeypatch):
    monkeypatch.setattr(conversion, "free_on_disk", lambda folder: 1000)
    refused_by(
        HeadroomError,
        r"tiny.gguf takes .* converted, and 1,000 B is free",
        lambda: identify(LoadSpec(str(file)), store),
    )
    assert not conversions_folder(store).exists()


def test_conversions_are_listed(file, store):
    folder = final(convert(file, store))
    assert conversions(store) == [str(file)]
    file.unlink()
    assert conversions(store) == [str(folder)]
    assert identify(LoadSpec(str(folder)), store).folder == folder


def test_a_folder_is_named_by_the_one_file_in_it(file, store):
    within = file.parent
    (within / "README.md").write_text("a model")
    assert model_name(str(within)).gguf == file
    (within / "other.Q4_K_M.GGUF").write_bytes(b"GGUF")
    line = refused_by(HeadroomError, "has 2 GGUF files", lambda: model_name(str(within)))
    assert "tiny.gguf" in line and "other.Q4_K_M.GGUF" in line and f"give one, such as {within}/" in line
    (within / "model.safetensors").write_bytes(b"")
    assert model_name(str(within)).folder == within, "it has weights of its own"


def test_a_file_that_is_not_there(tmp_path):
    for name in ("gone.gguf", str(tmp_path / "gone.gguf"), "models/gone.GGUF", "./gone.gguf"):
        refused_by(HeadroomError, "no such GGUF file", lambda name=name: model_name(name))


def test_a_file_has_no_revisions(file):
    refused_by(HeadroomError, "has no revisions", lambda: model_name(f"{file}@main"))


FIELDS_REFUSED = {
    "an adapter": ({"general.type": "adapter"}, "adapter"),
    "a projector": ({"general.type": "mmproj"}, "vision projector"),
    "a shard": ({"split.count": 3}, "one of 3 files"),
    "an encoder": ({"general.architecture": "nomic-bert"}, "embedding model"),
    "a mixture": ({"expert_count": 8}, "mixture of 8 experts"),
    "an unknown family": ({"general.architecture": "rwkv7"}, "architecture 'rwkv7'"),
    "no tokenizer": ({"tokenizer.ggml.tokens": None}, "no tokenizer"),
    "a tokenizer that transformers lacks": ({"tokenizer.ggml.model": "rwkv"}, "rwkv"),
    "a bias without a place": ({}, "attn_q.bias"),
    "another width": ({"feed_forward_length": 32}, "ffn_gate.weight is|ffn_.*should be"),
    "fewer layers": ({"block_count": 2}, "no place"),
}


@pytest.mark.parametrize("what", FIELDS_REFUSED)
def test_what_is_not_a_language_model_is_refused(what, folder, tmp_path, store):
    fields, match = FIELDS_REFUSED[what]
    more = {"blk.0.attn_q.bias": np.zeros(32, np.float32)} if "bias" in what else {}
    file = write_gguf(folder, tmp_path / "tiny.gguf", more=more, **fields)
    line = refused_by(HeadroomError, match, lambda: identify(LoadSpec(str(file)), store))
    assert str(file) in line and not [*conversions_folder(store).glob("*")]


def test_a_shard_is_known_by_its_name(file):
    shard = file.rename(file.with_name("tiny-00001-of-00002.gguf"))
    refused_by(HeadroomError, "one of 2 files.*llama-gguf-split --merge", lambda: gguf_header.read_header(shard))


def unknown_type(content, number=99):
    """The content with another type of its first tensor."""
    at = content.index(b"token_embd.weight") + len(b"token_embd.weight") + 4 + 16
    return content[:at] + struct.pack("<I", number) + content[at + 4 :]


CONTENT_REFUSED = {
    "big endian": (lambda content: content[:4] + struct.pack(">IQQ", 3, 1, 1) + content[24:], "big-endian"),
    "an old version": (lambda content: content[:4] + struct.pack("<I", 1) + content[8:], "version 1"),
    "empty": (lambda content: b"", "empty"),
    "another file": (lambda content: b"PK\3\4" + content[4:], "not a GGUF file"),
    "a pointer": (lambda content: b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    "a page": (lambda content: b"<!DOCTYPE html>", "web page"),
    "many fields": (lambda content: content[:16] + struct.pack("<Q", 2**60) + content[24:], "damaged or cut short"),
    "an unknown type": (unknown_type, "tensors of type type 99"),
    "a type that nobody reads": (lambda content: unknown_type(content, 24), "tensors of type I8"),
}


@pytest.mark.parametrize("what", CONTENT_REFUSED)
def test_a_foreign_file_is_refused(what, file, store):
    change, match = CONTENT_REFUSED[what]
    file.write_bytes(change(file.read_bytes()))
    refused_by(HeadroomError, match, lambda: identify(LoadSpec(str(file)), store))


def test_a_file_that_is_cut_short_is_refused_wherever_it_ends(file):
    content = file.read_bytes()
    lengths = np.linspace(4, len(content) - 33, 60).astype(int)
    for length in lengths:
        file.write_bytes(content[:length])
        refused_by(HeadroomError, "cut short", lambda: gguf_header.read_header(file))


def test_changed_bytes_never_end_in_a_traceback(file):
    """Of the header: what stands behind it are values."""
    content, rng = file.read_bytes(), np.random.default_rng(0)
    begin = min(tensor.at for tensor in gguf_header.read_header(file).tensors)
    for _ in range(150):
        changed = bytearray(content)
        for at in rng.integers(0, begin, 3):
            changed[at] = rng.integers(256)
        file.write_bytes(changed)
        try:
            gguf_header.read_header(file)
        except HeadroomError as error:
            assert "\n" not in str(error)
        gguf_header._read.cache_clear()
