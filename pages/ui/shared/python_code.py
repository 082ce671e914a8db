"""What a screen shows as a Python program: through the engine's own functions, from the same store.

Each function gives the text of a program that prints the screen's main number.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from engine.importance.rankings_of import Pruning
from engine.models.masks import Mask
from engine.models.session import Target
from engine.questions.requests import TaskSpec
from engine.studies.compare import Comparing
from engine.studies.one_head import HeadRequest
from engine.studies.surveys import StudySettings
from engine.studies.sweeps import Point
from engine.texts.continuation import How
from engine.texts.sources import Source
from pages.ui.shared.defaults import SAMPLE

PACKAGE = __name__.removesuffix("pages.ui.shared.python_code")  # "headroom." where it is installed, "" in a clone
MODULES = {
    "cache": "open_store",
    "engine.accuracy.evaluation": "accuracy evaluation",
    "engine.demo": "passages",
    "engine.heads.attention": "head_views overview",
    "engine.heads.induction": "best_heads induction",
    "engine.importance.rankings_of": "Pruning Ranking orders_of",
    "engine.models.loading": "LoadSpec",
    "engine.models.masks": "parse_edits parse_heads parse_mask",
    "engine.models.session": "Session",
    "engine.progress": "final",
    "engine.questions.requests": "TaskSpec get_requests select",
    "engine.studies.compare": "Comparing areas comparison",
    "engine.studies.one_head": "HeadRequest portrait",
    "engine.studies.surveys": "StudySettings agreement_rows grid survey together written_row",
    "engine.studies.sweeps": "points sweep",
    "engine.studies.two_models": "agreed compared",
    "engine.texts.continuation": "How continuation",
    "engine.texts.incontext": "icl_score",
    "engine.texts.sources": "Source texts_of",
    "engine.texts.tokenloss": "losses_of_texts token_losses",
    "pathlib": "Path",
}


def of_accuracy(target: Target, data_dir: str | None, task: TaskSpec, n: int, pruning: Pruning) -> str:
    """Accuracy on `n` questions of a task under a pruning."""
    lines = [
        f"task = {_task(task)}",
        f"questions = select(get_requests(task, {data_dir!r}, session.store), {n}, {SAMPLE!r})",
        f"typed = parse_edits({pruning.typed.text()!r}, target.shape)",
        "mask = typed.alone",
    ]
    if pruning.by_level:
        layers = f", {pruning.layers_permille}" if pruning.layers_permille else ""
        layers_by = f", layers_by={pruning.ranking.layers_by!r}" if layers else ""
        ranking, levels = pruning.ranking, f"{pruning.heads_permille}, {pruning.ffns_permille}"
        lines += [
            f"ranking = Ranking({ranking.name!r}, {ranking.seed}, {ranking.n_questions}{layers_by})",
            f"pruning = Pruning(task, ranking, {levels}, typed{layers})  # levels in permille",
            f"mask = pruning.mask(final(orders_of(target, pruning, {data_dir!r}).run(session)))",
        ]
    lines += ["answers = final(evaluation(target, questions, mask).run(session))", "print(accuracy(answers))"]
    return program(lines, target)


def of_two_accuracies(both: Sequence[tuple[Target, Pruning]], data_dir: str | None, task: TaskSpec, n: int) -> str:
    """Two models on the same `n` questions of a task, each under its own pruning."""
    ranking, at = both[0][1].ranking, both[0][1]
    by, layers = (f", layers_by={ranking.layers_by!r}", f", {at.layers_permille}") if at.layers_permille else ("", "")
    lines = [
        f"task = {_task(task)}",
        f"questions = select(get_requests(task, {data_dir!r}, session.store), {n}, {SAMPLE!r})",
        f"ranking = Ranking({ranking.name!r}, {ranking.seed}, {ranking.n_questions}{by})",
        "",
        "def answers(target, typed):",
        "    edits = parse_edits(typed, target.shape)",
        f"    levels = {at.heads_permille}, {at.ffns_permille}  # in permille",
        f"    pruning = Pruning(task, ranking, *levels, edits{layers})",
        f"    mask = pruning.mask(final(orders_of(target, pruning, {data_dir!r}).run(session)))",
        "    return final(evaluation(target, questions, mask).run(session))",
        "",
        *(
            f"{name} = answers({_target(target)}, {pruning.typed.text()!r})"
            for name, (target, pruning) in zip(("first", "second"), both, strict=True)
        ),
        "print(compared(first, second).row())",
    ]
    return program(lines)


def of_importance(
    setting: StudySettings, tasks: Sequence[TaskSpec], what: str, second: StudySettings | None = None
) -> str:
    """The most important components over many tasks; and how far a second model's scores agree."""
    lines = [
        *_study(setting),
        f"tasks = {_grid(tasks)}",
        f"found = final(survey(target, setting, tasks, {what!r}).run(session))",
        "mean = together(setting, found.scores)",
    ]
    if what == "ffns":
        lines += ["for layer, score in enumerate(mean.scores):", '    print(f"F{layer} {score:.4g}")']
    else:
        lines += ["for name, score in best_heads(mean.scores, 5):", '    print(f"{name} {score:.4g}")']
    if second is not None:
        lines += [
            f"second = {_setting(second)}",
            "other = session.target(second.spec, second.bos)",
            f"scores = final(survey(other, second, tasks, {what!r}).run(session)).scores",
            "print(agreed(mean.scores, together(second, scores).scores).row())  # of models of one shape",
        ]
    return program(lines)


