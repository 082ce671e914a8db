"""The model card of an exported folder: the base model, the command, accuracy and size.

The license is the one named in the base model's files. If they name none, the card says so.
"""

import importlib.metadata
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.accuracy.evaluation import Accuracy, Answers, accuracy
from engine.checkpoints.hub_internals import blobs_of
from engine.checkpoints.identity import Identity
from engine.checkpoints.names import REPO
from engine.errors import HeadroomError
from engine.statistics import paired

CARD_BYTES = 65_536  # read of a card for its header
CARDS = ("README.md", "MODEL_CARD.md")
LICENCE = re.compile(r"^(license|license_name|license_link):[ \t]*(\S.*)$", re.M)


@dataclass(frozen=True)
class Checked:
    """The largest difference of a logit between the exported and the masked model on `n_tokens` tokens, and the largest
    logit; both models in `precision`."""

    difference: float
    largest: float
    n_tokens: int
    precision: str


@dataclass(frozen=True)
class Judged:
    """Answers of the full and of the pruned model to the same questions of a task.

    title, shots: the task
    precision: of the model
    full, pruned: answers without and with the mask
    """

    title: str
    shots: int
    precision: str
    full: Answers
    pruned: Answers

    def fields(self) -> dict[str, Any]:
        """Returns JSON fields: accuracies with their 95% intervals, and the paired differences from the full model."""
        change = paired(self.full.correct, self.pruned.correct)
        low, high = change.interval
        pruned = _accuracy(accuracy(self.pruned)) | {
            "difference": (change.gained - change.lost) / change.n, "difference_ci95": [low, high],
            "gained": change.gained, "lost": change.lost, "p_mcnemar": change.p_mcnemar}  # fmt: skip
        return {"task": self.title, "shots": self.shots, "precision": self.precision, "n": len(self.full),
                "full": _accuracy(accuracy(self.full)), "pruned": pruned}  # fmt: skip


@dataclass(frozen=True)
class Exported:
    """An exported model: its folder, its source, and its measurements.

    folder: where it was written
    form: its form
    mask: the mask in text form
    command: the command that exports it again
    base: name of the base model
    license: license stated by the base model, "" if none
    n_params, n_bytes: parameters and bytes of weights, before and after
    checked: comparison of its logits with the masked model's
    judged: its accuracy, if measured
    """

    folder: Path
    form: str
    mask: str
    command: str
    base: str
    license: str
    n_params: tuple[int, int]
    n_bytes: tuple[int, int]
    checked: Checked
    judged: Judged | None = None

    def fields(self) -> dict[str, Any]:
        """Returns JSON fields."""
        (params_before, params), (bytes_before, n_bytes) = self.n_params, self.n_bytes
        return {
            "out": str(self.folder), "form": self.form, "mask": self.mask, "base": self.base,
            "license": self.license or None, "command": self.command, "parameters": params,
            "parameters_before": params_before, "bytes": n_bytes, "bytes_before": bytes_before,
            "largest_logit_difference": self.checked.difference, "checked": asdict(self.checked),
            "accuracy": None if self.judged is None else self.judged.fields(),
            "headroom": headroom_version(),
        }  # fmt: skip

    @property
    def to_load(self) -> str:
        """The lines of Python that load it, with its tokenizer."""
        return self.lines_to_load(str(self.folder))

    def lines_to_load(self, folder: str) -> str:
        """Returns the lines of Python that load it from `folder`."""
        trust = ", trust_remote_code=True" if self.form == "small" else ""
        return ("from transformers import AutoModelForCausalLM, AutoTokenizer\n"
                f"model = AutoModelForCausalLM.from_pretrained({folder!r}{trust})\n"
                f"tokenizer = AutoTokenizer.from_pretrained({folder!r})")  # fmt: skip


def headroom_version() -> str:
    """Returns the version of the installed program, or in a clone the version in its pyproject.toml."""
    try:
        return importlib.metadata.version("headroom")
    except importlib.metadata.PackageNotFoundError:
        file = Path(__file__).resolve().parents[2] / "pyproject.toml"
        return tomllib.loads(file.read_text(encoding="utf-8"))["project"]["version"]


def license_of(identity: Identity) -> Mapping[str, str]:
    """Returns the license fields in the header of the base model's card, or the license in its config."""
    for card in base_cards(identity.folder):
        with card.open("rb") as file:
            head = re.match(r"---\s*\n(.*?)\n---", file.read(CARD_BYTES).decode("utf-8", "replace"), re.S)
            if head and (found := {key: value.strip() for key, value in LICENCE.findall(head[1])}):
                return found
    name = identity.config.get("license")
    return {"license": name} if isinstance(name, str) and re.fullmatch(r"[\w.+-]{1,60}", name) else {}


def base_of(identity: Identity) -> str:
    """Returns the base model's hub id, or "" for a folder that does not name one."""
    name = str(identity.name if REPO.fullmatch(identity.name) else identity.config.get("_name_or_path", ""))
    return name if "/" in name and REPO.fullmatch(name) else ""


