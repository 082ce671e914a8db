"""Each private or fragile part of a library that the engine uses still does what it did in the version that was read.

Each check says in its docstring what the library does; where it no longer does, that sentence is the failure."""

import ast
import importlib
import importlib.util
import mmap
import platform
import random
import re
import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
import transformers

from engine.architecture import torch_internals, transformers_internals
from engine.architecture.families import FAMILIES
from engine.checkpoints import gguf_internals, hub_internals
from engine.checkpoints.gguf_header import read_header
from engine.distributed import ray_internals
from engine.kernels import bitsandbytes_internals
from engine.placement import accelerate_internals
from engine.questions import lm_eval_internals
from tests.conftest import REPOSITORY, make_tiny_opt
from tests.engine.fixtures import family_folder
from tests.engine.gguf_files import write_gguf

ADAPTERS = {
    "torch": torch_internals, "transformers": transformers_internals, "bitsandbytes": bitsandbytes_internals,
    "accelerate": accelerate_internals, "huggingface-hub": hub_internals, "lm-eval": lm_eval_internals,
    "gguf": gguf_internals,
    "ray": ray_internals,
}  # fmt: skip
CHECKS = []
OWNER, COMMIT, DIGEST = "someone/tiny", "0123456789abcdef0123456789abcdef01234567", "ab" * 32


def uses(library, name):
    """Registers a check of one name of a library."""

    def register(check):
        CHECKS.append(pytest.param(library, name, check, id=f"{library} {name}"))
        return check

    return register


def tiny_llama(**options):
    config = transformers.LlamaConfig(
        vocab_size=11, hidden_size=8, intermediate_size=8, num_hidden_layers=2, num_attention_heads=2, **options
    )
    return transformers.LlamaForCausalLM(config).eval()


def int8_layer():
    torch.manual_seed(0)
    weight = torch.randn(8, 16).bfloat16()
    return bitsandbytes_internals.new_layer(weight, torch.zeros(8).bfloat16()), weight.float()


def file_of(package, name):
    """A file of a package, which is not imported."""
    return Path(importlib.util.find_spec(package).origin).parent / name


def source(package, name):
    return file_of(package, name).read_text(encoding="utf-8")


@uses("torch", "compile and _dynamo")
def replaced_compiler(tmp_path, monkeypatch):
    """torch looks up torch.compile and its compiler at each call, so that they can be replaced for a while: decorators
    then give the function back. Modules in the compiler's folder are imported without it."""
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    before, wrapper = torch.compile, torch._disable_dynamo
    with torch_internals.compiler_left_out():
        with pytest.raises(RuntimeError, match="nothing is compiled"):
            torch.compile(len)
        assert torch.compiler.disable(len) is torch.compiler.allow_in_graph(len) is len
        assert torch._dynamo.disable(recursive=False)(len) is torch._disable_dynamo(len) is len
        from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

        assert TransformGetItemToIndex and before is not torch.compile
    assert (torch.compile, torch._disable_dynamo) == (before, wrapper) and "torch._dynamo" not in sys.modules


@uses("bitsandbytes", "CB and SCB")
def weights_and_scales(tmp_path, monkeypatch):
    """An int8 layer keeps CB and SCB on its weight until its first use, and in its state from then on."""
    layer, weight = int8_layer()
    data, scales = bitsandbytes_internals.quantized(layer)
    assert data.dtype == torch.int8 and layer.state.CB is None
    torch.testing.assert_close(data * scales[:, None] / 127, weight, atol=0.02, rtol=0)
    layer(torch.ones(1, 16).bfloat16())
    assert layer.weight.CB is None, "not moved at the first use"
    assert all(map(torch.equal, bitsandbytes_internals.quantized(layer), (data, scales)))


@uses("bitsandbytes", "Int8Params")
def parameters_of_int8(tmp_path, monkeypatch):
    """Int8Params takes CB and SCB as they are, and a layer with them computes by them."""
    layer, _ = int8_layer()
    data, scales = bitsandbytes_internals.quantized(layer)
    other, x = bitsandbytes_internals.layer_like(layer, data[:4], scales[:4]), torch.ones(3, 16).bfloat16()
    assert other.bias is None and bitsandbytes_internals.threshold(other) == 6.0
    torch.testing.assert_close(other.eval()(x), layer(x)[:, :4])


