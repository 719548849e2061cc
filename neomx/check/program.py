"""Finds the names of MXNet that a script uses, line by line, and whether neomx has them."""

from __future__ import annotations

import ast
import dataclasses
import re
import sys
from collections.abc import Iterator
from typing import Any

from ..base import MXNetError, suggest
from . import calls, differences, package
from .differences import Entry
from .package import COMPANIONS, COMPAT, Missing, Value
from .scopes import Binder, Imported
from .sources import Source
from .values import NO_CONSTANT, Evaluator, constant

KINDS = ("error", "missing", "differs", "note", "runs")
# Exceptions that a missing name raises; a script that catches one can do without the name.
_CAUGHT = frozenset({"AttributeError", "ImportError", "ModuleNotFoundError", "NameError", "Exception", "BaseException"})
# Libraries that do not register anything with MXNet.
_STRANGERS = frozenset(
    {"numpy", "scipy", "cv2", "PIL", "matplotlib", "tqdm", "h5py", "sklearn", "pandas", "tensorboardX"}
)
# Builtins and modules of Python 2, and their replacements.
_OLD_NAMES = {
    **{"xrange": "range", "unicode": "str", "basestring": "str", "long": "int", "raw_input": "input"},
    **{"unichr": "chr", "reduce": "functools.reduce", "reload": "importlib.reload"},
}
_OLD_MODULES = {
    **{"cPickle": "pickle", "ConfigParser": "configparser", "Queue": "queue", "StringIO": "io", "cStringIO": "io"},
    **{"urllib2": "urllib.request", "urlparse": "urllib.parse", "commands": "subprocess", "__builtin__": "builtins"},
}
_VERSIONS = r"version_info|__version__|python_version|\bPY[23]\b|platform\.python"
_LAUNCHERS_VARIABLES = r"DMLC_(ROLE|NUM_WORKER|NUM_SERVER|WORKER_ID|PS_ROOT_\w+)|OMPI_COMM_WORLD_\w+|PMI_(RANK|SIZE)"


@dataclasses.dataclass(frozen=True)
class Finding:
    """A message about one position in a file, of one of the KINDS."""

    kind: str
    line: int
    column: int
    name: str
    message: str = ""
    link: str = ""


@dataclasses.dataclass
class Facts:
    """Facts that determine how a script must be started, each with its line."""

    imports: dict[str, int]  # the first import of each module
    stores: dict[str, int] = dataclasses.field(default_factory=dict)  # kvstores by name
    options: dict[str, int] = dataclasses.field(default_factory=dict)  # options of the script that choose a kvstore
    contexts: list[int] = dataclasses.field(default_factory=list)  # lists of several contexts
    has_main: bool = False

    @property
    def uses_mxnet(self) -> bool:
        """Whether the script, or a library that it imports, uses MXNet."""
        return any(package.is_ours(name) or name in COMPANIONS for name in self.imports)

    @property
    def uses_aliases(self) -> bool:
        """Whether it imports a module that is an alias of neomx."""
        return any(name in COMPANIONS or name in package.ROOTS - {"neomx"} for name in self.imports)


def check(source: Source, registered: frozenset[str] = frozenset()) -> tuple[list[Finding], Facts]:
    """Return findings and facts about a file; `registered` are the names that this and other files register."""
    findings = [Finding("error", problem.line, 1, "", problem.message) for problem in source.problems]
    facts = Facts(_imports(source.tree))
    if facts.uses_mxnet:
        try:
            checker = _Checker(source, facts, registered)
            checker.visit(source.tree)
            findings += dict.fromkeys(checker.findings)
        except RecursionError:
            findings.append(Finding("error", 1, 1, "", "an expression is nested too deeply to be checked"))
        findings += _late_aliases(facts)
    return sorted(findings, key=lambda each: (each.line, each.column, KINDS.index(each.kind))), facts


def _late_aliases(facts: Facts) -> list[Finding]:
    """Return a finding if the module that enables `import mxnet` is imported after it."""
    late, first = facts.imports.get(COMPAT, 0), facts.imports.get("mxnet", sys.maxsize)
    if late <= first:
        return []
    return [Finding("missing", first, 1, "mxnet", f"`import {COMPAT}` must come before this line, not in line {late}.")]


