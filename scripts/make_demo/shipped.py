"""Measures the default views of the embedded model and writes engine/demo/shipped.msgpack:

    .venv/bin/python -m scripts.make_demo.shipped [--work FOLDER] [--add VIEW | --missing]

Every one of VIEWS is opened, once for each choice of kernels. What Export names is measured to the end, and all
that was read is packed. With the same --work folder, an interrupted run resumes. `--add` measures one view alone, and
adds its records to those in the file. `--missing` measures what the file does not have, after keys have changed, and
leaves out what no view reads any more.
"""

import argparse
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from engine.requests import CompareMechanisms
from pages.ui.sections.form import MEASUREMENT, label_of

# Kernels that processors name themselves: with bf16 and int8 instructions, with int8 ones, with AVX2 alone.
KERNELS = (
    "bf16=own,int8=integer,gradient=own,attention=fp32,fp32=own",
    "bf16=fp32,int8=integer,gradient=fp32,attention=fp32,fp32=own",
    "bf16=fp32,int8=fp32,gradient=fp32,attention=fp32,fp32=own",
)
STORY = {"prune_story": "Remove induction heads"}
MEASURED = {"Continuation", "Attention"}  # what Text measures on each machine, in a moment
VIEWS: Mapping[str, tuple[str, Mapping[str, str]]] = {  # by name: the screen, and its address
    **{name: (name, {}) for name in ("prune", "heads")},
    "story": ("prune", STORY),
    "across": ("heads", {"heads_tab": "Across tasks"}),
    "text": ("text", {"text_text": "Privet Drive, twice", "mask": "L1H1-3 L3H5"}),
    "mechanisms": ("bench", {MEASUREMENT: label_of(CompareMechanisms)}),
}
# not the speed of a machine, which is measured on each
KINDS = {*"activity answers attribution importance induction magnitudes perplexity texts tokenloss".split(),
         "entity induction", "retrieval", "function vectors", "head in text", "head on probe", "head ov"}  # fmt: skip
# of the last kernels alone, as kernels change no loss by as much as 0.001 nats: large kinds, and all of large views
ONCE = {"attribution", "tokenloss"}
LARGE_VIEW = "heads"
# views with records of the last kernels alone
OF_ONE_KERNEL = ("across", "heads", "cards", "mechanisms")
# what the card shows of some other heads: those that the story removes, and others that a text needs
HEADS, CARDS = ("L1H1", "L1H3", "L3H5", "L0H4", "L0H5"), "cards"
# by scores of other kernels, a few of its orders differ: `--add` measures these on top, after all has been written
ORDERED = "across"
HEADER_BYTES = 3_000  # of one record of each kind, which has the receipt
N_RUNS = 50


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m scripts.make_demo.shipped", description=__doc__)
    parser.add_argument("--work", type=Path, help="folder of the stores that are filled (default: a temporary one)")
    parser.add_argument("--add", choices=[*VIEWS, CARDS], help="a view whose records are added to the file")
    parser.add_argument("--missing", action="store_true", help="measure only what the file does not have")
    parser.add_argument("--view", choices=[*VIEWS, CARDS], help=argparse.SUPPRESS)  # in a process of its own
    options = parser.parse_args()
    if options.view:
        measure(options.view)
        return
    views = [options.add] if options.add else [*VIEWS, CARDS]
    with TemporaryDirectory() as temporary:
        folders = [(options.work or Path(temporary)) / str(number) for number in range(len(KERNELS))]
        # the views to add show the results of others, too
        reads = str(int(options.missing or options.add in (LARGE_VIEW, CARDS, ORDERED)))
        for folder, kernels in zip(folders, KERNELS, strict=True):
            own = {"HEADROOM_CACHE": str(folder), "HEADROOM_PRODUCTS": kernels, "HEADROOM_SHIPPED": reads}
            of_all = [each for each in views if each not in OF_ONE_KERNEL or each == options.add == ORDERED]
            for view in views if kernels == KERNELS[-1] else of_all:
                command = [sys.executable, "-m", "scripts.make_demo.shipped", "--view", view]
                subprocess.run(command, check=True, env=os.environ | own | {"HEADROOM_IDLE_SECONDS": "1000000"})
        files = [folder / f"{view}.msgpack" for folder in folders for view in views]
        write([file for file in files if file.exists()], bool(options.add), options.missing)


def measure(view: str) -> None:
    """Measures what a view shows into the store of the environment, and writes all records that are read for it next to
    the store."""
    import msgspec

    from engine import shipped
    from engine.accuracy import evaluation
    from engine.models.session import Session
    from engine.progress import final
    from engine.records import Key, encode
    from pages.ui.page import runtime

    found, read = dict[bytes, tuple[bytes, bytes]](), Session.record

    def noted(session: Session, key: str) -> Any:
        record = read(session, key)
        if record is not None and isinstance(key, Key) and key.kind in KINDS:
            blob = encode(replace(record, receipt={**record.receipt, shipped.MARK: True}))
            name = shipped.digest(key, *shipped.VERSIONS)
            if session.shipped and name not in session.shipped.records and read(session.own(), key) is None:
                return record  # of other kernels
            found[name] = shipped.digest(key, *shipped.VERSIONS, *shipped.KERNELS), blob
        return record

    Session.record = noted
    evaluation.LONG_S = math.inf  # whole chunks: what a slow machine measures in quarters is not found by others
    for origin in opened(LARGE_VIEW if view == CARDS else view):
        wanted = cards(origin) if view == CARDS else dict(origin.measurements)
        for name, measurement in wanted.items():
            print(f"{os.environ['HEADROOM_CACHE']}: {origin.screen}, {name}", flush=True)
            final(measurement.run(runtime.session()))
            measurement.stored_part(runtime.session())  # only what is read is packed
    for key in runtime.store().keys():
        if key.split("/")[1:2] == ["requests"]:
            name = bytes.fromhex(key.rpartition("/")[2])[: shipped.DIGEST_BYTES]
            found[name] = name, runtime.store().get(key) or b""
    runtime.store().close()
    Path(os.environ["HEADROOM_CACHE"], f"{view}.msgpack").write_bytes(msgspec.msgpack.encode(found))