@uses("transformers", "_attn_implementation")
def name_of_attention(tmp_path, monkeypatch):
    """A model looks up its attention function by config._attn_implementation in each pass."""
    seen = []

    def attend(module, query, key, value, attention_mask, **options):
        seen.append(module.layer_idx)
        return query.transpose(1, 2), None

    transformers.AttentionInterface.register("of a test", attend)
    model = tiny_llama(attn_implementation="sdpa")
    with transformers_internals.attention_named(model, "of a test"):
        model(torch.tensor([[1, 2]]))
    assert seen == [0, 1]
    model(torch.tensor([[1, 2]]))
    assert seen == [0, 1], "the function from before is not back"


@uses("transformers", "ALL_ATTENTION_FUNCTIONS")
def attention_functions(tmp_path, monkeypatch):
    """ALL_ATTENTION_FUNCTIONS has the functions by name; "sdpa" takes (B, H, T, d) and gives (B, T, H, d)."""
    q = torch.randn(1, 2, 3, 4)
    found, _ = transformers_internals.sdpa_attention()(torch.nn.Module(), q, q, q, None, is_causal=True, scaling=0.5)
    expected = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True, scale=0.5)
    torch.testing.assert_close(found, expected.transpose(1, 2))
    choose = transformers_internals.attention_chooser()
    configs = {name: transformers.LlamaConfig(attn_implementation=name) for name in ("sdpa", "eager")}
    assert choose(configs["sdpa"]) is transformers_internals.sdpa_attention()
    assert choose(configs["eager"]).__name__ == "eager_attention_forward"


def check_adapted(config, name):
    """Checks that an adapted model computes the same, by attention of its own and by that of this name."""
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    expected = model(torch.tensor([[1, 2, 3]])).logits
    transformers_internals.adapt_attention(FAMILIES[config.model_type], model)
    assert torch.equal(model(torch.tensor([[1, 2, 3]])).logits, expected), "eager attention is not its own"
    with transformers_internals.attention_named(model, name):
        torch.testing.assert_close(model(torch.tensor([[1, 2, 3]])).logits, expected)


@uses("transformers", "_attn")
def attention_of_its_own(tmp_path, monkeypatch):
    """GPT-Neo's and GPT-J's attention calls `_attn(query, key, value, attention_mask)`, (B, H, T, d) each."""
    neo = transformers.GPTNeoConfig(
        vocab_size=11, hidden_size=8, num_layers=2, num_heads=2, attention_types=[[["local"], 2]]
    )
    j = transformers.GPTJConfig(vocab_size=11, n_embd=8, n_layer=2, n_head=2, rotary_dim=2)
    for config in (neo, j):
        check_adapted(config, "sdpa")


@uses("transformers", "_get_alibi_slopes")
def slopes_of_alibi(tmp_path, monkeypatch):
    """BLOOM's attention adds slopes times the position of a key to scores, and the stream to what it gives; MPT's the
    first alone."""
    seen = []

    def attend(module, query, key, value, mask, scaling, slopes):
        seen.append(slopes)
        scores = query @ key.mT * scaling + slopes[:, None, None] * torch.arange(3)
        return ((scores + torch.full((3, 3), -1e9).triu(1)).softmax(-1) @ value).transpose(1, 2), None

    transformers.AttentionInterface.register("of a test", attend)
    bloom = transformers.BloomConfig(vocab_size=11, hidden_size=12, n_layer=2, n_head=3)
    mpt = transformers.MptConfig(vocab_size=11, d_model=12, n_layers=2, n_heads=3, max_seq_len=5)
    for config in (bloom, mpt):
        check_adapted(config, "of a test")
        assert torch.equal(seen[-1], torch.tensor([2**-4, 2**-8, 2**-2]))


@uses("transformers", "eager_mask")
def mask_of_eager_attention(tmp_path, monkeypatch):
    """masking_utils.eager_mask gives (B, 1, T, T): 0 where attention sees, the lowest number elsewhere."""
    found = transformers_internals.additive_mask()(batch_size=1, q_length=3, kv_length=3)
    lowest = torch.finfo(torch.float32).min
    assert torch.equal(found, torch.full((3, 3), lowest).triu(1).view(1, 1, 3, 3))


