"""Every criterion is what a plain loop over single questions computes from hidden states, plain hooks, gradients and
the checkpoint's own matrices."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.accuracy.evaluation import accuracy, evaluation
from engine.importance.criteria import CRITERIA, passes
from engine.importance.orders import OF_ONE_TASK
from engine.importance.scores import WHAT, importance, measured_from
from engine.models.masks import Mask, single_ablations
from engine.progress import final
from engine.questions.encoding import encode_questions
from tests.conftest import IS_THOROUGH
from tests.engine.fixtures import (
    EXAMINED,
    FAMILIES,
    STOCK,
    family_folder,
    finished,
    loaded,
    questions_in,
    target_in,
    write_questions,
)

N = 18  # more than a chunk, which is 16


def n_questions(family):
    """N, in the short form of one family alone."""
    return N if IS_THOROUGH or family == "opt" else 4


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    return request.param


@pytest.fixture
def about(family, folder_of, tmp_path, session):
    folder = folder_of(family)
    questions = questions_in(write_questions(tmp_path / "own.jsonl", n_questions(family)), session, split="train")
    return session, target_in(session, folder, "fp32", bos=True), questions, folder


def inputs_of(questions, model):
    """The tokens of each question with its right choice, without the last, which nothing is predicted from."""
    asked = questions.at(questions.order[: questions.n])
    encoded = encode_questions(asked, model.tokenizer, True, model.identity.shape.n_ctx)
    return [torch.tensor([choices[question.golds[0]].inputs]) for question, choices in zip(asked, encoded, strict=True)]


def rows(values):
    """(position, width)."""
    return values.detach().reshape(-1, values.shape[-1])


class Plain:
    """A model as transformers has it, layer by layer: (W_V (d_model, H * d_head), W_O (H * d_head, d_model), what an
    FFN reads with, what it writes with), all (inputs, outputs), and the modules that hooks go on."""

    def __init__(self, family, folder):
        self.model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").requires_grad_(False)
        config = self.model.config
        base = self.model.base_model
        lists = (
            (holder, name) for holder in (base, getattr(base, "decoder", base)) for name in ("layers", "h", "blocks")
        )
        self.layers = next(getattr(holder, name) for holder, name in lists if hasattr(holder, name))
        self.weights, self.outs, self.writers, self.ffns = [], [], [], []
        for layer in self.layers:
            of = getattr(self, config.model_type, self.llama_shaped)
            weights, out, writer, ffn = of(layer)
            self.weights.append(weights)
            self.outs.append(out)
            self.writers.append(writer)
            self.ffns.append(ffn)
        self.scale = getattr(config, "residual_multiplier", 1.0)

    def opt(self, layer):
        at = layer.self_attn
        return (at.v_proj.weight.T, at.out_proj.weight.T, [layer.fc1.weight.T], layer.fc2.weight.T), at.out_proj, \
            layer.fc2, layer.fc2  # fmt: skip

    def llama_shaped(self, layer):
        at, mlp = layer.self_attn, layer.mlp
        values = at.v_proj.weight.T.unflatten(1, (-1, 8))
        values = values.repeat_interleave(4 // values.shape[1], dim=1).flatten(1)  # of Llama's two heads share one
        ffn = getattr(layer, "post_feedforward_layernorm", mlp)  # a norm behind it, before the residual sum
        return (values, at.o_proj.weight.T, [mlp.gate_proj.weight.T, mlp.up_proj.weight.T], mlp.down_proj.weight.T), \
            at.o_proj, mlp.down_proj, ffn  # fmt: skip

    def phi3(self, layer):
        at, mlp = layer.self_attn, layer.mlp  # 4 queries of 8, then 2 keys and 2 values that two heads share each
        values = at.qkv_proj.weight.T[:, 48:].unflatten(1, (2, 8)).repeat_interleave(2, dim=1).flatten(1)
        return (values, at.o_proj.weight.T, [mlp.gate_up_proj.weight.T], mlp.down_proj.weight.T), at.o_proj, \
            mlp.down_proj, mlp  # fmt: skip

    def granite(self, layer):
        (*weights, writer), *modules = self.llama_shaped(layer)
        return (weights[0], 0.5 * weights[1], weights[2], 0.5 * writer), *modules

    def phi(self, layer, out="dense", reads="fc1", writes="fc2", at="self_attn"):
        at, mlp = layer.get_submodule(at), layer.mlp
        values = at.v_proj.weight.T.unflatten(1, (-1, 8))
        values = values.repeat_interleave(4 // values.shape[1], dim=1).flatten(1)
        out, reads, writes = getattr(at, out), getattr(mlp, reads), getattr(mlp, writes)
        return (values, out.weight.T, [reads.weight.T], writes.weight.T), out, writes, mlp

    def starcoder2(self, layer):
        return self.phi(layer, "o_proj", "c_fc", "c_proj")

    def gpt_neo(self, layer):
        return self.phi(layer, "out_proj", "c_fc", "c_proj", "attn.attention")

    def gptj(self, layer):
        return self.phi(layer, "out_proj", "fc_in", "fc_out", "attn")

    def gpt2(self, layer):
        at, mlp = layer.attn, layer.mlp
        return (at.c_attn.weight[:, 64:], at.c_proj.weight, [mlp.c_fc.weight], mlp.c_proj.weight), at.c_proj, \
            mlp.c_proj, mlp  # fmt: skip

    def bloom(self, layer):
        (*weights,), out, writes, _ = self.gpt_neox(layer, layer.self_attention)
        return weights, out, writes, writes  # behind it the stream is added

    def falcon(self, layer):
        at = layer.self_attention  # of each key head: the queries that share it, the key, the value
        return self.gpt_neox(layer, at, (at.query_key_value.out_features // 8 - 4) // 2)

    def mpt(self, layer):
        at, mlp = layer.attn, layer.ffn
        return (at.Wqkv.weight.T[:, 64:], at.out_proj.weight.T, [mlp.up_proj.weight.T], mlp.down_proj.weight.T), \
            at.out_proj, mlp.down_proj, mlp.down_proj  # fmt: skip

    def gpt_neox(self, layer, at=None, n_keys=4):
        at, mlp = at or layer.attention, layer.mlp
        values = at.query_key_value.weight.T.reshape(32, n_keys, -1, 8)[:, :, -1]
        values = values.repeat_interleave(4 // n_keys, dim=1).reshape(32, 32)
        reads, writes = mlp.dense_h_to_4h, mlp.dense_4h_to_h
        return (values, at.dense.weight.T, [reads.weight.T], writes.weight.T), at.dense, writes, mlp

    def behind_attention(self, at, given):
        """What the norm behind attention, if any, multiplies each head's part of what is `given` with."""
        if not hasattr(self.layers[at], "post_feedforward_layernorm"):
            return 1.0
        norm = self.layers[at].post_attention_layernorm
        is_gemma = hasattr(norm, "eps")
        epsilon = norm.eps if is_gemma else norm.variance_epsilon
        return (norm.weight + is_gemma) / (given.square().mean(1, keepdim=True) + epsilon).sqrt()

    def scores(self, inputs):
        """Every score of this file by its name."""
        n, heads = len(self.layers), range(4)
        weight, ffn_weight = np.zeros((n, 4)), np.zeros(n)
        z, inner, written = [[] for _ in range(n)], [[] for _ in range(n)], [[] for _ in range(n)]
        first = [[] for _ in range(n)]
        hooks = []
        for at in range(n):
            kept = zip((self.outs, self.writers), (z, inner), strict=True)
            for modules, to in kept:
                hooks.append(modules[at].register_forward_pre_hook(lambda m, args, to=to[at]: to.append(rows(args[0]))))
            hooks.append(
                self.ffns[at].register_forward_hook(
                    lambda m, args, out, to=written[at]: to.append(self.scale * rows(out))
                )
            )
        with torch.no_grad():
            for tokens in inputs:
                for at, pattern in enumerate(self.model(tokens, output_attentions=True).attentions):
                    first[at].append(pattern[0, :, 1:, 0])
        for hook in hooks:
            hook.remove()
        found = {name: np.zeros((n, 4)) for name in ("activation", "wanda", "first")}
        ffns = {name: np.zeros(n) for name in ("activation", "wanda")}
        for at, (values, outputs, readers, writer) in enumerate(self.weights):
            ffn_weight[at] = float(torch.cat(readers, dim=1).norm() * writer.norm())
            features, hidden = torch.cat(z[at]).double(), torch.cat(inner[at]).double()
            after = self.behind_attention(at, features @ outputs.double())
            for head in heads:
                mine = slice(8 * head, 8 * head + 8)
                weight[at, head] = float((values[:, mine] @ outputs[mine]).norm())
                added = features[:, mine] @ outputs[mine].double() * after
                found["activation"][at, head] = float(added.norm(dim=1).mean())
                for column in range(8 * head, 8 * head + 8):
                    size = features[:, column].square().mean().sqrt()
                    found["wanda"][at, head] += float((outputs[column].double().abs() * size).sum())
            found["first"][at] = torch.cat(first[at], dim=1).double().mean(1).numpy()
            ffns["activation"][at] = float(torch.cat(written[at]).double().norm(dim=1).mean())
            ffns["wanda"][at] = float((writer.double().abs() * hidden.square().mean(0).sqrt()[:, None]).sum())
        return {
            "heads-weight": weight, "ffns-weight": ffn_weight, "heads-activation": found["activation"],
            "heads-wanda": found["wanda"], "heads-first-token": 1 - found["first"],
            "ffns-activation": ffns["activation"], "ffns-wanda": ffns["wanda"],
        }  # fmt: skip


