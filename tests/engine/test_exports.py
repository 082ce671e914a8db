"""An exported folder, in a process that knows nothing of Headroom, computes what the masked model computes."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch

from engine.architecture import families
from engine.errors import HeadroomError, UsageError
from engine.export import folders
from engine.export.card import copied
from engine.export.exporting import Export, export, sizes
from engine.models.masks import parse_mask, pruned
from engine.progress import final
from tests.conftest import HANG_S, IS_THOROUGH
from tests.engine.fixtures import (
    DISTINCT,
    EXAMINED,
    STOCK,
    TINY,
    UNTIED,
    configured,
    family_folder,
    in_turns,
    loaded,
    questions_in,
    refused_by,
    saved,
    target_in,
    write_questions,
)
from tests.engine.test_log_likelihoods_equal_the_harness import answered
from tests.warm import WarmInterpreter

FAMILIES = [*STOCK, UNTIED]
SEVERAL = [name for name in EXAMINED if name in DISTINCT]
IDS = [2, *range(40, 70)]
MASK = "L0H1 L1H* L2H0-2 F1"
OUTSIDE = """
import json, sys
import torch
from transformers import AutoModelForCausalLM
torch.set_num_threads(int(sys.argv[1]))
assert "engine" not in sys.modules
found = {}
for folder, form in json.loads(sys.argv[2]):
    trust = {"trust_remote_code": True} if form == "small" else {}
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **trust).eval()
    ids = torch.tensor([json.loads(sys.argv[3])])
    with torch.inference_mode():
        logits = model(ids).logits[0]
        said = model.generate(ids, max_new_tokens=8, do_sample=False)[0].tolist()
        alone = model.generate(ids, max_new_tokens=8, do_sample=False, use_cache=False)[0].tolist()
    torch.save({"logits": logits, "said": said, "alone": alone}, folder + ".pt")
