"""`mx.nd.op`: every public op, and nothing else."""
