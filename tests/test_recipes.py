"""The recipes of CONTRIBUTING.md are complete: whatever exists is in every place that its recipe lists, and something
new that is added there works.
"""

import ast
import importlib.util
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

import engine.cli
from engine.architecture.families import FAMILIES, NAMES
from engine.architecture.family import supported_families
from engine.architecture.layer_tensors import is_attention, is_ffn, place_of
from engine.architecture.model_config import ModelConfig
from engine.cli.options import request_of
from engine.importance.criteria import CRITERIA
from engine.importance.rules import QUICK, RULES
from engine.questions.rows import read as read_rows
from engine.questions.tasks import HARNESS_TASKS, TaskInfo, list_tasks, local_files
from engine.requests import REQUESTS, Evaluate, argv, program
from engine.requests.fields import Option, number, option_name, options
from pages.ui.controls.model import MODEL_HELP
from pages.ui.page.screens import STORY
from tests import write_docs
from tests.conftest import HANG_S
from tests.engine.fixtures import SIZES, TINY, saved
from tests.test_imports_go_one_way import REPOSITORY

NEW = "made_up"  # an item that nobody has added anywhere
NOT_FAMILIES = {"__init__", "definition"}


@dataclass(frozen=True)
class Place:
    """A place that a recipe lists: its name there, whether it `holds` an item, and which items it is `only_for`."""

    name: str
    holds: Callable[[str], object]
    only_for: Callable[[str], bool] = lambda item: True


@cache
def text(path: str) -> str:
    return (REPOSITORY / path).read_text(encoding="utf-8")


def recipe(title: str) -> str:
    """What CONTRIBUTING.md says below a title."""
    [found] = re.findall(rf"^\*\*{title}(.*?)(?=^\*\*|^## )", text("CONTRIBUTING.md"), re.M | re.S)
    return found


@cache
def constant(path: str, name: str) -> frozenset[str]:
    """The texts in the value of a module's constant, or in a function's body."""
    nodes = [node for node in ast.parse(text(path)).body if name in named(node)]
    assert nodes, f"{path} has no {name}"
    return texts_in(nodes[0])


def texts_in(node: ast.AST) -> frozenset[str]:
    return frozenset(each.value for each in ast.walk(node)
                     if isinstance(each, ast.Constant) and isinstance(each.value, str))  # fmt: skip