"""


@pytest.fixture(scope="module")
def without_headroom(tmp_path_factory):
    """Starts processes that have transformers in memory and cannot import Headroom."""
    home = {**os.environ, "PYTHONPATH": "", "HF_HOME": str(tmp_path_factory.mktemp("hub"))}
    interpreter = WarmInterpreter(("torch", "transformers.generation"), ("-I",), home)
    yield interpreter
    interpreter.close()


@pytest.fixture
def outside(without_headroom, tmp_path):
    """Gives (logits, generated ids with a cache and without) of each (folder, form), from such a process."""

    def run(wanted):
        named = json.dumps([(str(folder), form) for folder, form in wanted])
        words = ["-c", OUTSIDE, torch.get_num_threads(), named, json.dumps(IDS)]
        ended = without_headroom.run(words, cwd=tmp_path)
        assert ended.returncode == 0, ended.stderr
        return [torch.load(f"{folder}.pt") for folder, _ in wanted]

    return run


def exported(session, base, out, text=MASK, **more):
    target = target_in(session, base)
    return final(export(session, target, Export(parse_mask(text, target.shape), str(out), **more)))


def masked_logits(model, text):
    with torch.inference_mode(), pruned(model, parse_mask(text, model.identity.shape)):
        return model.model(torch.tensor([IDS])).logits[0].float()


def small_mask(name):
    """Of OLMo 2 and Falcon, whose heads cannot be cut out one by one, whole layers of heads."""
    family = families.FAMILIES[TINY[name]]
    return "L0H* B2 F1" if family.norms_all_heads or not family.cuts_heads else MASK


# of Llama, heads 0-1 and 2-3 share a key and value head: whole groups, uneven groups, one head of each
SMALL = [(family, small_mask(family)) for family in FAMILIES if family in (*SEVERAL, UNTIED)] + [
    ("llama", "L0H0 L1H2-3 L2H0 L2H2"), ("llama", "B0 F2"), ("gpt_neox", "B1 L0H*"), ("gpt2", "L*H* F0"), ("opt", "B*"),
    ("opt-350m", "B0 L1H*"), ("phi3", "L0H0 L1H2-3 L2H0 L2H2"),
]  # fmt: skip


def test_small_stores_nothing_of_what_is_pruned(session, folder_of, tmp_path):
    """d_model 32, 4 heads of 8 that read 2 key and value heads, FFN 64, no biases: counted by hand."""
    made = exported(session, folder_of("llama"), tmp_path / "out", "L0H0 L1H* F2", form="small")
    per_head, per_key, ffn, norm = 2 * 8 * 32, 2 * 8 * 32, 3 * 32 * 64, 32
    gone = per_head + (4 * per_head + 2 * per_key + norm) + (ffn + norm)
    assert made.n_params[0] - made.n_params[1] == gone
    assert 4 * gone <= made.n_bytes[0] - made.n_bytes[1] <= 4 * gone + 2000  # and what names them


def test_a_folder_of_uneven_layers_that_is_not_headroom_s_is_refused(session, folder_of, tmp_path):
    made = exported(session, folder_of("opt"), tmp_path / "out", form="small")
    for change, said in (({"kept_heads": [[0], [9], []]}, "which are not heads of 3 layers"),
                         ({"kept_heads": [[0, 2], [], [3]]}, "is not what config.json says of its layer"),
                         ({"model_type": "opt"}, "opens only where it has written them")):  # fmt: skip
        with pytest.raises(HeadroomError, match=said):
            loaded(configured(Path(shutil.copytree(made.folder, tmp_path / said)), **change))


# whole layers of each family (their attention biases are folded away), and Llama's heads, whole groups and one of each
LLAMA_SHAPED = [name for name in SEVERAL if name in STOCK
                and (of := families.FAMILIES[TINY[name]]).states_head_width and not of.norms_all_heads]  # fmt: skip
EVEN = [
    *((family, "B2 L*H1 L*H3") for family in LLAMA_SHAPED),
    ("opt", "B1"),
    ("opt", "B0 B2"),
    ("opt-untied", "B0-1"),
    ("gpt2", "B0-1"),
    ("gpt_neox", "B0"),
    ("gpt_neox", "B2"),
    ("bloom", "B0"),
    ("llama", "B0"),
    ("llama", "L*H0-1"),
    ("llama", "L0H0 L1H1 L2H0 L*H2"),
    ("opt-350m", ""),
    ("olmo2", "B1"),
    ("phi3", "B1"),
    ("smollm3", "B0"),  # the layer without positions is then the first
]


# `small` finds the same rows of the same matrices: unless thorough, families of which it cuts other heads, and OPT
MASKED = [family for family in FAMILIES
          if IS_THOROUGH or family == "opt" or (family in DISTINCT and (family, MASK) not in SMALL)]  # fmt: skip
CASES = {"masked": [(family, MASK) for family in MASKED], "small": SMALL, "even": EVEN}


@pytest.mark.thorough
@pytest.mark.parametrize("form", CASES)
def test_folders_give_the_masked_model_s_logits_and_say_what_it_says(
    form, session, folder_of, model_of, tmp_path, outside
):
    made = [exported(session, folder_of(family), tmp_path / str(at), text, form=form)
            for at, (family, text) in enumerate(CASES[form])]  # fmt: skip
    found = outside([(each.folder, form) for each in made])
    for (family, text), each, outcome in zip(CASES[form], made, found, strict=True):
        model, files = model_of(family), {file.name for file in each.folder.iterdir()}
        expected = masked_logits(model, text)
        is_exact = form == "masked" and TINY[family] != "falcon"  # transformers attends by sdpa there
        close = 0.0 if is_exact else 1e-5 * max(1.0, float(expected.abs().max()))
        torch.testing.assert_close(outcome["logits"], expected, atol=close, rtol=0)
        assert each.checked.difference <= close and each.checked.precision == "fp32"
        with torch.inference_mode(), pruned(model, parse_mask(text, model.identity.shape)):
            said = model.model.generate(torch.tensor([IDS]), max_new_tokens=8, do_sample=False)[0].tolist()
        assert outcome["said"] == outcome["alone"] == said, (family, text)
        assert (each.n_params[1] < each.n_params[0]) == (form != "masked" and bool(text))
        assert "tokenizer.json" in files and folders.MARK not in files and not list(each.folder.glob("*.bin"))
        if form == "masked":
            assert not torch.equal(outcome["logits"], masked_logits(model, ""))
            assert "L0H1 L2H0-2 B1" in (each.folder / "README.md").read_text()
        if form == "even":
            assert not list(each.folder.glob("*.py"))
        if form == "small":  # opened here, it is the stock model again, its heads where they were; its code is not run
            again = loaded(each.folder)
            assert type(again.model).__module__.startswith("transformers.models.") and each.n_bytes[1] < each.n_bytes[0]
            assert (again.identity.shape, again.identity.n_params) == (model.identity.shape, model.identity.n_params)
            assert again.identity.digest != model.identity.digest
            torch.testing.assert_close(masked_logits(again, ""), expected, atol=close, rtol=0)
            assert len(again.tokenizer("a long road")["input_ids"]) == len(model.tokenizer("a long road")["input_ids"])


def test_heads_that_do_not_divide_the_width_can_stay_where_a_config_may_say_so(session, tiny_opt, tmp_path):
    folder = family_folder("mistral", tiny_opt, tmp_path / "model", hidden_size=32, num_key_value_heads=4)
    made = exported(session, folder, tmp_path / "out", "L*H0", form="even")
    config = json.loads((made.folder / "config.json").read_text())
    assert (config["num_attention_heads"], config["head_dim"], config["hidden_size"]) == (3, 8, 32)


@pytest.mark.parametrize(("family", "text", "said"), [
    ("opt", "B1 F2", "F2 is pruned and layer 2 keeps 4 heads: prune the whole layer"),
    ("opt", "L*H0", "OPT models fix a head's width"),
    ("opt", "B*", "every layer is pruned"),
    ("opt-350m", "B1", "norms the residual stream after"),
    ("llama", "L1H0", "layer 1 keeps 3 heads and most layers 4: keep 1 head more there"),
    ("llama", "L*H0-1 keep L1H0", "layer 1 keeps 3 heads and most layers 2: prune 1 head more there"),
    ("llama", "L*H0", "transformers needs a width that is a multiple"),
    ("llama", "L0H0 L0H2 L1H0-1 L2H0-1", "is uneven: keep equally many heads of each group"),
    ("llama", "L*H*", "keep no heads"),
    ("olmo2", "L*H0-1", "norms the queries of all heads of a layer together"),
    ("falcon", "L*H0-1", "holds queries, keys, and values of several heads together"),
])  # fmt: skip
def test_what_is_not_even_is_refused_with_what_to_do(family, text, said, session, folder_of, tmp_path):
    with pytest.raises(UsageError, match=said) as refused:
        exported(session, folder_of(family), tmp_path / "out", text, form="even")
    assert "--form" in str(refused.value) and not list(tmp_path.glob("out*"))


def test_a_bias_that_goes_through_the_norm_of_its_layer_cannot_move(session, tiny_opt, tmp_path):
    folder = family_folder("olmo2", tiny_opt, tmp_path / "model", attention_bias=True)
    refused_by(UsageError, "nothing to add it to .it goes through the layer's norm",
               lambda: exported(session, folder, tmp_path / "out", "B1", form="even"))  # fmt: skip


def test_heads_of_longrope_models_stay_in_even_layers(session, tiny_opt, tmp_path):
    rope = {"rope_type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [2.0, 3.0], "rope_theta": 1e4,
            "partial_rotary_factor": 0.5}  # fmt: skip
    folder = family_folder("phi3", tiny_opt, tmp_path / "model", rope_parameters=rope, max_position_embeddings=512,
                           original_max_position_embeddings=256)  # fmt: skip
    refused_by(UsageError, "has longrope positions, whose angles transformers counts by width / heads",
               lambda: exported(session, folder, tmp_path / "out", "L*H0-1", form="even"))  # fmt: skip
    assert exported(session, folder, tmp_path / "layers", "B1", form="even").checked.difference < 1e-5


WINDOWED = {
    "mistral": {"sliding_window": 24},
    "qwen2": {"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 2},
    "smollm3": {"use_sliding_window": True, "sliding_window": 24, "no_rope_layers": [1, 1, 0]},
    "gpt_neo": {"window_size": 10, "attention_layers": ["global", "local", "local"]},
}  # fmt: skip


@pytest.mark.parametrize("family, form", in_turns(WINDOWED, ["even", "small", "even", "masked"]))
def test_windows_are_those_of_the_layers_that_stay(family, form, session, tiny_opt, tmp_path):
    """An export is compared with the mask, on a text longer than the window, before it is in place."""
    folder = family_folder(family, tiny_opt, tmp_path / "model", **WINDOWED[family])
    assert exported(session, folder, tmp_path / "out", "B0", form=form).checked.difference < 1e-4


def test_a_full_layer_without_heads_still_counts_tokens(session, tiny_opt, tmp_path, outside):
    """Layers 1 and 3 see all tokens, and transformers asks layer 1 how many there are."""
    folder = family_folder("gemma3", tiny_opt, tmp_path / "model", num_hidden_layers=4)
    made = exported(session, folder, tmp_path / "out", "L1H*", form="small")
    [outcome] = outside([(made.folder, "small")])
    assert outcome["said"] == outcome["alone"] and len(outcome["said"]) > len(IDS)


def test_some_heads_of_a_norm_of_all_cannot_be_left_out(session, folder_of, tmp_path):
    refused_by(UsageError, "can be cut out of layer 0; prune all of its heads .L0H.., or use --form masked",
               lambda: exported(session, folder_of("olmo2"), tmp_path / "out", form="small"))  # fmt: skip


@pytest.mark.filterwarnings("ignore")  # the harness's and its libraries' own
@pytest.mark.parametrize("form", ["masked", "small"])
def test_the_harness_gets_headroom_s_accuracy_of_the_folder(form, session, folder_of, tmp_path):
    """lm-evaluation-harness's own HFLM loads the folder by its name, as `lm_eval --model hf` does."""
    from lm_eval.models.huggingface import HFLM

    questions = questions_in(write_questions(tmp_path / "own.jsonl"), session, limit=16)
    made = exported(session, folder_of("llama"), tmp_path / "out", form=form, questions=questions)
    trust = {"trust_remote_code": True} if form == "small" else {}
    lm = HFLM(pretrained=str(made.folder), dtype="float32", device="cpu", batch_size=4, **trust)  # at its defaults
    answers = answered(lm, made.judged.pruned.questions)
    for each, row in zip(answers, made.judged.pruned.log_likelihood_nats, strict=True):
        theirs = [value for value, _ in each]
        torch.testing.assert_close(torch.tensor(theirs), torch.tensor(row[: len(theirs)]).float(), atol=1e-3, rtol=0)


