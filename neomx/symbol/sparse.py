"""`mx.sym.sparse`: the ops that know sparse arrays; the storage is the array's own matter."""
