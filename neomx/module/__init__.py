"""`mx.mod`: training a symbol. Module, and modules made of several."""

from . import base_module, bucketing_module, executor_group, module
from .base_module import BaseModule
from .bucketing_module import BucketingModule
from .module import Module

__all__ = [
    "BaseModule",
    "BucketingModule",
    "Module",
    "base_module",
    "bucketing_module",
    "executor_group",
    "module",
]
