"""Tasks of lm-evaluation-harness as its own objects: with rows of this computer, a number of examples and a seed; chats
in place of prompts; and which choices count as right.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.architecture.transformers_internals import supply_squad_metrics
from engine.checkpoints.hub_internals import disable_telemetry
from engine.errors import HeadroomError
from engine.questions import lm_eval_internals, rows
from engine.questions.chats import Messages
from engine.questions.tasks import PAIR_COLUMNS, TaskInfo

if TYPE_CHECKING:
    from engine.questions.rendering import TaskSpec


class Chats:
    """Conversations in place of which the harness is given their numbers, until all of them are rendered."""

    def __init__(self) -> None:
        self.conversations: list[Messages] = []

    def add(self, messages: Messages, add_generation_prompt: bool = True) -> str:
        """The number of a conversation, as text. HeadroomError: the assistant's answer has a beginning."""
        if not add_generation_prompt:
            raise HeadroomError("a task whose answers begin with a fixed text cannot be asked as a chat; turn it off")
        self.conversations.append(messages)
        return str(len(self.conversations) - 1)


def golds_and_lengths(harness_task: Any, doc: Any, instances: Sequence[Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(gold choices, lengths of the choices in characters): the harness itself judges an answer for each choice."""
    if harness_task.OUTPUT_TYPE == "loglikelihood":
        return (0,), (len(instances[0].args[1]),)
    golds = []
    for choice in range(len(instances)):
        results = [(0.0 if other == choice else -1e6, False) for other in range(len(instances))]
        metrics = harness_task.process_results(doc, results)
        if metrics.get("acc", metrics.get("em")) == 1:
            golds.append(choice)
    if not golds:
        raise ValueError("no choice counts as right")
    return tuple(golds), tuple(len(choice) for choice in harness_task.doc_to_choice(doc))


def harness_task_of(task: TaskSpec, info: TaskInfo, given: rows.Given | None) -> Any:
    """The harness's task object for local rows or the hub, set to the number of shots and the seed."""
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    supply_squad_metrics(lm_eval_internals.compute_exact, lm_eval_internals.compute_f1)
    import datasets
    import lm_eval.tasks
    from lm_eval.tasks import TaskManager

    datasets.disable_progress_bars()
    config: dict[str, Any] = {
        "task": "own_questions", "output_type": "multiple_choice", "doc_to_text": "{{context}}",
        "doc_to_choice": "choices", "doc_to_target": "gold",
        "metric_list": [{"metric": metric, "aggregation": "mean", "higher_is_better": True}
                        for metric in ("acc", "acc_norm")],
    }  # fmt: skip
    if info.columns == PAIR_COLUMNS:  # as those that come with the package
        config |= {"output_type": "loglikelihood", "doc_to_text": "Q: {{question}}\nA:", "doc_to_choice": None,
                   "doc_to_target": "{{' ' + answer}}", "target_delimiter": "",
                   "metric_list": config["metric_list"][:1]}  # fmt: skip
    manager = TaskManager(include_defaults=False)
    if info.yaml_folder:
        folder = Path(lm_eval.tasks.__file__).parent / info.yaml_folder  # that of an included one is absolute
        manager = TaskManager(include_defaults=False, include_path=[str(folder)])
        config = lm_eval_internals.task_config(manager, info.name)
    if given is not None:
        data = datasets.DatasetDict({split: _data_set(given, split, info) for split in given.files})
        config |= {"dataset_path": None, "dataset_name": None, "dataset_kwargs": None,
                   "custom_dataset": lambda **ignored: data,
                   "training_split": "train", "validation_split": task.split, "test_split": None}  # fmt: skip
    else:
        disable_telemetry()
        if task.split == "train":
            own = config.get("training_split") or config.get("test_split")
            config |= {"validation_split": own, "test_split": None}
    config["num_fewshot"] = task.shots
    try:
        with contextlib.redirect_stdout(sys.stderr):  # the harness prints, and standard output belongs to --json
            harness_task = manager.load([config])["tasks"][config["task"]]
    except Exception as error:
        if given is not None:
            raise HeadroomError(
                f"task {task.name}: the harness cannot use these rows ({error}); check columns"
            ) from error
        raise HeadroomError(
            f"task {task.name}: no local rows, and the hub gave none ({type(error).__name__}); "
            f"give --task-data DIR with {task.name}/validation.jsonl, or check the network"
        ) from error
    harness_task.set_config("num_fewshot", task.shots)
    harness_task.set_fewshot_seed(task.seed)
    return harness_task


def _data_set(given: rows.Given, split: str, info: TaskInfo) -> Any:
    import datasets

    found = given.rows(split, info)
    try:
        return datasets.Dataset.from_list(found)
    except (ValueError, TypeError, OverflowError) as error:  # pyarrow's own errors are among them
        why = rows.changed_column(given.lines[split], found) or f"{type(error).__name__}: {error}"
        raise HeadroomError(f"{given.files[split]}: {why}; write the same kind of value in every row") from error
