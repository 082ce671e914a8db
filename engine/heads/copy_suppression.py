"""Copy suppression of heads (McDougall et al. 2310.04625): does a head lower tokens that the model is about to repeat?

A token of the text counts where the logit lens predicts it: it is among the ten likeliest at a later token, before the
head's layer. Its pair (q, k) is worth A[q, k] times what W_O v_k adds to its logit, relative to the
mean of the vocabulary, by the direct path with all later norms' scales frozen at q, before a cap (Gemma 2). The score
is minus the mean over pairs.

Departures: the paper also asks how much of a head's effect that explains; the text is the included story, in windows of
WINDOW tokens, not a sample of the training data.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.accuracy.restarts import kept
from engine.accuracy.scoring import hidden_of, some_logits
from engine.demo import story
from engine.heads.direct_paths import norms_after
from engine.heads.logit_lens import read_by_final_norm
from engine.measurement import Measurement, measured_apart, single
from engine.models.loading import Loaded
from engine.models.patterns import visited
from engine.models.session import Target
from engine.models.weights import folded, norm_scale, output_weights, unembedding
from engine.pieces import Measuring, Piece
from engine.progress import Progress
from engine.questions.encoding import single_beginning, tokenized
from engine.records import canonical_key
from engine.texts.passages import text_digest
from engine.timing.workload import CHARACTERS_A_TOKEN

if TYPE_CHECKING:
    from torch import Tensor

N_WINDOWS, WINDOW, N_LIKELIEST = 2, 256, 10


@measured_apart
def copy_suppression(target: Target) -> Measurement[np.ndarray]:
    """Returns (L, H), in nats. Windows begin with a beginning token, so the BOS setting does not matter."""
    target, shape = target.as_usual, target.shape
    about = {"text": text_digest(story()), "windows": [N_WINDOWS, WINDOW], "likeliest": N_LIKELIEST}
    # every layer is read by the unembedding too
    lens = shape.n_layers * shape.d_model * shape.n_vocab / max(1, target.identity.n_params)
    tokens = N_WINDOWS * min(WINDOW, shape.n_ctx) * (1 + lens)
    key = canonical_key("copy suppression", target.key_of_patterns() | about)
    shapes = {"scores": (shape.n_layers, shape.n_heads)}
    piece = Piece(key, 1, shapes, _measured, partial(float, CHARACTERS_A_TOKEN * tokens), "patterns")
    return single(target, piece, lambda record: record.arrays["scores"])


def _measured(loaded: Loaded) -> Measuring:
    ids, n = tokenized(story(), loaded.tokenizer)[0].tolist(), min(WINDOW, loaded.identity.shape.n_ctx) - 1
    parts = []
    for number in range(N_WINDOWS):
        yield Progress(0, 1, message="copy suppression", share=number / N_WINDOWS)
        window = [single_beginning(loaded.tokenizer, default=0), *ids[number * n : (number + 1) * n]]
        parts.append(_in_window(loaded, window))
    lowered, pairs = (np.sum(each, 0) for each in zip(*parts, strict=True))
    scores = lowered / np.maximum(pairs, 1)[:, None]
    return {"scores": scores.astype(np.float32)}, {"kind": "copy suppression", "pairs": int(pairs.sum())}


def _in_window(loaded: Loaded, ids: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the sum over pairs (L, H) of how much a head lowers the token, and the pairs (L,)."""
    import torch

    n_layers = loaded.identity.shape.n_layers
    norms = [norms_after(loaded, layer) for layer in range(n_layers)]
    scale, lowered, pairs = {}, {}, np.zeros(n_layers)

    def keep_scale(norm: Any) -> Any:
        return lambda module, args: scale.update({norm: norm_scale(norm, args[0].reshape(len(ids), -1))[:, 0]})

    with torch.inference_mode(), kept(loaded, {*range(n_layers)}) as inputs, ExitStack() as hooks:
        tokens = torch.tensor(ids, device=loaded.model.get_input_embeddings().weight.device)

        def visit(layer: int, pattern: Tensor, z: Tensor, values: Tensor) -> None:
            reader = unembedding(loaded, tokens, final_norm=False, zero_mean=True)
            for norm in reversed(norms[layer]):
                reader = folded(loaded, norm, reader)
            predicted = _predicted(loaded, inputs.pop(layer)[0], tokens).to(pattern.device)
            read = output_weights(loaded, layer).to(reader.device) @ reader.T  # (H, d_head, T)
            added = torch.einsum("htd,hdt->ht", values[0].float().to(read.device), read).to(pattern.device)
            lowered[layer] = -(pattern[0] * predicted * added[:, None]).sum(-1)
            pairs[layer] = float(predicted.sum())

        for norm in dict.fromkeys(chain.from_iterable(norms)):
            hooks.enter_context(norm.register_forward_pre_hook(keep_scale(norm)))
        with visited(loaded, visit):
            hidden_of(loaded, [ids])
        for layer, each in lowered.items():
            for norm in norms[layer]:
                each = each / scale[norm].to(each.device)
            lowered[layer] = each.sum(-1).cpu().double().numpy()
    return np.stack([lowered[layer] for layer in range(n_layers)]), pairs


def _predicted(loaded: Loaded, stream: Tensor, tokens: Tensor) -> Tensor:
    """Returns (T, T): whether the logit lens of the residual stream (T, d_model) at a row has the token of a column
    among its likeliest; only columns before the row."""
    import torch

    found = []
    for _, logits in some_logits(loaded, read_by_final_norm(loaded, stream)):
        likeliest = logits.topk(N_LIKELIEST).indices.to(tokens.device)
        found.append((likeliest[..., None] == tokens).any(1))
    return torch.cat(found).tril(-1)
