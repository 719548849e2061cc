"""`mx.sym.op`: every public op, and nothing else."""
