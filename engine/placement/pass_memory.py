"""Memory of the largest passes of a study, counted from a model's shape."""

from dataclasses import replace

from engine.architecture.model_config import ModelConfig
from engine.placement.free_memory import CPU
from engine.placement.needs import WORKSPACE_BYTES, Needs, load_needs

READ_POSITIONS = 128  # positions whose logits scoring computes at once: 128 x 50,272 x 4 bytes = 26 MB
CACHED_POSITIONS = 8  # positions whose logits it converts to fp32 at once: 1.6 MB, which fit in the processor's cache
CONTEXT_BYTES = 600_000_000  # of a GPU's memory, for the driver and the libraries' code
STORED_BYTES = {"float32": 4}  # of a value in a checkpoint; two in any other type


def study_needs(model: ModelConfig, precision: str, device: str, n_tokens: int) -> Needs:
    """What a study needs on a "cpu" or "cuda" device: loading, then passes over `n_tokens` at once, as long as the
    longest row may be, some of which keep what gradients need."""
    needs = load_needs(model, precision, lambda each: _loading_bytes(model, each), device)
    on_cpu = device == CPU
    workspace = [WORKSPACE_BYTES, workspace_bytes(model, precision, n_tokens)]
    if precision == "int8":
        workspace.append(gradient_bytes(model))
    running = dict(needs.running) | {"workspace": max(workspace)}
    if not on_cpu:
        running["libraries"] = CONTEXT_BYTES
    gradients = kept_bytes(model, precision, n_tokens, on_cpu)
    return replace(needs, layer=dict(needs.layer) | {"gradients": gradients}, running=running)


def workspace_bytes(model: ModelConfig, precision: str, n_tokens: int) -> int:
    """Peak bytes of a forward pass over one row of so many tokens, weights excluded: the residual stream and the inside
    of an FFN, the masks of attention, and the logits of positions that are read together."""
    size, shape = _size(precision), model.shape
    inside = 2 * size + (1 + 4 if precision == "int8" else 0)  # before and after the activation; int8 in, int32 out
    stream = n_tokens * (3 * size * shape.d_model + inside * shape.d_mlp)
    logits = shape.n_vocab * (min(n_tokens, READ_POSITIONS) * size + CACHED_POSITIONS * 4)
    return stream + n_tokens**2 * (size + 2) + logits


def kept_bytes(model: ModelConfig, precision: str, n_tokens: int, on_cpu: bool) -> int:
    """Bytes that a layer keeps of a forward pass until gradients pass back through it: what its norms and activations
    read, queries, keys, values and z, and what its FFN gives. On a CPU attention is in fp32 then; on a GPU int8 keeps
    what its matrices read, too."""
    d, size = model.shape.d_model, _size(precision)
    widths = 3 * d + (3 if model.is_gated else 1) * model.shape.d_mlp + model.d_heads
    widths += 2 * d if precision == "int8" and not on_cpu else 0
    heads = 2 * model.d_heads + 2 * model.d_key_values
    return n_tokens * (widths * size + heads * (4 if on_cpu else size))


def gradient_bytes(model: ModelConfig) -> int:
    """Bytes of a layer's largest matrix when int8 is made 16 bits for a gradient to pass through it, with the one that
    it is made of in between."""
    shape = model.shape
    return 2 * 2 * shape.d_model * max(shape.d_mlp, model.d_heads)


def _loading_bytes(model: ModelConfig, precision: str) -> int:
    """The largest tensor as it is stored, if that is in another type: it is held next to the weights for a moment."""
    stored = model.config.get("dtype") or model.config.get("torch_dtype") or "float16"
    if stored == ("float32" if precision == "fp32" else "bfloat16"):
        return 0
    shape = model.shape
    largest = max(shape.n_vocab * model.d_embedding, shape.d_model * max(shape.d_mlp, model.d_heads))
    return largest * STORED_BYTES.get(str(stored), 2)


def _size(precision: str) -> int:
    return 4 if precision == "fp32" else 2