def of_induction(target: Target, variant: str, seed: int, second: Target | None = None) -> str:
    """The heads that match prefixes best; and how far a second model's scores agree."""
    lines = [
        f"found = final(induction(target, {variant!r}, {seed}).run(session))",
        'for name, score in best_heads(found.mean["prefix_matching"], 5):',
        '    print(f"{name} {score:.3f}")',
    ]
    if second is not None:
        lines += [
            f"other = final(induction({_target(second)}, {variant!r}, {seed}).run(session))",
            'for name in ("prefix_matching", "copying"):  # of models of one shape',
            "    print(name, agreed(found.mean[name], other.mean[name]).row())",
        ]
    return program(lines, target)


def of_losses(a: tuple[Target, Mask], b: tuple[Target, Mask], arguments: Sequence[str]) -> str:
    """The mean loss of a text, named as `texts.Chosen.arguments`, by two models."""
    lines = [f"text = {_text(arguments)}"]
    for name, (target, mask) in (("a", a), ("b", b)):
        of = f"target_{name}" if b[0] != a[0] else "target"
        if of != "target":
            lines.append(f"{of} = {_target(target)}")
        lines.append(f"{name} = final(token_losses({of}, text, {_mask(mask, of)}).run(session))")
    lines += ['print(f"{a.loss_nats.mean():.4f} nats, {b.loss_nats.mean():.4f} by B")']
    return program(lines, a[0] if a[0] == b[0] else None)


def of_attention(target: Target, mask: Mask, arguments: Sequence[str], names: Sequence[str]) -> str:
    """The patterns of some heads on a text."""
    lines = [
        f"text, mask = {_text(arguments)}, {_mask(mask)}",
        f"heads = parse_heads({','.join(names)!r}, target.shape)",
        "seen = final(overview(target, text, mask).run(session))",
        "views = final(head_views(target, text, mask, heads).run(session))",
        "pattern = sum(views[head].pattern for head in heads) / len(heads)",
        'print(f"{len(seen.pieces)} tokens; the last one looks at {seen.pieces[pattern[-1].argmax()]!r}")',
    ]
    return program(lines, target)


def of_continuation(target: Target, prompt: str, mask: Mask, how: How) -> str:
    """What a model says after a prompt under a mask."""
    lines = [
        f"prompt, mask = {prompt!r}, {_mask(mask)}",
        f"how = How({how.n_tokens}, {how.temperature_permille}, {how.seed})  # tokens, temperature in permille, seed",
        "print(final(continuation(target, prompt, mask, how).run(session)).text)",
    ]
    return program(lines, target)


def of_context(target: Target, data_dir: str | None, source: Source, mask: Mask, around: int) -> str:
    """The in-context-learning score of some texts under a mask."""
    if source.kind == "text":
        text = f"Source('text', {source.name!r}, {_text(())}, n_texts={source.n_texts})"
    else:
        text = f"Source({source.kind!r}, {source.name!r}, n_texts={source.n_texts}, seed={source.seed})"
    lines = [
        f"source = {text}",
        f"texts = final(texts_of(target, source, {data_dir!r}).run(session))",
        f"mask = {_mask(mask)}",
        "losses = final(losses_of_texts(target, texts, mask).run(session))",
        f"print(icl_score(losses, around={around}))",
    ]
    return program(lines, target)


def of_correlations(setting: StudySettings, tasks: Sequence[TaskSpec], what: str, aggregate: str) -> str:
    """Every two rankings compared."""
    lines = [
        *_study(setting),
        f"tasks = {_grid(tasks)}",
        f"found = final(survey(target, setting, tasks, {what!r}).run(session))",
        f"for row in agreement_rows(found, {aggregate!r}):",
        "    print(written_row(row))",
    ]
    return program(lines)


