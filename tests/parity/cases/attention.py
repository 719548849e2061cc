"""Interleaved attention products."""

from ..spec import f, family

case, program = family(__name__)

for heads, time, batch in ((1, 3, 2), (2, 3, 2), (4, 5, 1)):
    case("_contrib_interleaved_matmul_selfatt_qk", f(time, batch, 24), heads=heads)
    case("_contrib_interleaved_matmul_selfatt_valatt", f(time, batch, 24), f(batch * heads, time, time), heads=heads)
    case("_contrib_interleaved_matmul_encdec_qk", f(time + 1, batch, 8), f(time, batch, 16), heads=heads)
    case(
        "_contrib_interleaved_matmul_encdec_valatt",
        f(time, batch, 16),
        f(batch * heads, time + 1, time),
        heads=heads,
    )