def named(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    return {node.name} if isinstance(node, ast.FunctionDef | ast.ClassDef) else set()


# a task


@cache
def harness_folder() -> Path:
    spec = importlib.util.find_spec("lm_eval")
    assert spec is not None and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "tasks"


def has_yaml(name: str) -> bool:
    """Whether the folder that HARNESS_TASKS names has a YAML of that task."""
    folder = harness_folder() / HARNESS_TASKS[name].yaml_folder if name in HARNESS_TASKS else Path("none")
    own = re.compile(rf"""^\s*(task:|-)\s*["']?{name}["']?\s*$""", re.M)
    return any(own.search(file.read_text(encoding="utf-8")) for file in folder.glob("*.yaml"))


TASK = [Place("engine.questions.tasks.HARNESS_TASKS", has_yaml)]

# a model family


FOLDER = REPOSITORY / "engine" / "architecture" / "families"


def has_module(kind: str) -> bool:
    return (FOLDER / f"{kind}.py").exists() and FAMILIES[kind].tiny != {}


def is_stock(kind: str) -> bool:
    """Whether users meet it by its name; an item that is new is to be missed."""
    return kind not in FAMILIES or FAMILIES[kind].is_stock


def is_named(kind: str, words: str) -> bool:
    return kind in FAMILIES and re.search(rf"\b{FAMILIES[kind].name}\b", words) is not None


FAMILY = [
    Place("engine/architecture/families/", has_module),
    Place("engine.architecture.families.NAMES", lambda kind: kind in NAMES),
    Place("tests.write_docs", lambda kind: is_named(kind, text("README.md")), is_stock),
    Place("tests/engine/test_published_families.py",
          lambda kind: kind in constant("tests/engine/test_published_families.py", "PUBLISHED"), is_stock),
]  # fmt: skip

# a screen


def titles() -> dict[str, str]:
    return {screen.file: screen.title for screens in STORY.values() for screen in screens}


def has_page(name: str) -> bool:
    path = f"pages/{name}.py"
    return (REPOSITORY / path).exists() and f'require_frame("{path}")' in text(path)


def has_package(name: str) -> bool:
    return (REPOSITORY / "pages" / "ui" / name).is_dir()


SCREEN = [
    Place("pages/<name>.py", has_page),
    Place("pages/ui/<name>/", lambda name: (REPOSITORY / "pages" / "ui" / name / "__init__.py").exists(),
          has_package),
    Place("pages.ui.page.screens.STORY", lambda name: name in titles()),
    Place("docs/screens.md", lambda name: f"\n## {titles().get(name)}\n" in text("docs/screens.md")),
    Place("tests/pages/test_<name>_page.py",
          lambda name: (REPOSITORY / "tests" / "pages" / f"test_{name}_page.py").exists()),
]  # fmt: skip

# an option of the command line


@cache
def fields() -> dict[str, tuple[str, Option]]:
    """By "command --option": the name of the command's field, and its option."""
    found = {}
    for request in REQUESTS:
        for name, (_, option) in options(request).items():
            found[f"{request.command} {name if option.is_position else option_name(name, option)}"] = name, option
    return found


@cache
def words_of(command: str) -> str:
    """What docs/command-line.md says of a command."""
    page = text("docs/command-line.md")
    rows = dict(re.findall(r"^\| \*\*([\w ]+)\*\* \|(.*?)(?=^\| \*\*|^## |\Z)", page, re.M | re.S))
    of_model = rows["of the model"] if "Shared: options of the model" in rows[command] else ""
    return rows[command] + of_model + rows["of all commands"]


def is_told(item: str) -> bool:
    command, _, option = item.partition(" ")
    return item in fields() and re.search(rf"`{option}\b", words_of(command)) is not None


def is_field(item: str) -> bool:
    name, option = fields().get(item, ("", None))
    return bool(name) and option is not None and (bool(option.help) or item == "cache action")


OPTION = [Place("engine/requests", is_field), Place("tests.write_docs", is_told)]

# a criterion, and a ranking that is not one


def is_choice(name: str) -> bool:
    return f"`{name}`" in text("docs/command-line.md")


CRITERION = [
    Place("engine.importance.criteria.CRITERIA", lambda name: name in CRITERIA and name in RULES),
    Place("tests.write_docs", is_choice),
]
RANKING = [
    Place("engine.importance.rules.RULES", lambda name: name in RULES),
    Place("tests.write_docs", is_choice),
    Place("tests.engine.studies.conftest.ByHand",
          lambda name: name in constant("tests/engine/studies/conftest.py", "ByHand"),
          lambda name: name not in ("rescored", "induction-protected", QUICK)),
]  # fmt: skip

RECIPES = {
    "A task of lm-evaluation-harness": (list(HARNESS_TASKS), TASK),
    "A model family": (sorted(file.stem for file in FOLDER.glob("*.py") if file.stem not in NOT_FAMILIES), FAMILY),
    "A screen": (sorted(file.stem for file in (REPOSITORY / "pages").glob("*.py")), SCREEN),
    "An option of the command line": (list(fields()), OPTION),
    "A criterion": (list(CRITERIA), CRITERION),
    "A pruning order": ([name for name in RULES if name not in (*CRITERIA, "own")], RANKING),
}
PLACES = [(title, place) for title, (_, places) in RECIPES.items() for place in places]


@pytest.mark.parametrize(("title", "place"), PLACES, ids=lambda each: getattr(each, "name", each))
def test_all_that_exists_is_in_each_place_of_its_recipe(title, place):
    items = [item for item in RECIPES[title][0] if place.only_for(item)]
    assert re.search(rf"[` ]{re.escape(place.name)}`", recipe(title)), "the recipe names the place"
    assert items and [item for item in items if not place.holds(item)] == []


@pytest.mark.parametrize(("title", "place"), PLACES, ids=lambda each: getattr(each, "name", each))
def test_something_new_is_missed_in_each_place_of_its_recipe(title, place):
    assert not place.holds(NEW)


def test_a_task_is_found_once_its_line_and_its_rows_are_there(tmp_path, monkeypatch):
    info = TaskInfo("sciq", "SciQ", "science, 4 answers", 0.25, "sciq", ("question", "correct_answer"))
    monkeypatch.setitem(HARNESS_TASKS, "sciq", info)
    (tmp_path / "sciq").mkdir()
    for split in ("train", "validation"):
        (tmp_path / "sciq" / f"{split}.jsonl").write_text('{"question": "Why?", "correct_answer": "because"}\n')
    [state] = [state for state in list_tasks(tmp_path) if state.info.name == "sciq"]
    files = local_files(info, tmp_path)
    assert state.available and state.where == "folder" and has_yaml("sciq") and files is not None
    assert read_rows(info, files).rows("validation", info) == [{"question": "Why?", "correct_answer": "because"}]


def test_an_option_is_taken_shown_and_told_once_its_field_is_there(monkeypatch):
    @dataclass(frozen=True, kw_only=True)
    class Evaluated(Evaluate):
        """Measure the accuracy of a model under one mask."""

        made_up: int = number(2, (1, 9), "how many are made up (2)")

    made = tuple(Evaluated if each is Evaluate else each for each in REQUESTS)
    monkeypatch.setattr(engine.cli, "REQUESTS", made)
    request = Evaluated(task="demo_copy", made_up=3)
    assert argv(request) == ["evaluate", "--task", "demo_copy", "--made-up", "3"]
    assert request_of(engine.cli.parser().parse_args(argv(request))) == request
    assert "Evaluated(task='demo_copy', made_up=3)" in program([request])
    page = write_docs.page(engine.cli.parser())
    assert "| `--made-up N` | how many are made up (2) |" in page
    assert set(page.splitlines()) - set(text("docs/command-line.md").splitlines()) == {
        "| `--made-up N` | how many are made up (2) |"
    }


def test_a_family_is_counted_recognized_and_offered_once_its_value_is_there(monkeypatch):
    monkeypatch.setitem(FAMILIES, NEW, replace(FAMILIES["llama"], name="Made-up"))
    config = {"model_type": NEW, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
              "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
              "max_position_embeddings": 32768, "tie_word_embeddings": False}  # fmt: skip
    outline = ModelConfig("made up", config)
    assert outline.parts.n_params == 7_241_732_096, "as published of Mistral-7B, which has this shape"
    assert outline.is_gated and outline.shape.d_head == 128 and "Made-up" in supported_families()


@pytest.mark.parametrize("kind", FAMILIES)
def test_tensors_of_each_family_are_recognized(kind):
    family = FAMILIES[kind]
    out, ffn, norm = (
        place_of(f"{family.layers}.3.{module}.weight")
        for module in (family.attention.out, family.ffn_write, family.norms[0] or family.norms_after[0])
    )
    assert out is not None and ffn is not None and norm is not None
    assert [is_attention(family, each.rest) for each in (out, ffn, norm)] == [True, False, False]
    assert [is_ffn(family, each.rest) for each in (out, ffn, norm)] == [False, True, False]
    assert out.layer == ffn.layer == 3 and is_named(kind, MODEL_HELP) == family.is_stock


def test_no_test_names_all_families_by_itself():
    """A list of three types of models or more is a copy of the one list, which a new family would not be in."""
    found = []
    for file in sorted((REPOSITORY / "tests").rglob("test_*.py")):
        source = file.read_text(encoding="utf-8")
        if sum(f'"{name}"' in source for name in TINY) < 3:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.List | ast.Tuple | ast.Set):
                named = {each.value for each in node.elts if isinstance(each, ast.Constant)}
                found += [f"{file.name}:{node.lineno}"] if len(named & {*TINY}) > 2 and named <= {*TINY} else []
    assert found == []


