"""What the engine's tests share: questions in a file, small models of every family, and a measured run."""

import json
import os
import random
import re
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import lru_cache
from itertools import cycle, product, takewhile
from pathlib import Path

import pytest

from engine.accuracy.evaluation import evaluation
from engine.architecture import families
from engine.errors import HeadroomError
from engine.models.loading import LoadSpec, load
from engine.models.masks import parse_mask
from engine.models.session import Session
from engine.progress import returned as finished  # noqa: F401
from engine.questions.rendering import TaskSpec, render_questions, select
from engine.questions.word_pairs import Pair, PairTask
from tests.conftest import HANG_S, IS_THOROUGH, REPOSITORY, TEXT


def has_anothers_modules(kind: str) -> bool:
    """Whether a family that comes earlier in the list has modules of the same names; models trained here do not count,
    as their attention is their own."""

    def modules(family):
        inside = family.attention.out, family.attention.qkv, family.qk_norms, family.norms_all_heads, family.ffn_out
        return family.is_stock, family.layers, inside, family.norm

    earlier = takewhile(lambda each: each != kind, families.FAMILIES)
    return modules(families.FAMILIES[kind]) in [modules(families.FAMILIES[each]) for each in earlier]


TINY = {name: kind for kind, family in families.FAMILIES.items() for name in family.tiny}  # tiny model -> model_type
UNTIED = "opt-untied"  # OPT but for its unembedding, for what that matters to
FAMILIES = [name for name in TINY if name != UNTIED]
STOCK = [name for name in FAMILIES if families.FAMILIES[TINY[name]].is_stock]  # those that transformers has a class for
# for slow tests, unless thorough: without families whose modules have the names of an earlier one's, as Mistral's have
DISTINCT = FAMILIES if IS_THOROUGH else [name for name in FAMILIES if not has_anothers_modules(TINY[name])]
# for slow tests, unless thorough: without families of which each part is also one of another family that is in it
LATER = ("olmo3", "gemma", "granite", "starcoder2", "stablelm", "cohere", "gptj", "mpt")
EXAMINED = FAMILIES if IS_THOROUGH else [name for name in FAMILIES if TINY[name] not in LATER]


def in_turns(names, *others) -> list[tuple]:
    """Every combination of a name and one of each of `others`; unless thorough, each name once, with those in turns."""
    combined = [*product(*others)]
    if IS_THOROUGH:
        return [(name, *more) for name, more in product(names, combined)]
    return [(name, *more) for name, more in zip(names, cycle(combined))]


SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
         "max_position_embeddings": 256, "initializer_range": 0.3, "vocab_size": 512, "bos_token_id": 2,
         "eos_token_id": 2}  # fmt: skip
# of words that the tiny tokenizer has tokens for
WORD_PAIRS = PairTask("words", tuple(Pair(str(n), word, n % 2 == 0)
                                     for n, word in enumerate(sorted(set(re.findall("[a-z]+", TEXT))))))  # fmt: skip
WORDS = "river boats bread road letters children morning stones question answer water summer".split()


def write_questions(file: Path, n: int = 40, seed: int = 0) -> Path:
    """A task file of n questions with 2 to 4 choices of different lengths, the same ones beside it for training."""
    rng = random.Random(seed)
    rows = []
    for number in range(n):
        choices = [" ".join(rng.sample(WORDS, rng.randint(1, 4))) for _ in range(rng.randint(2, 4))]
        context = f"Question {number}: the {' '.join(rng.choices(WORDS, k=rng.randint(3, 30)))}.\nAnswer:"
        rows.append({"context": context, "choices": choices, "gold": rng.randrange(len(choices))})
    for each in (file, file.with_suffix(".train.jsonl")):
        each.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def write_words(folder: Path, n_files: int, n_words: int = 1500) -> Path:
    """A new folder of files of words, the same at each call."""
    drawn = random.Random(0)
    folder.mkdir()
    words = ["".join(drawn.choices("abcdefghij", k=drawn.randint(2, 7))) for _ in range(300)]
    for number in range(n_files):
        (folder / f"{number}.txt").write_text(" ".join(drawn.choices(words, k=n_words)), encoding="utf-8")
    return folder