@pytest.mark.thorough
def test_scores_without_a_gradient(family, about):
    session, target, questions, folder = about
    expected = Plain(family, folder).scores(inputs_of(questions, finished(session.loaded(target))))
    for what, values in expected.items():
        scores = final(importance(target, questions, what).run(session))
        np.testing.assert_allclose(scores.scores, values, rtol=1e-5, err_msg=what)


@pytest.mark.thorough
@pytest.mark.parametrize("family", EXAMINED, indirect=True)
def test_taylor_is_the_mean_size_of_the_gates_gradients(family, about):
    session, target, questions, _ = about
    model = finished(session.loaded(target))
    asked = questions.at(questions.order[: questions.n])
    _, gates = plain_loop(model, asked)
    found = final(importance(target, questions, "heads-taylor").run(session)).scores
    np.testing.assert_allclose(found, np.abs(gates).mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        found, final(importance(target, questions, "gate").run(session)).scores, rtol=2e-3, atol=1e-5
    )
    by_gate = np.zeros((len(asked), target.shape.n_layers))
    for number, (question, tokens) in enumerate(zip(asked, inputs_of(questions, model), strict=True)):
        encoded = encode_questions([question], model.tokenizer, True, 256)[0][question.golds[0]]
        gate = torch.ones(target.shape.n_layers, requires_grad=True)
        hooks = [ffn.register_forward_hook(lambda m, a, out, at=at, gate=gate: out * gate[at])
                 for at, (_, ffn) in enumerate(model.family.layer_modules(model.model))]  # fmt: skip
        logits = model.model(tokens).logits[0]
        n = len(encoded.targets)
        torch.nn.functional.cross_entropy(logits[-n:], torch.tensor(encoded.targets)).backward()
        by_gate[number] = gate.grad.numpy()
        for hook in hooks:
            hook.remove()
    found = final(importance(target, questions, "ffns-taylor").run(session)).scores
    np.testing.assert_allclose(found, np.abs(by_gate).mean(0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("precision", ["int8", "bf16"])
def test_scores_of_other_precisions_are_about_the_same(precision, tiny_opt, tmp_path, session):
    questions = questions_in(write_questions(tmp_path / "own.jsonl", 8), session, split="train")
    folder = family_folder("llama", tiny_opt, tmp_path / "model")
    for what in measured_from("weights", "activity"):
        found = [final(importance(target_in(session, folder, each, bos=True), questions, what).run(session)).scores
                 for each in ("fp32", precision)]  # fmt: skip
        np.testing.assert_allclose(found[1], found[0], rtol=0.1, err_msg=what)
        assert (found[1] != found[0]).any(), "a number of fp32 under the key of another precision"


def test_the_table_has_a_score_of_heads_and_of_ffns_for_every_criterion(tiny_opt, tmp_path, session):
    target = target_in(session, tiny_opt, "fp32")
    questions = questions_in(write_questions(tmp_path / "own.jsonl", 4), session, split="train")
    for name, criterion in CRITERIA.items():
        assert name in OF_ONE_TASK and {criterion.heads, criterion.ffns} <= {*WHAT}
        assert name in ("importance", "gradient") or criterion.heads == f"heads-{name}"
        assert criterion.ffns in ("ffns", f"ffns-{name}")
        for what in (criterion.heads, criterion.ffns):
            wanted = importance(target, questions, what)
            assert wanted.stored(session) is None and passes(what, target.shape) >= 1
            kinds = {
                "forward": (*measured_from("ablations", "masks"), "heads-function-vector"),
                "gradient": measured_from("gradients"),
                "patterns": {*measured_from("activity", "prompts", "words")} - {"heads-function-vector"},
            }
            [*found] = wanted.left(session).characters
            assert found == [kind for kind, names in kinds.items() if what in names], "weights read nothing"
            assert wanted.whole() == wanted.left(session)
    assert list(session.store.keys()) == [] or session.models.loaded is None, "nothing is computed to be read"


def test_one_pass_serves_what_is_counted_in_it(tiny_opt, tmp_path, session):
    """Activation, Wanda and the first token share their records, and so do importance and Taylor of heads."""
    target = target_in(session, tiny_opt, "fp32")
    questions = questions_in(write_questions(tmp_path / "own.jsonl", 20), session, split="train")
    final(importance(target, questions, "heads-wanda").run(session))
    final(importance(target, questions, "heads").run(session))
    for what in ("ffns-wanda", "heads-activation", "ffns-activation", "heads-first-token", "heads-weight",
                 "ffns-weight", "heads-taylor", "ffns-taylor"):  # fmt: skip
        assert importance(target, questions, what).stored(session) is not None, what


def test_prefix_matching_ranks_those_that_match_last(tiny_opt, tmp_path, session):
    from engine.heads.probes import prefix_matching

    target = target_in(session, tiny_opt, "fp32")
    questions = questions_in(write_questions(tmp_path / "own.jsonl", 4), session, split="train")
    found = final(importance(target, questions, "heads-prefix").run(session))
    examples = [np.random.default_rng((0, each)) for each in range(10)]
    expected = prefix_matching(loaded(tiny_opt), 25, examples)["prefix_matching"].mean(0)
    np.testing.assert_allclose(found.scores, expected, rtol=1e-5)
    assert found.n == 10 and not Mask.full(target.shape).n_heads_pruned


def train_questions(session, folder, tmp_path, n, precision="fp32"):
    """(session, target, questions of the train split)."""
    questions = questions_in(write_questions(tmp_path / "own.jsonl", n), session, split="train")
    return session, target_in(session, folder, precision, bos=True), questions


def plain_loops(model, questions):
    """(I_h of Bansal et al. by autograd on z itself, one example at a time; the same with the last layer divided by all
    positions, (L, H) each; gate gradients of each question)."""
    shape = model.identity.shape
    sums, positions, labels = np.zeros((shape.n_layers, shape.n_heads)), 0, 0
    gates = []
    for question, choices in zip(
        questions, encode_questions(questions, model.tokenizer, True, shape.n_ctx), strict=True
    ):
        choice, kept, hooks = choices[question.golds[0]], [], []

        def keep(module, args, kept=kept):
            z = args[0].detach().requires_grad_() if not kept else args[0]
            if kept:
                z.retain_grad()
            kept.append(z)
            return (z, *args[1:])

        for attention_out, _ in model.family.layer_modules(model.model):
            hooks.append(attention_out.register_forward_pre_hook(keep))
        tokens = torch.tensor([choice.inputs])
        logits = model.model(tokens).logits[0]
        n = len(choice.targets)
        loss = torch.nn.functional.cross_entropy(logits[-n:], torch.tensor(choice.targets))
        loss.backward()
        for hook in hooks:
            hook.remove()
        product = torch.stack(
            [(z.detach() * z.grad)[0].view(len(tokens[0]), shape.n_heads, shape.d_head).sum(-1) for z in kept]
        )
        sums += product.abs().sum(1).numpy()
        gates.append(product.sum(1).numpy())
        positions, labels = positions + len(choice.inputs), labels + n
    by_positions, gates = sums / positions, np.array(gates)
    return np.concatenate([by_positions[:-1], sums[-1:] / labels]), by_positions, gates


def plain_loop(model, questions):
    """(I_h, gate gradients)."""
    scores, _, gates = plain_loops(model, questions)
    return scores, gates


@pytest.mark.thorough
@pytest.mark.parametrize("family", [family for family in EXAMINED if family in STOCK])
def test_heads_by_gradient(family, folder_of, tmp_path, session):
    folder = folder_of(family)
    _, target, questions = about = train_questions(session, folder, tmp_path, n_questions(family))
    scores = final(importance(*about[1:], "heads").run(about[0]))
    model = finished(session.loaded(target))
    expected, by_positions, gates = plain_loops(model, questions.rendered.questions)
    np.testing.assert_allclose(scores.scores, expected, rtol=1e-4)
    n_stored = len([*session.store.keys()])
    again = final(importance(*about[1:], "heads-one-divisor").run(about[0]))
    np.testing.assert_allclose(again.scores, by_positions, rtol=1e-4)
    assert len([*session.store.keys()]) == n_stored, "both are of the same passes"
    np.testing.assert_allclose(scores.gate_heads[:, 0], gates, rtol=2e-3, atol=1e-6)  # kept in fp16


def test_int8_ranks_like_fp32(tiny_opt, tmp_path, session):
    precisions = ("fp32", "int8")
    each = (train_questions(session, tiny_opt, tmp_path, 20, precision) for precision in precisions)
    found = [final(importance(target, questions, "heads").run(session)) for session, target, questions in each]
    assert np.corrcoef(found[0].scores.ravel(), found[1].scores.ravel())[0, 1] > 0.98
    assert found[1].n_zero < 0.05 * found[1].gate_heads.size


@pytest.mark.parametrize("what", ["ffns", "heads-oracle"])
def test_oracle_is_the_accuracy_lost(what, tiny_opt, tmp_path, session):
    about = train_questions(session, tiny_opt, tmp_path, 30)
    scores, shape = final(importance(*about[1:], what).run(about[0])), about[1].shape
    full = final(evaluation(*about[1:], Mask.full(shape)).run(about[0]))
    for mask, score in zip(single_ablations(shape, what), scores.scores.ravel(), strict=True):
        without = final(evaluation(*about[1:], mask).run(about[0]))
        assert score == pytest.approx(accuracy(full).acc - accuracy(without).acc)
    assert len(set(scores.tie_break.ravel())) == scores.scores.size
