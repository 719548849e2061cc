"""`mx.sym.sparse`: ops that support sparse arrays. The storage type is a property of the bound arrays."""