def family_folder(family: str, tiny_opt: Path, folder: Path, **changes) -> Path:
    """A random tiny checkpoint of `family`, one of TINY, with the tiny tokenizer; `changes` go into its config."""
    import torch
    import transformers

    from engine.architecture.modeling_headroom import register

    register()
    torch.manual_seed(1)
    kind = TINY[family]
    of = families.FAMILIES[kind]
    usual = {of.own_name(name): value for name, value in SIZES.items()}
    config = transformers.AutoConfig.for_model(kind, **usual | dict(of.tiny[family]) | changes)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    norms = (*of.qk_norms, *of.norms_after)
    gains = tuple(f"{name}.weight" for name in norms if name)
    with torch.no_grad():  # biases are zero when fresh, and a mask must be seen to leave or drop them
        for name, parameter in model.named_parameters():
            if name.endswith(("bias", "smear")):
                parameter.normal_(std=0.3)
            if name.endswith(gains):  # ones or zeros when fresh
                parameter.add_(0.3 * torch.randn_like(parameter))
    return saved(model, folder, tiny_opt)


def saved(model, folder: Path, tiny_opt: Path) -> Path:
    """The folder with that model in it, and the tiny tokenizer."""
    import shutil

    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tiny_opt / name, folder)
    return folder


def zeroed(model, mask):
    """A copy of the model whose pruned parts are gone from its weights."""
    import copy

    import torch

    changed = copy.deepcopy(model.model)
    d_head = model.identity.shape.d_head
    with torch.no_grad():
        for layer, (attention_out, _) in enumerate(model.family.layer_modules(changed)):
            for head, kept in enumerate(mask.heads[layer]):
                span = slice(head * d_head, (head + 1) * d_head)
                if not kept and type(attention_out).__name__ == "Conv1D":  # GPT-2 stores the transpose
                    attention_out.weight[span] = 0
                elif not kept:
                    attention_out.weight[:, span] = 0
            if not mask.ffns[layer]:
                last = model.family.ffn_writers(changed)[layer]
                last.weight.zero_()
                if getattr(last, "bias", None) is not None:
                    last.bias.zero_()
    return changed


def configured(folder: Path, **changes) -> Path:
    """The folder, with these changes in its config.json."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return folder


def bare(folder: Path, to: Path) -> Path:
    """A copy of a model's folder without its weights."""
    import shutil

    return Path(shutil.copytree(folder, to, ignore=shutil.ignore_patterns("*.safetensors")))


@contextmanager
def caught(*modules, outputs=False):
    """A table that fills, while this is open, with what went into each of these modules last, or came out of it."""

    def note(module, args, kwargs, *output):
        seen[module] = output[0] if output else args[0] if args else kwargs["hidden_states"]

    seen = {}
    with ExitStack() as stack:
        for module in modules:
            register = module.register_forward_hook if outputs else module.register_forward_pre_hook
            stack.callback(register(note, with_kwargs=True).remove)
        yield seen


def loaded(folder: Path, precision: str = "fp32"):
    """The model in `folder`, loaded."""
    return load(LoadSpec(str(folder), precision))


def while_measured(wanted, steps):
    """The measurement with other `steps` while it is measured; they take what its own ones yield."""

    def either(session, measures):
        own = wanted.steps(session, measures)
        return (yield from steps(own)) if measures else (yield from own)

    return replace(wanted, steps=either)


def target_in(session: Session, folder, precision: str = "fp32", bos: bool | None = None):
    """The model in `folder` as what is measured."""
    return session.target(LoadSpec(str(folder), precision), bos)


def questions_in(
    file: Path, session: Session | None = None, limit: int | None = None, sample: str = "first", **of_task
):
    """The questions of a task file; `of_task` as TaskSpec has them."""
    return select(
        render_questions(TaskSpec(str(file), **of_task), None, session.store if session else None), limit, sample
    )


def run(session: Session, folder, precision: str, file: Path, text: str, limit: int | None = None):
    """The last Progress of an evaluation of a task file under the mask of that text."""
    target = target_in(session, folder, precision)
    return last(evaluation(target, questions_in(file, session, limit), parse_mask(text, target.shape)).run(session))


