"""How numbers were measured: the receipts of the stored records that they are read from."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from engine.measurement import Measurement
from engine.models.session import Session
from engine.progress import Progress
from engine.records import noted

Measurements = Mapping[str, Measurement[Any]]  # by what they are of
Receipt = Mapping[str, Any]
Fact = Callable[[Receipt], str]
FACTS: Mapping[str, Fact] = {
    "Model": lambda receipt: f"{receipt['name']}, files {receipt['model'][:12]}",
    "Precision": lambda receipt: receipt["precision"],
    "Beginning-of-sequence token": lambda receipt: "in front" if receipt["bos"] else "none",
    "Matrix products": lambda receipt: ways_in_words(receipt),
    "Versions": lambda receipt: ", ".join(
        f"{name} {version}" for name, version in {**receipt["versions"], "python": receipt["python"]}.items()
    ),
    "Machine": lambda receipt: ", ".join(
        str(part)
        for part in (receipt["device"], receipt.get("processor"), receipt["machine"], cores_in_words(receipt))
        if part
    ),
}


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
    found = list(receipts)
    return {name: list(dict.fromkeys(fact(each) for each in found)) for name, fact in FACTS.items()}


def ways_in_words(receipt: Receipt) -> str:
    """Such as "bf16 fp32, int8 integer, gradient own": the ways of `engine.kernels.cpu_kernels.Kernels`."""
    return ", ".join(f"{name} {way}" for name, way in (receipt.get("products") or {}).items()) or "the library's own"


def cores_in_words(receipt: Receipt) -> str:
    """Such as "2 cores"; "" in a receipt that does not say."""
    return f"{receipt['cores']} cores" if receipt.get("cores") else ""
