"""The figures on a screen, computed anew: by the command that the screen shows, in another process, from nothing."""

import json
import re
import shlex
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd
from scipy.stats import binomtest

from engine.cli import parser
from engine.cli.options import request_of
from engine.models.loading import LoadSpec, identify
from engine.statistics import MIN_QUESTIONS
from tests.conftest import HANG_S
from tests.warm import WarmInterpreter

ONE_BY_ONE = """
import json, sys
from engine.__main__ import main
for line in sys.stdin:
    if code := main(json.loads(line)):
        print(json.dumps({"exit code": code}))
    sys.stdout.flush()
"""
LEVELS = ("Attention heads pruned", "FFNs pruned", "Layers dropped")
AXES = dict(zip(("Heads", "FFNs", "Layers"), LEVELS, strict=True))  # of the control in the bar
FIGURES = ("figure", "losses")  # marks of what is compared
SLOTS = ("questions", "train questions", "accuracy", "text order", "text full", "text pruned")
# Everything that is read off a screen, in one go.
LOOK = """() => {
  const all = (where, what) => [...document.querySelectorAll(where + " " + what)]
  const texts = id => all("[data-testid=stMain]", `[data-testid=${id}]`).map(each => each.innerText)
  const controls = {}
  for (const input of document.querySelectorAll("input[aria-label]"))
    controls[input.ariaLabel] = input.type === "checkbox" ? input.checked : input.value
  for (const radio of document.querySelectorAll("[role=radio][aria-checked=true]"))
    controls[radio.closest("[role=radiogroup]")?.ariaLabel] = radio.textContent
  return {
    controls,
    screen: document.querySelector("[data-testid=stNavSectionHeader], [aria-current=page]")?.innerText ?? "",
    running: document.querySelector("[data-testid=stApp]")?.dataset.testScriptState !== "notRunning",
    text: document.querySelector("[data-testid=stMain]")?.innerText ?? "",
    figures: texts("stMetricValue"), changes: texts("stMetricDelta"),
    commands: [...all("", "[data-mark=command]").map(each => each.dataset.text), ...texts("stCode")]
              .join("\\n").split("\\n"),
    alerts: texts("stAlertContentError"), marks: all("", "[data-mark]").map(each => ({ ...each.dataset })),
    curve: all("", "[aria-label*=' right']").map(each => each.ariaLabel)
           .find(words => /^(Attention heads pruned|FFNs pruned|Layers dropped): at /.test(words)) ?? "",
  }
}"""


