"""The embedded model while it is trained: initial weights, a forward pass in bf16, optimizers, snapshots."""

import copy
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.demo.making.recipe import DemoRecipe, Rows
from engine.training.snapshots import whole_folder

FIRST_POSITION = 2  # OPT's table of positions has two rows that are not used
SPREAD, SPREAD_OF_POSITIONS = 0.02, 0.04


def new_opt(recipe: DemoRecipe) -> Any:
    """An OPTForCausalLM with random weights: normal, 0.02 wide, what writes into the stream 1 / sqrt(2 n_layers) of
    that. The table of positions starts as sines and cosines, twice as large; nothing else is laid in."""
    from transformers import AutoModelForCausalLM, OPTConfig

    torch.manual_seed(recipe.seed)
    config = OPTConfig(
        vocab_size=recipe.n_vocab, hidden_size=recipe.d_model, word_embed_proj_dim=recipe.d_model,
        num_hidden_layers=recipe.n_layers, num_attention_heads=recipe.n_heads, ffn_dim=4 * recipe.d_model,
        max_position_embeddings=recipe.n_ctx, dropout=0.0, attention_dropout=0.0, init_std=SPREAD, bos_token_id=2,
        eos_token_id=2, pad_token_id=1,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    decoder: Any = model.model.decoder
    with torch.no_grad():
        for layer in decoder.layers:
            layer.self_attn.out_proj.weight /= math.sqrt(2 * recipe.n_layers)
            layer.fc2.weight /= math.sqrt(2 * recipe.n_layers)
        n_pairs, slowest = recipe.d_model // 2, 2 / recipe.n_ctx
        rates = slowest ** (torch.arange(n_pairs) / (n_pairs - 1))  # radians a token, from 1 on
        angles = torch.arange(len(decoder.embed_positions.weight))[:, None] * rates
        decoder.embed_positions.weight.copy_(
            SPREAD_OF_POSITIONS * math.sqrt(2) * torch.cat([angles.sin(), angles.cos()], 1)
        )
    return model


class EmbeddedModel(nn.Module):
    """An OPTForCausalLM, `opt`, with a forward pass of its own to be trained by."""

    def __init__(self, recipe: DemoRecipe) -> None:
        super().__init__()
        self.opt = new_opt(recipe)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (batch, n, n_vocab)."""
        return self.opt(input_ids=tokens).logits

    def patterns(self, tokens: Tensor) -> list[Tensor]:
        """Attention patterns (batch, n_heads, n, n) of every layer."""
        return list(self.opt(input_ids=tokens, output_attentions=True).attentions)

    def loss(self, rows: Rows) -> Tensor:
        """Weighted mean of nats a token, every token but each row's first. Computed in bf16."""
        tokens, weights, first_position = torch.from_numpy(rows[0]), torch.from_numpy(rows[1][:, 1:]), rows[2]
        wanted = weights > 0
        with torch.autocast("cpu", torch.bfloat16):
            logits = self.opt.lm_head(self.hidden_states(tokens[:, :-1], first_position)[wanted])
        losses = F.cross_entropy(logits.float(), tokens[:, 1:][wanted], reduction="none")
        return (losses * weights[wanted]).sum() / weights.sum()

    def hidden_states(self, tokens: Tensor, first_position: int) -> Tensor:
        """What the unembedding reads, (batch, n, d_model), where the first token has that position.

        The same as OPT's own forward pass. Attention written out: in bf16 with heads of 32 dimensions it is trained
        half as fast again as through torch's fused one on a CPU.
        """
        decoder, n = self.opt.model.decoder, tokens.shape[1]
        x = decoder.embed_tokens(tokens) + decoder.embed_positions.weight[first_position + FIRST_POSITION :][:n]
        future = torch.full((n, n), -1e4).triu_(1)
        for layer in decoder.layers:
            attention = layer.self_attn
            read = layer.self_attn_layer_norm(x)
            q, k, v = (part(read).unflatten(-1, (attention.num_heads, -1)).transpose(1, 2)
                       for part in (attention.q_proj, attention.k_proj, attention.v_proj))  # fmt: skip
            scores = (q @ k.mT) * attention.scaling
            pattern = (scores + future.to(scores.dtype)).softmax(-1, dtype=scores.dtype)
            x = x + attention.out_proj((pattern @ v).transpose(1, 2).flatten(2))
            x = x + layer.fc2(F.relu(layer.fc1(layer.final_layer_norm(x))))
        return decoder.final_layer_norm(x)


def start(recipe: DemoRecipe) -> tuple[EmbeddedModel, list[torch.optim.Optimizer]]:
    """The model before the first step; Muon for the matrices of its layers, AdamW for positions and the rest."""
    model = EmbeddedModel(recipe)
    groups: dict[str, list[Tensor]] = {"layers": [], "positions": [], "others": []}
    for name, weights in model.named_parameters():
        kind = "positions" if "embed_positions" in name else "others"
        groups["layers" if ".layers." in name and weights.dim() == 2 else kind].append(weights)
    muon = torch.optim.Muon(groups["layers"], weight_decay=0.02, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    rest = [{"params": groups["positions"]}, {"params": groups["others"]}]
    return model, [muon, torch.optim.AdamW(rest, betas=(0.9, 0.98), weight_decay=0.0, fused=True)]


def save(model: EmbeddedModel, recipe: DemoRecipe, tokenizer_file: Path, folder: Path) -> None:
    """Writes the model folder as transformers would: config, fp16 safetensors, tokenizer files."""
    names = {"bos_token": "</s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    with whole_folder(folder, recipe, tokenizer_file, **names) as aside:
        copy.deepcopy(model.opt).to(torch.float16).save_pretrained(aside)
