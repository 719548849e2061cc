"""Elementwise math."""

from parity.spec import f, family

case, program = family(__name__)

for name in ["abs", "exp"]:
    case(name, f(3, 4))
