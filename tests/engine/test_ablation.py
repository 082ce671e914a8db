"""Forced patterns change nothing by themselves; ablations are what theory and plain loops say they are."""

from contextlib import ExitStack, contextmanager, nullcontext

import numpy as np
import pytest
import torch
from scipy import stats

from engine.errors import HeadroomError
from engine.heads.ablation import Ablating, HeadAblations, head_ablations, mean_outputs, patterns_of
from engine.measurement import Workload
from engine.models.masks import Mask, Means, parse_edits, parse_mask, pruned
from engine.models.patterns import visited
from engine.progress import final
from engine.texts.tokenloss import token_losses
from tests.conftest import TEXT
from tests.engine.fixtures import EXAMINED, caught, refused_by, target_in

IDS = torch.tensor([[2, *range(40, 90), *range(40, 90)]])


def logits(model, mask, forced=None):
    attending = nullcontext() if forced is None else visited(model, forced=forced)
    with torch.inference_mode(), pruned(model, mask), attending:
        return model.model(input_ids=IDS).logits[0].double()


@contextmanager
def frozen(model, norms, mask):
    """While open, these norms divide by what they divide by under `mask`."""
    with caught(*norms) as seen:
        logits(model, mask)
    scales = {norm: ablation_scale(norm, x) for norm, x in seen.items()}

    def apply(module, args, output):
        x = args[0]
        if isinstance(module, torch.nn.LayerNorm):
            return (x - x.mean(-1, keepdim=True)) / scales[module] * module.weight + module.bias
        return x / scales[module] * module.weight

    with ExitStack() as stack:
        for norm in norms:
            stack.callback(norm.register_forward_hook(apply).remove)
        yield


def ablation_scale(norm, x):
    if isinstance(norm, torch.nn.LayerNorm):
        return (x.var(-1, correction=0, keepdim=True) + norm.eps).sqrt()
    return (x.square().mean(-1, keepdim=True) + norm.variance_epsilon).sqrt()


def keeping(shape, heads):
    """The mask of an attention-only model with these heads alone."""
    keep = np.zeros((shape.n_layers, shape.n_heads), bool)
    for layer, head in heads:
        keep[layer, head] = True
    return Mask.from_arrays(keep, np.zeros(shape.n_layers, bool))


@pytest.mark.thorough
@pytest.mark.parametrize("text", ["", "L0H1 L2H0 F1"])
@pytest.mark.parametrize("family", EXAMINED)
def test_recorded_patterns_reproduce_the_logits(family, text, model_of):
    model = model_of(family)
    mask = parse_mask(text, model.identity.shape)
    forced, plain = patterns_of(model, IDS, mask), logits(model, mask)
    assert torch.equal(logits(model, mask, forced), logits(model, mask, {}))  # the same function without forcing
    # transformers' own attention; its rounding grows with the logits
    torch.testing.assert_close(logits(model, mask, forced), plain, atol=1e-5 * plain.abs().max().item(), rtol=0)


@pytest.mark.parametrize("family", ["opt", "llama"])
def test_paths_of_an_attention_only_model_add_up(family, model_of):
    """Patterns and norms frozen, an attention-only model is a sum over paths: the direct one, one through each head,
    one through each pair of heads in different layers, ... (Elhage et al. 2021). With two layers of heads there are no
    longer paths, and none through two heads of one layer:
    f(all) = f(none) + sum_h [f(h) - f(none)] + sum_{a before b} [f(a, b) - f(a) - f(b) + f(none)].
    """
    model = model_of(family)
    shape = model.identity.shape
    heads = [(layer, head) for layer in (0, 1) for head in range(shape.n_heads)]  # layer 2 stays silent
    whole = keeping(shape, heads)
    forced = patterns_of(model, IDS, whole)
    norms = [getattr(layer, model.family.norms[0]) for layer in model.family.layer_list(model.model)]

    def f(*kept):
        return logits(model, keeping(shape, kept), forced)

    with frozen(model, [*norms, model.family.final_norm(model.model)], whole):
        none, one = f(), {head: f(head) for head in heads}
        single_terms = sum(one[head] - none for head in heads)
        pairs = [(a, b) for a in heads for b in heads if a[0] < b[0]]
        pair_terms = sum(f(a, b) - one[a] - one[b] + none for a, b in pairs)
        full, same_layer = f(*heads), f((1, 0), (1, 1)) - one[1, 0] - one[1, 1] + none
    torch.testing.assert_close(none + single_terms + pair_terms, full, atol=1e-4, rtol=1e-4)
    assert same_layer.abs().max() < 1e-5 and pair_terms.abs().max() > 0.1


