"""Views that daeb778 saved are listed and lead where they led: each control has the value that the address says.

`tests/daeb778.py` says how they were saved. Values are those of the session: how a control shows them may change, as
long as it understands how daeb778 wrote them.
"""

from urllib.parse import parse_qs, urlsplit

import pytest

from pages.ui.page import runtime
from tests.pages.conftest import WAIT_S, components, settled, worker_state

VIEWS = {
    "Own questions": (
        "/?model=.%2Ftiny&precision=fp32&bos=off&prune_task=boats.jsonl&prune_shots=1&prune_same=true&"
        "prune_limit=10&prune_stop=7+points&prune_ranking=weight&prune_heads=30&prune_ffns=50&"
        "prune_mask=L1H0+keep+L0H1&prune_axis=FFNs+pruned&prune_idle=false&prune_questions=true&prune_show=Lost&"
        "prune_question=3&prune_text=Three+languages&prune_perplexity=true",
        {"bos": "off", "prune_task": "boats.jsonl", "prune_shots": 1, "prune_same": True, "prune_limit": 10,
         "prune_stop": "7 points", "prune_order": "weight", "prune_heads": 30, "prune_ffns": 50,
         "prune_mask": "L1H0 keep L0H1", "prune_axis": "ffns", "prune_idle": False, "prune_questions": True,
         "prune_show": "lost", "prune_question": 3, "prune_text": "Three languages", "prune_perplexity": True},
    ),
    "Layers and criteria": (
        "/?model=.%2Ftiny&precision=fp32&prune_task=demo_lookup&prune_shots=0&prune_limit=20&prune_layers=50&"
        "prune_layers_by=oracle&prune_ranking=random&prune_axis=Layers+dropped&prune_cost=true&"
        "prune_compare=true&prune_criteria=Weight&prune_criteria=Wanda&prune_along=FFNs&prune_step=every+25+%25&"
        "prune_orders=3&prune_export=true&prune_export_form=Small&prune_export_fill=Its+mean",
        {"prune_task": "demo_lookup", "prune_shots": 0, "prune_limit": 20, "prune_layers": 50,
         "prune_layers_by": "oracle", "prune_order": "random", "prune_axis": "layers", "prune_cost": True,
         "prune_compare": True, "prune_criteria": ["weight", "wanda"], "prune_along": "ffns",
         "prune_step": "every 25%", "prune_orders": 3, "prune_export": True, "prune_export_form": "small",
         "prune_export_fill": "mean"},
    ),
    "Gates by rank": (
        "/importance?model=.%2Ftiny&precision=fp32&importance_tasks=demo_copy&importance_tasks=demo_lookup&"
        "importance_shots=0&importance_shots=1&importance_what=Gate&importance_scale=one+for+all&"
        "importance_mean=of+ranks&importance_front=demo_lookup%2C+1+shot",
        {"importance_tasks": ["demo_copy", "demo_lookup"], "importance_shots": ["0", "1"],
         "importance_what": "heads-one-divisor"},  # which replaced it
    ),
    "Two precisions": (
        "/induction?model=.%2Ftiny&precision=fp32&against=bf16&induction_variant=Bansal&induction_seed=7&"
        "induction_mask=L0H1&induction_task=demo_copy&induction_shots=1&induction_both=Copying",
        {"against": "bf16", "induction_variant": "bansal", "induction_seed": 7, "induction_mask": "L0H1",
         "induction_task": "demo_copy", "induction_shots": 1, "induction_both": "copying"},
    ),
    "One head": (
        "/head?model=.%2Ftiny&precision=fp32&head=L1H2&head_tasks=demo_copy&head_shots=1&"
        "head_text=Pattern+labels&head_token=+fox",
        {"head": "L1H2", "head_tasks": ["demo_copy"], "head_shots": 1, "head_text": "Pattern labels",
         "head_token": " fox"},
    ),
    "Half the heads": (
        "/passage?model=.%2Ftiny&precision=fp32&passage_text=Three+languages&passage_a_mask=L0H0&"
        "passage_heads=50&passage_ffns=50&passage_mask=L1H1&passage_ranking=importance&passage_task=demo_lookup&"
        "passage_view=Loss+of+B&passage_scale=%C2%B1+8+nats",
        {"passage_text": "Three languages", "passage_a_mask": "L0H0", "passage_heads": 50, "passage_ffns": 50,
         "passage_mask": "L1H1", "passage_order": "importance", "passage_task": "demo_lookup",
         "passage_view": "B", "passage_scale": 8},
    ),
    "Drawn words": (
        "/continuation?model=.%2Ftiny&precision=fp32&continue_prompt=The+river&continue_by=T+0.7&"
        "continue_tokens=8&continue_seed=3&continue_heads=30&continue_ffns=50&continue_mask=L0H0&"
        "continue_ranking=weight&continue_task=demo_copy",
        {"continue_prompt": "The river", "continue_by": 700, "continue_tokens": 8, "continue_seed": 3,
         "continue_heads": 30, "continue_ffns": 50, "continue_mask": "L0H0", "continue_order": "weight",
         "continue_task": "demo_copy"},
    ),
    "Labels": (
        "/attention?model=.%2Ftiny&precision=fp32&attention_text=Pattern+labels&attention_mask=L0H1&"
        "attention_rows=%3A&attention_heads=L1H0%2CL0H2",
        {"attention_text": "Pattern labels", "attention_mask": "L0H1", "attention_rows": ":",
         "attention_heads": "L1H0,L0H2"},
    ),
    "A long text": (
        "/in_context?model=.%2Fwide&precision=fp32&incontext_from=A+long+text&incontext_task=demo_copy&"
        "incontext_texts=2&incontext_around=%C2%B1+5&incontext_ffns=50&incontext_fill=mean&"
        "incontext_kind=pattern-preserving",
        {"incontext_from": "text", "incontext_texts": 2, "incontext_around": 5, "incontext_ffns": 50,
         "incontext_fill": "mean", "incontext_kind": "pattern-preserving", "incontext_ranked_on": "demo_copy"},
    ),
    "Solved questions": (
        "/in_context?model=.%2Fwide&precision=fp32&incontext_task=demo_copy&incontext_texts=2&"
        "incontext_around=exact&incontext_mask=L0H0&incontext_heads=50&incontext_ranking=random",
        {"incontext_task": "demo_copy", "incontext_texts": 2, "incontext_around": 0, "incontext_mask": "L0H0",
         "incontext_heads": 50, "incontext_order": "random", "incontext_from": "task"},
    ),
    "FFNs of tasks": (
        "/correlations?model=.%2Ftiny&precision=fp32&correlations_tasks=demo_copy&correlations_tasks=demo_lookup&"
        "correlations_shots=0&correlations_shots=1&correlations_what=FFNs&correlations_shown=0+shots&"
        "correlations_method=as+published&correlations_mean=mean+of+ranks&correlations_order=by+name&"
        "correlations_scale=%E2%88%921+to+1",
        {"correlations_tasks": ["demo_copy", "demo_lookup"], "correlations_shots": ["0", "1"],
         "correlations_what": "ffns", "correlations_shown": 0, "correlations_method": "as_published",
         "correlations_order": "chosen"},
    ),
    "Transfer": (
        "/sweeps?model=.%2Ftiny&precision=fp32&sweeps_tasks=demo_copy&sweeps_tasks=demo_lookup&sweeps_shots=0&"
        "sweeps_what=Transfer&sweeps_front=demo_copy&sweeps_limit=16&sweeps_level=30",
        {"sweeps_tasks": ["demo_copy", "demo_lookup"], "sweeps_shots": ["0"], "sweeps_what": "transfer",
         "sweeps_front": "demo_copy", "sweeps_limit": 16, "sweeps_level": 30},
    ),
    "Criteria": (
        "/sweeps?model=.%2Ftiny&precision=fp32&sweeps_tasks=demo_copy&sweeps_tasks=demo_lookup&sweeps_shots=1&"
        "sweeps_what=Compare+criteria&sweeps_front=demo_copy&sweeps_limit=16&sweeps_criteria=Weight&"
        "sweeps_criteria=Taylor&sweeps_along=FFNs&sweeps_step=every+25+%25&sweeps_orders=4",
        {"sweeps_tasks": ["demo_copy", "demo_lookup"], "sweeps_shots": ["1"], "sweeps_what": "compare",
         "sweeps_front": "demo_copy", "sweeps_limit": 16, "sweeps_criteria": ["weight", "taylor"],
         "sweeps_along": "ffns", "sweeps_step": "every 25%", "sweeps_orders": 4},
    ),
}  # fmt: skip
LONG = ("One head",)  # seconds until all is measured: it is left as soon as the controls are drawn
SLOW = {
    "Own questions": "a Prune screen with two of its sections open",
    "Layers and criteria": "a Prune screen with three of its sections open",
    "Two precisions": "the Induction screen renders all embedded tasks",
}
LISTED = [{"name": name, "link": link} for name, (link, _) in VIEWS.items()]


