"""What there is here: `ManageStore`, the result store; `ListTasks` and `ListModels`, what can be used."""

from collections import Counter
from contextlib import closing
from dataclasses import MISSING, asdict, dataclass
from typing import Any, ClassVar

from cache import Store
from cache.store import is_store
from engine.architecture.model_config import LAYERS_HEADS_WIDTH, REPO
from engine.checkpoints.config_lookup import read_model_config
from engine.checkpoints.conversion import conversions
from engine.checkpoints.hub_internals import held_revisions
from engine.checkpoints.identity import PRECISIONS
from engine.errors import HeadroomError, NotHere, UsageError
from engine.files import named
from engine.models.loading import LoadSpec, identify
from engine.models.self_check import check_model, fault_of
from engine.models.session import Session
from engine.placement.placement import PLACE_HELP, asked_places
from engine.questions.tasks import list_tasks
from engine.receipts import is_readable
from engine.records import SCHEMA, travels
from engine.requests.base import Request, RequestRun, Result, WithData
from engine.requests.fields import choice, flag, string
from engine.views.view import text_view

OLD, UNREAD = "old results", " (of another version, never read; `headroom cache clear` deletes all results)"
ACTIONS = ("list", "size", "verify", "clear", "pull")


@dataclass(frozen=True, kw_only=True)
class ManageStore(Request):
    """Manage the result store."""

    command: ClassVar[str] = "cache"
    is_measured: ClassVar[bool] = False

    action: str = choice(
        MISSING,
        ACTIONS,
        "list: count results by kind; size: show the size on disk; verify: check every result and delete "
        "damaged ones; clear: delete all results; pull: copy the results of another store that are missing here",
        is_position=True,
    )
    where: str | None = string(
        None, "with pull: the folder of the other store, such as a copy from another machine", is_position=True
    )

    def measure(self, run: RequestRun) -> Result:
        if (self.where is None) == (self.action == "pull"):
            needs = (
                "needs the folder of another store" if self.where is None else f"takes no folder, got {self.where!r}"
            )
            raise UsageError(f"cache {self.action} {needs}; --cache names the store here")
        if self.where is not None:
            return _pulled(run, self.where)
        store, folder = run.session.store, str(run.session.store.directory)
        if self.action == "list":
            counts = Counter(map(_kind, store.keys()))
            lines = [f"{kind}: {count}{UNREAD if kind == OLD else ''}" for kind, count in sorted(counts.items())]
            return Result(
                counts, {"folder": folder, "entries": counts}, text_view("\n".join(lines) or "the store is empty")
            )
        if self.action == "size":
            size = store.size_bytes()
            return Result(size, {"folder": folder, "bytes": size}, text_view(f"{size / 1e6:,.1f} MB in {folder}"))
        if self.action == "clear":
            freed = store.clear()
            line = f"{freed / 1e6:,.1f} MB deleted from {folder}"
            return Result(freed, {"folder": folder, "bytes_freed": freed}, text_view(line))
        found = store.verify()
        text = (f"{found.n_checked} entries checked, {len(found.bad_keys)} damaged and deleted, "
                f"{found.n_orphans_removed} orphan files removed")  # fmt: skip
        return Result(found, {"checked": found.n_checked, "damaged": list(found.bad_keys),
                              "orphans_removed": found.n_orphans_removed}, text_view(text))  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ListTasks(WithData):
    """List the tasks. The value is a list of TaskStatus."""

    command: ClassVar[str] = "tasks"
    is_measured: ClassVar[bool] = False

    def measure(self, run: RequestRun) -> Result:
        states = list_tasks(self.data_dir)
        entries = [{"name": state.info.name, "title": state.info.title, "asks": state.info.asks, "where": state.where,
                    "available": state.available, "note": state.note} for state in states]  # fmt: skip
        lines = [f"{entry['name']:<18} {entry['where']:<9} {entry['title']}: {entry['asks']}"
                 + ("" if entry["available"] else f" ({entry['note']})") for entry in entries]  # fmt: skip
        return Result(states, {"tasks": entries}, text_view("\n".join(lines)))


@dataclass(frozen=True, kw_only=True)
class ListModels(Request):
    """List the models on this computer, or show what one takes here. The value is what `fields` says of each; of one
    model a ModelSummary, or its checks."""

    command: ClassVar[str] = "models"
    is_measured: ClassVar[bool] = False

    model: str | None = string(
        None,
        "show the parameters of this model, the memory that it needs, free memory, and where its layers would lie, "
        "without loading it: a name as for --model of other commands, a folder with a config.json, or a published "
        "size of OPT",
        is_position=True,
        metavar="MODEL",
    )
    precision: str = choice("int8", PRECISIONS, "precision of the weights (default: int8)")
    place: str | None = string(None, PLACE_HELP)
    check: bool = flag(
        "check that heads, FFNs and layers of the model are where Headroom prunes them, on a small random model of "
        "its config and on its weights. The app does so when it first loads a model"
    )

    def measure(self, run: RequestRun) -> Result:
        asked_places()  # an invalid placement is reported once
        if self.model is not None:
            spec = LoadSpec(self.model, self.precision)
            return (_checked if self.check else _summarized)(run.session, spec)
        if self.check:
            raise UsageError("--check needs a model, such as `headroom models --check facebook/opt-125m`")
        entries, lines = [], []
        for name in ["demo", *_hub_models(), *conversions(run.session.store)]:
            try:
                entry, line = _model(run.session, name)
            except HeadroomError as error:
                entry, line = {"model": name, "available": False, "note": str(error)}, f"{name}: {error}"
            entries.append(entry)
            lines.append(line)
        fields = {"models": entries, "hub": [REPO + size for size in LAYERS_HEADS_WIDTH]}
        return Result(entries, fields, text_view("\n".join(lines)))


