"""How a model is typed: a folder, a hub id, a revision of it, a series; read in one place, refused in one line."""

import pytest

from engine.checkpoints import names
from engine.checkpoints.names import model_name, models_of, shipped_runs, short_name, with_revision, without_revision
from engine.errors import HeadroomError, UsageError
from engine.models.loading import LoadSpec
from tests.engine.fixtures import refused_by


@pytest.mark.parametrize(
    ("typed", "repo", "revision"),
    [
        ("facebook/opt-125m", "facebook/opt-125m", "main"),
        (" gpt2 ", "gpt2", "main"),
        ("EleutherAI/pythia-70m@step1000", "EleutherAI/pythia-70m", "step1000"),
        ("a/b@refs/pr/1", "a/b", "refs/pr/1"),
    ],
)
def test_a_hub_id_with_and_without_a_revision(typed, repo, revision):
    name = model_name(typed)
    assert (name.repo, name.revision, name.folder) == (repo, revision, None) and str(name) == typed.strip()


def test_a_folder_may_have_an_at_in_its_name(tmp_path):
    (tmp_path / "mine@home").mkdir()
    assert model_name(f"{tmp_path}/mine@home").folder == (tmp_path / "mine@home").resolve()


def test_what_has_no_revisions(tmp_path):
    for typed in ("demo@x", f"{tmp_path}@x"):
        refused_by(UsageError, "no revisions, and 'x' was given", lambda typed=typed: model_name(typed))
    refused_by(UsageError, "no revisions", lambda: model_name(with_revision("demo", "v1")))


def test_a_series():
    assert models_of("a/b@step{0,512, 1000}") == ("a/b@step0", "a/b@step512", "a/b@step1000")
    assert models_of("a/b@{x,y}-end") == ("a/b@x-end", "a/b@y-end")
    assert models_of("a/b@step1") == ("a/b@step1",) and models_of(" demo ") == ("demo",)
    refused_by(UsageError, "names 2 models and one is wanted.*a/b@step0", lambda: model_name("a/b@step{0,1}"))
    for empty in ("a/b@{}", "a/b@step{0,,1}", f"a/b@{{{','.join(map(str, range(300)))}}}"):
        refused_by(UsageError, "not a series", lambda empty=empty: models_of(empty))


@pytest.mark.parametrize(
    "typed",
    ["", "a/b/c", "/gone", "~nosuchuser/x", "a\0b", "x" * 300, "a/" + "y" * 5000, "a/b@", "a/b@../../x", "a/b@x y",
     "../x", "a/..", "a/b--c", "a b", "@x", "a@b@c", "![x](http://h/p.png)", "\\x", "a/b{0,1}", "\ud800"],
)  # fmt: skip
def test_what_is_no_name_gets_one_line(typed):
    with pytest.raises(HeadroomError) as refused:
        model_name(typed)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 400


@pytest.fixture
def run_folder(tmp_path):
    """A run with snapshots of steps 0, 64 and 512, as far as a name can tell."""
    for step in (0, 64, 512, 9):
        (tmp_path / "run1" / f"step{step}").mkdir(parents=True)
        if step != 9:  # whose weights were deleted
            (tmp_path / "run1" / f"step{step}" / "model.safetensors").touch()
    (tmp_path / "run1" / "recipe.json").write_text("{}")
    return (tmp_path / "run1").resolve()


def test_a_snapshot_of_a_run(run_folder, monkeypatch):
    name = model_name(f"{run_folder}@step64")
    assert (name.folder, str(name), name.repo) == (run_folder / "step64", f"{run_folder}@step64", "")
    assert str(model_name(str(run_folder))) == f"{run_folder}@step512"  # alone: its last, and it says so
    monkeypatch.chdir(run_folder.parent)
    assert model_name("run1@step0").folder == model_name("./run1/@step0").folder == run_folder / "step0"
    assert short_name(f"{run_folder}@step64") == "run1@step64"
    assert model_name(str(run_folder / "step64")).run == ""  # a folder like any other
    for wrong, told in (("step9", "no snapshot step9; the nearest are step0 and step64"), ("main", "use @stepN"),
                        ("step600", "the nearest is step512"), ("step064", "use @stepN")):  # fmt: skip
        refused_by(UsageError, told, lambda wrong=wrong: model_name(f"{run_folder}@{wrong}"))
    (run_folder / "step0" / "config.json").touch()
    (run_folder.parent / "bare").mkdir()
    (run_folder.parent / "bare" / "recipe.json").touch()
    refused_by(UsageError, "has no snapshot yet", lambda: model_name("bare"))


def test_snapshots_beside_each_other_and_in_a_series(run_folder):
    first = LoadSpec(f"{run_folder}@step512")
    other = first.compared_with("@step0")
    assert other == LoadSpec(f"{run_folder}@step0") == LoadSpec(str(run_folder)).compared_with("@step0")
    assert without_revision(f" {run_folder}@step64") == without_revision(str(run_folder)) == str(run_folder)
    assert first.compared_with(other.typed_beside(first)) == other and other.in_words == "run1@step0 in int8"
    assert models_of(f"{run_folder}@step{{0,512}}") == (f"{run_folder}@step0", f"{run_folder}@step512")
    refused_by(UsageError, "names 2 models", lambda: model_name(f"{run_folder}@step{{0,512}}"))


def test_a_run_that_comes_with_the_app(run_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(names, "runs_folder", lambda: tmp_path)
    name = model_name("runs/run1@step0")
    assert name.folder.resolve() == run_folder / "step0" and str(name) == "runs/run1@step0"
    assert str(model_name("runs/run1")) == "runs/run1@step512" and without_revision("runs/run1@step0") == "runs/run1"
    assert shipped_runs() == ("runs/run1",)
    with pytest.raises(HeadroomError, match="no run 'runs/none' comes with Headroom; there are runs/run1"):
        model_name("runs/none@step0")
    monkeypatch.setattr(names, "runs_folder", lambda: tmp_path / "gone")
    assert shipped_runs() == () and model_name("runs/none@step0").repo == "runs/none"
