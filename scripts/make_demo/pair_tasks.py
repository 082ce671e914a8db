"""Writes the included tasks of word pairs from engine/questions/word_pairs.csv:
`python -m scripts.make_demo.pair_tasks`.
"""

import json
import re
from pathlib import Path

from engine.questions.word_pairs import PairTask, read_pairs

FOLDER = Path(__file__).resolve().parents[2] / "engine" / "questions" / "pairs"
TITLES = {  # and what they ask, by the title of the column of answers
    "capital": ("Capitals", "the capital of a country"),
    "opposite": ("Opposites", "the opposite of a word"),
    "plural": ("Plurals", "the plural of a noun"),
    "past": ("Past tense", "the past tense of a verb"),
    "ing-form": ("Present participle", "the -ing form of a verb"),
    "first letter": ("First letters", "the first letter of a word"),
    "french": ("English to French", "a word in French"),
    "spanish": ("English to Spanish", "a word in Spanish"),
}
CONFIG = """\
task: {name}
dataset_path: json
output_type: loglikelihood
training_split: train
validation_split: validation
doc_to_text: "Q: {{{{question}}}}\\nA:"
doc_to_target: "{{{{' ' + answer}}}}"
target_delimiter: ""
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
metadata:
  version: 1.0
"""


def name_of(task: PairTask) -> str:
    return "pairs_" + re.sub(r"[^a-z]", "_", task.name.partition("-")[2])


def files() -> dict[str, str]:
    """The content of every file, by its path in the folder."""
    found, catalogue = {}, []
    for task in read_pairs(FOLDER.with_name("word_pairs.csv")):
        name, (title, asks) = name_of(task), TITLES[task.name.partition("-")[2]]
        catalogue.append({"name": name, "title": title, "asks": f"{asks}, written out exactly", "chance": 0.0,
                          "needs": "examples", "columns": ["question", "answer"]})  # fmt: skip
        for split, pairs in (("train", task.train), ("validation", task.test)):
            rows = ({"question": pair.question, "answer": pair.answer} for pair in pairs)
            found[f"{name}/{split}.jsonl"] = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        found[f"{name}/{name}.yaml"] = CONFIG.format(name=name)
    found["catalogue.json"] = json.dumps(catalogue, indent=1) + "\n"
    return found


if __name__ == "__main__":
    for path, text in files().items():
        (FOLDER / path).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / path).write_text(text, encoding="utf-8")
    print(f"Written: {FOLDER}")
