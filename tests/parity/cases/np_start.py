"""The first functions of mx.np."""

from parity.spec import f, family

case, program = family(__name__)

case.np("np.zeros", (2, 3))
case.np("np.add", f(2, 3), f(3))
