"""Processes that talk to each other: sockets, shared memory and torch.distributed live here, arrays do not."""
