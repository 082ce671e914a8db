"""What daeb778 wrote into a shared folder is found by the commands of today; `tests/daeb778.py` says how it was made.

Each command has an empty store of its own. A changed key, or a record that is read in another way, makes it load the
model, which fails.
"""

import json
import os
import shlex
import shutil

import pytest

from engine import demo
from engine.models import loading
from engine.questions.tasks import embedded_tasks

TASK = "--task boats.jsonl --ranking-questions 16"
BOTH = "--tasks boats.jsonl,roads.jsonl --ranking-questions 16"
HEAD = "--tasks boats.jsonl --ranking-questions 16 --shots 0 --limit 20"
RANKINGS = (
    "weight activation wanda taylor oracle prefix first-token reversed random within-layers induction-first "
    "induction-protected"
).split()
# one of those that are read from the same records
SCORES = (
    "gate heads-oracle ffns heads-one-divisor heads-taylor ffns-activation heads-wanda heads-first-token heads-prefix"
).split()
COMMANDS = {
    "levels": f"evaluate {TASK} --prune-heads 40 --prune-ffns 50 --items OUT",
    "mask": "evaluate --task boats.jsonl --shots 2 --mask 'L0H1 F1'",
    "same examples": "evaluate --task boats.jsonl --shots 2 --same-examples --limit 10 --sample stratified",
    "two precisions": f"evaluate {TASK} --precision bf16 --against int8 --prune-heads 40",
    **{f"ranking {each}": f"evaluate {TASK} --prune-heads 40 --prune-ffns 50 --ranking {each}" for each in RANKINGS},
    **{
        f"layers {each}": f"evaluate {TASK} --prune-layers 50 --layers-by {each}"
        for each in ("influence", "oracle", "greedy", "last-first", "random")
    },
    "heads": "importance --task boats.jsonl --limit 16 --shots 1 --out OUT",
    **{
        each: f"importance --task boats.jsonl --limit 16 --sample stratified --what {each} --out OUT" for each in SCORES
    },
    "induction": "induction --out OUT",
    "induction bansal": "induction --variant bansal --seed 3 --out OUT",
    "layers": "layers --task boats.jsonl --limit 16 --greedy 1",
    "losses": "losses --text letter.txt --mask L1H0-2 --out OUT",
    "losses of windows": "losses --text letter.txt --window 16 --stride 8 --out OUT",
    "losses of two models": "losses --solved boats.jsonl --texts 1 --other-precision bf16 --mask-a L0H0 --out OUT",
    "perplexity": "perplexity --text letter.txt --mask L1H0",
    "perplexity of windows": f"perplexity {TASK} --passage 'Privet Drive, twice' --window 16 --prune-heads 40",
    "correlate": f"correlate {BOTH} --shots 0,1 --induction --out OUT",
    "sweep": f"sweep {BOTH} --shots 0,1 --limit 20 --heads 0,40 --ffns 0,50 --by aggregate --out OUT",
    "compare": f"compare {TASK} --limit 20 --criteria importance,weight,oracle --levels 0,40 --seeds 2 --out OUT",
    "attention": "attention --passage 'Three languages' --heads L1H0,L0H2 --mask L0H0 --out OUT",
    "attribute": "attribute --solved boats.jsonl --model ./wide --out OUT",
    "continue": "continue --prompt 'The river' --tokens 8 --mask L1H0 --out OUT",
    "continue, drawn": "continue --prompt 'The river' --tokens 8 --temperature 0.8 --seed 3 --out OUT",
    "trajectory": "trajectory run --out OUT",
    "trajectory of ablations": "trajectory run --what ablations --ablation-texts 2 --out OUT",
    "idealise, a task": "idealise --task boats.jsonl --limit 10 --heads L1H0",
}
# numbers of another kind since daeb778: means of the measured texts, whole texts; `head` changed once more
CHANGED = {
    "attribute": "attribute --solved boats.jsonl --texts 1 --kind pattern-preserving --fill mean "
    "--before-and-after F0 --model ./wide --out OUT",
    "idealise": "idealise --passage 'Three languages' --heads L1H0,L1H1",
}
SPEED = "speed --task boats.jsonl --prune-heads 50 --ranking random"


@pytest.fixture
def old(unpacked, keys_of_then, monkeypatch):
    """The same as the current folder, with the passages of then; loading a model fails."""
    monkeypatch.chdir(unpacked)
    monkeypatch.setattr(demo, "FOLDER", unpacked / "demo")
    embedded_tasks.cache_clear()
    monkeypatch.setattr(loading, "load", lambda *more: pytest.fail("the model was loaded"))
    yield unpacked
    embedded_tasks.cache_clear()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_finds_what_daeb778_shared(name, old, cli, tmp_path, monkeypatch):
    finds_in(old / "shared", COMMANDS[name], cli, tmp_path, monkeypatch)


@pytest.mark.parametrize("name", CHANGED)
def test_a_command_whose_numbers_have_changed_finds_those_of_8155879(name, old, cli, tmp_path, monkeypatch):
    monkeypatch.setenv("HEADROOM_SHARED", "shared")
    with pytest.raises(pytest.fail.Exception, match="the model was loaded"):
        is_cached(cli, CHANGED[name], tmp_path, tmp_path / "results")
    for folder in ("shared", "since"):
        shutil.copytree(old / folder, tmp_path / "both", dirs_exist_ok=True)
    finds_in(tmp_path / "both", CHANGED[name], cli, tmp_path, monkeypatch)


def test_speed_is_found_where_8155879_measured_it(old, cli, tmp_path):
    """How fast a machine is stays in its own store."""
    assert is_cached(cli, SPEED, tmp_path, old / "store")


def finds_in(shared, line, cli, tmp_path, monkeypatch):
    """A command with an empty store finds all that it needs in a shared folder, and adds nothing to it."""
    monkeypatch.setenv("HEADROOM_SHARED", str(shared))
    before = files(shared)
    assert is_cached(cli, line, tmp_path, tmp_path / "empty")
    assert files(shared) == before, "something was measured again"


def is_cached(cli, line, tmp_path, store):
    """Whether the command says that all of it was stored."""
    words = [tmp_path / "out.csv" if word == "OUT" else word for word in shlex.split(line)]
    if words[0] != "trajectory":
        words += [] if "--precision" in words else ["--precision", "fp32"]
        words += [] if "--model" in words else ["--model", "./tiny"]
    code, out, lines = cli(*words, "--cache", store, "--json")
    assert code == 0, lines
    return json.loads(out)["cached"]


def files(folder):
    """The names of all files below a folder."""
    return {name for _, _, names in os.walk(folder) for name in names}
