"""Communication between processes: sockets, shared memory and torch.distributed. Works on tensors, not NDArrays."""
