"""Head importance against a loop like the one of Bansal et al.'s own code (llm-interpret): examples and memory.

Theirs, written anew from its description: one example a pass (a question with its right answer), the loss from logits
at every position, a backward pass that makes the gradients of all weights except the embeddings, |z . dLoss/dz| of each
head and position. Ours is `engine.importance.scores` with `heads`: the same scores of the same examples, from the
text to the stored result. Theirs has the model as transformers loads it and as many threads as make it fastest, ours
what `engine.models.loading` gives it. Memory is the highest of a process of its own that loads and scores, over what a
process takes that has imported the same and loaded nothing.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator

import numpy as np

from cache import open_store
from engine.importance.scores import importance
from engine.models.loading import LoadSpec, identify
from engine.models.session import Session
from engine.progress import final
from engine.questions.encoding import encode_questions
from engine.questions.rendering import CHUNK, RenderedQuestions, TaskSpec, render_questions, select
from engine.shapes import ModelShape
from tests.benchmarks.measure import Comparison, alone, as_transformers_loads, in_turn, opt_125m, peak_bytes, task_data

DEMO_TASKS = (("demo_sort", 0), ("demo_outfit", 5), ("demo_question", 5))
REAL_TASKS = (("copa", 0), ("arc_easy", 1), ("piqa", 5))  # the last in fp32 alone: bf16 takes theirs half an hour
PRECISIONS = ("fp32", "bf16", "int8")
N_EXAMPLES = {"demo": 3 * CHUNK, "opt": CHUNK}  # whole chunks: one that is begun is scored to its end
N_ROUNDS = 3
FAMILY = "Head importance against llm-interpret's loop"
MEMORY = "Memory of head importance against llm-interpret's loop"


def compare(quick: bool) -> Iterator[Comparison]:
    """Time and peak memory, precision by precision and task by task."""
    with tempfile.TemporaryDirectory() as folder:
        alone(opt_125m, folder)
        for label, model in (("demo model", "demo"), ("OPT-125m shape", folder)):
            for precision in PRECISIONS:
                tasks, data_dir, n = examples(model, precision, quick)
                for task, shots in tasks:
                    name = f"{label}, {precision}, {task}, {shots} shots"
                    yield timed(name, LoadSpec(model, precision), TaskSpec(task, shots, split="train"), data_dir, n)
                longest = (model, precision, *tasks[-1], data_dir, CHUNK)
                yield memory(f"{label}, {precision}, {tasks[-1][0]}, {tasks[-1][1]} shots", longest)


def examples(model: str, precision: str, quick: bool) -> tuple[tuple[tuple[str, int], ...], str | None, int]:
    """(tasks and shots, the last the longest; folder of their rows; examples of each)."""
    data_dir = None if model == "demo" else task_data()
    tasks = DEMO_TASKS if data_dir is None else REAL_TASKS if precision == "fp32" else REAL_TASKS[:2]
    return tasks[:1] if quick else tasks, data_dir, CHUNK if quick else N_EXAMPLES["demo" if model == "demo" else "opt"]


def timed(name: str, spec: LoadSpec, task: TaskSpec, data_dir: str | None, n: int) -> Comparison:
    """Milliseconds an example of both, in turn."""
    import torch

    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as still:
        stores = [still.enter_context(contextlib.closing(open_store(f"{folder}/{at}"))) for at in range(N_ROUNDS + 1)]
        for store in stores:
            identify(spec, store)  # reads the weights for their digest, which is no part of this
        rendered = render_questions(task, data_dir, stores[0])
        session, left = Session(stores[0]), iter(stores)
        loaded = session.models.get(spec)
        n_threads = torch.get_num_threads()
        plain = as_transformers_loads(loaded.identity.folder, spec.precision)
        scores(Session(next(left), session.models), spec, rendered, n)  # both have run before

        def side(threads, run):
            torch.set_num_threads(threads)
            return run()

        def usual(threads, some=n):
            return side(threads, lambda: theirs(loaded.identity.shape, plain, loaded.tokenizer, rendered, some))

        def ours():
            return side(n_threads, lambda: scores(Session(next(left), session.models), spec, rendered, n))

        counts = (1, os.cpu_count() or 1)
        for threads in counts:
            usual(threads, 1)
        tried = in_turn([lambda threads=threads: usual(threads, 2) for threads in counts], 1)
        fastest = counts[min(range(len(counts)), key=lambda at: tried[at].seconds)]
        mine, plain_loop = in_turn([ours, lambda: usual(fastest)], N_ROUNDS)
        torch.set_num_threads(n_threads)
    costs = [each.per(n, 1000) for each in (mine, plain_loop)]
    found, expected = mine.found, plain_loop.found
    apart = np.abs(found - expected).max() / expected.max()
    alike = np.corrcoef(found.ravel(), expected.ravel())[0, 1]
    same = f"scores differ by {apart:.0e} of the largest, r = {alike:.4f}"
    return Comparison(FAMILY, name, "ms an example", *costs, f"{N_ROUNDS} rounds", 3.0, same)


def memory(name: str, arguments: tuple[object, ...]) -> Comparison:
    """Peak memory of both, each in a process of its own."""
    idle, ours, usual = (alone(peak, side, *arguments) / 1e6 for side in ("idle", "ours", "theirs"))
    whole = f"whole process {ours:,.0f} against {usual:,.0f} MB"
    return Comparison(MEMORY, name, "MB over an idle process", (ours - idle,), (usual - idle,), "1 run", 1 / 0.6, whole)


def scores(session: Session, spec: LoadSpec, rendered: RenderedQuestions, n: int) -> np.ndarray:
    """Ours: (L, H)."""
    return final(importance(session.target(spec, True), select(rendered, n), "heads").run(session)).scores


def theirs(shape: ModelShape, model, tokenizer, rendered: RenderedQuestions, n: int) -> np.ndarray:
    """The plain loop over the first n examples: (L, H)."""
    import torch

    questions = rendered.questions[:n]
    encoded, layers = encode_questions(questions, tokenizer, True, shape.n_ctx), model.model.decoder.layers
    golds = [question.golds[0] for question in questions]
    sums, n_positions, n_labels, kept = torch.zeros(shape.n_layers, shape.n_heads), 0, 0, {}

    def keep(layer):
        def hook(module, args):
            kept[layer] = args[0]
            args[0].retain_grad()

        return hook

    frozen = {id(weight) for weight in model.get_input_embeddings().parameters()}
    frozen |= {id(weight) for name, weight in model.named_parameters() if "embed_positions" in name}
    weights = [weight for weight in model.parameters() if weight.is_floating_point() and id(weight) not in frozen]
    model.requires_grad_(False)
    for weight in weights:
        weight.requires_grad_(True)
    hooks = [layer.self_attn.out_proj.register_forward_pre_hook(keep(at)) for at, layer in enumerate(layers)]
    try:
        for choices, gold in zip(encoded, golds, strict=True):
            context, answer = choices[gold].inputs, choices[gold].targets
            tokens = torch.tensor([[*context, answer[-1]]])
            labels = torch.full_like(tokens, -100)
            labels[0, -len(answer) :] = tokens[0, -len(answer) :]
            seen = torch.ones_like(tokens)
            model(input_ids=tokens, attention_mask=seen, labels=labels, use_cache=False).loss.backward()
            for layer, z in kept.items():
                products = (z.detach() * z.grad)[0].view(len(tokens[0]), shape.n_heads, shape.d_head).sum(-1)
                sums[layer] += products.abs().sum(0).float()
            n_positions, n_labels = n_positions + len(context), n_labels + len(answer)
            for weight in weights:
                weight.grad = None
            kept.clear()
    finally:
        for hook in hooks:
            hook.remove()
    sums[:-1] /= n_positions
    sums[-1] /= n_labels
    return sums.numpy()


def peak(side: str, model: str, precision: str, task: str, shots: int, data_dir: str | None, n: int) -> int:
    """Bytes at the highest point of this process, which does one side's work, or imports alone."""
    import bitsandbytes  # noqa: F401
    from transformers import AutoTokenizer, OPTForCausalLM  # noqa: F401

    spec = LoadSpec(model, precision)
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(open_store(folder)) as store:
        rendered = render_questions(TaskSpec(task, shots, split="train"), data_dir, store)
        identity = identify(spec)
        if side == "ours":
            scores(Session(store), spec, rendered, n)
        elif side == "theirs":
            tokenizer = AutoTokenizer.from_pretrained(identity.folder)
            theirs(identity.shape, as_transformers_loads(identity.folder, precision), tokenizer, rendered, n)
    return peak_bytes()