class Oracle:
    """The command line in a process of its own, with an empty store for each question put to it."""

    def __init__(self, folder: Path, warm: WarmInterpreter):
        self.folder, self.numbers = folder, count()
        self.process = warm.start(["-c", ONE_BY_ONE], cwd=folder)

    def new_store(self) -> str:
        return str(self.folder / f"store {next(self.numbers)}")

    def run(self, arguments: list[str], store: str) -> dict[str, Any]:
        """What the command prints as JSON."""
        print(json.dumps([*arguments, "--json", "--cache", store]), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        self.process.communicate(HANG_S)


@dataclass
class Comparison:
    """How many figures were compared, and which of them were wrong."""

    n: int = 0
    wrong: list[str] = field(default_factory=list)

    def same(self, what: str, shown: Any, right: Any, within: float = 0.0) -> None:
        self.n += 1
        equal = abs(number(shown) - right) <= within if within else shown == right
        if not equal:
            self.wrong.append(f"{what}: {shown!r} is shown, {right!r} is right")


def number(text: Any) -> float:
    """What is shown, as a number."""
    return float(str(text).replace("−", "-").replace(",", "").replace("%", "").strip())


def waiting(seen: dict[str, Any]) -> bool:
    """Whether a figure is still to come."""
    if not seen["commands"][0] or any(value.startswith(("…", "≈")) for value in seen["figures"]):
        return True
    if any(each["state"] != "measured" for each in seen["marks"] if each["mark"] in FIGURES):
        return True
    return any(job["slot"] in SLOTS for job in of_jobs(seen, "queued", "running"))


def of_jobs(seen: dict[str, Any], *states: str) -> list[dict[str, str]]:
    """The marks of the jobs in one of these states."""
    return [each for each in seen["marks"] if each["mark"] == "job" and each["state"] in states]


def shared(seen: dict[str, Any], command: str) -> list[str]:
    """How the command begins that belongs to the study's model: it names BOS where it is not the model's own."""
    controls = seen["controls"]
    own = identify(LoadSpec(controls["Model"])).default_bos
    chosen = {"on": True, "off": False}.get(controls["Beginning-of-sequence token"], own)
    bos = [] if chosen == own else ["--bos" if chosen else "--no-bos"]
    return ["headroom", command, "--model", controls["Model"], "--precision", controls["Precision"], *bos]


def request(words: list[str]) -> Any:
    """What a command asks."""
    return request_of(parser().parse_args(words[1:]))


def model_of(command: str) -> tuple[Any, Any]:
    """The model that a command asks of, and its beginning token."""
    asked = request(shlex.split(command))
    return asked.spec, asked.bos


def model_in(seen: dict[str, Any]) -> tuple[Any, Any]:
    """The same of the study's model."""
    asked = request([*shared(seen, "continue"), "--prompt", "", "--out", "x.csv"])
    return asked.spec, asked.bos


def by_level(controls: dict[str, Any], instead: dict[str, str]) -> list[str]:
    """What the sliders of Prune prune, as options; some of them at other levels."""
    heads, ffns, layers = ((controls | instead)[name] for name in LEVELS)
    if {heads, ffns, layers} == {"0"}:
        return []
    words = ["--prune-heads", heads, "--prune-ffns", ffns]
    if layers != "0":
        words += ["--prune-layers", layers, "--layer-order", controls.get("Layers by", "influence")]
    return [*words, "--order", controls["Pruning order"], "--order-questions", "64"]


def prune(seen: dict[str, Any], oracle: Oracle, found: Comparison) -> None:
    """The Prune screen: its command belongs to its controls, its figures to its command. Parts that are unfolded show
    commands of their own above it."""
    controls, shots = seen["controls"], seen["controls"]["Examples (shots)"]
    command = shlex.split(next(line for line in seen["commands"] if line.split()[1:2] == ["evaluate"]))
    words = [*shared(seen, "evaluate"), "--task", controls["Task"], "--shots", shots, "--limit", controls["Questions"]]
    words += ["--sample", "stratified"] + (
        ["--same-examples"] if controls["Same examples for every question"] and shots != "0" else []
    )
    words += ["--labels", controls["Labels of the examples"].lower()]
    full = words[1:]
    words += by_level(controls, {})
    words += ["--mask", controls["Prune these as well"]] if controls["Prune these as well"] else []
    found.same("command of the Prune screen", request(command), request(words))
    store, result = oracle.new_store(), []
    for arguments in (full, command[1:]):
        items = Path(oracle.folder / "items.jsonl")
        result.append(oracle.run([*arguments, "--questions-out", str(items)], store))
        result[-1]["right"] = [json.loads(line)["correct"] for line in items.read_text().splitlines()]
    before, after = result
    text, change = seen["text"], seen["changes"][0]
    found.same("accuracy", seen["figures"][0], f"{100 * after['acc']:.1f}%")
    counted = re.search(r"([\d,]+) of (?:the first )?([\d,]+) right", text)
    found.same("questions", counted[2], f"{after['n']:,}")
    found.same("questions right", counted[1], f"{sum(after['right']):,}")
    low, high = re.search(r"interval ([\d.]+) to ([\d.]+)%", text).groups()
    found.same("interval, low", low, f"{100 * after['acc_ci95'][0]:.1f}")
    found.same("interval, high", high, f"{100 * after['acc_ci95'][1]:.1f}")
    counts = re.search(r"([\d,]+) of ([\d,]+) heads, ([\d,]+) of ([\d,]+) FFNs pruned", text)
    found.same("heads pruned", counts[1], f"{after['heads_pruned']:,}")
    found.same("FFNs pruned", counts[3], f"{after['ffns_pruned']:,}")
    if after["acc_norm"] is not None and (norm := re.search(r"([\d.]+)% by length-normalized", text)):
        found.same("length-normalized", norm[1], f"{100 * after['acc_norm']:.1f}")
    few = after["n"] < MIN_QUESTIONS  # the interval stands in place of the change then
    if not after["mask"]:
        found.same("change", change, f"95% interval {low} to {high}%" if few else "the full model")
        return
    pairs = list(zip(before["right"], after["right"], strict=True))
    gained, lost = pairs.count((False, True)), pairs.count((True, False))
    p = binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
    if few:
        accuracy = re.search(r"The full model: ([\d.]+)%", text)[1]
    else:
        points, accuracy = re.search(r"([+−]?[\d.]+) points .* ([\d.]+)%", change).groups()
        found.same("change", points, 100 * (gained - lost) / len(pairs), 0.051)
    found.same("accuracy of the full model", accuracy, f"{100 * before['acc']:.1f}")
    if said := re.search(r"Gained ([\d,]+), lost ([\d,]+) \((p [<=] [\d.]+)", text):  # where it is shown
        p_words = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
        found.same("gained, lost, p", said.groups(), (str(gained), str(lost), p_words))
    if "Too few questions" not in text:
        found.same("change in words", "Within noise" in text, p >= 0.05)
    if not controls["Prune these as well"]:
        curve(seen, full, oracle, store, found)


def curve(seen: dict[str, Any], full: list[str], oracle: Oracle, store: str, found: Comparison) -> None:
    """A point of the curve: the one in the middle of those that are there."""
    points = re.findall(r"at (\d+)% ([\d.]+)% right", seen["curve"])
    if not points:
        return
    level, shown = points[len(points) // 2]
    controls = seen["controls"]
    axis = AXES[controls["What to prune"]]
    right = oracle.run([*full, *by_level(controls, {axis: level})], store)["acc"]
    found.same(f"curve at {level}% of {axis}", shown, f"{100 * right:.1f}")


def read_losses(seen: dict[str, Any], oracle: Oracle) -> pd.DataFrame:
    """What the first command on the screen writes."""
    oracle.run(shlex.split(seen["commands"][0])[1:], oracle.new_store())
    return pd.read_csv(oracle.folder / "losses.csv")


def text(seen: dict[str, Any], oracle: Oracle, found: Comparison) -> None:
    """The Text screen: its mask belongs to the study, and its mean losses to its command."""
    controls, command = seen["controls"], shlex.split(seen["commands"][0])
    if controls.get("Compare with", "") in ("", "none"):
        found.same("command of the Text screen", model_of(seen["commands"][0]), model_in(seen))
    words = [*shared(seen, "evaluate")[1:], "--task", controls["Task"], "--limit", "1"]
    words += ["--shots", controls["Examples (shots)"], *by_level(controls, {})]
    words += ["--mask", controls["Prune these as well"]]
    mask = command[command.index("--mask") + 1] if "--mask" in command else ""
    found.same("mask of the Text screen", mask, oracle.run(words, oracle.new_store())["mask"])
    losses = read_losses(seen, oracle).dropna(subset=["loss_full_nats", "loss_masked_nats"])
    full, pruned = losses["loss_full_nats"].mean(), losses["loss_masked_nats"].mean()
    said = re.search(r"mean loss (?:is |stays at )?([\d.]+)(?: to ([\d.]+))? nats", seen["text"])
    found.same("mean loss of the full model", said[1], full, 6e-3)
    found.same("mean loss of the pruned model", said[2] or said[1], pruned, 6e-3)


CHECKS = {"Prune": prune, "Text": text}
