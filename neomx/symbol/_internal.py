"""`mx.sym._internal`: ops whose names begin with an underscore."""
