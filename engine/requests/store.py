"""What there is here: `ManageStore`, the result store; `ListTasks` and `ListModels`, what can be used."""

import os
from dataclasses import MISSING, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from engine.checkpoints.hub_internals import held_revisions
from engine.errors import HeadroomError, UsageError
from engine.requests.base import Request, RequestRun, Result, WithData
from engine.requests.equal import compare_places
from engine.requests.exchange import exchanged
from engine.requests.fields import choice, flag, string

if TYPE_CHECKING:
    from cache import Store
    from engine.models.session import Session

ACTIONS = ("list", "size", "verify", "clear", "push", "pull", "equal")


@dataclass(frozen=True, kw_only=True)
class ManageStore(Request):
    """What lies in the store, checked, cleared, compared or shared with other machines."""

    command: ClassVar[str] = "cache"
    gives: ClassVar[str] = "look after the result store, and share what is in it"
    is_measured: ClassVar[bool] = False

    action: str = choice(ACTIONS, "", default=MISSING, is_position=True)
    where: str | None = string(
        "of push, pull, verify and equal: a folder, or an address such as s3://BUCKET/FOLDER, of results that many "
        "machines share (default: HEADROOM_SHARED; of verify the store here); of equal also another store's folder",
        is_position=True,
    )
    other: str | None = string(
        "of equal: what WHERE is compared with, a store's folder or a shared place (default: the store here)",
        is_position=True,
    )
    dry_run: bool = flag("of push and pull: say what is missing, and bring nothing")

    def measure(self, run: RequestRun) -> Result:
        self._check()
        where = self.where or os.environ.get("HEADROOM_SHARED", "")
        if self.action == "equal":
            return compare_places(run, where, self.other)
        if self.action in ("push", "pull") or self.where:
            return exchanged(run, self.action, where, self.dry_run)
        store = run.session.store
        return {"list": _listed, "size": _sized, "verify": _verified, "clear": _cleared}[self.action](store)

    def _check(self) -> None:
        """UsageError where an action is given what it does not take."""
        if self.where is not None and self.action in ("list", "size", "clear"):
            raise UsageError(f"cache {self.action} is of the store here and takes no folder, got {self.where!r}; "
                             "leave it out, or give another store by --cache")  # fmt: skip
        if self.other is not None and self.action != "equal":
            raise UsageError(f"cache {self.action} takes one place, got {self.other!r} too; equal takes two")
        if self.dry_run and self.action not in ("push", "pull"):
            raise UsageError(f"cache {self.action} takes no --dry-run; push and pull do")


@dataclass(frozen=True, kw_only=True)
class ListTasks(WithData):
    """The tasks that can be used here and now; the value is a list of TaskStatus."""

    command: ClassVar[str] = "tasks"
    gives: ClassVar[str] = "the tasks that can be used here and now"
    is_measured: ClassVar[bool] = False

    def measure(self, run: RequestRun) -> Result:
        from engine.questions.tasks import list_tasks

        states = list_tasks(self.data_dir)
        entries = [{"name": state.info.name, "title": state.info.title, "asks": state.info.asks, "where": state.where,
                    "available": state.available, "note": state.note} for state in states]  # fmt: skip
        lines = [f"{entry['name']:<18} {entry['where']:<9} {entry['title']}: {entry['asks']}"
                 + ("" if entry["available"] else f" ({entry['note']})") for entry in entries]  # fmt: skip
        return Result(states, {"tasks": entries}, "\n".join(lines))


@dataclass(frozen=True, kw_only=True)
class ListModels(Request):
    """The models that can be used here and now; the value is what `fields` says of each."""

    command: ClassVar[str] = "models"
    gives: ClassVar[str] = "the models that can be used here and now"
    is_measured: ClassVar[bool] = False

    def measure(self, run: RequestRun) -> Result:
        from engine.architecture.opt_sizes import LAYERS_HEADS_WIDTH, REPO
        from engine.placement.placement import asked_places

        asked_places()  # what is no place is said once
        entries, lines = [], []
        for name in ["demo", *_hub_models()]:
            try:
                entry, line = _model(run.session, name)
            except HeadroomError as error:
                entry, line = {"model": name, "available": False, "note": str(error)}, f"{name}: {error}"
            entries.append(entry)
            lines.append(line)
        fields = {"models": entries, "hub": [REPO + size for size in LAYERS_HEADS_WIDTH]}
        return Result(entries, fields, "\n".join(lines))


def _listed(store: "Store") -> Result:
    from engine.records import SCHEMA

    counts: dict[str, int] = {}
    for key in store.keys():
        kind = key.split("/")[1] if key.startswith(f"{SCHEMA}/") else key.split("/")[0]
        name = kind if key.startswith((f"{SCHEMA}/", "file-digest/", "passage")) else "old results"
        counts[name] = counts.get(name, 0) + 1
    lines = "\n".join(f"{kind}: {count}" for kind, count in sorted(counts.items())) or "the store is empty"
    return Result(counts, {"folder": str(store.directory), "entries": counts}, lines)


def _sized(store: "Store") -> Result:
    size, folder = store.size_bytes(), str(store.directory)
    return Result(size, {"folder": folder, "bytes": size}, f"{size / 1e6:,.1f} MB in {folder}")


def _verified(store: "Store") -> Result:
    found = store.verify()
    text = (f"{found.n_checked} entries checked, {len(found.bad_keys)} damaged and deleted, "
            f"{found.n_orphans_removed} orphan files removed")  # fmt: skip
    fields = {"checked": found.n_checked, "damaged": list(found.bad_keys), "orphans_removed": found.n_orphans_removed}
    return Result(found, fields, text)


def _cleared(store: "Store") -> Result:
    freed, folder = store.clear(), str(store.directory)
    return Result(freed, {"folder": folder, "bytes_freed": freed}, f"{freed / 1e6:,.1f} MB deleted from {folder}")


def _model(session: "Session", name: str) -> tuple[dict[str, Any], str]:
    """What is known of a model, and a line of it."""
    from engine.checkpoints.identity import PRECISIONS
    from engine.models.loading import LoadSpec, identify

    identity = identify(LoadSpec(name), session.store)
    sizes = {precision: identity.weight_bytes(precision) for precision in PRECISIONS}
    placed = {precision: _placed(session, LoadSpec(name, precision), identity) for precision in PRECISIONS}
    fits = {precision: fits for precision, (fits, _) in placed.items()}
    places = {precision: where for precision, (fits, where) in placed.items() if fits and where}
    shape = identity.shape
    entry = {"model": name, "available": True, "parameters": identity.n_params, "n_layers": shape.n_layers,
             "n_heads": shape.n_heads, "bytes": sizes, "fits": fits, "places": places}  # fmt: skip
    told = {precision: f" ({where})" if where else "" for precision, (_, where) in placed.items()}
    each = [f"{p} {size / 1e6:,.0f} MB{told[p]}" for p, size in sizes.items()]
    count = f"{identity.n_params / 1e6:,.0f} M parameters, {shape.n_layers} layers x {shape.n_heads} heads"
    return entry, f"{name}: {count}, {', '.join(each)}"


def _placed(session: "Session", spec: Any, identity: Any) -> tuple[bool, str]:
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
