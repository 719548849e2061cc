"""`mx.contrib.onnx`: the names under which older programs access `mx.onnx`."""

import sys

from ...onnx import export_model, get_model_metadata, import_model, import_to_gluon

__all__ = ["export_model", "get_model_metadata", "import_model", "import_to_gluon", "mx2onnx", "onnx2mx"]

mx2onnx = onnx2mx = sys.modules[__name__]  # MXNet's modules for export and import