def of_sweep(setting: StudySettings, tasks: Sequence[TaskSpec], wanted: Sequence[Point], pool: Sequence[str]) -> str:
    """Accuracies at the `wanted` points, most of them of all `tasks`."""
    lines = [
        *_study(setting),
        f"tasks = {_grid(tasks)}",
        "wanted = [",
        *(f"    *{each}," for each in _points(wanted, tasks)),
        "]",
        f"swept = final(sweep(target, setting, wanted, {list(pool)!r}).run(session))",
        "for row in swept.rows:",
        "    print(row.cells())",
    ]
    return program(lines)


def of_comparison(setting: StudySettings, comparing: Comparing) -> str:
    """The areas of criteria."""
    of = f"{_task(comparing.task)}, {comparing.criteria!r}, {comparing.axis!r}, {comparing.levels!r}"
    lines = [
        *_study(setting),
        f"comparing = Comparing({of}, {comparing.n_seeds})  # levels in permille",
        "for area in areas(final(comparison(target, setting, comparing).run(session))):",
        '    print(f"{area.criterion} {area.area:.3f} {area.verdict}")',
    ]
    return program(lines)


def of_head(target: Target, asked: HeadRequest) -> str:
    """All that is known of one head."""
    lines = [
        f"setting = {_setting(asked.setting)}",
        f"tasks = {_grid(asked.tasks) if asked.tasks else '[]'}",
        f"found = final(portrait(target, HeadRequest({asked.head!r}, setting, tuple(tasks))).run(session))",
        "print(found.verdict)",
    ]
    return program(lines, target)


def program(lines: Iterable[str], target: Target | None = None) -> str:
    """A program of these lines; before them its imports, the store, and the model where one is given."""
    body = ["session = Session(open_store())", *([f"target = {_target(target)}"] if target else []), *lines]
    used = set(re.findall(r"\w+", re.sub(r"'[^']*'|\"[^\"]*\"", "", "\n".join(body))))
    imports = [
        f"from {module if module == 'pathlib' else PACKAGE + module} import {', '.join(each)}"
        for module, names in MODULES.items()
        if (each := [name for name in names.split() if name in used])
    ]
    where = [] if PACKAGE else ["# run in the folder of the clone, with the Python that the app runs with"]
    return "\n".join([*where, *imports, "", *body])


def _target(target: Target) -> str:
    return f"session.target({_spec(target)}, bos={target.bos})"


def _spec(target: Target) -> str:
    return f"LoadSpec({target.spec.model!r}, {target.spec.precision!r})"


def _setting(setting: StudySettings) -> str:
    spec = f"LoadSpec({setting.spec.model!r}, {setting.spec.precision!r})"
    more = f"{setting.bos!r}, {setting.data_dir!r}, {setting.n_questions}, {setting.n_ranking}"
    return f"StudySettings({spec}, {more}, aggregate={setting.aggregate!r})"


def _study(setting: StudySettings) -> list[str]:
    """The lines that name a setting and its model."""
    return [f"setting = {_setting(setting)}", "target = session.target(setting.spec, setting.bos)"]


def _grid(tasks: Sequence[TaskSpec]) -> str:
    names, counts = list(dict.fromkeys(task.name for task in tasks)), sorted({task.shots for task in tasks})
    return f"grid({names!r}, {counts!r})"


def _points(wanted: Sequence[Point], tasks: Sequence[TaskSpec]) -> Iterator[str]:
    """The points as calls of `points`: those of one ranking together, where they are every task at every level."""
    by_ranking: dict[tuple[str, str, int], list[Point]] = {}
    for point in wanted:
        by_ranking.setdefault((point.by, point.of, point.seed), []).append(point)
    for (by, of, seed), mine in by_ranking.items():
        heads, ffns = (list(dict.fromkeys(point.permille(axis) for point in mine)) for axis in ("heads", "ffns"))
        named = {tuple(tasks): "tasks"}
        each = list(dict.fromkeys(point.task for point in mine))
        if len(mine) != len(each) * len(heads) * len(ffns):
            raise ValueError(f"the points by {by} are not every task at every level")
        where = named.get(tuple(each)) or f"[{', '.join(map(_task, each))}]"
        yield f"points({where}, {heads}, {ffns}, {by!r}, {of!r}, {seed})"


def _task(task: TaskSpec) -> str:
    same = ", same_examples=True" if task.same_examples else ""
    return f"TaskSpec({task.name!r}, {task.shots}{same})"


def _mask(mask: Mask, target: str = "target") -> str:
    return f"parse_mask({mask.text()!r}, {target}.shape)"


def _text(arguments: Sequence[str]) -> str:
    """What reads the text that these arguments of the command line name; one's own is saved in a file first."""
    if arguments[:1] == ("--passage",):
        return f"next(each.text for each in passages() if each.title == {arguments[1]!r})"
    return "Path('text.txt').read_text(encoding='utf-8')"
