"""The commands that look around: the result store, and the tasks and models that can be used."""

from argparse import Namespace
from typing import Any

from engine.checkpoints.hub_internals import held_revisions
from engine.cli import equal, exchange
from engine.cli.options import data, data_dir, shared
from engine.cli.output import Report, print_result
from engine.errors import HeadroomError, UsageError
from engine.models.session import Session


def add_parsers(commands: Any) -> None:
    """The parsers of cache, tasks and models."""
    parser = commands.add_parser(
        "cache", parents=[shared()], help="look after the result store, and share what is in it"
    )
    parser.add_argument("action", choices=("list", "size", "verify", "clear", "push", "pull", "equal"))
    about = "of push, pull, verify and equal: a folder, or an address such as s3://BUCKET/FOLDER, of results that many "
    about += "machines share (default: HEADROOM_SHARED; of verify the store here); of equal also another store's folder"
    parser.add_argument("where", nargs="?", help=about)
    about = "of equal: what WHERE is compared with, a store's folder or a shared place (default: the store here)"
    parser.add_argument("other", nargs="?", help=about)
    about = "of push and pull: say what is missing, and bring nothing"
    parser.add_argument("--dry-run", action="store_true", help=about)
    parser.set_defaults(run=_cache)
    parser = commands.add_parser("tasks", parents=[shared(), data()], help="the tasks that can be used here and now")
    parser.set_defaults(run=_tasks)
    parser = commands.add_parser("models", parents=[shared()], help="the models that can be used here and now")
    parser.set_defaults(run=_models)


def _cache(options: Namespace, session: Session, report: Report) -> int:
    """What lies in the store; what lies elsewhere is `engine.cli.exchange`'s."""
    from engine.records import SCHEMA

    _check(options)
    store = session.store
    if options.action == "equal":
        return equal.run(options, store, report)
    if options.action in ("push", "pull") or options.where:
        return exchange.run(options, store, report)
    folder = str(store.directory)
    if options.action == "list":
        counts: dict[str, int] = {}
        for key in store.keys():
            kind = key.split("/")[1] if key.startswith(f"{SCHEMA}/") else key.split("/")[0]
            name = kind if key.startswith((f"{SCHEMA}/", "file-digest/", "passage")) else "old results"
            counts[name] = counts.get(name, 0) + 1
        lines = "\n".join(f"{kind}: {count}" for kind, count in sorted(counts.items())) or "the store is empty"
        print_result(options, {"folder": folder, "entries": counts}, lines)
    elif options.action == "size":
        size = store.size_bytes()
        print_result(options, {"folder": folder, "bytes": size}, f"{size / 1e6:,.1f} MB in {folder}")
    elif options.action == "verify":
        found = store.verify()
        text = (f"{found.n_checked} entries checked, {len(found.bad_keys)} damaged and deleted, "
                f"{found.n_orphans_removed} orphan files removed")  # fmt: skip
        print_result(options, {"checked": found.n_checked, "damaged": list(found.bad_keys),
                         "orphans_removed": found.n_orphans_removed}, text)  # fmt: skip
    else:
        freed = store.clear()
        print_result(options, {"folder": folder, "bytes_freed": freed}, f"{freed / 1e6:,.1f} MB deleted from {folder}")
    return 0


def _check(options: Namespace) -> None:
    """UsageError where an action is given what it does not take."""
    if options.where is not None and options.action in ("list", "size", "clear"):
        raise UsageError(f"cache {options.action} is of the store here and takes no folder, got {options.where!r}; "
                         "leave it out, or give another store by --cache")  # fmt: skip
    if options.other is not None and options.action != "equal":
        raise UsageError(f"cache {options.action} takes one place, got {options.other!r} too; equal takes two")
    if options.dry_run and options.action not in ("push", "pull"):
        raise UsageError(f"cache {options.action} takes no --dry-run; push and pull do")


def _tasks(options: Namespace, session: Session, report: Report) -> int:
    from engine.questions.tasks import list_tasks

    states = list_tasks(data_dir(options))
    entries = [{"name": state.info.name, "title": state.info.title, "asks": state.info.asks, "where": state.where,
                "available": state.available, "note": state.note} for state in states]  # fmt: skip
    lines = [f"{entry['name']:<18} {entry['where']:<9} {entry['title']}: {entry['asks']}"
             + ("" if entry["available"] else f" ({entry['note']})") for entry in entries]  # fmt: skip
    print_result(options, {"tasks": entries}, "\n".join(lines))
    return 0


def _models(options: Namespace, session: Session, report: Report) -> int:
    from engine.architecture.opt_sizes import LAYERS_HEADS_WIDTH, REPO
    from engine.checkpoints.identity import PRECISIONS
    from engine.models.loading import LoadSpec, identify
    from engine.placement.placement import asked_places

    asked_places()  # what is no place is said once
    entries, lines = [], []
    for name in ["demo", *_hub_models()]:
        try:
            identity = identify(LoadSpec(name), session.store)
        except HeadroomError as error:
            entries.append({"model": name, "available": False, "note": str(error)})
            lines.append(f"{name}: {error}")
            continue
        sizes = {precision: identity.weight_bytes(precision) for precision in PRECISIONS}
        placed = {precision: _placed(session, LoadSpec(name, precision), identity) for precision in PRECISIONS}
        fits = {precision: fits for precision, (fits, _) in placed.items()}
        places = {precision: where for precision, (fits, where) in placed.items() if fits and where}
        shape = identity.shape
        entries.append({"model": name, "available": True, "parameters": identity.n_params, "n_layers": shape.n_layers,
                        "n_heads": shape.n_heads, "bytes": sizes, "fits": fits, "places": places})  # fmt: skip
        told = {precision: f" ({where})" if where else "" for precision, (_, where) in placed.items()}
        each = [f"{p} {size / 1e6:,.0f} MB{told[p]}" for p, size in sizes.items()]
        count = f"{identity.n_params / 1e6:,.0f} M parameters, {shape.n_layers} layers x {shape.n_heads} heads"
        lines.append(f"{name}: {count}, {', '.join(each)}")
    print_result(options, {"models": entries, "hub": [REPO + size for size in LAYERS_HEADS_WIDTH]}, "\n".join(lines))
    return 0


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