@uses("transformers", "LlamaAttention")
def attention_of_llama(tmp_path, monkeypatch):
    """LlamaAttention has the projections and sizes that small.py reads, and a layer calls it by these names."""
    attention = tiny_llama().model.layers[1].self_attn
    assert isinstance(attention, transformers_internals.llama_attention())
    assert (attention.layer_idx, attention.head_dim, attention.scaling) == (1, 4, 0.5)
    names, seen = ("q_proj", "k_proj", "v_proj", "o_proj"), {}
    assert all(isinstance(getattr(attention, name), torch.nn.Linear) for name in names)
    model = tiny_llama()
    model.model.layers[0].self_attn.register_forward_pre_hook(
        lambda module, args, kwargs: seen.update(kwargs), with_kwargs=True
    )
    model(torch.tensor([[1, 2]]))
    assert seen.keys() >= {"hidden_states", "position_embeddings", "attention_mask", "past_key_values"}


@uses("transformers", "rotary_emb")
def positions_of_llama(tmp_path, monkeypatch):
    """A Llama model calls model.rotary_emb once a pass with position_ids, and hands the result to every layer."""
    model, calls = tiny_llama(), []
    plain, tokens = model.model.rotary_emb, torch.tensor([[1, 2, 3]])
    expected = model(tokens).logits

    class Positions(torch.nn.Module):
        def forward(self, x, position_ids):
            calls.append(position_ids.tolist())
            return plain(x, position_ids)

    transformers_internals.replace_positions(model, Positions())
    assert torch.equal(model(tokens).logits, expected) and calls == [[[0, 1, 2]]]


@uses("transformers", "utils.import_utils.define_import_structure")
def folder_of_models(tmp_path, monkeypatch):
    """transformers lists the modules of its folder of models twice alike, once with a prefix; what it is told is not
    there when it is imported is not looked for later."""
    from transformers.utils import import_utils

    folder = file_of("transformers", "models")
    plain = import_utils.define_import_structure(str(folder / "__init__.py"))
    assert transformers_internals.modules_of_models() == plain
    transformers_internals.import_models()
    assert import_utils.is_scipy_available() and "DTensor" not in vars(sys.modules["transformers.core_model_loading"])


@uses("transformers", "all_tied_weights_keys")
def tied_weights(tmp_path, monkeypatch):
    """all_tied_weights_keys names the unembedding that is the embedding, and is empty without one."""
    found = transformers_internals.tied_weights(tiny_llama(tie_word_embeddings=True))
    assert dict(found) == {"lm_head.weight": "model.embed_tokens.weight"}
    assert not transformers_internals.tied_weights(tiny_llama(tie_word_embeddings=False))


@uses("transformers", "from_pretrained(None, state_dict=...)")
def lazy_tensors(tmp_path, monkeypatch):
    """from_pretrained(None, state_dict=...) reads each tensor by [...] in its turn, layer by layer, once the model is
    made, and reports missing keys."""
    plain, events = tiny_llama(), []

    @dataclass
    class Stored:
        name: str

        def __getitem__(self, index):
            events.append(self.name)
            return plain.state_dict()[self.name][index]

    tensors = {name: Stored(name) for name in plain.state_dict() if name != "lm_head.weight"}
    model, report = transformers_internals.load_tensors(
        transformers.LlamaForCausalLM, tensors, lambda model: events.append(type(model).__name__),
        config=plain.config, dtype=torch.float32,
    )  # fmt: skip
    assert type(model) is transformers.LlamaForCausalLM and set(report["missing_keys"]) == {"lm_head.weight"}
    assert events[0] == "LlamaForCausalLM" and sorted(events[1:]) == sorted(tensors), "not each once, after the model"
    layers = [int(number) for name in events for number in re.findall(r"layers\.(\d+)", name)]
    assert layers == sorted(layers), "not layer by layer"
    loaded = model.state_dict()
    assert all(torch.equal(loaded[name], plain.state_dict()[name]) for name in tensors)


@uses("transformers", "_is_hf_initialized")
def mark_of_a_loaded_parameter(tmp_path, monkeypatch):
    """A parameter marked with _is_hf_initialized is not filled with random numbers at the end of a load."""
    from transformers import initialization

    parameters = [torch.nn.Parameter(torch.zeros(3)) for _ in range(2)]
    transformers_internals.mark_loaded(parameters[0])
    with torch.no_grad():
        for parameter in parameters:
            initialization.normal_(parameter)
    assert not parameters[0].any() and parameters[1].all()


