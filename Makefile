# `make help` lists the targets: the comment above each one begins with the line that it shows.
# PYTHON chooses the interpreter that makes .venv.
PYTHON ?= python3
ORACLE_PYTHON ?= python3.11
export OMP_NUM_THREADS ?= 1
unexport PYTHONDONTWRITEBYTECODE  # the tests start hundreds of processes, which need not all compile every file

.PHONY: help demo test quick sweep coverage fuzz faults soak test-isa dist test-wheel check style types imports secrets audit format oracle record bench bench-dist bench-elastic bench-layouts bench-versions figures tasks render companions docs docs-serve clean

# List the targets.
help:
	@awk '/^# /{if (!line) line = substr($$0, 3); next} \
		/^[a-z][a-z-]*:/{printf "make %-16s %s\n", substr($$1, 1, index($$1, ":") - 1), line} \
		!/^[A-Z]+ \?=/{line = ""}' $(MAKEFILE_LIST)

# Train on two workers and on one, and compare them.
demo: .venv/installed
	.venv/bin/python examples/demo.py

# Run all tests.
test: .venv/installed
	.venv/bin/python -m pytest -n 2

# Run the tests of files that start no processes.
quick: .venv/installed
	.venv/bin/python -m pytest -n 2 -m 'not processes'

# Train with every layout; `make test` trains with a part of them.
sweep: .venv/installed
	NEOMX_SWEEP=1 .venv/bin/python -m pytest tests/parallel/test_layouts.py -k losses_and_files

# Measure which lines of the package the quick tests run.
coverage: .venv/installed
	.venv/bin/python -m coverage run -m pytest -n 2 -m 'not processes'
	.venv/bin/python -m coverage combine --quiet
	.venv/bin/python -m coverage report
	mkdir -p build
	.venv/bin/python -m coverage json --quiet -o build/coverage.json
	.venv/bin/python scripts/record_coverage.py build/coverage.json benchmarks/results/coverage.json
	.venv/bin/python scripts/figures.py

