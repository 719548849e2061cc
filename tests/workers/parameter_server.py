"""A parameter server, as a script: tests fork it from a process that has imported neomx."""

import faulthandler
import signal

from neomx.kvstore.server import main

faulthandler.register(signal.SIGUSR2)  # shows where it hangs
main()