@uses("transformers", "DynamicCache.layers")
def fields_of_a_cache(tmp_path, monkeypatch):
    """The layers of a DynamicCache have keys, values and is_initialized, which is False of a layer without heads."""
    cache, keys, values = transformers.DynamicCache(), torch.zeros(1, 2, 3, 4), torch.ones(1, 2, 3, 4)
    cache.update(keys, values, 1)
    found = transformers_internals.keys_and_values(cache)
    assert found.keys() == {1} and torch.equal(found[1][0], keys) and torch.equal(found[1][1], values)


@uses("transformers", "get_seq_length")
def tokens_in_a_cache(tmp_path, monkeypatch):
    """A cache counts its tokens in layer 0."""
    cache = transformers.DynamicCache()
    transformers_internals.count_tokens(torch.zeros(2, 3, 8), (None, cache))
    assert cache.get_seq_length() == 3


@uses("transformers", "past_key_values")
def cache_of_an_attention(tmp_path, monkeypatch):
    """Llama's attention repeats what `past_key_values.update` gives `num_key_value_groups` times."""
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 9}
    config = transformers.LlamaConfig(num_attention_heads=4, num_key_value_heads=2, **sizes)
    model, cache = transformers.LlamaForCausalLM(config).eval(), transformers.DynamicCache()
    expected = model(input_ids=torch.tensor([[1, 2, 3]])).logits
    attention = model.model.layers[0].self_attn
    hook, attention.num_key_value_groups = transformers_internals.read_by_head(attention, [0, 0, 1, 1]), 1
    torch.testing.assert_close(model(input_ids=torch.tensor([[1, 2, 3]]), past_key_values=cache).logits, expected)
    torch.testing.assert_close(model(input_ids=torch.tensor([[1, 2, 3]]), use_cache=False).logits, expected)
    assert cache.layers[0].keys.shape == (1, 2, 3, 2)
    hook.remove()


@uses("transformers", "data.metrics.squad_metrics")
def dropped_metrics(tmp_path, monkeypatch):
    """transformers has no data.metrics, from which the harness's ReCoRD task imports squad_metrics."""
    assert not (Path(transformers.__file__).parent / "data" / "metrics").exists(), "it is back: take its own functions"
    record = source("lm_eval.tasks", "super_glue/record/util.py")
    assert "import transformers.data.metrics.squad_metrics" in record, "the harness needs it no longer"
    transformers_internals.supply_squad_metrics(lm_eval_internals.compute_exact, lm_eval_internals.compute_f1)
    from transformers.data.metrics import squad_metrics

    assert squad_metrics.compute_exact is lm_eval_internals.compute_exact
    assert squad_metrics.compute_f1 is lm_eval_internals.compute_f1


@uses("accelerate", "_hf_hook")
def hook_of_a_module(tmp_path, monkeypatch):
    """A module whose weights accelerate moves has _hf_hook; align_module_device brings them."""
    import accelerate

    linear = torch.nn.Linear(2, 3)
    weight = linear.weight.detach().clone()
    assert not accelerate_internals.is_offloaded(linear)
    accelerate.cpu_offload(torch.nn.Sequential(linear), execution_device=torch.device("cpu"))
    assert accelerate_internals.is_offloaded(linear) and linear.weight.device.type == "meta"
    with accelerate_internals.onloaded(linear):
        assert torch.equal(linear.weight, weight)
    assert linear.weight.device.type == "meta"


@uses("accelerate", "big_modeling")
def logger_of_accelerate(tmp_path, monkeypatch):
    """The warning about where layers are comes from the logger accelerate.big_modeling."""
    from accelerate import big_modeling

    accelerate_internals.quiet_accelerate()
    assert big_modeling.logger.name == "accelerate.big_modeling" and not big_modeling.logger.isEnabledFor(30)


@uses("huggingface-hub", "layout of its cache")
def layout_of_the_cache(tmp_path, monkeypatch):
    """huggingface_hub finds a file in its cache by models--OWNER--NAME, refs, snapshots and blobs."""
    from huggingface_hub import constants, try_to_load_from_cache
    from huggingface_hub.file_download import repo_folder_name

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert hub_internals.repository_folder(OWNER).name == repo_folder_name(repo_id=OWNER, repo_type="model")
    blob = hub_internals.blob_file(OWNER, DIGEST)
    blob.parent.mkdir(parents=True)
    blob.write_text("{}")
    hub_internals.link_blob(OWNER, COMMIT, "config.json", DIGEST)
    hub_internals.write_ref(OWNER, "main", COMMIT)
    link = hub_internals.snapshot_folder(OWNER, COMMIT) / "config.json"
    for revision in ("main", COMMIT):
        found = try_to_load_from_cache(OWNER, "config.json", cache_dir=tmp_path, revision=revision)
        assert found == str(link) and hub_internals.held_snapshot(OWNER, revision) == link.parent
    assert hub_internals.is_blob(link.resolve()) and list(hub_internals.held_revisions()) == [(OWNER, "main")]


