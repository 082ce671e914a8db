"""How a model is typed: a folder, a hub id, a revision of it, a series; read in one place, refused in one line."""

import pytest

from engine.errors import HeadroomError, UsageError
from engine.models.loading import LoadSpec
from engine.models.names import model_name, models_of


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


def test_a_revision_is_part_of_the_name():
    assert LoadSpec("a/b", revision="v1") == LoadSpec("a/b@v1") != LoadSpec("a/b@v2")
    assert str(model_name("a/b@main")) == "a/b"


def test_a_folder_may_have_an_at_in_its_name(tmp_path):
    (tmp_path / "mine@home").mkdir()
    assert model_name(f"{tmp_path}/mine@home").folder == (tmp_path / "mine@home").resolve()


def test_what_has_no_revisions(tmp_path):
    for typed in ("demo@x", f"{tmp_path}@x"):
        with pytest.raises(UsageError, match="no revisions, and 'x' was given"):
            model_name(typed)
    with pytest.raises(UsageError, match="no revisions"):
        model_name(LoadSpec("demo", revision="v1").model)


def test_a_series():
    assert models_of("a/b@step{0,512, 1000}") == ("a/b@step0", "a/b@step512", "a/b@step1000")
    assert models_of("a/b@{x,y}-end") == ("a/b@x-end", "a/b@y-end")
    assert models_of("a/b@step1") == ("a/b@step1",) and models_of(" demo ") == ("demo",)
    with pytest.raises(UsageError, match="names 2 models and one is wanted.*a/b@step0"):
        model_name("a/b@step{0,1}")
    for empty in ("a/b@{}", "a/b@step{0,,1}", f"a/b@{{{','.join(map(str, range(300)))}}}"):
        with pytest.raises(UsageError, match="no series"):
            models_of(empty)


@pytest.mark.parametrize(
    "typed",
    ["", "a/b/c", "/gone", "~nosuchuser/x", "a\0b", "x" * 300, "a/" + "y" * 5000, "a/b@", "a/b@../../x", "a/b@x y",
     "../x", "a/..", "a/b--c", "a b", "@x", "a@b@c", "![x](http://h/p.png)", "\\x", "a/b{0,1}", "\ud800"],
)  # fmt: skip
def test_what_is_no_name_gets_one_line(typed):
    with pytest.raises(HeadroomError) as refused:
        model_name(typed)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 400