PROGRAM = """
import contextlib, io, json, os, sys, time
for name in [*sys.modules]:
    if name.partition(".")[0] in ("cache", "engine", "pages"):
        del sys.modules[name]  # those of the clone
sys.path.insert(0, os.getcwd())
from engine.__main__ import main
asked, found = json.loads(sys.argv[1]), []
for command in asked["commands"]:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main([*command, "--json"]) == 0
    found.append(json.loads(out.getvalue()))
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash
at = AppTest.from_file("app.py", default_timeout=asked["wait_s"])
for name, value in asked["screen"].items():
    at.query_params[name] = value
end = time.monotonic() + asked["wait_s"]
while "heads.**" not in str(found[-1]) and time.monotonic() < end:
    at._page_hash, at._finished_page_script_hash = calc_hash("made_up"), ""
    at.run()
    assert not at.exception, at.exception
    found[5:] = [[each.proto.body for kind in ("title", "markdown") for each in at.main.get(kind)]]
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Row:
    """What a recipe adds to a file: a `text` in front of the line `above`; a new file if there is none."""

    path: str
    text: str
    above: str = ""


# by recipe; as CONTRIBUTING says
MADE_UP = {
    "A criterion": [Row("engine/importance/criteria.py", """
    "depth": Criterion(
        "Depth", "heads-depth", "ffns-depth", ("activity",),
        lambda found, part: np.indices(found[f"{part.rstrip('s')}_norms"].shape)[0].astype(float),
        "components of the last layers", _FORWARD, "nobody",
    ),
