"""Export of a pruned model as a folder: planned, written to a temporary folder, loaded back, compared with the masked
model by their logits on a text, described, then renamed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from engine.accuracy.evaluation import evaluation
from engine.architecture.family import family_of, is_tied, smears_keys
from engine.architecture.model_config import BUFFERS
from engine.checkpoints.compact_checkpoint import is_small, stock_tensors
from engine.checkpoints.identity import Identity
from engine.checkpoints.tensor_index import contents
from engine.checkpoints.tensors import LazyTensor, under_own_names
from engine.checkpoints.tokenizer import AS_WRITTEN, OWN, SETTINGS, tokenizer_settings
from engine.checkpoints.weight_files import read_json, weight_files
from engine.demo import story
from engine.errors import HeadroomError, UsageError, refuse_unknown
from engine.export.card import Checked, Exported, Judged, base_cards, copied, license_of, write_card
from engine.export.even import even
from engine.export.folders import folder_bytes, named_folder, refuse_taken, write_weights, written_aside
from engine.export.forms import FORMS, ExportForm, masked, small, small_model
from engine.models.loading import Loaded, LoadSpec, load
from engine.models.masks import Mask, pruned
from engine.models.session import Session, Target
from engine.placement.needs import memory_estimate
from engine.progress import Progress, last_value
from engine.questions.encoding import read
from engine.questions.rendering import Questions

PLANS = {"masked": masked, "small": small, "even": even}
TOKENS = 256
MOST = 0.01  # of the largest logit: an export that differs by more is discarded
# of transformers 5 alone: classes, which tokenizer.json describes whole, and what it writes about where files came from
NEW_CLASSES = ("TokenizersBackend", "PythonBackend", "SentencePieceBackend", "MistralCommonBackend")
NEW_SETTINGS = ("backend", "is_local", "local_files_only", "files_loaded", "response_template", "chat_control_tokens")
ROPE_NAMES = {"rotary_emb_base": "rope_theta", "rotary_pct": "partial_rotary_factor"}  # as GPT-NeoX's config has them


@dataclass(frozen=True)
class Export:
    """An export request. UsageError: unknown form, or `out` already exists.

    mask: components to prune
    out: folder to write
    form: one of FORMS
    command: the equivalent command line
    questions: on which accuracy is measured, if any
    folder: `out` as an absolute path
    """

    mask: Mask
    out: str
    form: str = "masked"
    command: str = ""
    questions: Questions | None = None
    folder: Path = field(init=False)

    def __post_init__(self) -> None:
        refuse_unknown("form", self.form, FORMS)
        object.__setattr__(self, "folder", named_folder(self.out))
        refuse_taken(self.folder)


def export(session: Session, target: Target, asked: Export) -> Iterator[Progress[Exported]]:
    """Yields Progress in MB of weights; the value of the last is the Exported. The folder is removed if the export is
    closed early or fails. HeadroomError: the form does not allow this mask, the disk is full, or the exported model
    does not compute the same as the masked one."""
    identity, folder, make = target.identity, asked.folder, PLANS[asked.form]
    _refuse_small(identity)
    for files in (copied, base_cards):  # rejected before anything is measured
        files(identity.folder)
    with stock_tensors(identity.folder, is_tied(identity.config)) as tensors:
        total = 3 * make(identity, tensors, asked.mask).n_bytes // 1_000_000 + 3  # read to compare, written, read again
        judged = yield from _judged(session, target, asked, total)
        yield Progress(0, total, message="loading the full model to compare", is_loading=True)
        loaded = reference_model(session, target)
        plan = make(identity, tensors, asked.mask)
        expected = masked_logits(loaded, target.bos, asked.mask)
        spec, tokenizer = loaded.spec, loaded.tokenizer
        del loaded
        with written_aside(folder, plan.n_bytes) as aside:
            for done, name in write_weights(aside, plan.tensors):
                yield Progress(total // 3 + done // 1_000_000, total, message=f"writing {name}")
            _write_beside(identity, tokenizer, aside, plan)
            yield Progress(2 * total // 3, total, message="loading the exported model to compare", is_loading=True)
            checked = compared(expected, spec, aside, target.bos, small_model if asked.form == "small" else None)
            before = sum(file.stat().st_size for file in weight_files(identity.folder))
            made = Exported(folder, asked.form, asked.mask.text(), asked.command, identity.name,
                            license_of(identity).get("license", ""), (identity.n_params, plan.n_params),
                            (before, folder_bytes(aside)), checked, judged)  # fmt: skip
            write_card(aside, identity, made)
    yield Progress(total, total, made)


def sizes(identity: Identity, mask: Mask, form: str) -> tuple[int, int] | None:
    """Returns (parameters, bytes of weights) of an export, computed only from the tensor index of the files, or None if
    they have none or the base model is a `small` export itself. UsageError: the form does not allow this mask."""
    _refuse_small(identity)
    entries = [contents(file) for file in weight_files(identity.folder)]
    if is_small(read_json(identity.folder / "config.json", "the folder is damaged")):
        return None
    stored = {}
    for inside in entries:
        if inside is None:
            return None
        stored |= {name: LazyTensor(name, entry.shape, entry.dtype, _unread) for name, entry in inside.items()
                   if not BUFFERS.fullmatch(name)}  # fmt: skip
    stored = under_own_names(stored, family_of(identity.config))
    plan = even(identity, stored, mask, reads=False) if form == "even" else PLANS[form](identity, stored, mask)
    return plan.n_params, plan.n_bytes


def _refuse_small(identity: Identity) -> None:
    """Raises UsageError if no class of transformers computes the same as this model."""
    if not family_of(identity.config).is_stock:
        what = "smeared keys" if smears_keys(identity.config) else "positions outside the residual stream (shortformer)"
        raise UsageError(f"{identity.name} has {what}, which no class of transformers supports, so it cannot be "
                         f"exported; open its folder in Headroom")  # fmt: skip


def _unread() -> Any:
    raise AssertionError("only sizes are needed")


def _judged(
    session: Session, target: Target, asked: Export, total: int
) -> Generator[Progress[Any], None, Judged | None]:
    """Measures accuracy of the full and of the masked model, or reads it from the store."""
    if asked.questions is None:
        return None
    answers = []
    for mask, label in ((Mask.full(target.shape), "accuracy of the full model"), (asked.mask, "accuracy, pruned")):
        answers.append(
            (yield from last_value(evaluation(target, asked.questions, mask).run(session), 0, total, 0, label))
        )
    task = asked.questions.task
    return Judged(Path(task.name).name, task.shots, target.spec.precision, *answers)


def _write_beside(identity: Identity, tokenizer: Any, aside: Path, plan: ExportForm) -> None:
    """Writes config, tokenizer and other files, including the base model's card."""
    base = identity.folder
    for file in copied(base):
        shutil.copyfile(file, aside / file.name)
    for card in base_cards(base)[:1]:
        shutil.copyfile(card, aside / "BASE_MODEL_CARD.md")
    config = plan.config if plan.files else config_of_both(plan.config)  # uneven layers need version 5
    (aside / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    _write_tokenizer_settings(identity, tokenizer, aside, names_class=bool(plan.files))
    for name, text in plan.files.items():
        (aside / name).write_text(text, encoding="utf-8")


def _write_tokenizer_settings(identity: Identity, tokenizer: Any, aside: Path, names_class: bool) -> None:
    """Rewrites tokenizer_config.json in names of transformers 4 and 5. It names the class if transformers does not know
    the model's type and could not infer it (`names_class`), or would take one that gives other tokens."""
    settings = tokenizer_settings(aside)
    found = dict(settings)
    if identity.reading.is_own:
        if not (aside / OWN).is_file():
            tokenizer.backend_tokenizer.save(str(aside / OWN))
        found |= {name: token for name, token in tokenizer.special_tokens_map.items() if isinstance(token, str)}
        found["tokenizer_class"] = AS_WRITTEN[0]
    elif names_class and "tokenizer_class" not in found:
        found["tokenizer_class"] = type(tokenizer).__name__
    found = tokenizer_settings_of_both(found, (aside / OWN).is_file())
    if found != settings:
        (aside / SETTINGS).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def reference_model(session: Session, target: Target) -> Loaded:
    """Loads the base model in fp32, or in bf16 if fp32 does not fit. The session's model is unloaded first."""
    session.models.unload()
    fits = [each for each in ("fp32", "bf16") if memory_estimate(target.identity.model_config, each).fits]
    precision = fits[0] if fits else "bf16"  # if neither fits, loading raises the error
    return session.models.checked(load(replace(target.spec, precision=precision), session.store))


def masked_logits(loaded: Loaded, bos: bool, mask: Mask) -> np.ndarray:
    """Returns (T, V) logits under the mask on a built-in text."""
    with pruned(loaded, mask):
        return _logits(loaded.model, _token_ids(loaded, bos))


def compared(
    expected: np.ndarray, given: LoadSpec, folder: Path, bos: bool, model_of: Callable[..., Any] | None = None
) -> Checked:
    """Compares the model in `folder` with the masked model's logits (`expected`), loaded with the same settings
    (`given`); `model_of` builds it from a folder and a dtype if it is not a stock model. HeadroomError: it differs."""
    loaded = load(replace(given, model=str(folder)))
    model = loaded.model if model_of is None else model_of(folder, loaded.model.dtype)
    found = _logits(model, _token_ids(loaded, bos))
    difference, largest = float(np.abs(found - expected).max()), float(np.abs(expected).max())
    if not difference <= MOST * largest:
        raise HeadroomError(f"the exported model's logits differ from the masked model's by {difference:.3g} (the "
                            f"largest is {largest:.3g}); the export is discarded, please report this")  # fmt: skip
    return Checked(difference, largest, len(expected), given.precision)


def _token_ids(loaded: Loaded, bos: bool) -> Any:
    """Returns (1, T) ids of the built-in text."""
    import torch

    ids = read(story(), loaded.tokenizer, bos, min(TOKENS, loaded.identity.shape.n_ctx) - 1).inputs
    return torch.from_numpy(ids.astype(np.int64))[None]


def _logits(model: Any, ids: Any) -> np.ndarray:
    import torch

    with torch.inference_mode():
        return model(ids.to(model.get_input_embeddings().weight.device)).logits[0].float().cpu().numpy()


def config_of_both(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with the fields of version 4 next to those that version 5 renamed: without them version 4 takes the
    default for rotary positions without a word."""
    known, older = family_of(config).fields, {"torch_dtype": config.get("dtype")}
    rope = config.get("rope_parameters")
    if isinstance(rope, Mapping):
        found = _rope_fields(rope, config)
        older |= {name: found.get(ROPE_NAMES.get(name, name)) for name in (*found, *ROPE_NAMES) if name in known}
    return {**{name: value for name, value in older.items() if value is not None}, **config}


def _rope_fields(rope: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """What version 4 calls rotary positions: those of all layers, or of layers without a window and with one."""
    whole, windowed = rope.get("full_attention") or rope, rope.get("sliding_attention") or {}
    apart = ("rope_theta", "partial_rotary_factor")
    scaling = {name: value for name, value in whole.items() if name not in apart}
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "longrope" and config.get("model_type") == "phi3":  # whose class in version 4 takes these alone
        scaling = {"type": kind, **{name: scaling[name] for name in ("short_factor", "long_factor")}}
    found = {name: whole.get(name) for name in apart}
    return found | {
        "rope_scaling": None if kind in (None, "default") else scaling,
        "original_max_position_embeddings": whole.get("original_max_position_embeddings"),
        "rope_local_base_freq": windowed.get("rope_theta"),
    }


def tokenizer_settings_of_both(settings: Mapping[str, Any], is_fast: bool) -> dict[str, Any]:
    """What tokenizer_config.json says, in names of both versions. `is_fast`: there is a tokenizer.json."""
    found = {name: value for name, value in settings.items() if name not in NEW_SETTINGS}
    if found.get("tokenizer_class") in NEW_CLASSES and is_fast:
        found["tokenizer_class"] = "PreTrainedTokenizerFast"
    if isinstance(found.get("extra_special_tokens"), list):
        extra = found.pop("extra_special_tokens")
        found.setdefault("additional_special_tokens", extra)
    if isinstance(named := found.pop("model_specific_special_tokens", None), dict):
        found["extra_special_tokens"] = named | (found.get("extra_special_tokens") or {})
    return found
