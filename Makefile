# The two commands of the README: make demo, make test. PYTHON chooses the interpreter that makes .venv.
PYTHON ?= python3
ORACLE_PYTHON ?= python3.11
export OMP_NUM_THREADS ?= 1
unexport PYTHONDONTWRITEBYTECODE  # the tests start hundreds of processes, which need not all compile every file

.PHONY: demo test quick fuzz test-isa check secrets audit format oracle record bench bench-dist bench-layouts bench-versions companions clean

demo: .venv/installed
	.venv/bin/python examples/demo.py

test: .venv/installed
	.venv/bin/python -m pytest -n 2

# Without the files whose tests start processes.
quick: .venv/installed
	.venv/bin/python -m pytest -n 2 -m 'not processes'

# Damaged files and frames, by seeded mutators. SEED, CASES (for each kind) and SECONDS (for each runner) choose others.
SEED ?= 0
CASES ?= 100000
SECONDS ?= 600
fuzz: .venv/installed
	status=0; for runner in $$(grep -l '^def main' tests/fuzz/*.py); do \
		.venv/bin/python $$runner --cases $(CASES) --seconds $(SECONDS) --seed $(SEED) || status=1; \
	done; exit $$status

# The numeric tests with the kernels of each instruction set that this CPU has, from SSE to AMX.
test-isa: .venv/installed
	.venv/bin/python tests/instruction_sets.py

check: .venv/installed
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/python -m pytest tests/package/test_imports.py
	$(MAKE) --no-print-directory secrets
	@echo 'Known vulnerabilities are looked up by `make audit`, which needs a network; all else was checked without one.'

# Keys, tokens and passwords in tracked files. SHA-1 checksums, of 40 digits, are no secrets.
secrets: .venv/installed
	git ls-files -z -- . ':!*.npz' ':!*.gz' ':!*.params' ':!*.rec' | xargs -0 \
		.venv/bin/detect-secrets-hook --no-verify --exclude-secrets '^[0-9a-f]{40}$$'

# The pinned versions in PyPI's list of known vulnerabilities. A version that the list does not know is a failure.
audit: .venv-audit/installed
	.venv-audit/bin/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

format: .venv/installed
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

# Real MXNet, to record what it gives and to race against. Not needed to run the tests.
oracle: .venv-oracle/installed

record: .venv-oracle/installed
	.venv-oracle/bin/python tests/parity/record_registry.py
	.venv-oracle/bin/python tests/parity/record_np_names.py
	.venv-oracle/bin/python tests/parity/record_params.py
	.venv-oracle/bin/python tests/parity/record_zoo.py
	.venv-oracle/bin/python tests/parity/record_states.py
	.venv-oracle/bin/python tests/parity/record_rnn.py
	.venv-oracle/bin/python tests/parity/record_module.py
	.venv-oracle/bin/python tests/parity/record_kvstore.py
	.venv-oracle/bin/python tests/parity/record_symbols.py
	.venv-oracle/bin/python tests/parity/record_amp.py
	.venv-oracle/bin/python tests/parity/check_exports.py
	.venv-oracle/bin/python tests/parity/record.py

bench: .venv/installed .venv-oracle/installed
	.venv/bin/python benchmarks/ops.py --oracle .venv-oracle/bin/python
	.venv/bin/python benchmarks/train.py --oracle .venv-oracle/bin/python
	.venv/bin/python benchmarks/module.py --oracle .venv-oracle/bin/python
	.venv/bin/python benchmarks/records.py --oracle .venv-oracle/bin/python
	.venv/bin/python benchmarks/memory.py
	.venv/bin/python benchmarks/np_step.py

# Two workers on one machine and on two (network namespaces, so as root).
bench-dist: .venv/installed .venv-oracle/installed
	.venv/bin/python benchmarks/dist.py --oracle .venv-oracle/bin/python

# Layouts on two workers against the same written by hand in torch.
bench-layouts: .venv/installed
	.venv/bin/python benchmarks/layouts.py

# This checkout against another one: `make bench-versions BEFORE=../older`.
bench-versions: .venv/installed
	.venv/bin/python benchmarks/versions.py --before $(BEFORE)

# Libraries written for MXNet, from PyPI, on neomx: gluoncv, gluonnlp, mxboard, d2l. Not part of `make test`.
companions: .venv-companions/installed
	.venv-companions/bin/python -m pytest -c tests/companions/pytest.ini tests/companions

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

.venv-audit/installed: Makefile
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/pip install --quiet pip-audit==2.10.1
	touch $@

.venv-oracle/installed:
	$(ORACLE_PYTHON) -m venv .venv-oracle
	.venv-oracle/bin/pip install --quiet mxnet==1.9.1 'numpy<1.24'
	touch $@

.venv-companions/installed: tests/companions/requirements.txt tests/companions/libraries.txt
	$(ORACLE_PYTHON) -m venv .venv-companions
	.venv-companions/bin/pip install --quiet --requirement tests/companions/requirements.txt
	.venv-companions/bin/pip install --quiet --no-deps --requirement tests/companions/libraries.txt --editable .
	touch $@

clean:
	rm -rf .venv .venv-audit .venv-companions .venv-oracle build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
