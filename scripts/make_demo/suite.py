"""Writes the embedded questions: JSON lines and a harness YAML a task, so that they take the same path as real tasks.

`python -m scripts.make_demo.suite --out DIR` gives the same bytes on every computer.
"""

import argparse
import json
import random
from pathlib import Path
from typing import Any

from engine.demo import tasks_folder
from scripts.make_demo.families import FAMILIES, Item, QuestionFamily, draw, suite_rule

N_ROWS = 200
# how a row becomes requests: as in PIQA or ARC, as in WinoGrande, as in LAMBADA
FORMS = {
    "choices": (["context", "choices", "gold"], "multiple_choice", '"{{context}}"', "gold", "  - metric: acc_norm"),
    "contexts": (["choices", "gold", "ending"], "multiple_choice", '"{{gold}}"', "ending", ""),
    "last word": (["text"], "loglikelihood", "\"{{text.split(' ')[:-1]|join(' ')}}\"",
                  "\"{{' '+text.split(' ')[-1]}}\"", "  - metric: perplexity"),
}  # fmt: skip


def yaml(family: QuestionFamily) -> str:
    """The harness's description of one task."""
    _, output_type, context, target, metric = FORMS[family.shape]
    choices = "doc_to_choice: choices\n" if output_type == "multiple_choice" else ""
    delimiter = 'target_delimiter: ""\n' if family.shape == "last word" else ""  # the target brings its own blank
    more = metric and (f"{metric}\n    aggregation: {'perplexity' if 'perplexity' in metric else 'mean'}\n"
                       f"    higher_is_better: {str('perplexity' not in metric).lower()}\n")  # fmt: skip
    return (
        f"task: {family.name}\ndataset_path: json\noutput_type: {output_type}\ntraining_split: train\n"
        f"validation_split: validation\ndoc_to_text: {context}\n{choices}doc_to_target: {target}\n{delimiter}"
        f"metric_list:\n  - metric: acc\n    aggregation: mean\n    higher_is_better: true\n{more}"
        "metadata:\n  version: 2.0\n"
    )


def row(family: QuestionFamily, item: Item) -> dict[str, Any]:
    """One question as it is stored."""
    if family.shape == "last word":
        return {"text": item.solved}
    if family.shape == "contexts":
        contexts = [f"{item.context} {choice}" for choice in item.choices]
        return {"choices": contexts, "gold": item.gold, "ending": item.ending}
    return {"context": item.context, "choices": list(item.choices), "gold": item.gold}


def questions(family: QuestionFamily, split: str) -> list[Item]:
    """The rows of one split: validation from held-out phrases, train from the others, no question twice, every
    place of the right answer equally often."""
    rng, rule, found = random.Random(f"{family.name} {split}"), suite_rule(family), {}
    for _ in range(1000 * N_ROWS):
        item = draw(family, rng, rule, held_out=split == "validation")
        if item.gold == len(found) % len(item.choices):
            found.setdefault((item.context, item.choices[item.gold]), item)
        if len(found) == N_ROWS:
            break
    return list(found.values())


def files() -> dict[str, str]:
    """Every file of the suite by its path below the tasks folder."""
    catalogue, content = [], {}
    for name, family in FAMILIES.items():
        catalogue.append({"name": name, "title": family.title, "asks": family.asks, "chance": round(family.chance, 4),
                          "needs": family.needs, "columns": FORMS[family.shape][0]})  # fmt: skip
        content[f"{name}/{name}.yaml"] = yaml(family)
        for split in ("train", "validation"):
            rows = [row(family, item) for item in questions(family, split)]
            content[f"{name}/{split}.jsonl"] = "".join(json.dumps(found) + "\n" for found in rows)
    return content | {"catalogue.json": json.dumps(catalogue, indent=1) + "\n"}


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the embedded questions.")
    parser.add_argument("--out", type=Path, default=tasks_folder(), help="folder to write to")
    out = parser.parse_args().out
    for path, text in files().items():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