def test_weights_are_kept_in_the_type_that_they_are_stored_in_and_in_several_files(
    session, tiny_opt, tmp_path, monkeypatch
):
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_opt, dtype=torch.bfloat16)
    saved(model, tmp_path / "base", tiny_opt)
    monkeypatch.setattr(folders, "SHARD_BYTES", 20_000)
    made = exported(session, tmp_path / "base", tmp_path / "out", "L0H1 F1")
    files = sorted(made.folder.glob("*.safetensors"))
    assert len(files) > 2 and (made.folder / "model.safetensors.index.json").is_file()
    weights = {name: tensor for file in files for name, tensor in load_file(file).items()}
    assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}
    before = model.model.decoder.layers[0].self_attn.out_proj
    after = weights["model.decoder.layers.0.self_attn.out_proj.weight"]
    assert (after[:, 8:16] == 0).all() and torch.equal(after[:, 16:], before.weight[:, 16:])
    assert torch.equal(weights["model.decoder.layers.0.self_attn.out_proj.bias"], before.bias)
    assert (weights["model.decoder.layers.1.fc2.weight"] == 0).all()
    assert made.checked.difference == 0


def test_the_card_says_what_it_is(session, tiny_opt, tmp_path):
    base = tmp_path / "base"
    shutil.copytree(tiny_opt, base)
    (base / "README.md").write_text("---\nlicense: other\nlicense_name: opt-175b\ntags:\n- x\n---\n# Base\n")
    (base / "LICENSE").write_text("the license")
    questions = questions_in(write_questions(tmp_path / "own.jsonl"), session, limit=12)
    made = exported(session, base, tmp_path / "out", "L0H1", questions=questions, command="headroom export --mask L0H1")
    card, told = (made.folder / "README.md").read_text(), json.loads((made.folder / "headroom.json").read_text())
    assert card.startswith("---\nlicense: other\nlicense_name: opt-175b\n")
    assert "headroom export --mask L0H1" in card and "`L0H1`" in card and "12 questions" in card
    assert "Parentheses show 95% intervals" in card and "Layers and heads are counted from 0." in card
    assert (made.folder / "LICENSE").read_text() == "the license"
    assert (made.folder / "BASE_MODEL_CARD.md").read_text().endswith("# Base\n")
    assert told["mask"] == "L0H1" and told["license"] == "other" and told["accuracy"]["n"] == 12
    low, high = told["accuracy"]["pruned"]["ci95"]
    assert low <= told["accuracy"]["pruned"]["acc"] <= high


