"""Comparison of an export, loaded back from disk, with the masked model, by their logits on a text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from engine.demo import story
from engine.errors import HeadroomError
from engine.models.loading import Loaded, LoadSpec, load
from engine.models.masks import Mask, Means, pruned
from engine.models.session import Session, Target
from engine.placement.needs import memory_estimate
from engine.questions.encoding import read

TOKENS = 256
MOST = 0.01  # of the largest logit: an export that differs by more is discarded


@dataclass(frozen=True)
class Checked:
    """The largest difference of a logit between the exported and the masked model on `n_tokens` tokens, and the largest
    logit; both models in `precision`."""

    difference: float
    largest: float
    n_tokens: int
    precision: str


def reference_model(session: Session, target: Target) -> Loaded:
    """Loads the base model in fp32, or in bf16 if fp32 does not fit. The session's model is unloaded first."""
    session.models.unload()
    about, loading = target.identity.model_config, target.identity.loading_bytes
    fits = [each for each in ("fp32", "bf16") if memory_estimate(about, each, loading).fits]
    precision = fits[0] if fits else "bf16"  # if neither fits, loading raises the error
    return load(replace(target.spec, precision=precision), session.store)


def masked_logits(loaded: Loaded, bos: bool, mask: Mask, means: Means | None = None) -> np.ndarray:
    """Returns (T, V) logits under the mask on a built-in text."""
    with pruned(loaded, mask, means):
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