def cards(origin: Any) -> dict[str, Any]:
    """Returns the measurements of where HEADS look, by name, for the model of `origin`."""
    from engine.heads.in_text import head_in_texts
    from engine.studies.one_head import READ, built_in, head_named

    target = next(iter(origin.measurements.values())).target
    text = {READ: built_in()[READ]}
    return {name: head_in_texts(target, text, head_named(name, target.shape)) for name in HEADS}


def opened(view: str) -> Iterator[Any]:
    """Yields the origin of what a view shows, as its buttons get it: when the screen has settled, and again until it
    stays the same, as scores that are measured may lead to more."""
    import streamlit as st
    from streamlit.testing.v1 import AppTest

    from pages.ui.downloads import actions
    from pages.ui.page import runtime
    from tests.pages.conftest import job_states, page_hash, tab_of_tests

    runtime.tab = tab_of_tests
    screen, address = VIEWS[view]
    page, shown, draw, known = page_hash(screen), list[Any](), actions._draw, None
    st.cache_resource.clear()
    actions._draw = lambda files, link: shown.append(files.origin)
    try:
        for _ in range(N_RUNS):
            at = AppTest.from_file(str(Path(__file__).parents[2] / "app.py"), default_timeout=600)
            for name, value in address.items():
                at.query_params[name] = value
            for _ in range(N_RUNS):
                before = job_states()
                at._page_hash, at._finished_page_script_hash = page, ""
                at.run()
                assert not at.exception, at.exception
                if before == job_states() and all(ended for *_, ended in before):
                    break
                for slot, *_ in job_states():
                    runtime.jobs().join(slot, 600)
            if not shown or (keys := {each.key for each in shown[-1].measurements.values()}) == known:
                return
            known = keys
            yield shown[-1]
    finally:
        actions._draw = draw


def write(files: Sequence[Path], adds: bool, keeps_questions: bool) -> None:
    """Packs the records in these files, one for each view and choice of kernels, and says what the shipped file holds.
    `adds`: what the shipped file holds already stays as it is; `keeps_questions`: its questions do."""
    import msgspec

    from engine.records import decode
    from engine.shipped import FILE, ShippedRecords, pack

    blobs, last = dict[bytes, bytes](), dict[bytes, bytes]()
    before = msgspec.msgpack.decode(FILE.read_bytes(), type=ShippedRecords)
    for file in files:
        found = msgspec.msgpack.decode(file.read_bytes(), type=dict[bytes, tuple[bytes, bytes]])
        last |= {of_any_kernels: name for name, (of_any_kernels, _) in found.items()}
        blobs |= {name: blob for name, (_, blob) in found.items()}
    kept = {name: before.unpacked(packed) for name, packed in before.records.items() if adds or keeps_questions}
    if keeps_questions:
        kept = {name: blob for name, blob in kept.items() if _kind(blob) == "requests"}
    blobs |= kept
    receipts = {name: record.receipt for name, blob in blobs.items() if (record := decode(blob)) is not None}
    kinds = {name: str(receipt["kind"]) for name, receipt in receipts.items()}
    models = frozenset(str(receipt["model"]) for receipt in receipts.values() if "model" in receipt)
    asked = [receipt.get("task") for name, receipt in receipts.items() if kinds[name] != "requests"]
    kinds = {name: kind for name, kind in kinds.items() if kind != "requests" or receipts[name]["task"] in asked}
    n = Counter(kinds.values())
    examples = {kinds[name]: blobs[name][:HEADER_BYTES] for name in sorted(kinds)}
    common = b"".join(examples[kind] for kind in sorted(examples, key=n.__getitem__))  # zlib sees only the end
    once = {*last.values(), *kept}
    shipped = [name for name in sorted(kinds) if kinds[name] not in ONCE or name in once]
    packed = {name: pack(blobs[name], common) for name in shipped}
    every = ShippedRecords(models, common, packed, last | (before.of_any_kernels if adds else {}))
    FILE.write_bytes(msgspec.msgpack.encode(every))
    n, sizes = Counter(map(kinds.__getitem__, packed)), Counter[str]()
    for name, each in packed.items():
        sizes[kinds[name]] += len(each)
    print(f"{FILE.name}: {FILE.stat().st_size:,} bytes, {len(every.records):,} records")
    for kind in sorted(n):
        print(f"  {kind}: {n[kind]:,} records, {sizes[kind]:,} bytes")


def _kind(blob: bytes) -> str:
    from engine.records import decode

    record = decode(blob)
    return "" if record is None else str(record.receipt["kind"])


if __name__ == "__main__":
    main()
