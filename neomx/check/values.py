"""Evaluates the expressions of a script to objects of neomx, as far as possible without running it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from . import calls, package
from .package import Missing, Value
from .scopes import Assigned, Binder, Binding, Imported, Scope

Values = tuple[Value, ...]  # all possible values of an expression; empty if unknown
NO_CONSTANT: Any = object()


def constant(node: ast.expr | None) -> Any:
    """Return the value of a literal; NO_CONSTANT for any other expression."""
    try:
        return NO_CONSTANT if node is None else ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return NO_CONSTANT


class Evaluator:
    """Evaluates expressions, and reports each name that is found or missing, once per position."""

    def __init__(
        self,
        binder: Binder,
        found: Callable[[ast.expr, Value], None],
        missing: Callable[[ast.expr, Missing], None],
    ):
        self._binder, self._found, self._missing = binder, found, missing
        self._known: dict[ast.expr, Values] = {}
        self.absent: set[ast.expr] = set()  # nodes at which a name is missing

    def values(self, node: ast.expr, scope: Scope) -> Values:
        """Return the possible values of an expression."""
        if node not in self._known:
            self._known[node] = ()  # for circular assignments
            self._known[node] = self._evaluate(node, scope)
        return self._known[node]

    def _evaluate(self, node: ast.expr, scope: Scope) -> Values:
        if isinstance(node, ast.Name):
            return self._name(node, scope)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, self.values(node.value, scope), node.attr)
        if isinstance(node, ast.Call):
            return self._call(node, scope)
        if isinstance(node, ast.NamedExpr):
            return self.values(node.value, scope)
        if isinstance(node, ast.IfExp):
            return _either(self.values(node.body, scope), self.values(node.orelse, scope))
        if isinstance(node, ast.BinOp):
            return _arrays(self.values(node.left, scope))
        if isinstance(node, ast.Subscript):
            return _arrays(self.values(node.value, scope))
        return ()

    def _name(self, node: ast.Name, scope: Scope) -> Values:
        bindings, stars = scope.lookup(node.id)
        if bindings:
            values = _either(*(self._bound(binding) for binding in bindings if not _is_none(binding)))
        else:
            found = (package.exported(module, node.id) for module in reversed(stars))
            values = tuple(value for value in found if value is not None)[:1]
        if not bindings or any(isinstance(binding, Imported) for binding in bindings):
            for value in values:
                self._found(node, value)
        return values

    def _bound(self, binding: Binding) -> Values:
        if isinstance(binding, Assigned):
            return self.values(binding.value, binding.scope)
        paths = [binding.path] if isinstance(binding, Imported) else ["mxnet.nd", "mxnet.sym"] if binding else []
        return tuple(value for value in map(package.find, paths) if isinstance(value, Value))

    def _attribute(self, node: ast.expr, parents: Values, name: str) -> Values:
        """Return an attribute of any of several possible objects; it is missing only if none has it."""
        found = [package.follow(parent, name) for parent in parents]
        values = tuple(value for value in found if isinstance(value, Value))
        for value in values:
            self._found(node, value)
        if found and isinstance(found[0], Missing) and all(isinstance(each, Missing) for each in found):
            self.absent.add(node)
            if name not in self._binder.stored:
                self._missing(node, found[0])
        return () if None in found else values

    def _call(self, node: ast.Call, scope: Scope) -> Values:
        if isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) >= 2:
            name = constant(node.args[1])
            if isinstance(name, str):
                return self._attribute(node, self.values(node.args[0], scope), name)
        results = [calls.result(value) for value in self.values(node.func, scope)]
        return () if None in results else tuple(value for value in results if value is not None)


def _either(*alternatives: Values) -> Values:
    """Return the union of the alternatives without duplicates; empty if one of them is unknown."""
    return tuple(
        {value.path: value for values in alternatives for value in values}.values() if all(alternatives) else ()
    )


def _arrays(values: Values) -> Values:
    """Return the values if operators and indexing preserve their class."""
    return values if all(value.made and value.thing.__name__ in ("NDArray", "Symbol") for value in values) else ()


def _is_none(binding: Binding) -> bool:
    """Return whether it is `mx = None`, after an import that failed."""
    return isinstance(binding, Assigned) and isinstance(binding.value, ast.Constant) and binding.value.value is None