@pytest.mark.parametrize("form", ["masked", "small"])
def test_the_lines_of_the_card_load_model_and_tokenizer(form, session, tiny_opt, tmp_path, monkeypatch):
    from transformers import AutoTokenizer

    made = exported(session, tiny_opt, tmp_path / "out", "L0H1", form=form)
    code = (made.folder / "README.md").read_text().split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)  # the folder is named as from where it lies
    found = {}
    exec(code, found)
    text = "Every morning the oldest counted the boats."
    assert found["tokenizer"](text).input_ids == AutoTokenizer.from_pretrained(tiny_opt)(text).input_ids
    assert found["model"](**found["tokenizer"](text, return_tensors="pt")).logits.isfinite().all()


@pytest.mark.parametrize("name", ["LICENSE", "NOTICE.txt", "README.md", "tokenizer_config.json"])
def test_a_file_that_links_out_of_the_base_folder_is_not_exported(name, session, tiny_opt, tmp_path):
    secret, base = tmp_path / "secret", Path(shutil.copytree(tiny_opt, tmp_path / "base"))
    secret.write_bytes(b"{}")
    (base / name).unlink(missing_ok=True)
    (base / name).symlink_to(secret)
    with pytest.raises(HeadroomError, match=f"{name} links to .*secret, outside its folder"):
        exported(session, base, tmp_path / "out", "L0H1")
    assert not list(tmp_path.glob("out*"))


