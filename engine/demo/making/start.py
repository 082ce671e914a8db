"""Where training starts: heads that look back a fixed number of tokens, and heads that match and copy, laid into the
initial weights.

On a few million tokens such heads hardly form by themselves; with them in place the model learns at once to use them.
Everything here is only an initial value, and training moves all of it. The model card says so.
"""

import math
from typing import Any

N_POSITION_DIMS = 32  # the first dimensions of the residual stream carry the position as sines and cosines
N_SHELF_DIMS = 24  # dimensions that hold what one looking-back head found
OFFSETS = (1, 2, 3, 4)  # layer 0, head i: OFFSETS[i] tokens back
# layer 1, head i: finds where the token so many back (0: the current one) stood one further back, copies what is there
MATCHES = (0, 0, 1, 2, 3)
POSITION_SIZE = 0.1
TOKEN_STD = 0.05


def seed_circuits(model: Any, seed: int = 0) -> None:
    """Changes the weights of a fresh OPT model in place.

    Layer 0, heads 0 to 3 look 1 to 4 positions back (a rotation of the sine features) and copy that token's embedding,
    projected to `N_SHELF_DIMS` dimensions, into a subspace of their own. Layer 1, heads 0 and 1 look for the position
    whose first subspace holds their own token, and write the embedding found there: prefix matching and copying
    (Olsson et al.). Layer 1, heads 2 to 4 do the same for a key that stood 1 to 3 tokens before the current one.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    decoder = model.model.decoder
    d_model, d_head = model.config.hidden_size, model.config.hidden_size // model.config.num_attention_heads

    def random(*shape: int, std: float) -> Any:
        return torch.randn(*shape, generator=generator) * std

    def shelf(offset: int) -> slice:
        first = N_POSITION_DIMS + OFFSETS.index(offset) * N_SHELF_DIMS
        return slice(first, first + N_SHELF_DIMS)

    n_used = shelf(OFFSETS[-1]).stop  # dimensions that start without any token embedding

    def projection(n_rows: int) -> Any:
        """(n_rows, d_model) with orthonormal rows, over the dimensions of the token embeddings."""
        matrix = torch.zeros(n_rows, d_model)
        matrix[:, n_used:] = torch.linalg.qr(random(d_model - n_used, n_rows, std=1.0))[0].T
        return matrix

    with torch.no_grad():
        tokens = decoder.embed_tokens.weight
        tokens.copy_(random(*tokens.shape, std=TOKEN_STD))
        tokens[:, :n_used] = 0
        n_pairs = N_POSITION_DIMS // 2
        frequency = math.pi / 2 * (1 / 200) ** (torch.arange(n_pairs) / (n_pairs - 1))
        positions = decoder.embed_positions.weight
        angle = torch.arange(len(positions))[:, None] * frequency
        positions.copy_(random(*positions.shape, std=0.005))
        positions[:, 0:N_POSITION_DIMS:2] = POSITION_SIZE * angle.cos()
        positions[:, 1:N_POSITION_DIMS:2] = POSITION_SIZE * angle.sin()
        for layer in decoder.layers:  # quiet at first: random writes would drown the circuits
            layer.fc2.weight *= 0.2
            layer.self_attn.out_proj.weight *= 0.2

        reading = projection(N_SHELF_DIMS)
        first, second = decoder.layers[0].self_attn, decoder.layers[1].self_attn
        for head, offset in enumerate(OFFSETS):
            start = head * d_head
            rows, used = slice(start, start + d_head), slice(start, start + N_SHELF_DIMS)
            first.q_proj.weight[rows] = 0
            first.k_proj.weight[rows] = 0
            first.v_proj.weight[rows] = 0
            first.out_proj.weight[:, rows] = 0
            first.q_proj.weight[rows, :N_POSITION_DIMS] = 2.0 * _rotation(frequency * offset)[:d_head]
            first.k_proj.weight[rows, :N_POSITION_DIMS] = 2.0 * torch.eye(N_POSITION_DIMS)[:d_head]
            first.v_proj.weight[used] = reading
            first.out_proj.weight[shelf(offset), used] = 0.1 * torch.eye(N_SHELF_DIMS)
        for head, back in enumerate(MATCHES):
            start = head * d_head
            rows, used = slice(start, start + d_head), slice(start, start + N_SHELF_DIMS)
            second.q_proj.weight[rows] = 0
            second.k_proj.weight[rows] = 0
            second.k_proj.weight[used, shelf(back + 1)] = 1.5 * torch.eye(N_SHELF_DIMS)
            if back:
                second.q_proj.weight[used, shelf(back)] = 1.0 * torch.eye(N_SHELF_DIMS)
            else:
                second.q_proj.weight[used] = 1.5 * reading
            copying = projection(d_head)
            second.v_proj.weight[rows] = copying
            second.out_proj.weight[:, rows] = (0.5 if back else 1.0) * copying.T


def _rotation(angles: Any) -> Any:
    """(2 n, 2 n): turns n pairs of sine features back by `angles`."""
    import torch

    turned = torch.zeros(2 * len(angles), 2 * len(angles))
    for pair, angle in enumerate(angles.tolist()):
        even, odd = 2 * pair, 2 * pair + 1
        turned[even, even], turned[even, odd] = math.cos(angle), math.sin(angle)
        turned[odd, even], turned[odd, odd] = -math.sin(angle), math.cos(angle)
    return turned