@uses("huggingface-hub", ".incomplete")
def unfinished_blobs(tmp_path, monkeypatch):
    """huggingface_hub writes an unfinished blob next to the finished one, under its name with .incomplete appended."""
    assert hub_internals.unfinished_file(tmp_path / DIGEST) == tmp_path / f"{DIGEST}.incomplete"
    assert 'blob_path + ".incomplete"' in source("huggingface_hub", "file_download.py")


@uses("huggingface-hub", "HF_HUB_DISABLE_TELEMETRY")
def telemetry(tmp_path, monkeypatch):
    """Requests name the installed torch unless constants.HF_HUB_DISABLE_TELEMETRY is True when they are made."""
    import os

    from huggingface_hub import constants
    from huggingface_hub.utils import build_hf_headers

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", False)
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "0")
    hub_internals.disable_telemetry()
    assert "torch/" in build_hf_headers()["user-agent"], "a user's own setting does not stand"
    monkeypatch.delenv("HF_HUB_DISABLE_TELEMETRY")
    hub_internals.disable_telemetry()
    assert "torch/" not in build_hf_headers()["user-agent"] and os.environ["HF_HUB_DISABLE_TELEMETRY"] == "1"


@uses("lm-eval", "_yaml_loader and task_index")
def config_of_a_task(tmp_path, monkeypatch):
    """TaskManager.task_index says where the YAML of a task is, and _yaml_loader.load_yaml resolves its functions."""
    from lm_eval.tasks import TaskManager

    (tmp_path / "words.py").write_text("def last(doc):\n    return doc['text'][-1]\n")
    (tmp_path / "tiny.yaml").write_text("task: tiny_of_a_test\ndataset_path: none\ndoc_to_text: !function words.last\n")
    manager = TaskManager(include_defaults=False, include_path=[str(tmp_path)])
    config = lm_eval_internals.task_config(manager, "tiny_of_a_test")
    assert config["task"] == "tiny_of_a_test" and config["doc_to_text"]({"text": "ab"}) == "b"


@uses("lm-eval", "larger than population")
def too_few_rows(tmp_path, monkeypatch):
    """Examples are drawn by random.sample, which raises ValueError where there are too few rows."""
    with pytest.raises(ValueError) as found:
        random.Random(0).sample([1], 2)
    assert lm_eval_internals.has_too_few_rows(found.value) and not lm_eval_internals.has_too_few_rows(ValueError("no"))
    assert "self.rnd.sample(" in source("lm_eval.api", "samplers.py")


@uses("lm-eval", "build_qa_turn")
def answers_of_examples(tmp_path, monkeypatch):
    """build_qa_turn gives a message for a question and one for its answer `a`, which can be changed."""
    from lm_eval.api.task import ConfigurableTask

    task = object.__new__(ConfigurableTask)
    lm_eval_internals.rewrite_answers(task, lambda answers: [answer.upper() for answer in answers])
    turns = [task.build_qa_turn(q="q", c=["x", "y"], a=0), task.build_qa_turn(q="r", a="z"), task.build_qa_turn(q="s")]
    assert "".join(each.to_text() for turn in turns for each in turn) == "q X\n\nr Z\n\ns"


@uses("lm-eval", "utils.env")
def templates(tmp_path, monkeypatch):
    """The harness compiles each prompt by utils.env.from_string, which can be replaced."""
    from lm_eval import utils

    lm_eval_internals.compile_templates_once()
    compiled = utils.env.from_string
    lm_eval_internals.compile_templates_once()
    assert utils.env.from_string is compiled, "of several threads the same"
    before = compiled.cache_info().hits
    assert [utils.apply_template("{{a}}{{1}}", {"a": n}) for n in "xyz"] == ["x1", "y1", "z1"]
    assert compiled.cache_info().hits >= before + 2