def _summarized(session: Session, spec: LoadSpec) -> Result:
    """What a model takes here, by its config."""
    model = read_model_config(spec.model)
    found, shape = session.summary(spec, model, asks_gpus=True), model.shape
    first, *others = found.lines
    fields = {
        "model": model.name, "source": model.source, "parameters": model.parts.n_params, "n_layers": shape.n_layers,
        "n_heads": shape.n_heads, "bytes": found.weight_bytes, "needed_bytes": found.needed_bytes,
        "free_bytes": found.free, "precision": spec.precision,
        "layers": None if found.placement is None else found.placement.layers, "note": found.refusal,
    }  # fmt: skip
    return Result(found, fields, text_view("\n".join([f"{model.name} (from {model.source}): {first}", *others])))


def _checked(session: Session, spec: LoadSpec) -> Result:
    """The checks of a model, made now; the command fails if one does."""
    try:
        checks = check_model(session.models.get(spec), session.store, again=True)
    except NotHere as away:  # this command downloads nothing
        raise HeadroomError(str(away)) from away
    fault = fault_of(checks)
    lines = [*map(str, checks), "it cannot be pruned or scored" if fault else f"all {len(checks)} checks passed"]
    fields = {"model": spec.model, "passed": not fault, "checks": [asdict(each) for each in checks]}
    return Result(checks, fields, text_view("\n".join(lines)), agrees=not fault)


def _pulled(run: RequestRun, where: str) -> Result:
    """Copies the results in another store's folder that are missing here: an interrupted copy resumes."""
    store, folder = run.session.store, named(where, "folder")
    if not is_store(folder):
        raise HeadroomError(f"{folder} is not the folder of a store; `headroom cache size` prints it on that machine")
    with closing(Store(folder)) as other:
        if other.notice:
            raise HeadroomError(f"{folder} cannot be read: {other.notice}; copy it to a folder that can be written to")
        there, here = [key for key in other.keys() if travels(key)], {*store.keys()}
        missing = [key for key in there if key not in here]
        n_copied = n_bytes = 0
        for n, key in enumerate(missing):
            run.report(n, len(missing), "results copied", None)
            if (blob := other.get(key)) is None or not is_readable(key, blob):
                continue  # damaged
            if not store.put(key, blob):
                raise HeadroomError(f"{store.notice}; the same command goes on from here")
            n_copied, n_bytes = n_copied + 1, n_bytes + len(blob)
    n_both, n_left_out = len(there) - len(missing), len(missing) - n_copied
    line = f"{n_copied:,} result{'s' * (n_copied != 1)} ({n_bytes / 1e6:,.1f} MB) copied from {folder}"
    line += f", {n_both:,} were here"
    line += f", {n_left_out:,} are damaged and left out" if n_left_out else ""
    fields = {"where": str(folder), "copied": n_copied, "bytes": n_bytes, "in_both": n_both, "left_out": n_left_out}
    return Result(n_copied, fields, text_view(line))


def _kind(key: str) -> str:
    """What lies under a key of the store."""
    kind = key.split("/")[1] if key.startswith(f"{SCHEMA}/") else key.split("/")[0]
    return kind if key.startswith((f"{SCHEMA}/", "file-digest/", "passage")) else OLD


def _model(session: Session, name: str) -> tuple[dict[str, Any], str]:
    """Facts of a model, and a line of text."""
    identity = identify(LoadSpec(name), session.store)
    sizes = {precision: identity.weight_bytes(precision) for precision in PRECISIONS}
    placed = {precision: _placed(session, LoadSpec(name, precision), identity) for precision in PRECISIONS}
    fits = {precision: fits for precision, (fits, _) in placed.items()}
    places = {precision: where for precision, (fits, where) in placed.items() if fits and where}
    shape = identity.shape
    entry = {"model": name, "available": True, "parameters": identity.n_params, "n_layers": shape.n_layers,
             "n_heads": shape.n_heads, "bytes": sizes, "fits": fits, "places": places}  # fmt: skip
    where_text = {precision: f" ({where})" if where else "" for precision, (_, where) in placed.items()}
    each = [f"{p} {size / 1e6:,.0f} MB{where_text[p]}" for p, size in sizes.items()]
    count = f"{identity.n_params / 1e6:,.0f} M parameters, {shape.n_layers} layers x {shape.n_heads} heads"
    return entry, f"{name}: {count}, {', '.join(each)}"


def _placed(session: Session, spec: Any, identity: Any) -> tuple[bool, str]:
    """Whether a model fits here, and where its layers would lie and what that costs ("" on one device) or why not."""
    try:
        return True, session.places(spec, identity, asks_gpus=True)
    except UsageError as error:  # of places that the user has named
        return False, str(error)
    except HeadroomError:
        return False, "too big"


def _hub_models() -> list[str]:
    """Models that lie in the hub's own cache on this computer, each revision of its own."""
    return sorted({repo if revision == "main" else f"{repo}@{revision}" for repo, revision in held_revisions()})