@pytest.fixture
def opened(unpacked, open_app, monkeypatch):
    """Opens a link in the app, which was started in that folder with the store there."""
    monkeypatch.chdir(unpacked)
    monkeypatch.setenv("HEADROOM_CACHE", "store")
    monkeypatch.setenv("HEADROOM_PRODUCTS", "own")  # else they are timed first

    def opened(link):
        parts = urlsplit(link)
        at = open_app(parts.path[1:], run=False)
        said = parse_qs(parts.query).items()
        at.query_params.clear()
        at.query_params.update({name: values if len(values) > 1 else values[0] for name, values in said})
        return at

    return opened


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow(SLOW[name])] if name in SLOW else []) for name in VIEWS]
)
def test_a_view_sets_its_controls(name, opened):
    link, controls = VIEWS[name]
    at = opened(link).run()
    assert not complaints(at)  # what is wrong in the address is said now; AppTest draws the frame of a page once
    if name in LONG:
        for _ in range(20):
            if all(control in at.session_state for control in controls):
                break
            join_all()
            at.run()
    else:
        settled(at)
    said = parse_qs(urlsplit(link).query)
    controls = {"model": said["model"][0], "precision": said["precision"][0], **controls}
    assert {control: at.session_state[control] for control in controls if control in at.session_state} == controls
    assert not complaints(at)


