"""The records that come with the package serve the default views of the embedded model, say so, and are no measurement
of this computer. If a test here fails because a view shows something else by default, write the file again:
`.venv/bin/python -m scripts.make_demo.shipped`."""

import shutil
from contextlib import closing

import pytest

from engine import shipped
from engine.__main__ import main
from engine.kernels.kernel_choice import pinned_as
from engine.models import loading
from engine.models.loading import LoadSpec
from engine.models.session import Session
from engine.progress import Progress, final
from engine.questions.rendering import TaskSpec
from engine.receipts import read_receipts
from engine.records import Record, encode
from engine.studies.removal import removal
from pages.ui.page import runtime
from pages.ui.prune import estimates
from scripts.make_demo.shipped import KERNELS, LARGE_VIEW, MEASURED, OF_ONE_KERNEL, ONCE, VIEWS, cards, opened
from tests.conftest import REPOSITORY
from tests.engine.fixtures import in_turns
from tests.pages.conftest import heading_of

MAX_BYTES = 4_000_000


@pytest.fixture
def empty_store(tmp_path, monkeypatch):
    """The app's store is empty, shipped records are read, and loading a model fails."""
    monkeypatch.setenv("HEADROOM_CACHE", str(tmp_path / "results"))
    monkeypatch.setenv("HEADROOM_SHIPPED", "1")
    monkeypatch.setenv("HEADROOM_PRODUCTS", KERNELS[0])
    monkeypatch.delenv("HEADROOM_TASK_DATA", raising=False)
    monkeypatch.setattr("engine.models.session.device_class", lambda: "cpu")
    monkeypatch.setattr("engine.models.loading.device_class", lambda: "cpu")
    monkeypatch.setattr(loading, "load", lambda *more: pytest.fail("the model was loaded"))


def origin_of(view):
    """What Export of a view names."""
    with closing(opened(view)) as found:
        return next(found)


@pytest.mark.thorough
@pytest.mark.parametrize("view, kernels", in_turns(VIEWS, KERNELS))
def test_a_default_view_is_shown_at_once(view, kernels, empty_store, monkeypatch):
    monkeypatch.setenv("HEADROOM_PRODUCTS", kernels)
    measurements = {name: each for name, each in origin_of(view).measurements.items() if name not in MEASURED}
    assert {job.status.state for job in runtime.jobs()._slots.held.values()} == {"done"}, "nothing is measured"
    incomplete = [name for name, each in measurements.items() if not each.stored_part(runtime.session()).is_complete]
    assert not incomplete, "run python -m scripts.make_demo.shipped"
    *_, parts = (step.value for step in read_receipts(measurements, runtime.session()))
    receipts = [each for part in parts for each in part.receipts]
    assert receipts and all(each["shipped"] is True for each in receipts)
    made_by = {pinned_as(each["products"]) for each in receipts if each["kind"] not in ONCE} or {kernels}
    of_any_kernels = view in ("story", *OF_ONE_KERNEL)  # some of their records
    assert made_by == {kernels} or of_any_kernels and kernels in made_by
    assert not [key for key in runtime.store().keys() if key.startswith("3/")], "nothing is stored or counted"


def test_the_headline_of_the_first_visit_is_what_the_story_measured(empty_store, open_app):
    first = {"model": "demo", "precision": "int8", "task": "demo_outfit", "shots": "5"}
    headline, other = (heading_of(open_app("prune", **first, heads=heads)) for heads in ("0", "50"))
    target = runtime.session().target(LoadSpec("demo", "int8"))
    found = removal(target, TaskSpec("demo_outfit", 5), 100).stored(runtime.session())
    without, all_heads = (f"{100 * share:.0f}%" for share in (found.removed.pruned, found.removed.full))
    least, most = (100 * end(each.pruned for each in found.draws) for end in (min, max))
    assert f"gets {without} of demo_outfit right instead of {all_heads}" in headline
    assert f"without 4 random heads, {least:.0f} to {most:.0f}%." in headline
    assert "random heads" not in other, "of the full model alone"


def test_other_heads_open_with_their_patterns(empty_store):
    wanted = cards(origin_of(LARGE_VIEW))
    incomplete = [name for name, each in wanted.items() if not each.stored_part(runtime.session()).is_complete]
    assert not incomplete, "run python -m scripts.make_demo.shipped --add cards"


def test_the_first_drag_has_an_estimate(empty_store, monkeypatch):
    read, asked = estimates.read_estimates, []
    monkeypatch.setattr(estimates, "read_estimates", lambda *of: asked.append(of) or read(*of))
    origin_of("prune")
    assert runtime.jobs().status("estimates").value.line.estimated
    x, _, known, session = asked[-1]
    assert read(x, "ffns", known, session).line.estimated


def test_the_file_is_small():
    assert 0 < shipped.FILE.stat().st_size < MAX_BYTES


def test_results_of_other_versions_are_shown_and_named(empty_store, monkeypatch):
    measurements = origin_of("prune").measurements
    monkeypatch.setattr("engine.models.session.version", lambda name: "9.9")
    *_, parts = (step.value for step in read_receipts(measurements, runtime.session()))
    assert all(part.n_shipped == part.n > 0 for part in parts)
    assert {each["versions"]["torch"] for part in parts for each in part.receipts} != {"9.9"}


def test_results_measured_here_replace_them(empty_store, store, monkeypatch):
    full = origin_of("prune").measurements["Full model"]
    session = Session(store, shipped=shipped.shipped_records())
    assert session.own().shipped is None and full.stored_part(session).is_complete
    assert not full.stored_part(session.own()).is_complete, "they are no measurement of this computer"

    def measured(session, target, piece, done, total):
        record = shipped.shipped_records().record(piece.key)
        receipt = {name: value for name, value in record.receipt.items() if name != shipped.MARK}
        session.store.put(piece.key, encode(Record(record.arrays, receipt)))
        yield Progress(done, total)
        return record

    monkeypatch.setattr("engine.measurement.measured", measured)
    final(full.run(session.own()))
    *_, [part] = (step.value for step in read_receipts({"Full model": full}, session))
    assert part.n and not part.n_shipped


def test_commands_measure(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HEADROOM_SHIPPED", "1")
    monkeypatch.setattr(loading, "load", lambda *more: pytest.fail("the model was loaded"))
    words = f"evaluate --task demo_outfit --shots 5 --sample stratified --limit 100 --cache {tmp_path / 'results'}"
    with pytest.raises(pytest.fail.Exception, match="the model was loaded"):
        main(words.split())


def test_they_can_be_left_out(tmp_path, monkeypatch):
    assert shipped.shipped_records() is None, "tests measure unless they name them"
    monkeypatch.setenv("HEADROOM_SHIPPED", "1")
    assert shipped.shipped_records() is not None
    monkeypatch.setattr(shipped, "FILE", tmp_path / "missing")
    assert shipped.shipped_records() is None
    damaged = shutil.copy(REPOSITORY / "README.md", tmp_path / "damaged")
    monkeypatch.setattr(shipped, "FILE", damaged)
    assert shipped.shipped_records() is None