class _Checker(ast.NodeVisitor):
    """Walks a script and collects findings and facts."""

    def __init__(self, source: Source, facts: Facts, registered: frozenset[str]):
        self.findings: list[Finding] = []
        self.facts = facts
        self._registered = registered
        binder = Binder(source.tree)
        self._scopes, self._scope = binder.scopes, binder.top
        self._evaluator = Evaluator(binder, self._report_found, self._report_missing)
        self._expected, self._asked = _expected(source.tree)

    def _say(self, kind: str, node: ast.AST, name: str, message: str = "", link: str = "") -> None:
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
        self.findings.append(Finding(kind, line, column, name, message, link))

    def _say_entry(self, node: ast.AST, name: str, entry: Entry) -> None:
        kind = "differs" if not entry.missing else "note" if node in self._expected else "missing"
        self._say(kind, node, name, entry.summary, entry.link)

    def _values(self, node: ast.expr) -> tuple[Value, ...]:
        return self._evaluator.values(node, self._scope)

    # ---- names ----

    def _report_found(self, node: ast.AST, value: Value) -> None:
        for entry in differences.about(value):
            self._say_entry(node, value.name, entry)

    def _report_missing(self, node: ast.AST, missing: Missing) -> None:
        expected = node in self._expected or missing.attribute in self._asked
        if missing.parent.path.partition(".")[0] == "numpy":
            if not expected:
                self._report_numpy(node, missing)
            return
        entry = next(iter(differences.about(missing)), None)
        near = package.nearest(missing)
        message = entry.summary if entry else f"neomx has no such name{f'; it has {near}' if near else ''}."
        link = entry.link if entry else ""
        if expected:
            self._say("note", node, missing.name, f"{message} The script handles this case.", link)
        else:
            self._say("missing", node, missing.name, message, link)

    def _report_numpy(self, node: ast.AST, missing: Missing) -> None:
        is_top = missing.parent.path == "numpy"
        restored = is_top and package.numpy_has_again(missing.attribute)
        if restored and any(name in self.facts.imports for name in ("mxnet", *COMPANIONS)):
            return
        remedy = package.numpy_remedy(missing.attribute) if is_top else ""
        if restored:
            remedy += " `import mxnet` restores it; `import neomx` does not."
        self._say("missing", node, missing.name, f"the installed NumPy has no such name.{remedy}")

    # ---- visitors ----

    def visit(self, node: ast.AST) -> None:
        """Visit a node in the scope that it opens."""
        outer, self._scope = self._scope, self._scopes.get(node, self._scope)
        super().visit(node)
        self._scope = outer

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._check_module(node, alias.name)
            self._check_import(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level or not node.module:
            return
        self._check_module(node, node.module)
        for alias in node.names:
            self._check_import(node, f"{node.module}.{alias.name}".removesuffix(".*"))

    def _check_module(self, node: ast.stmt, name: str) -> None:
        if name in _OLD_MODULES and node not in self._expected:
            self._say("missing", node, name, f"Python 3 has no such module. Use {_OLD_MODULES[name]}.")

    def _check_import(self, node: ast.stmt, path: str) -> None:
        found = package.find(path)
        if isinstance(found, Missing):
            self._report_missing(node, found)
        elif found is not None and package.is_ours(path):
            self._report_found(node, found)
            self._say("runs", node, found.name)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(node.ctx, ast.Load):
            self._count(node)
        if not isinstance(root, ast.Name):
            self.visit(root)

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            return
        bindings, stars = self._scope.lookup(node.id)
        values = self._values(node)
        if not bindings or any(isinstance(binding, Imported) for binding in bindings):
            self._count(node)
        if node.id in _OLD_NAMES and not (bindings or stars or values or node in self._expected):
            self._say("missing", node, node.id, f"Python 3 has no such builtin. Use {_OLD_NAMES[node.id]}.")

    def _count(self, node: ast.expr) -> None:
        """Count the longest known part of a chain of attributes."""
        while isinstance(node, (ast.Attribute, ast.Name)):
            values = self._values(node)
            if node in self._evaluator.absent:
                return
            if values:
                if package.is_ours(values[0].path) and not values[0].is_module and not values[0].made:
                    self._say("runs", node, values[0].name)
                return
            if isinstance(node, ast.Name):
                return
            node = node.value

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        self._values(node)  # for getattr(mx.nd, "zeros")
        called = self._values(node.func)
        ours = [value for value in called if package.is_ours(value.path)]
        rows = [calls.row_of(value) for value in ours]
        if len(called) == len(ours) == 2 and rows[0] is not None and rows[0] is rows[1]:
            self._check_call(node, ours[0], calls.signature(ours[1]))  # an op of F: symbols accept more keywords
        else:
            for value in ours:
                self._check_call(node, value, calls.signature(value) if len(called) == 1 else None)
        self._gather(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and re.fullmatch(_LAUNCHERS_VARIABLES, node.value):
            message = (
                "`neomx run` does not set this variable. It sets RANK, WORLD_SIZE and LOCAL_RANK; the rank and "
                "num_workers of a kvstore are correct with every launcher."
            )
            self._say("note", node, node.value, message)

    def visit_List(self, node: ast.List) -> None:
        self.generic_visit(node)
        if len(node.elts) > 1 and all(self._is_context(each) for each in node.elts):
            self.facts.contexts.append(node.lineno)

    def visit_ListComp(self, node: ast.ListComp) -> None:
        self.generic_visit(node)
        if self._is_context(node.elt):
            self.facts.contexts.append(node.lineno)

    def visit_If(self, node: ast.If) -> None:
        self.facts.has_main |= ast.unparse(node.test) == "__name__ == '__main__'"
        self.generic_visit(node)

    def _is_context(self, node: ast.expr) -> bool:
        values = self._values(node)
        return bool(values) and values[0].made and values[0].thing.__name__ == "Context"

    # ---- calls ----

    def _check_call(self, node: ast.Call, value: Value, accepted: calls.Signature | None) -> None:
        """Check the arguments of a call. The keywords are only checked if it is certain which are `accepted`."""
        signature = calls.signature(value)
        given = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        if accepted is not None:
            self._check_keywords(value, accepted, given)
        stop = next((i for i, argument in enumerate(node.args) if isinstance(argument, ast.Starred)), None)
        given |= dict(zip(signature.positional, node.args[:stop], strict=False))
        constants = {name: constant(argument) for name, argument in given.items()}
        entries = {entry.summary: entry for entry in differences.about(value, constants)}
        for entry in entries.values():
            self._say_entry(node, f"{value.name}({entry.keyword})", entry)
        for name, argument in given.items():
            self._check_string(argument, calls.kind_of(value, name))
        self._check_constants(value, given)
        self._check_optimizer_params(given)

    def _check_keywords(self, value: Value, signature: calls.Signature, given: dict[str, ast.expr]) -> None:
        for name, argument in given.items():
            if signature.takes(name):
                continue
            near = suggest(name, signature.keywords)
            if signature.ignores:
                self._say("note", argument, f"{value.name}({name})", f"this keyword is ignored, as in MXNet.{near}")
            else:
                self._say("missing", argument, f"{value.name}({name})", f"there is no such keyword.{near}")

    def _check_constants(self, value: Value, given: dict[str, ast.expr]) -> None:
        """Check literals that an op rejects: `act_type='rellu'`."""
        row = calls.row_of(value)
        for name, argument in given.items() if row is not None else ():
            literal = constant(argument)
            if literal is NO_CONSTANT or name not in row.attrs:
                continue
            try:
                row.convert(name, literal)
            except MXNetError as error:
                self._say("missing", argument, f"{value.name}({name})", str(error))

    def _check_string(self, argument: ast.expr, kind: str | None) -> None:
        """Check an optimizer, a metric, ... that is given by name, or several in a list."""
        for node in argument.elts if isinstance(argument, ast.List) else (argument,):
            name = constant(node)
            if kind is None or not isinstance(name, str) or name.startswith(("[", "{")):
                continue
            if kind == "kvstore":
                self.facts.stores.setdefault(name.lower(), node.lineno)
            known = calls.registered(kind)
            if name.lower() in known or name.lower() in self._registered:
                continue
            message = f"neomx has no {kind} of this name.{suggest(name.lower(), known)}"
            others = self._may_register() if kind not in ("network", "activation") else []
            if others:
                message += f" The script must register it, or one of its imports: {', '.join(others[:3])}."
            self._say("note" if others else "missing", node, f"{kind} {name!r}", message)

    def _check_optimizer_params(self, given: dict[str, ast.expr]) -> None:
        """Check the keys of a dictionary of settings for an optimizer that is given by name."""
        name, settings = constant(given.get("optimizer")), given.get("optimizer_params")
        if not isinstance(name, str) or not isinstance(settings, ast.Dict) or name.lower() in self._registered:
            return
        optimizer = calls.registered("optimizer").get(name.lower())
        if optimizer is None:
            return
        value = Value(f"mxnet.optimizer.{optimizer.__name__}", optimizer)
        keys = {key: node for node in settings.keys if node is not None and isinstance(key := constant(node), str)}
        self._check_keywords(value, calls.signature(value), keys)

    def _may_register(self) -> list[str]:
        """Return the imported modules that may register names with MXNet."""
        roots = {name.partition(".")[0] or "(relative)" for name in self.facts.imports}
        return sorted(name for name in roots - sys.stdlib_module_names - _STRANGERS if not package.is_ours(name))

    def _gather(self, node: ast.Call) -> None:
        """Collect facts from calls of any function."""
        keywords = {keyword.arg: constant(keyword.value) for keyword in node.keywords}
        stores: list[Any] = [keywords.get("kvstore"), keywords.get("kv_store")]
        if isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            flags = [flag for flag in map(constant, node.args) if isinstance(flag, str)]
            for flag in flags:
                if re.fullmatch(r"--kv[-_]?(store|type)", flag):
                    self.facts.options.setdefault(flag, node.lineno)
                    stores.append(keywords.get("default"))
        for store in stores:
            if isinstance(store, str):
                self.facts.stores.setdefault(store.lower(), node.lineno)


def _imports(tree: ast.Module) -> dict[str, int]:
    """Return {module: line} of the first import of each module and its package; '' means a relative import."""
    found: dict[str, int] = {}
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = ["" if node.level else node.module or ""]
        for name in names:
            for part in (name, name.partition(".")[0]):
                found[part] = min(found.get(part, sys.maxsize), getattr(node, "lineno", 1))
    return found


def _expected(tree: ast.Module) -> tuple[set[ast.AST], set[str]]:
    """Return the nodes in which a name may be missing, and the names whose existence the script checks.

    The nodes are the body of a `try` that catches the exception of a missing name, all handlers, and the branches of a
    version check. The names are the arguments of `hasattr`, and of `getattr` with a default.
    """
    nodes: set[ast.AST] = set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Try):
            kinds = [kind for handler in node.handlers for kind in _kinds(handler)]
            is_caught = "" in kinds or _CAUGHT.intersection(kinds)
            for statement in [*node.handlers, *(node.body if is_caught else [])]:
                nodes.update(ast.walk(statement))
        elif isinstance(node, (ast.If, ast.IfExp)) and re.search(_VERSIONS, ast.unparse(node.test)):
            nodes.update(ast.walk(node))
        elif isinstance(node, ast.Call) and (ast.unparse(node.func), len(node.args)) in (
            ("hasattr", 2),
            ("getattr", 3),
        ):
            names.add(str(constant(node.args[1])))
    return nodes, names


def _kinds(handler: ast.ExceptHandler) -> list[str]:
    """Return the last parts of the names of the exceptions that a handler catches; '' for a bare `except`."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return ["" if kind is None else ast.unparse(kind).rpartition(".")[2] for kind in kinds]


def registered_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names, in lower case, under which a script registers optimizers, metrics, initializers and stores."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for decorator in node.decorator_list:
                if re.search(r"register|alias", ast.unparse(decorator)):
                    yield node.name.lower()
                    given = decorator.args if isinstance(decorator, ast.Call) else []
                    yield from (name.lower() for name in map(constant, given) if isinstance(name, str))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("register") and node.args:
            names = [ast.unparse(node.args[0]), *map(constant, node.args[1:])]
            yield from (name.lower() for name in names if isinstance(name, str))