def test_saved_views_are_listed(opened):
    at = opened(VIEWS["Labels"][0])
    at.session_state["views"] = True  # the popover is open
    at.run()
    assert views_of(at) == LISTED
    names = [each.value.replace("\\", "") for each in at.sidebar.markdown]
    assert [f"{number}\u2002[{name}]" for number, name in enumerate(VIEWS, 1)] == [
        name.partition("(/")[0] for name in names if "\u2002" in name
    ]


def test_a_file_of_saved_views_is_loaded(opened, unpacked, monkeypatch, tmp_path):
    monkeypatch.setenv("HEADROOM_CACHE", str(tmp_path / "empty"))
    at = opened(VIEWS["Own questions"][0])
    at.session_state["views"] = True
    assert views_of(at.run()) == []
    [loaded] = [each for each in at.file_uploader if each.key.startswith("views_file")]
    loaded.set_value([("views.json", (unpacked / "views.json").read_bytes(), "application/json")])
    assert views_of(at.run()) == LISTED and not complaints(at)


def complaints(at):
    """What the page says is wrong."""
    return [each.value for each in (*at.exception, *at.error, *at.warning)]


def views_of(at):
    """The saved views that a presenter steps through."""
    [stage] = [data for data in components(at) if "presenting" in data]
    return stage["views"]


def join_all():
    """Waits until each job has ended."""
    for slot, _, _ in worker_state():
        runtime.jobs().join(slot, WAIT_S)
