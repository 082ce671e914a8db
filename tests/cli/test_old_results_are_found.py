"""What an earlier version stored is found by this one: its keys are literals here, and its store serves.

The model that it measured, its questions and the passages lie beside it, whatever comes with the app today: all but the
weights, of which their table of contents and their digest are enough, as no model is loaded: whatever is not found in
that store fails at once. Where keys have to change, SCHEMA is raised and this store is filled anew.
"""

import json
import os
import pickle
import shlex
import zipfile
from pathlib import Path

import pytest

from cache import open_store
from cache.store import Store
from engine import demo, records
from engine.__main__ import main
from engine.checkpoints import identity as checkpoints
from engine.kernels import kernel_choice as tuning
from engine.models import loading
from engine.models.loading import LoadSpec
from engine.models.session import Session
from engine.questions.tasks import embedded_tasks
from tests.cli.conftest import VERSIONS

FILLED_BY_9C61A22 = Path(__file__).parent / "store_of_9c61a22.zip"
DEMO_OF_9C61A22 = Path(__file__).parent / "demo_of_9c61a22.zip"
WEIGHTS, N_BYTES, DIGEST = "demo/model/model.safetensors", 8_686_928, "a4ad19f3f866ee6948f27b86ed3e831a"
TASK = "--task demo_translation --limit 16"
STUDY = "--tasks demo_translation --shots 0 --limit 16 --ranking-questions 16"
FULL = "3/answers/f974135f97216b0a713b3b42d1d5c3878059d1d2"
BY_HEADS = "3/importance/45983d1820ff1dddb603447456caa099268cbe0b"
INDUCTION = (
    "3/induction/3bcb0e72fede18d1e81e04a564d6ac36e596ebb3",
    "3/induction/8a8bec07c28de0a00b7f1e728567df6ccb5fa2fa",
    "3/induction/41c8ad01b3ac15d0b30d6887f52cb14ded8066b1",
    "3/induction/243c85a0a189c758b2018ce8693aaa53c255ab6f",
)
COMMANDS = {
    "questions": (f"evaluate {TASK} --shots 1 --mask L1H0", (
        "3/requests/7dd0337e7beb7c4788adc0c2fb5879d084ec7d61",
        "3/answers/7736e4724657c6dd16121e7eaeaf69c382305d19",
    )),
    "int8, same examples": (f"evaluate {TASK} --shots 1 --same-examples --precision int8", (
        "3/requests/7ae051f3e2faff8c3ad3711d1a17886821741d36",
        "3/answers/b97741df224116a0fe5b73e59ff3942197169e56",
    )),
    "levels": (f"evaluate {TASK} --prune-heads 40 --prune-ffns 25 --ranking-questions 16", (
        BY_HEADS, "3/answers/498d3fb9047fc4a89c698b40fba5b45a8ca5f0da",
        "3/answers/178f7d0ebd3092b1faf724b16c9250a7bcd289ac", "3/answers/79afe0aa34d867fc4cec95d7e4817e03dafea130",
    )),
    "induction heads last": (f"evaluate {TASK} --prune-heads 30 --ranking induction-protected --ranking-questions 16", (
        BY_HEADS, *INDUCTION, "3/answers/00be6e23e2696eb685bf757cb71dc06681795320",
    )),
    "heads": (f"importance {TASK} --what heads --sample stratified --out OUT", (BY_HEADS,)),
    "gate": (f"importance {TASK} --what gate --sample stratified --out OUT", (
        "3/importance/995bfe3aa016c1aca3e0616ae36144312427a574",
    )),
    "ffns": (f"importance {TASK} --what ffns --sample stratified --out OUT", (
        "3/requests/886570076a9cb0b9ed0aa64c9c42172bec5a799d",
        "3/answers/498d3fb9047fc4a89c698b40fba5b45a8ca5f0da", "3/answers/178f7d0ebd3092b1faf724b16c9250a7bcd289ac",
        "3/answers/af785af3fab3a3f744c360a52ddeb85f5ce2162b", "3/answers/a0fc409616d473c56afbb64aa5dc0f6916187b9c",
        "3/answers/70aa65f6ef66cc69709a449c179d8df2c8f19b5a",
    )),
    "induction": ("induction --out OUT", INDUCTION),
    "losses of a passage": ("losses --passage 'Three languages' --mask L1H0-4 --out OUT", (
        "3/tokenloss/0c8f2cca36f41beb2953867ce4f45a5422663c7e", "3/tokenloss/2adefc991e1ca20aecda1fb5fe6d30f63e595aab",
    )),
    "losses of solved questions": ("losses --solved demo_translation --texts 1 --out OUT", (
        "3/texts/09ab60b8f6c78cbff1199aeee1a594c427d10475", "3/tokenloss/b483ba69a706f908c164e47e08e3b435fe9fca2c",
    )),
    "attention": ("attention --passage 'Three languages' --heads L1H0 --out OUT", (
        "3/attention/c583d1e3f4e631f5faa582f584bafe0b4db110a6", "3/attention/3398455553538d3c8d40fdb124a4283a464df879",
    )),
    "sweep": (f"sweep {STUDY} --heads 0,40 --out OUT", (
        FULL, BY_HEADS, "3/answers/aafe9c78de4b685bc9597f824f5a41e4c2acc32b",
    )),
    "sweep, scored anew": (f"sweep {STUDY} --heads 20,40 --by rescored --out OUT", (
        FULL, "3/importance/5f08e2282a09f228cab2d16f5e810118bb89132c",
        "3/answers/9ea659a6fb447bb04df7fbc4310d30e77664b182",
    )),
}  # fmt: skip


