"""Writes the embedded questions: JSON lines and a harness YAML a task, so that they take the same path as real tasks.

`python -m engine.demo.suite --out DIR` gives the same bytes on every computer.
"""

import argparse
import json
import random
from pathlib import Path

from engine.demo import tasks_folder
from engine.demo.families import FAMILIES, Family, Item, draw, suite_rule

N_ROWS = 200
COLUMNS = ["context", "choices", "gold"]
YAML = """task: {name}
dataset_path: json
output_type: multiple_choice
training_split: train
validation_split: validation
doc_to_text: "{{{{context}}}}"
doc_to_choice: choices
doc_to_target: gold
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
  - metric: acc_norm
    aggregation: mean
    higher_is_better: true
metadata:
  version: 1.0
"""


def questions(family: Family, split: str) -> list[Item]:
    """The rows of one split: validation from held-out combinations, train from the others, no context twice."""
    rng, rule, found = random.Random(f"{family.name} {split}"), suite_rule(family), {}
    for _ in range(200 * N_ROWS):
        item = draw(family, rng, rule, held_out=split == "validation")
        found.setdefault((item.context, item.choices[item.gold]), item)
        if len(found) == N_ROWS:
            break
    return list(found.values())


def files() -> dict[str, str]:
    """Every file of the suite by its path below the tasks folder."""
    catalogue, content = [], {}
    for name, family in FAMILIES.items():
        catalogue.append({"name": name, "title": family.title, "asks": family.asks, "chance": round(family.chance, 4),
                          "columns": COLUMNS})  # fmt: skip
        content[f"{name}/{name}.yaml"] = YAML.format(name=name)
        for split in ("train", "validation"):
            rows = [{"context": item.context, "choices": list(item.choices), "gold": item.gold}
                    for item in questions(family, split)]  # fmt: skip
            content[f"{name}/{split}.jsonl"] = "".join(json.dumps(row) + "\n" for row in rows)
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
