"""How numbers were measured: the receipts of the stored records that they are read from. Whether a stored result can be
decoded: the store asks it of results that others have shared, and `verify` of all.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from engine.measurement import Measurement
from engine.models.session import Session
from engine.progress import Progress
from engine.questions.rendering import questions_in
from engine.records import SCHEMA, Record, decode, made_of, noted, unpack_json
from engine.shipped import MARK

Measurements = Mapping[str, Measurement[Any]]  # by what they are of
Receipt = Mapping[str, Any]
FACTS = ("Shipped", "Model", "Precision", "Beginning-of-sequence token", "Matrix products", "Versions", "Machine")


@dataclass(frozen=True)
class ReceiptSummary:
    """The records that one part of a screen is read from: how many, when the first and the last of them was measured
    (UTC, "" where there is none), and the seconds that all of them took."""

    name: str
    receipts: tuple[Receipt, ...] = ()

    @property
    def n(self) -> int:
        return len(self.receipts)

    @property
    def n_shipped(self) -> int:
        """Of the records, how many came with Headroom."""
        return sum(MARK in each for each in self.receipts)

    @property
    def first(self) -> str:
        return min((each["measured_at"] for each in self.receipts), default="")

    @property
    def last(self) -> str:
        return max((each["measured_at"] for each in self.receipts), default="")

    @property
    def seconds(self) -> float:
        return float(sum(each["seconds"] for each in self.receipts))


def read_receipts(measurements: Measurements, session: Session) -> Iterator[Progress[tuple[ReceiptSummary, ...]]]:
    """Yields Progress; the last one's value are the parts, in order. Measures nothing."""
    parts = []
    for number, (name, measurement) in enumerate(measurements.items()):
        notes: dict[bytes, Receipt] = {}
        steps, is_read = measurement.read(session), False
        while not is_read:
            with noted(notes):
                is_read = next(steps, None) is None
            yield Progress(number, len(measurements))
        parts.append(ReceiptSummary(name, tuple(each for each in notes.values() if "measured_at" in each)))
        yield Progress(number + 1, len(measurements), tuple(parts))


def facts(receipts: Iterable[Receipt]) -> dict[str, list[str]]:
    """What the receipts say of model, precision, versions and machine; more than one line where they differ."""
    found: dict[str, list[str]] = {name: [] for name in FACTS}
    for receipt in receipts:
        for name, fact in _facts(receipt).items():
            found[name] += [] if fact in found[name] or not fact else [fact]
    return found


def _facts(receipt: Receipt) -> dict[str, str]:
    products = ", ".join(f"{name} {way}" for name, way in (receipt.get("products") or {}).items())
    cores = f"{receipt['cores']} cores" if receipt.get("cores") else ""
    versions = {**receipt["versions"], "python": receipt["python"]}
    machine = (receipt["device"], receipt.get("processor"), receipt["machine"], cores)
    return {
        "Shipped": "with Headroom, not measured on this computer" if receipt.get(MARK) else "",
        "Model": f"{receipt['name']}, files {receipt['model'][:12]}",
        "Precision": receipt["precision"],
        "Beginning-of-sequence token": "in front" if receipt["bos"] else "none",
        "Matrix products": products or "the library's own",
        "Versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "Machine": ", ".join(str(part) for part in machine if part),
    }


def is_readable(key: str, blob: bytes) -> bool:
    """Whether the blob under a key can be decoded. Results of other versions are never decoded."""
    if not key.startswith(f"{SCHEMA}/"):
        return True
    reads = questions_in if key.startswith(f"{SCHEMA}/requests/") else _json_in
    return made_of(decode(blob), reads) is not None


def _json_in(record: Record) -> list[Any]:
    """What the arrays of a record hold that are JSON."""
    return [unpack_json(record.arrays[name]) for name in ("json", "strings") if name in record.arrays]