def write_card(folder: Path, identity: Identity, made: Exported) -> None:
    """Writes README.md and headroom.json into the folder."""
    (folder / "README.md").write_text(card(identity, made), encoding="utf-8")
    (folder / "headroom.json").write_text(json.dumps(made.fields(), indent=2) + "\n", encoding="utf-8")


def card(identity: Identity, made: Exported) -> str:
    """Returns the card as Markdown with its YAML header."""
    license, base = license_of(identity), base_of(identity)
    head = [f"{key}: {value}" for key, value in license.items()]
    head += [f"base_model: {base}"] if base else []
    head += ["library_name: transformers", "pipeline_tag: text-generation", "tags:"]
    head += [f"- {tag}" for tag in ("headroom", "pruned", "attention-head-pruning")]
    (params_before, params), (bytes_before, n_bytes) = made.n_params, made.n_bytes
    name = base or Path(made.base).name
    trust = (" The folder includes a modeling file, `modeling_pruned.py`, which `trust_remote_code=True` executes. "
             "Read it before you load the model.") if made.form == "small" else ""  # fmt: skip
    checked = made.checked
    lines = [
        "---", *head, "---", "", f"# {name}, pruned", "",
        f"This model was pruned with Headroom {headroom_version()}. Export form `{made.form}`: "
        f"{_FORMS[made.form]}{trust}", "",
        *([] if license else ["The base model's files do not name a license. Look up its license before you distribute "
                              "this model.", ""]),
        "```python", made.lines_to_load(made.folder.name), "```", "",
        "| | base model | this model |", "|---|--:|--:|",
        f"| parameters | {params_before:,} | {params:,} |", f"| bytes of weights | {bytes_before:,} | {n_bytes:,} |",
        "", f"Pruned components: `{made.mask or 'none'}`", "",
        "`L3H5` is head 5 of layer 3, `F7` is the FFN of layer 7, and `B2` is all of layer 2. Layers and heads are "
        "counted from 0.", "",
        *_judged_lines(made.judged),
        "## How it was made", "", "```sh", made.command, "```", "",
        f"Headroom loaded this folder in {checked.precision} and compared its logits with those of the masked model "
        f"on a text of {checked.n_tokens} tokens. They differ by at most {checked.difference:.3g} (largest logit: "
        f"{checked.largest:.3g}).",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def base_cards(folder: Path) -> list[Path]:
    """Returns the cards in the base model's folder. HeadroomError: as for `copied`."""
    return _own([folder / name for name in CARDS if (folder / name).is_file()])


def copied(folder: Path) -> Sequence[Path]:
    """Returns the files to copy with the weights: tokenizer, generation settings, chat template, license texts.
    HeadroomError: one of them links to a file outside the folder."""
    from engine.checkpoints.identity import TOKENIZER_FILES

    names = {*TOKENIZER_FILES, "generation_config.json", "chat_template.jinja", "chat_template.json"}
    found = [file for file in sorted(folder.iterdir()) if file.is_file()]
    wanted = re.compile(r"(LICEN[CS]E|NOTICE|USE_POLICY)")
    return _own([file for file in found if file.name in names or wanted.match(file.name)])


def _own(files: list[Path]) -> list[Path]:
    """Returns the files. HeadroomError: one is a link to a file outside its folder; only links of a hub snapshot to its
    blobs are allowed."""
    for file in files:
        real, folder = file.resolve(), file.parent.resolve()
        if not real.is_relative_to(folder) and real.parent != blobs_of(folder):
            raise HeadroomError(f"{file} links to {real}, outside its folder, and is not exported; replace the link by "
                                "a copy of the file, or remove it")  # fmt: skip
    return files


_FORMS = {
    "masked": "the stock architecture with zeros for pruned heads and FFNs, as large and as fast as the base model.",
    "small": "pruned components are neither stored nor computed, and layers may have different numbers of heads.",
    "even": "pruned components are neither stored nor computed, and the architecture is stock.",
}


def _judged_lines(judged: Judged | None) -> list[str]:
    if judged is None:
        return []
    fields, rows = judged.fields(), []
    for name, title in (("full", "base model"), ("pruned", "pruned")):
        each = fields[name]
        low, high = (100 * value for value in each["ci95"])
        change = "" if name == "full" else (
            f"{100 * each['difference']:+.1f} ({100 * each['difference_ci95'][0]:+.1f} to "
            f"{100 * each['difference_ci95'][1]:+.1f})")  # fmt: skip
        rows.append(f"| {title} | {100 * each['acc']:.1f} ({low:.1f} to {high:.1f}) | {change} |")
    what = f"{judged.title}, {judged.shots}-shot, {fields['n']:,} questions, measured in {judged.precision}"
    return ["## Accuracy", "", f"{what}. Parentheses show 95% intervals; differences are paired.", "",
            "| | accuracy, % | difference, points |", "|---|--:|--:|", *rows, ""]  # fmt: skip


def _accuracy(found: Accuracy) -> dict[str, Any]:
    return {"acc": found.acc, "ci95": [found.ci_low, found.ci_high]}