def python(code: str, *arguments, **environment: str) -> str:
    """What a program prints in a process of its own that does not have the libraries in memory."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    env = os.environ | environment
    done = subprocess.run(command, cwd=REPOSITORY, env=env, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused_by(error: type[HeadroomError], match: str, call) -> str:
    """The one line by which a call is refused, in which `match` is found."""
    with pytest.raises(error, match=match) as refusal:
        call()
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def left_when(steps, condition=lambda step: step.value is not None):
    """The first step of which that holds, which is by default that it has a value; the steps are closed behind it."""
    found = next(step for step in steps if condition(step))
    steps.close()
    return found


def last(steps):
    """The last Progress."""
    return list(steps)[-1]


def masks_of(shape):
    """A few masks that touch the first and the last layer."""
    texts = ("L0H0", "L0H* F0", "L1H2-3 F1", f"L{shape.n_layers - 1}H* F{shape.n_layers - 1}", "L*H1", "F*")
    return [parse_mask(text, shape) for text in texts]


def small_run(folder: Path, tokens: int = 8192, **of_recipe):
    """A Run in `folder`, trained to its end in a second on a text of its own: 1 layer of 2 heads, width 16, context 64,
    vocabulary 300, 32 steps of 256 tokens and a snapshot every 8, unless `of_recipe` says otherwise.

    The same run is trained once a process, and copied.
    """
    import shutil

    from engine.training.folders import open_run

    sizes = {"n_layers": 1, "n_heads": 2, "d_model": 16, "n_ctx": 64, "n_vocab": 300, "batch": 4, "snapshots": 4}
    sizes |= {"tokens": tokens, "warm_up": 4} | of_recipe
    shutil.copytree(_trained(json.dumps(sizes, sort_keys=True)), folder, dirs_exist_ok=True)
    return open_run(folder)


@lru_cache
def _trained(said: str) -> Path:
    import atexit
    import shutil
    import tempfile

    from engine.training.recipe import Recipe
    from engine.training.running import begin, train

    place = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    rng = random.Random(0)
    (place / "text").mkdir()
    for number in range(24):  # some of them are held out
        lines = (" ".join(rng.choices(WORDS, k=8)) for _ in range(200))
        (place / "text" / f"{number}.txt").write_text(".\n".join(lines))
    for _ in train(begin(place / "run", Recipe(**json.loads(said)), place / "text")):
        pass
    return place / "run"


def foreign_run(folder: Path, tiny_opt: Path, steps=(0, 8, 32, 64), **of_recipe):
    """A Foreign run in `folder`: snapshots of a tiny OPT whose weights move from step to step, 3 held-out texts, and a
    log by which a step has 100 tokens until step 8 and 200 from there."""
    import shutil

    import numpy as np
    from safetensors.numpy import load_file, save_file

    from engine.training.folders import opened

    drawn, lines = np.random.default_rng(0), []
    for step in steps:
        shutil.copytree(tiny_opt, folder / f"step{step}")
        weights = load_file(tiny_opt / "model.safetensors")
        moved = {name: array + np.float32(1e-3 * step) * drawn.normal(size=array.shape).astype(np.float32)
                 for name, array in weights.items()}  # fmt: skip
        save_file(moved, folder / f"step{step}" / "model.safetensors", {"format": "pt"})
        lines.append({"step": step, "tokens": 100 * step + 100 * max(0, step - 8), "seconds": 3600.0 * step,
                      "loss": {"text": 3 - step / 100, "repeats": 2.0} if step else {}, "text": 3.1 - step / 100,
                      "prefix_matching": [["L1H0", step / 100]]})  # fmt: skip
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines[1:]))
    np.save(folder / "held_out.npy", drawn.integers(4, 512, (3, 512)).astype(np.uint16))
    recipe = {"trainer": "someone.else", "label": "a model of ours (2 layers, OPT)", "words": "books, half repeats",
              "n_layers": 2, "n_heads": 4, "d_model": 32, "n_ctx": 256, "n_vocab": 512, "mlp": True, "smeared": False,
              "tokens": lines[-1]["tokens"]}  # fmt: skip
    said = {"recipe": recipe | of_recipe, "text": "books held out"}
    (folder / "recipe.json").write_text(json.dumps(said))
    return opened(folder)


def held_bytes(model) -> int:
    """Bytes of a model in memory: parameters, buffers, and the scales beside its int8 matrices."""
    held = {each.data_ptr(): each.numel() * each.element_size() for each in (*model.parameters(), *model.buffers())}
    for module in model.modules():
        if type(module).__name__ in ("Linear8bitLt", "Int8Linear"):
            scales = module.weight.SCB if module.weight.SCB is not None else module.state.SCB
            held[scales.data_ptr()] = scales.numel() * scales.element_size()
    return sum(held.values())