# Read damaged files and frames, made by seeded mutators.
# SEED, CASES (for each kind) and SECONDS (for each runner) choose others.
SEED ?= 0
CASES ?= 100000
SECONDS ?= 600
fuzz: .venv/installed
	status=0; for runner in $$(grep -l '^def main' tests/fuzz/*.py); do \
		.venv/bin/python $$runner --cases $(CASES) --seconds $(SECONDS) --seed $(SEED) || status=1; \
	done; exit $$status

# Let workers of elastic jobs fail, at random phases; `make test` has a few of these rows.
# SEED, ROWS and SECONDS choose others.
ROWS ?= 500
faults: .venv/installed
	.venv/bin/python tests/elastic/faults.py --rows $(ROWS) --seed $(SEED) --seconds $(SECONDS)

# Let a random killer loose on elastic jobs, one after the other, for SOAK seconds.
SOAK ?= 1200
soak: .venv/installed
	.venv/bin/python tests/elastic/soak.py --seconds $(SOAK) --seed $(SEED)

# Run the numeric tests with each instruction set that this CPU has.
test-isa: .venv/installed
	.venv/bin/python tests/instruction_sets.py

# Build the wheel and the source distribution in dist/.
dist: .venv/installed
	rm -rf dist
	.venv/bin/python -m build --no-isolation

# Test the wheel in an empty virtual environment, alone and with each extra (needs a network).
test-wheel: .venv/installed
	.venv/bin/python tests/wheel.py --python $(PYTHON)

# Check style, types, imports and secrets.
# `make -j 2 check` runs two of these at a time.
check: style types imports secrets
	@echo 'Known vulnerabilities are looked up by `make audit`, which needs a network; all else was checked without one.'

# Check format, lint and spelling.
style: .venv/installed
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/codespell

# Check types.
types: .venv/installed
	.venv/bin/mypy

# Check the imports between rooms.
# They are part of `make test` too; here they answer at once.
imports: .venv/installed
	.venv/bin/python -m pytest tests/package/test_imports.py

# Look for keys, tokens and passwords in tracked files.
secrets: .venv/installed
	git ls-files -z -- . ':!*.npz' ':!*.gz' ':!*.params' ':!*.rec' | xargs -0 .venv/bin/python scripts/find_secrets.py

# Look up the pinned versions in PyPI's list of known vulnerabilities (needs a network).
# A version that the list does not know is a failure.
audit: .venv-audit/installed
	.venv-audit/bin/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

# Format the code and fix what ruff can fix.
format: .venv/installed
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

# Install real MXNet 1.9.1, to record its results and to race against; no test needs it.
oracle: .venv-oracle/installed

# Record the results of real MXNet that the tests compare with.
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
	.venv-oracle/bin/python tests/parity/check_networks.py
	.venv-oracle/bin/python tests/parity/record.py

# Measure speed and memory against real MXNet and plain torch.
bench: .venv/installed .venv-oracle/installed
	.venv/bin/python benchmarks/ops.py --oracle .venv-oracle/bin/python
	.venv/bin/python benchmarks/train.py --oracle .venv-oracle/bin/python
	.venv/bin/python benchmarks/module.py --oracle .venv-oracle/bin/python
	.venv/bin/python benchmarks/records.py --oracle .venv-oracle/bin/python
	.venv/bin/python benchmarks/memory.py
	.venv/bin/python benchmarks/np_ops.py
	.venv/bin/python benchmarks/np_step.py

# Measure two workers on one machine and on two (network namespaces, so as root).
bench-dist: .venv/installed .venv-oracle/installed
	.venv/bin/python benchmarks/dist.py --oracle .venv-oracle/bin/python

# Kill workers of neomx, torch elastic and torchft, and measure when the others go on.
bench-elastic: .venv/installed .venv-torchft/installed
	.venv/bin/python benchmarks/elastic.py

# Measure layouts on two workers against the same programs in plain torch.
bench-layouts: .venv/installed
	.venv/bin/python benchmarks/layouts.py

# Measure this checkout against another one: `make bench-versions BEFORE=../older`.
bench-versions: .venv/installed
	.venv/bin/python benchmarks/versions.py --before $(BEFORE)

# Measure what the documentation publishes, and render it (as root, on an idle machine).
# It takes about half an hour. ONLY chooses benchmarks: `make figures ONLY='train layouts'`. Each keeps its result in benchmarks/results.
ONLY ?=
figures: .venv/installed .venv-oracle/installed
	status=0; .venv/bin/python benchmarks/measure.py $(ONLY) || status=1; \
		.venv/bin/python scripts/figures.py && exit $$status

# Run examples/tasks to their targets on one worker and on two, and render docs/tasks.md (an hour).
# ONLY chooses programs: `make tasks ONLY='translation tagging'`.
tasks: .venv/installed
	status=0; .venv/bin/python benchmarks/task_runs.py $(ONLY) --json benchmarks/results/task_runs.json || status=1; \
		.venv/bin/python scripts/figures.py && exit $$status

# Render the measurements page, plots and figures on other pages from benchmarks/results.
render: .venv/installed
	.venv/bin/python scripts/figures.py

# Test libraries written for MXNet on neomx: gluoncv, gluonnlp, mxboard, d2l.
companions: .venv-companions/installed
	.venv-companions/bin/python -m pytest -c tests/companions/pytest.ini tests/companions

# Build the documentation site in build/site; any warning is a failure.
docs: .venv/docs
	.venv/bin/mkdocs build --strict

# Serve the documentation at http://127.0.0.1:8000 and rebuild changed pages.
docs-serve: .venv/docs
	.venv/bin/mkdocs serve

docs docs-serve: export NO_MKDOCS_2_WARNING = 1

.venv/docs: .venv/installed
	.venv/bin/pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

.venv-audit/installed: Makefile
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/pip install --quiet pip-audit==2.10.1
	touch $@

.venv-torchft/installed:
	$(PYTHON) -m venv .venv-torchft
	.venv-torchft/bin/pip install --quiet torch==2.13.0 numpy requests opentelemetry-api opentelemetry-sdk opentelemetry-exporter-otlp-proto-http
	.venv-torchft/bin/pip install --quiet --no-deps torchft==0.2.0
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

# Remove virtual environments, caches and what was built.
clean:
	rm -rf .venv .venv-audit .venv-companions .venv-oracle .venv-torchft build dist *.egg-info .coverage* .pytest_cache .mypy_cache .ruff_cache .hypothesis
