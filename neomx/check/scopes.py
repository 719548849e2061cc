"""The names that a script binds, their scopes and values: imports, assignments, parameters."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable, Iterator

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclasses.dataclass(frozen=True)
class Imported:
    """A name that an import statement binds to the module or member `path`."""

    path: str


@dataclasses.dataclass(frozen=True)
class Assigned:
    """A name that is bound to the value of an expression."""

    value: ast.expr
    scope: Scope


@dataclasses.dataclass(frozen=True)
class Front:
    """The F of `hybrid_forward`: `mx.nd` or `mx.sym`."""


Binding = Imported | Assigned | Front | None  # None: bound to an unknown value


@dataclasses.dataclass(eq=False)
class Scope:
    """The names of a module, a class, a function or a comprehension."""

    parent: Scope | None
    is_class: bool = False
    is_comprehension: bool = False
    bindings: dict[str, list[Binding]] = dataclasses.field(default_factory=dict)
    stars: list[str] = dataclasses.field(default_factory=list)  # modules of `from ... import *`
    elsewhere: dict[str, Scope] = dataclasses.field(default_factory=dict)  # `global` and `nonlocal` names

    def bind(self, name: str, binding: Binding) -> None:
        """Add a binding of a name, in the scope in which Python would create it."""
        scope = self.elsewhere.get(name, self)
        scope.bindings.setdefault(name, []).append(binding)

    def lookup(self, name: str) -> tuple[list[Binding], list[str]]:
        """Return the bindings of a name read here and, if there are none, the modules whose `*` import may bind it."""
        scope: Scope | None = self.elsewhere.get(name, self)
        stars: list[str] = []
        while scope is not None:
            if name in scope.bindings and (scope is self or not scope.is_class):
                return scope.bindings[name], []
            stars += scope.stars
            scope = scope.parent
        return [], stars

    def module(self) -> Scope:
        """Return the outermost scope."""
        return self if self.parent is None else self.parent.module()


class Binder(ast.NodeVisitor):
    """Walks a tree once and records every binding."""

    def __init__(self, tree: ast.Module):
        self.top = Scope(None)
        self.scopes: dict[ast.AST, Scope] = {tree: self.top}
        self.stored: set[str] = set()  # attributes set on any object
        self._scope = self.top
        for statement in tree.body:
            self.visit(statement)

    # ---- statements that bind ----

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            root = alias.name.partition(".")[0]
            self._scope.bind(alias.asname or root, Imported(alias.name if alias.asname else root))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            if node.level or node.module is None:
                self._scope.bind(alias.asname or alias.name, None)
            elif alias.name == "*":
                self._scope.stars.append(node.module)
            else:
                self._scope.bind(alias.asname or alias.name, Imported(f"{node.module}.{alias.name}"))

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._assign(target, node.value)
        self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._assign(node.target, node.value)
        for child in (node.annotation, node.value):
            if child is not None:
                self.visit(child)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        scope = self._scope
        while scope.is_comprehension and scope.parent is not None:
            scope = scope.parent
        scope.bind(node.target.id, Assigned(node.value, self._scope))
        self.visit(node.value)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):  # the target of for, with, ...
            self._scope.bind(node.id, None)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if not isinstance(node.target, ast.Name):  # after x += y an array is still an array
            self.visit(node.target)
        self.visit(node.value)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Store):
            self.stored.add(node.attr)
        self.visit(node.value)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self._scope.bind(node.name, None)
        self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        if node.name:
            self._scope.bind(node.name, None)
        self.generic_visit(node)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        if node.name:
            self._scope.bind(node.name, None)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        if node.rest:
            self._scope.bind(node.rest, None)
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        self._scope.elsewhere |= dict.fromkeys(node.names, self.top)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        for name in node.names:
            scope = self._scope.parent
            while scope is not None and (scope.is_class or name not in scope.bindings):
                scope = scope.parent
            if scope is not None:
                self._scope.elsewhere[name] = scope

    def _assign(self, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name):
            self._scope.bind(target.id, None if value is None else Assigned(value, self._scope))
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            fits = len(values) == len(target.elts) and not any(
                isinstance(each, ast.Starred) for each in (*values, *target.elts)
            )
            for i, each in enumerate(target.elts):
                if fits:
                    self._assign(each, values[i])
                else:
                    self.visit(each)
        else:
            self.visit(target)

    # ---- scopes ----

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._scope.bind(node.name, None)
        for outside in (*node.decorator_list, *_defaults(node.args), *_annotations(node)):
            self.visit(outside)
        with_front = node.name == "hybrid_forward" and self._scope.is_class
        self._enter(node, node.body, _parameters(node.args, with_front))

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for outside in _defaults(node.args):
            self.visit(outside)
        self._enter(node, [node.body], _parameters(node.args))

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._scope.bind(node.name, None)
        for outside in (*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)):
            self.visit(outside)
        self._enter(node, node.body, is_class=True)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        self._enter(node, list(ast.iter_child_nodes(node)), is_comprehension=True)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def _enter(
        self,
        node: ast.AST,
        inside: list[ast.stmt] | list[ast.expr] | list[ast.AST],
        parameters: Iterable[tuple[str, Binding]] = (),
        is_class: bool = False,
        is_comprehension: bool = False,
    ) -> None:
        outer = self._scope
        self._scope = self.scopes[node] = Scope(outer, is_class, is_comprehension)
        for name, binding in parameters:
            self._scope.bind(name, binding)
        for child in inside:
            self.visit(child)
        self._scope = outer


def _defaults(arguments: ast.arguments) -> list[ast.expr]:
    return [*arguments.defaults, *(default for default in arguments.kw_defaults if default is not None)]


def _annotations(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.expr]:
    every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
    found = [argument.annotation for argument in every if argument is not None]
    return [annotation for annotation in (*found, node.returns) if annotation is not None]


def _parameters(arguments: ast.arguments, with_front: bool = False) -> Iterator[tuple[str, Binding]]:
    """Yield the parameters of a function; one named F, and the second of `hybrid_forward`, mean nd or sym."""
    positional = [*arguments.posonlyargs, *arguments.args]
    for i, argument in enumerate(positional):
        yield argument.arg, Front() if argument.arg == "F" or (with_front and i == 1) else None
    for other in (*arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if other is not None:
            yield other.arg, Front() if other.arg == "F" else None
