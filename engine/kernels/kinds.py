"""The ways of matrix products on a CPU, and which of them a model takes."""

from dataclasses import asdict, dataclass

OWN, FP32, INTEGER = "own", "fp32", "integer"


@dataclass(frozen=True)
class Kernels:
    """Ways of matrix products on a CPU. OWN is the library's: torch's bf16, bitsandbytes' int8; FP32 and INTEGER are in
    `engine.kernels.cpu_kernels`. `gradient` is that of int8 layers; a bf16 layer's goes the way of `bf16`. `attention`
    is that of gradient passes: torch passes gradients back through it several times slower in bf16 than in fp32."""

    bf16: str = OWN
    int8: str = OWN
    gradient: str = OWN
    attention: str = OWN

    def of(self, precision: str) -> "Kernels":
        """The ways that a model in this precision takes: in int8 its unembedding stays bf16."""
        if precision == "fp32":
            return Kernels()
        return self if precision == "int8" else Kernels(bf16=self.bf16, attention=self.attention)

    def not_own(self, gradients: bool) -> dict[str, str]:
        """The ways that are not the library's own, as keys say them; with that of the gradients where they count."""
        ways = {name: way for name, way in asdict(self).items() if way != OWN}
        return {name: way for name, way in ways.items() if gradients or name in ("bf16", "int8")}