@pytest.fixture
def old_store(tmp_path, monkeypatch, keys_of_then):
    """The folder that 9c61a22 filled, the model and the questions that came with it, and the versions of its keys."""
    for each in (FILLED_BY_9C61A22, DEMO_OF_9C61A22):
        with zipfile.ZipFile(each) as packed:
            packed.extractall(tmp_path / "old")
    os.truncate(tmp_path / "old" / WEIGHTS, N_BYTES)  # zeros behind the table of contents: they are never read
    monkeypatch.setattr(demo, "FOLDER", tmp_path / "old" / "demo")
    monkeypatch.setattr(
        checkpoints, "file_digest", lambda file, store: {"model.safetensors": bytes.fromhex(DIGEST)}[file.name]
    )
    embedded_tasks.cache_clear()
    yield tmp_path / "old"
    embedded_tasks.cache_clear()


@pytest.fixture
def found(monkeypatch):
    """The keys under which something was found, as they are asked for; what is written, and every load, fails."""
    keys, get = [], Store.get

    def noted(self, key):
        if (blob := get(self, key)) is not None:
            keys.append(key)
        return blob

    def refused(self, key, blob):
        assert key.startswith("file-digest/"), f"measured anew: {key}"
        return True

    monkeypatch.setattr(Store, "get", noted)
    monkeypatch.setattr(Store, "put", refused)
    monkeypatch.setattr(loading, "load", lambda *more: pytest.fail("the model was loaded"))
    return keys


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_finds_what_9c61a22_stored(name, old_store, found, tmp_path, capsys):
    line, keys = COMMANDS[name]
    words = [str(tmp_path / "out.csv") if word == "OUT" else word for word in shlex.split(line)]
    precision = [] if "--precision" in words else ["--precision", "fp32"]
    assert main([*words, *precision, "--cache", str(old_store), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cached"] is True
    assert not set(keys) - set(found), "a key has changed: what users have stored would be lost"


def test_ablations_with_the_means_of_another_text_are_measured_anew(old_store, found, tmp_path):
    """Means were those of a built-in story, and are now those of the measured texts."""
    line = "attribute --solved demo_translation --texts 1 --kind pattern-preserving --fill mean --precision fp32"
    with pytest.raises(pytest.fail.Exception, match="the model was loaded"):
        main([*shlex.split(line), "--out", str(tmp_path / "out.csv"), "--cache", str(old_store), "--json"])
    assert "3/attribution/f6f514f5b630385464b257114d57d1a469d38103" not in found
    store = open_store(old_store)
    assert "3/attribution/f6f514f5b630385464b257114d57d1a469d38103" in set(store.keys())
    store.close()


def test_costs_tuning_and_remembered_texts_of_9c61a22(old_store, found, monkeypatch):
    from engine.accuracy.costs import cost
    from engine.models.masks import parse_mask
    from engine.questions.requests import TaskSpec, get_requests, select
    from engine.texts import passages

    store, spec = open_store(old_store), LoadSpec("demo", "fp32")
    session = Session(store)
    target = session.target(spec)
    requests = get_requests(TaskSpec("demo_translation", 0), None, store)
    mask = parse_mask("L1H*", target.shape)
    known = cost(target, select(requests, 16, "stratified"), mask).stored(session)
    assert known.n_heads_masked == 0 and known.n_params < known.n_params_full
    assert passages.recall("A name", store) == "A text to remember."
    assert "3/cost/7fec370b9e9c8bd57cdd655eaf809bd068597f8e" in found
    store.close()


def test_keys_of_the_tuning(monkeypatch, keys_of_then):
    """Its key names the machine, which is set here."""
    asked = []
    monkeypatch.setattr(tuning, "processor", lambda: "a processor")
    monkeypatch.setattr(tuning, "_all_threads", lambda: 2)
    monkeypatch.setattr(tuning.platform, "platform", lambda: "a system")
    monkeypatch.setattr(tuning, "measured", lambda: tuning.Tuning(1))
    tuning.tuning(type("Asked", (), {"get": lambda self, key: asked.append(key), "put": lambda *more: True})())
    assert asked == ["3/tuning/d5cb8d756beab0187f07798d6db626a3e2722462"]


@pytest.mark.parametrize("installed", ["2.13.0+cpu", "2.13.0", "2.13.0+cu126"])
def test_results_of_another_build_of_torch_are_found(installed, old_store, found, monkeypatch):
    """Keys named the build of torch; they now name its public version, so that all its builds find the same results."""
    monkeypatch.setitem(VERSIONS, "torch", installed)
    records.version.cache_clear()
    line, keys = COMMANDS["int8, same examples"]
    assert main([*shlex.split(line), "--cache", str(old_store), "--json"]) == 0
    assert set(keys) <= set(found), "stored under 2.13.0+cpu"


def test_a_new_key_names_the_public_version_of_torch(old_store, monkeypatch):
    store, keys = open_store(old_store), []
    target = Session(store).target(LoadSpec("demo", "fp32"))
    for build in ("2.13.0+cpu", "2.13.0", "2.13.0+cu126"):
        monkeypatch.setitem(VERSIONS, "torch", build)
        records.version.cache_clear()
        keys.append(records.canonical_key("answers", target.key()))
        assert target.receipt(0.0)["versions"]["torch"] == build, "a receipt says which build it was"
    store.close()
    assert len({*keys}) == 1 and pickle.loads(pickle.dumps(keys[0])) == keys[0]