""", '    "first-token": Criterion(')],
    "A pruning order": [Row("engine/importance/rules.py", """
    "deepest": Rule(
        "the last components", (), lambda shape, seed, known: (np.arange(shape.n_heads_total)[::-1],
                                                               np.arange(shape.n_layers)[::-1])),
""", '    "random": Rule(')],
    "A task of lm-evaluation-harness": [Row("engine/questions/tasks.py", """
        _task("sciq", "SciQ", "science, 4 answers", 0.25, "sciq", "question correct_answer"),
""", '        _task("arc_easy"')],
    "A command": [
        Row("engine/requests/made_up.py", """
from dataclasses import dataclass
from typing import ClassVar

from engine.requests.base import OfModel, RequestRun, Result
from engine.views.view import View


@dataclass(frozen=True, kw_only=True)
class CountHeads(OfModel):
    \"\"\"Count the heads of a model. The value is their number.\"\"\"

    command: ClassVar[str] = "count"
    group: ClassVar[str] = "Scores"

    def measure(self, run: RequestRun) -> Result:
        n = self.target(run.session).shape.n_heads_total
        return Result(n, {"heads": n}, View(f"**{n} heads.**", []))
"""),
        Row("engine/requests/__init__.py", "\nfrom engine.requests.made_up import CountHeads\n", "REQUESTS: tuple"),
        Row("engine/requests/__init__.py", "    CountHeads,\n", "    ListModels, Diagnose"),
    ],
    "A model family": [
        Row("engine/architecture/families/helium.py", """
from engine.architecture.families import llama

FAMILY = llama.FAMILY.derived(
    name="Helium", models="Helium 1", tiny={"helium": {"head_dim": 8, "num_key_value_heads": 4}}
)
"""),
        Row("engine/architecture/families/__init__.py", '"helium", ', '         "gpt_neo"'),
    ],
    "A screen": [
        Row("pages/made_up.py", """
from engine.requests.made_up import CountHeads
from pages.ui.controls.model import wait_for_model
from pages.ui.controls.study import study
from pages.ui.downloads.origin import about, of_model
from pages.ui.page.runtime import require_frame
from pages.ui.sections.section import Section, show