def test_links_of_a_hub_snapshot_and_within_a_folder_are_exported(tiny_opt, tmp_path):
    snapshot = Path(shutil.copytree(tiny_opt, tmp_path / "snapshots" / "abc"))
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "1").write_text("the license")
    (snapshot / "LICENSE").symlink_to(tmp_path / "blobs" / "1")
    (snapshot / "NOTICE").symlink_to(snapshot / "config.json")
    (tmp_path / "link").symlink_to(snapshot)
    for folder in (snapshot, tmp_path / "link"):
        assert {file.name for file in copied(folder)} >= {"LICENSE", "NOTICE", "tokenizer.json"}


@pytest.mark.parametrize(("family", "text", "form"), [("opt", MASK, "masked"), ("llama", MASK, "small"),
                                                      ("gpt2", "B1", "even"), ("llama", "L*H0-1", "even")])  # fmt: skip
def test_sizes_are_known_before_anything_is_read(family, text, form, session, folder_of, tmp_path):
    made = exported(session, folder_of(family), tmp_path / "out", text, form=form)
    target = target_in(session, folder_of(family))
    n_params, n_bytes = sizes(target.identity, parse_mask(text, target.shape), form)
    assert n_params == made.n_params[1] and n_bytes <= made.n_bytes[1] <= n_bytes + 10_000  # and what names them


def test_an_exported_folder_can_be_exported_again(session, folder_of, model_of, tmp_path):
    first = exported(session, folder_of("llama"), tmp_path / "first", "L0H0 F1", form="small")
    second = exported(session, first.folder, tmp_path / "second", "L1H* L2H0-2", form="small")
    expected = masked_logits(model_of("llama"), "L0H0 F1 L1H* L2H0-2")
    torch.testing.assert_close(masked_logits(loaded(second.folder), ""), expected, atol=1e-4, rtol=0)


def test_a_folder_that_is_there_is_refused(session, tiny_opt, tmp_path):
    (tmp_path / "out").mkdir()
    refused_by(UsageError, "is there already", lambda: exported(session, tiny_opt, tmp_path / "out", "L0H1"))
    refused_by(UsageError, "does not exist", lambda: exported(session, tiny_opt, tmp_path / "no" / "out", "L0H1"))


def test_a_full_disk_gives_one_line_and_leaves_nothing(session, tiny_opt, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(folders.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 5_000_000}))
        with pytest.raises(HeadroomError, match="5 MB are free on that disk"):
            exported(session, tiny_opt, tmp_path / "out", "L0H1")
    full = OSError(28, "No space left on device")
    monkeypatch.setattr("safetensors.torch.save_file", lambda *args, **more: (_ for _ in ()).throw(full))
    refused_by(HeadroomError, "No space left on device", lambda: exported(session, tiny_opt, tmp_path / "out", "L0H1"))
    assert not list(tmp_path.glob("out*"))


KILLED = """
import sys, time
from pathlib import Path
from engine.export.folders import written_aside
with written_aside(Path(sys.argv[1]), 1000) as aside:
    (aside / "model.safetensors").write_bytes(b"half")
    print("writing", flush=True)
    time.sleep(600)
"""


def test_a_killed_export_leaves_a_folder_that_says_so_and_the_next_run_removes_it(session, tiny_opt, tmp_path, warm):
    out = tmp_path / "out"
    writer = warm.start(["-c", KILLED, out])
    assert writer.stdout.readline()
    refused_by(HeadroomError, "another export is writing", lambda: exported(session, tiny_opt, out, "L0H1"))
    writer.send_signal(signal.SIGKILL)
    writer.wait(HANG_S)
    writer.communicate()
    assert [path.name for path in tmp_path.glob("out*")] == ["out.unfinished"]
    exported(session, tiny_opt, out, "L0H1")
    assert [path.name for path in tmp_path.glob("out*")] == ["out"] and not list(out.glob("*.unfinished"))
    (tmp_path / "new.unfinished").mkdir()
    refused_by(
        HeadroomError, "is not an unfinished export", lambda: exported(session, tiny_opt, tmp_path / "new", "L0H1")
    )
