"""Where training starts: two previous-token heads and two induction heads laid into the initial weights.

On a few million tokens such heads hardly form by themselves; with them in place the model learns at once to use them.
Everything here is only an initial value, and training moves all of it. The model card says so.
"""

import math
from typing import Any

N_POSITION_DIMS = 32  # the first dimensions of the residual stream carry the position as sines and cosines
POSITION_SIZE = 0.1
TOKEN_STD = 0.05


def seed_circuits(model: Any, seed: int = 0) -> None:
    """Changes the weights of a fresh OPT model in place.

    Layer 0, heads 0 and 1 look one position back (a rotation of the sine features) and copy that token's embedding,
    projected to d_head dimensions, into a subspace of their own. Layer 1, heads 0 and 1 look for the position whose
    subspace holds their own token, and write the embedding found there: prefix matching and copying (Olsson et al.).
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    decoder = model.model.decoder
    d_model, d_head = model.config.hidden_size, model.config.hidden_size // model.config.num_attention_heads

    def random(*shape: int, std: float) -> Any:
        return torch.randn(*shape, generator=generator) * std

    with torch.no_grad():
        tokens = decoder.embed_tokens.weight
        tokens.copy_(random(*tokens.shape, std=TOKEN_STD))
        tokens[:, :N_POSITION_DIMS] = 0
        n_pairs = N_POSITION_DIMS // 2
        frequency = math.pi / 2 * (1 / 200) ** (torch.arange(n_pairs) / (n_pairs - 1))
        positions = decoder.embed_positions.weight
        angle = torch.arange(len(positions))[:, None] * frequency
        positions.copy_(random(*positions.shape, std=0.005))
        positions[:, 0:N_POSITION_DIMS:2] = POSITION_SIZE * angle.cos()
        positions[:, 1:N_POSITION_DIMS:2] = POSITION_SIZE * angle.sin()

        back = torch.zeros(N_POSITION_DIMS, N_POSITION_DIMS)  # rotates the features of t into those of t - 1
        for pair, w in enumerate(frequency.tolist()):
            even, odd = 2 * pair, 2 * pair + 1
            back[even, even], back[even, odd] = math.cos(w), math.sin(w)
            back[odd, even], back[odd, odd] = -math.sin(w), math.cos(w)
        for layer in decoder.layers:  # quiet at first: random writes would drown the circuits
            layer.fc2.weight *= 0.2
            layer.self_attn.out_proj.weight *= 0.2
        n_used = N_POSITION_DIMS + 2 * d_head  # dimensions that start without any token embedding
        tokens[:, :n_used] = 0
        for head in range(2):
            rows = slice(head * d_head, (head + 1) * d_head)
            shelf = slice(N_POSITION_DIMS + head * d_head, N_POSITION_DIMS + (head + 1) * d_head)
            reading, copying = torch.zeros(d_head, d_model), torch.zeros(d_head, d_model)
            reading[:, n_used:] = torch.linalg.qr(random(d_model - n_used, d_head, std=1.0))[0].T
            copying[:, n_used:] = torch.linalg.qr(random(d_model - n_used, d_head, std=1.0))[0].T

            first = decoder.layers[0].self_attn
            for weight, block in ((first.q_proj.weight, back), (first.k_proj.weight, torch.eye(N_POSITION_DIMS))):
                weight[rows] = 0
                weight[rows][:N_POSITION_DIMS, :N_POSITION_DIMS] = 2.0 * block[:d_head]
            first.v_proj.weight[rows] = reading
            first.out_proj.weight[:, rows] = 0
            first.out_proj.weight[shelf, rows] = 0.1 * torch.eye(d_head)

            second = decoder.layers[1].self_attn
            second.q_proj.weight[rows] = 1.5 * reading
            second.k_proj.weight[rows] = 0
            second.k_proj.weight[rows, shelf] = 1.5 * torch.eye(d_head)
            second.v_proj.weight[rows] = copying
            second.out_proj.weight[:, rows] = 1.0 * copying.T