require_frame("pages/made_up.py")
target = wait_for_model(study())
show("made_up", [
], about(target, ""))
"""),
        Row("pages/ui/page/screens.py",
            '        Screen("made_up", "Made up", "science", "Heads counted.", "look at it.", bar="model"),\n',
            '        Screen(\n            "bench"'),
    ],
    "A section of a screen": [
        Row("pages/made_up.py", """
    Section("Heads", CountHeads(**of_model(target)), target, "You will see their number.", "at once"),
""", "], about"),
    ],
}  # fmt: skip
FILES = {"A criterion": 1, "A pruning order": 1, "A task of lm-evaluation-harness": 1, "A command": 2,
         "A model family": 2, "A screen": 2, "A section of a screen": 1}  # fmt: skip


@pytest.mark.parametrize("title", MADE_UP)
def test_a_recipe_adds_to_few_files(title):
    """Without its tests and docs."""
    assert recipe(title) and len({row.path for row in MADE_UP[title]}) == FILES[title]


def helium(folder, tiny_opt):
    """A tiny model of the made-up family."""
    import transformers

    config = transformers.AutoConfig.for_model("helium", **SIZES, head_dim=8, num_key_value_heads=4)
    return saved(transformers.AutoModelForCausalLM.from_config(config), folder, tiny_opt)


def copy_with_rows(folder):
    """A copy of the app in which the rows of `MADE_UP` are added."""
    folder.mkdir()
    for package in ("cache", "engine", "pages"):
        shutil.copytree(REPOSITORY / package, folder / package, copy_function=os.symlink)
    (folder / "app.py").symlink_to(REPOSITORY / "app.py")
    for row in (row for rows in MADE_UP.values() for row in rows):
        file, source = folder / row.path, ""
        if row.above:
            source = file.read_text(encoding="utf-8")
            assert source.count(f"\n{row.above}") == 1, f"{row.path} has no {row.above!r}"
            file.unlink()
        file.write_text(source.replace(f"\n{row.above}", f"{row.text}{row.above}") or row.text, encoding="utf-8")
    return folder


@pytest.mark.slow("reads the engine once more, in a process, as modules read the tables when they are imported")
def test_all_of_it_works_once_the_rows_are_there(warm, tiny_opt, tmp_path):
    row = {"support": "", "question": "Why?", "correct_answer": "so", "distractor1": "no", "distractor2": "if",
           "distractor3": "or"}  # fmt: skip
    (tmp_path / "sciq").mkdir()
    for split in ("train", "validation"):
        (tmp_path / "sciq" / f"{split}.jsonl").write_text(f"{json.dumps(row)}\n", encoding="utf-8")
    model, of_family = (
        ("--model", str(folder), "--precision", "fp32") for folder in (tiny_opt, helium(tmp_path / "helium", tiny_opt))
    )
    task = ("--task", "sciq", "--task-data", str(tmp_path))
    levels = ("--prune-heads", "50", "--prune-ffns", "50")
    commands = (
        ("importance", *model, *task, "--score", "heads-depth", "--out", str(tmp_path / "scores.csv")),
        ("evaluate", *model, *task, *levels, "--order", "depth"),
        ("evaluate", *model, *task, *levels, "--order", "deepest"),
        ("count", *model),
        ("evaluate", *of_family, *task, "--mask", "L0H0 F1"),
    )
    asked = {"commands": commands, "screen": dict(model=str(tiny_opt), precision="fp32"), "wait_s": HANG_S}
    environment = os.environ | {"HEADROOM_CACHE": str(tmp_path / "results")}
    done = warm.run(["-c", PROGRAM, json.dumps(asked)], env=environment, cwd=copy_with_rows(tmp_path / "clone"))
    assert done.returncode == 0, done.stderr
    scored, by_score, by_rule, counted, judged, shown = json.loads(done.stdout)
    assert (scored["what"], scored["shape"], scored["n"]) == ("heads-depth", [2, 4], 1)
    assert (by_score["mask"], by_rule["mask"], by_score["n"]) == ("B0", "B1", 1) and counted["heads"] == 8
    assert (judged["mask"], judged["n"]) == ("L0H0 F1", 1)
    assert "Made up" in shown and any("**8 heads.**" in each for each in shown)
