"""A series of snapshots of one model, in the order of training: which are on this computer, what the others are to
download, and which of them hold the same weights.

`series_of` takes what a person types: a run (all its snapshots), `RUN@step{0,512}`, or revisions of a hub model such as
`EleutherAI/pythia-70m@step{0,512,1000}`. Only `looked_up` asks the network, once a person has agreed.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cache import Store
from engine.errors import HeadroomError
from engine.models import hub
from engine.models.checkpoints import file_digest
from engine.models.names import model_name, models_of
from engine.models.runs import run_of, step_of, steps_of
from engine.models.weight_files import weight_files
from engine.progress import Progress

NUMBERED = re.compile(r"[A-Za-z_./-]*(\d{1,18})")  # step512, checkpoint-100


@dataclass(frozen=True)
class Snapshot:
    """One model of a series: its `name` as it can be typed, its `step` (None where its revision has no number), and its
    `folder`, None where it is not on this computer."""

    name: str
    step: int | None
    folder: Path | None

    @property
    def label(self) -> str:
        """Such as "step512"."""
        return self.name.rpartition("@")[2]


@dataclass(frozen=True)
class Downloads:
    """What the hub says of those models of a series that are not here."""

    offers: tuple[hub.Offer, ...]

    @property
    def missing_bytes(self) -> int:
        """To download in all; a file that several revisions share counts once."""
        return hub.missing_bytes(self.offers)

    @property
    def refusal(self) -> str | None:
        """Why the disk cannot take them all, None where it can."""
        return hub.disk_refusal(self.offers)


def series_of(text: str) -> tuple[Snapshot, ...]:
    """The models that `text` names, in order of their steps; one alone is a series of one. Asks nobody.

    HeadroomError, UsageError: it is no name, a run without snapshots, or a snapshot that a run does not have.
    """
    run = run_of(text.strip())
    if run is not None:
        step_of(*run, None)  # there is one at least
        names = [f"{run[0]}@step{step}" for step in steps_of(run[1])]
    else:
        names = list(models_of(text))
    found = [_snapshot(name) for name in names]
    if all(each.step is not None for each in found):
        found.sort(key=lambda each: each.step or 0)
    return tuple(found)


def looked_up(snapshots: Sequence[Snapshot]) -> Iterator[Progress[Downloads]]:
    """Asks the hub for every one that is not here: Progress in models, at last the Downloads. HeadroomError: no
    network, or no such revision."""
    away, offers = [each for each in snapshots if each.folder is None], list[hub.Offer]()
    for number, each in enumerate(away):
        yield Progress(number, len(away))
        offers.append(hub.look_up(each.name))
    yield Progress(len(away), len(away), Downloads(tuple(offers)))


def with_equal_weights(
    snapshots: Sequence[Snapshot], store: Store | None = None, downloads: Downloads | None = None
) -> tuple[tuple[Snapshot, ...], ...]:
    """Groups of two or more whose weight files are equal byte for byte, of those that are here or whose `downloads`
    were looked up; in order of their first. `store` remembers what files outside the hub's cache hold."""
    offers = {str(offer.name): offer for offer in (downloads.offers if downloads else ())}
    groups: dict[tuple[str, ...], list[Snapshot]] = {}
    for each in snapshots:
        offer = offers.get(each.name)
        if each.folder is not None:
            digests = tuple(_digest(file, store) for file in weight_files(each.folder))
        elif offer is not None:
            digests = tuple(sorted(file.digest for file in offer.files if file.name.endswith((".safetensors", ".bin"))))
        else:
            continue
        groups.setdefault(digests, []).append(each)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def in_words(group: Sequence[Snapshot], snapshots: Sequence[Snapshot]) -> str:
    """What one line says of snapshots with equal weights."""
    *others, last = [each.label for each in group]
    if group[-1] == snapshots[-1]:
        hold = "holds" if len(others) == 1 else "hold"
        return f"{_listed(others)} {hold} the same weights as {last}: probably the final ones, whatever the name"
    return f"{_listed([*others, last])} hold the same weights: one name alone can be right"


def _listed(labels: Sequence[str]) -> str:
    return f"{', '.join(labels[:-1])} and {labels[-1]}" if len(labels) > 1 else labels[0]


def _snapshot(name: str) -> Snapshot:
    found = model_name(name)
    number = NUMBERED.fullmatch(found.revision)
    step = int(number[1]) if number and (found.repo or found.run) else None
    if found.repo:
        return Snapshot(str(found), step, hub.held(found))
    from engine.demo import model_folder

    return Snapshot(str(found), step, found.folder or model_folder())


def _digest(file: Path, store: Store | None) -> str:
    """Of a file in the hub's cache what its blob is called there, else the digest of its content."""
    target = file.resolve()
    if target.parent.name == "blobs" and len(target.name) in (40, 64):
        return target.name
    try:
        return file_digest(file, store).hex()
    except OSError as error:
        raise HeadroomError(f"{file} cannot be read ({error.strerror}); look at its permissions") from error