@uses("ray", "_temp_dir")
def folder_of_ray(tmp_path, monkeypatch):
    """ray.init takes the folder of its sockets and logs as _temp_dir."""
    assert 'kwargs.pop("_temp_dir"' in source("ray", "_private/worker.py")


@uses("ray", "settings in the environment")
def settings_of_ray(tmp_path, monkeypatch):
    """Ray reads RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER when it is imported, and its raylet prestart_worker_first_driver."""
    constants = source("ray", "_private/ray_constants.py")
    assert '"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"' in constants and "ENABLE_RAY_CLUSTER = env_bool(" in constants
    assert holds("core/src/ray/raylet/raylet", b"prestart_worker_first_driver")


def holds(program, text):
    """Whether a program of Ray has this text in it."""
    with file_of("ray", program).open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ).find(text) >= 0


def small_gguf(tmp_path, family="llama", **changes):
    (tmp_path / "opt").mkdir()
    folder = family_folder(family, make_tiny_opt(tmp_path / "opt"), tmp_path / "model", **changes)
    return read_header(write_gguf(folder, tmp_path / "tiny.gguf"))


@uses("gguf", "GGUFReader")
def fields_of_a_gguf_file(tmp_path, monkeypatch):
    """transformers makes the same config of gguf's own reader as of the fields that are put in its place."""
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    header = small_gguf(tmp_path)
    theirs = load_gguf_checkpoint(str(header.file))["config"]
    assert gguf_internals.config_of(header) == {k: v for k, v in theirs.items() if k != gguf_internals.NAME}
    monkeypatch.setattr("engine.checkpoints.gguf_header.MOST_KEPT", 10)  # as of a vocabulary of usual size
    long = read_header(shutil.copy(header.file, tmp_path / "long.gguf"))
    assert "tokenizer.ggml.tokens" in long.counted and gguf_internals.config_of(long) == gguf_internals.config_of(
        header
    )


@uses("transformers", "get_gguf_hf_weights_map")
def tensors_of_a_gguf_file(tmp_path, monkeypatch):
    """transformers names and lays out each tensor by itself as in the whole model that it makes of the file."""
    header = small_gguf(tmp_path, "gpt2", n_positions=1024, tie_word_embeddings=False)
    model = transformers.AutoModelForCausalLM.from_pretrained(str(tmp_path), gguf_file="tiny.gguf")
    config = gguf_internals.config_of(header)
    names = gguf_internals.names_of(header, model)
    assert {tensor.name for tensor in header.tensors} <= names.keys()
    for tensor in header.tensors:
        values = gguf_internals.values_of(header, tensor, config)
        assert (model.get_parameter(names[tensor.name]).detach().numpy() == values).all(), tensor.name


@pytest.mark.parametrize("library, name, check", CHECKS)
def test_a_private_name_does_what_it_did_in_the_version_that_was_read(library, name, check, tmp_path, monkeypatch):
    try:
        check(tmp_path, monkeypatch)
    except (Exception, pytest.fail.Exception) as error:
        installed = platform.python_version() if library == "python" else version(library)
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        sentence = f"{' '.join(check.__doc__.split())} Not so in {library} {installed} ({why})"
        raise pytest.fail.Exception(sentence, pytrace=False) from None


def pins():
    lines = "\n".join((REPOSITORY / f"requirements{more}.txt").read_text() for more in ("", "-ray"))
    return dict(re.findall(r"^([\w-]+)==(\S+)$", lines, re.M))


@pytest.mark.parametrize("library", ADAPTERS)
def test_the_version_that_was_read_is_the_one_that_is_pinned(library):
    adapter = ADAPTERS[library]
    read = re.search(r"Read\s+in\s+version\s+([\d.]*\d)", adapter.__doc__)[1]
    pinned = pins()[library]
    message = f"{pinned} is pinned and {adapter.__name__} was read in {read}: read it again, and write so"
    assert f"{pinned}.".startswith(f"{read}."), message


def test_what_is_written_beside_exported_weights_stands_alone():
    """It is the one file that has private names of transformers and goes through no adapter: it is run without
    Headroom."""
    tree = ast.parse((REPOSITORY / "engine" / "export" / "modeling_pruned.py").read_text(encoding="utf-8"))
    modules = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not [module for module in modules if module.split(".")[0] in ("cache", "engine", "pages")]
    assert {module for module in modules if module.count(".")} == {"transformers.pytorch_utils"}
