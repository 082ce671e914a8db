"""How fast a device is: as passes were timed on one like it, else as its maker says of it, at an assumed share.

Products of narrow matrices are slower an operation: what a layer does beside them (norms, sums, activations,
quantising) is as much a value whatever its width. So passes take seconds an operation, and seconds a value.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cache import Store
from engine.checkpoints.model_config import ModelConfig
from engine.kernels.kernel_choice import SMALL_PARAMETERS
from engine.placement.hardware import Device
from engine.timing.observed_timings import Timed, timed_passes
from engine.timing.operations import REMADE, Operations

UTILISED = {"bf16": 0.4, "int8": 0.2, "fp32": 0.6, "memory": 0.6, "bus": 0.8}  # of each peak, assumed
DISK_BYTES_A_SECOND = 2e9  # assumed
VALUE_BYTES = {"int8": 24, "bf16": 8, "fp32": 16}  # read and written for a value on a GPU, assumed
# in whose time a processor makes a value, where no two models tell: of layers 512 to 4,096 wide, by AMX and VNNI
IN_OPERATIONS = {"int8": 2000, "bf16": 1200, "fp32": 500}
ONE_WIDTH = "assumed, as no two widths were: a value between products takes the time of {:,} operations"
APART = 1.5  # times as wide, from which two models show what values take


@dataclass(frozen=True)
class Throughput:
    """Operations a second in the matrices of layers, in other products, and in gradients passed `back`; `values` and
    `back_values` made a second, and weights `remade` in 16 bits, where they are in 8; bytes of weights read a second,
    None where that bounds nothing. `said` is what is measured and assumed."""

    matrices: float
    others: float
    back: float
    values: float
    back_values: float
    remade: float
    memory: float | None
    said: str
    is_measured: bool = False

    def seconds(self, of: Operations, weight_bytes: float = 0.0) -> float:
        """Seconds of passes that take so much and read so many bytes of weights: whichever bounds them."""
        multiplied = of.matrices / self.matrices + (of.attention + of.head) / self.others + of.back / self.back
        made = of.values / self.values + of.back_values / self.back_values + of.remade / self.remade
        return max(multiplied + made, weight_bytes / self.memory if self.memory else 0.0)


@dataclass(frozen=True)
class Typical:
    """What passes over the questions in hand do, from a model's outline: `forward` passes over so many `characters`,
    and gradient passes `back` over so many as count for them (see engine.timing.workload)."""

    forward: Callable[[ModelConfig], Operations]
    characters: float
    back: Callable[[ModelConfig], Operations]
    characters_back: float


def throughput_of(
    store: Store, device: Device, model: ModelConfig, precision: str, typical: Typical
) -> Throughput | None:
    """The pace of that device: measured where passes of models in that precision were timed on one like it and are in
    this store (of several it goes by the one nearest in size), else assumed; None of what nothing is known."""
    timed = [each for each in timed_passes(store) if each.precision == precision and each.is_on(device)]
    is_small = model.parts.n_params < SMALL_PARAMETERS  # these have other threads, and passes too short to tell
    if timed := [each for each in timed if (each.n_params < SMALL_PARAMETERS) == is_small] or timed:
        size = math.log(model.parts.n_params)
        nearest = min(timed, key=lambda each: abs(math.log(each.n_params) - size))
        found = _in_operations(timed, typical)
        pace = _measured(nearest, found or IN_OPERATIONS[precision], typical)
        return pace if found else replace(pace, said=f"{pace.said}; {ONE_WIDTH.format(IN_OPERATIONS[precision])}")
    return _assumed(device, precision)


def processor_pace(operations: float, said: str) -> Throughput:
    """The pace of a processor of which so many operations a second are assumed, all else among them."""
    return Throughput(operations, operations, operations, math.inf, math.inf, math.inf, None, said)


def _measured(timed: Timed, in_operations: float, typical: Typical) -> Throughput:
    """Operations and values take what they took together in the passes that were timed."""
    of = ModelConfig(timed.name, timed.config)
    there, there_s = typical.forward(of), timed.s_a_character * typical.characters
    rate = (there.total + in_operations * there.values) / there_s
    said = f"measured: {timed.name} in {timed.precision} took {timed.s_a_character * 1e3:.3g} s a thousand "
    said += f"characters on {timed.on}"
    plain = in_operations * IN_OPERATIONS[_plain(timed.precision)] / IN_OPERATIONS[timed.precision]
    remade = _remade(timed.precision, rate / plain)
    pace = Throughput(rate, rate, rate, rate / in_operations, rate / plain, remade, None, said, is_measured=True)
    if timed.gradient_s_a_character is not None:
        passed = typical.back(of)
        back_s = timed.gradient_s_a_character * typical.characters_back - pace.seconds(replace(passed, back=0.0))
        pace = replace(pace, back=passed.back / back_s) if back_s > 0 else pace
    return pace


def _in_operations(timed: Sequence[Timed], typical: Typical) -> float | None:
    """In the time of how many operations a value is made, from the narrowest and the widest model that were timed; None
    where they are about as wide, or do not tell."""
    by_width = sorted(timed, key=lambda each: each.d_model)
    (narrow, narrow_s), (wide, wide_s) = (
        (typical.forward(ModelConfig(each.name, each.config)), each.s_a_character)
        for each in (by_width[0], by_width[-1])
    )
    if by_width[-1].d_model < APART * by_width[0].d_model:
        return None
    # total + n * values is as many times as much of the one as of the other as its seconds are
    below = narrow.values * wide_s - wide.values * narrow_s
    found = (wide.total * narrow_s - narrow.total * wide_s) / below if below else 0.0
    return found if found > 0 else None


def _assumed(device: Device, precision: str) -> Throughput | None:
    if device.memory is None or not device.peaks:
        return None
    of_rest = _plain(precision)
    rates = {name: UTILISED[name] * device.peaks[name] for name in (precision, of_rest)}
    shares = [f"{device.peaks[name] / 1e12:,.4g} tera-operations a second in {name} at {UTILISED[name]:.0%}"
              for name in rates]  # fmt: skip
    shares.append(f"{device.memory / 1e9:,.0f} GB a second of its memory at {UTILISED['memory']:.0%} (all weights once "
                  f"a pass, {VALUE_BYTES[precision]} bytes for each value between products)")  # fmt: skip
    said = f"assumed: of {device.name}'s published peaks {', '.join(shares)}"
    memory = UTILISED["memory"] * device.memory
    values = memory / VALUE_BYTES[of_rest]
    return Throughput(rates[precision], rates[of_rest], rates[of_rest], memory / VALUE_BYTES[precision], values,
                _remade(precision, values), memory, said)  # fmt: skip


def _remade(precision: str, values: float) -> float:
    """How many weights are made 16 bits a second where so many values in 16 bits are made."""
    return values / REMADE if precision == "int8" else math.inf


def _plain(precision: str) -> str:
    """What int8 does not multiply is in."""
    return "bf16" if precision == "int8" else precision