@pytest.mark.parametrize("bos", [True, False])
def test_full_ablation_is_the_mask(bos, folder_of, session):
    target = target_in(session, folder_of("llama"), bos=bos)
    base = parse_mask("L0H0 F2", target.shape)
    found = final(head_ablations(target, [TEXT], Ablating(base)).run(session))
    for layer, head in ((0, 1), (1, 3), (2, 0)):
        mask = parse_edits(f"L{layer}H{head}", target.shape).on(base)
        expected = final(token_losses(target, TEXT, mask).run(session)).loss_nats
        n = min(len(expected), found.base[0].size)
        np.testing.assert_allclose(found.ablated[0][layer, head, :n], expected[:n], atol=1e-5)
    np.testing.assert_array_equal(found.ablated[0][0, 0], found.base[0])  # pruned already


@pytest.mark.parametrize("fill", ["zero", "mean"])
@pytest.mark.parametrize("family", ["opt", "llama"])
def test_pattern_preserving_ablation_equals_a_plain_rerun(family, fill, folder_of, model_of, session):
    """By hand: the patterns of one run put in place of the softmax, z replaced behind them."""
    model, target = model_of(family), target_in(session, folder_of(family), bos=True)
    shape, how = target.shape, Ablating(Mask.full(target.shape), "pattern-preserving", fill)
    found = final(head_ablations(target, [TEXT], how).run(session))
    ids = [2, *model.tokenizer(TEXT, add_special_tokens=False).input_ids][:256]
    model.model.set_attn_implementation("eager")
    with torch.no_grad():
        patterns = model.model(input_ids=torch.tensor([ids]), output_attentions=True).attentions
    for layer, head in ((0, 2), (1, 0)):
        z_mean = torch.zeros(shape.d_head)
        out = model.family.layer_modules(model.model)[layer][0]
        where = slice(head * shape.d_head, (head + 1) * shape.d_head)
        if fill == "mean":
            with torch.no_grad(), caught(out) as seen:
                model.model(input_ids=torch.tensor([ids[:-1]]))
            z_mean = seen[out].reshape(-1, out.in_features).mean(0)[where]

        def replace(module, args, where=where, z_mean=z_mean):
            z = args[0].clone()
            z[..., where] = z_mean
            return (z,)

        softmax, turn = torch.nn.functional.softmax, iter(patterns)
        hook = out.register_forward_pre_hook(replace)
        torch.nn.functional.softmax = lambda *args, turn=turn, **kwargs: next(turn)
        try:
            with torch.no_grad():
                expected = model.model(input_ids=torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
        finally:
            torch.nn.functional.softmax = softmax
            hook.remove()
        losses = -expected[torch.arange(len(ids) - 1), torch.tensor(ids[1:])].numpy()
        np.testing.assert_allclose(found.ablated[0][layer, head, : len(losses)], losses, atol=1e-4)
    model.model.set_attn_implementation("sdpa")


@pytest.mark.thorough
@pytest.mark.parametrize("family", EXAMINED)
def test_means_are_the_means(family, model_of):
    model = model_of(family)
    shape, mask = model.identity.shape, parse_mask("L0H1", model.identity.shape)
    means = mean_outputs(model, IDS, mask)
    whole = IDS.shape[1]
    for layer, (out, ffn) in enumerate(model.family.layer_modules(model.model)):
        with torch.inference_mode(), pruned(model, mask), caught(out) as inputs, caught(ffn, outputs=True) as given:
            model.model(input_ids=IDS)
        z = inputs[out].reshape(whole, shape.n_heads, shape.d_head)
        np.testing.assert_allclose(means.heads[layer], sum(z) / whole, atol=1e-5)
        np.testing.assert_allclose(means.ffns[layer], sum(given[ffn].reshape(whole, -1)) / whole, atol=1e-5)
    assert not means.heads[0, 1].any() and means.heads[0, 0].any()


@pytest.mark.parametrize("family", ["opt", "llama"])
def test_components_give_their_means_in_place_of_zero(family, model_of):
    """With everything replaced by its mean, the residual stream is embeddings plus one constant vector."""
    model = model_of(family)
    shape = model.identity.shape
    nothing = Mask.from_arrays(np.zeros((shape.n_layers, shape.n_heads), bool), np.zeros(shape.n_layers, bool))
    means = mean_outputs(model, IDS, Mask.full(shape))
    first, final = model.family.layer_list(model.model)[0], model.family.final_norm(model.model)
    with torch.inference_mode(), pruned(model, nothing, means), caught(first, final) as seen:
        model.model(input_ids=IDS)
    added = (seen[final] - seen[first]).reshape(IDS.shape[1], -1)
    torch.testing.assert_close(added, added[:1].expand_as(added), atol=1e-4, rtol=1e-4)
    assert added.abs().max() > 0.1


def attribution(n_texts=3, seed=0, n=520):
    rng = np.random.default_rng(seed)
    base = [rng.random(n).astype(np.float32) for _ in range(n_texts)]
    return HeadAblations(tuple(base), tuple(rng.random((2, 3, n)).astype(np.float32) for _ in base))


def test_attribution_to_the_score_by_hand():
    found = attribution()
    mean, low, high = found.icl()
    for layer, head in np.ndindex(2, 3):
        moved = [
            (ablated[layer, head, 499] - ablated[layer, head, 49]) - (base[499] - base[49])
            for base, ablated in zip(found.base, found.ablated, strict=True)
        ]
        assert mean[layer, head] == pytest.approx(np.mean(moved), abs=1e-6)
        ends = stats.t.interval(0.95, 2, np.mean(moved), stats.sem(moved))
        assert (low[layer, head], high[layer, head]) == pytest.approx(ends, abs=1e-5)
    refused_by(HeadroomError, "512 tokens", lambda: attribution(n=511).icl())


def test_attribution_to_a_before_and_after_vector_by_hand():
    found, rng = attribution(), np.random.default_rng(5)
    difference = [rng.normal(size=len(base)) for base in found.base]
    difference[0][:] = np.nan  # a text without a known difference has no token
    given, chosen = found.before_and_after(difference, seed=3), np.random.default_rng(3)
    tokens = [chosen.choice(len(base)) for base in found.base[1:]]
    vector = np.array([change[token] for change, token in zip(difference[1:], tokens, strict=True)])
    vector /= np.linalg.norm(vector)
    for layer, head in np.ndindex(2, 3):
        moved = [
            ablated[layer, head, token] - base[token]
            for base, ablated, token in zip(found.base[1:], found.ablated[1:], tokens, strict=True)
        ]
        assert given[layer, head] == pytest.approx(vector @ moved, abs=1e-6)


def test_each_head_takes_a_pass_and_one_is_that_of_none(folder_of, session):
    target, texts = target_in(session, folder_of("opt")), [TEXT, TEXT.upper()]
    how = Ablating(Mask.full(target.shape), "full", "zero")
    final(head_ablations(target, texts[:1], how).run(session))
    n_passes = target.shape.n_heads_total + 1
    assert head_ablations(target, texts, how).left(session) == Workload({"forward": n_passes * len(texts[1])})
    for other in (("pattern-preserving", "zero"), ("full", "mean")):
        assert head_ablations(target, texts[:1], Ablating(how.mask, *other)).stored(session) is None


def test_an_ablated_head_gives_its_mean_over_all_measured_texts(folder_of, model_of, session):
    """Every position of every text alike; one text at a time, as a screen asks for them, gives the same."""
    target, model, texts = target_in(session, folder_of("opt"), bos=True), model_of("opt"), [TEXT[:400], TEXT[300:420]]
    how = Ablating(Mask.full(target.shape), "full", "mean")
    found = final(head_ablations(target, texts, how).run(session))
    for number, text in enumerate(texts):
        one = head_ablations(target, [text], how, texts).stored(session)
        np.testing.assert_array_equal(one.ablated[0], found.ablated[number])
        assert head_ablations(target, [text], how).stored(session) is None  # other means
    rows = [[2, *model.tokenizer(text, add_special_tokens=False).input_ids] for text in texts]
    means = [mean_outputs(model, torch.tensor([row[:-1]]), how.mask).heads for row in rows]
    n = [len(row) - 1 for row in rows]
    heads = (n[0] * means[0] + n[1] * means[1]) / sum(n)
    instead = Means(heads, np.zeros((target.shape.n_layers, target.shape.d_model), np.float32))
    with torch.inference_mode(), pruned(model, parse_mask("L1H2", target.shape), instead):
        log_p = model.model(torch.tensor(rows[1:])).logits[0].log_softmax(-1)
    expected = -log_p[range(len(rows[1]) - 1), rows[1][1:]].numpy()
    np.testing.assert_allclose(found.ablated[1][1, 2], expected, atol=1e-4)
