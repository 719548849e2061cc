"""Elementwise math."""

from parity.spec import const, f, family, ints

case, program = family(__name__)

for name in "abs exp".split():
    case(name, f(3, 4))
