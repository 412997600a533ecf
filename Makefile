# Needs Python 3.11–3.13, Java >= 17 and make; everything else is installed into .venv.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
KEEP ?=
ALL ?=
SABOTAGE ?=
QUERY ?=
KAFKA ?=
ROUNDS ?=
SEED ?=
ONLY ?=
GROUP ?=
NAME ?=
FOLDERS ?= tests
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(CURDIR)/$(BIN)/python
# Some containers set it. Each of hundreds of processes would then compile all its modules anew: 4 s instead of none.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup java classes kafka s3mock versitygw goldens demo stop unit test part stories nightly e2e queries chaos drills bench policies docs lint audit invariants migration pictures clean

help:
	@echo "make demo            run the main job end to end and print a verdict"
	@echo "make demo KEEP=1     the same; then the job runs on, for you to rescale (make stop ends it)"
	@echo "make demo SABOTAGE=1 lose a state file on purpose; must fail and name it"
	@echo "make demo QUERY=1    the same with a query of Spark's own: its checkpoint from 2 to 6 state partitions"
	@echo "make demo KAFKA=1    the same with Kafka: flights come through a topic, alerts go into one; needs Maven"
	@echo "make unit            the quick tests, which need only Python"
	@echo "make test            every promise once: what make unit runs, then Spark, PostgreSQL, Kafka, S3, Airflow, a browser"
	@echo "make part FOLDERS=…  some folders of make test, where several machines share it"
	@echo "make stories         two stories through a whole Airflow: a rescale from the form and back, and an outage"
	@echo "make nightly         every test there is, all stories and queries included; takes hours"
	@echo "make e2e             all stories: rescales, failures and kills through a whole Airflow; a quarter of an hour"
	@echo "make queries         rescale checkpoints of Spark's own queries, every kind on every provider; takes hours"
	@echo "make chaos           strike at a job and all it stands on 80 times; SEED=n replays, ROUNDS=n is longer;"
	@echo "                     then 200 times at a job from one Kafka topic to another, and its broker,"
	@echo "                     and 200 times at a query of Spark's own"
	@echo "make chaos KAFKA=1   the job with Kafka alone; QUERY=1 the query alone"
	@echo "make drills          break what a job stands on, and check what people are told, what helps, and the output;"
	@echo "                     half an hour; ONLY=words plays some"
	@echo "make bench           measure side by side with Spark; GROUP=core runs one group, ONLY=name one row"
	@echo "make policies        simulate the policy and its peers on many shapes, and draw it; ONLY=name runs one shape"
	@echo "make docs            build the documentation and its API reference into .run/site"
	@echo "make lint            ruff, mypy, import-linter"
	@echo "make kafka           fetch the jars that tests and the demo with Kafka need, by Maven"
	@echo "make s3mock          fetch the S3 server that tests refuse, by Maven"
	@echo "make versitygw       compile the S3 server that make nightly tests stores on, by Go"
	@echo "make goldens         fetch the checkpoints of Spark's own tests, which make nightly reads, by Maven"
	@echo "make audit           look the packages of requirements.lock up in a database of vulnerabilities; needs the network"
	@echo "make invariants      take each invariant's keeper away; a test must fail"
	@echo "make migration NAME=\"what changes\"   write a revision for a change of the catalog's tables"
	@echo "make pictures        take the documentation's pictures of the pages in Airflow anew; ALL=1 takes every page"
	@echo "                     and dialog, light and dark, wide and narrow, into .run/pictures"
	@echo "make stop            end everything that demo left running"

setup: $(VENV)/.installed

$(VENV)/.installed: requirements.lock pyproject.toml scripts/check_prerequisites.py
	@$(PYTHON) scripts/check_prerequisites.py python
	@echo "installing into $(VENV); this takes a few minutes the first time"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --no-compile --no-deps --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --no-index --no-deps --no-build-isolation -e .
	@command -v mvn >/dev/null || echo "found no mvn: only the demo with Kafka and some tests need it (make kafka s3mock)"
	@# On all cores, where pip would use one. Only for speed: what does not compile here does no harm until it is imported.
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib statecore plugins benchmarks examples stack || true
	@touch $@

java:
	@$(PYTHON) scripts/check_prerequisites.py java

# Spark's processes start sooner with it, and a test run has hundreds of them.
CLASSES := $(VENV)/spark-classes.jsa

$(CLASSES): $(VENV)/.installed scripts/archive_classes.py | java
	@echo "writing an archive of Spark's classes, with which its processes start sooner"
	@rm -f $@
	@$(BIN)/python -m scripts.archive_classes >$(@:.jsa=.log) 2>&1 || \
		{ tail -1 $(@:.jsa=.log); echo "no archive, see $(@:.jsa=.log); processes start as without it"; }

classes: $(CLASSES)

# Fetches by Maven, into $(VENV)/$(1), the jars of the profiles $(2) of scripts/$(1)/pom.xml.
define fetched
rm -rf $(VENV)/$(1) && \
	for part in $(2); do \
		mvn --quiet --batch-mode -Dstyle.color=never --file scripts/$(1)/pom.xml --activate-profiles $$part \
			dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/$(VENV)/$(1)/$$part || exit 1; \
	done && \
	$(call checked,$(1))
endef

# Checks that the jars in $(VENV)/$(1) are those of scripts/$(1)/SHA256SUMS.
define checked
(cd $(VENV)/$(1) && sha256sum --quiet --check $(CURDIR)/scripts/$(1)/SHA256SUMS && \
		[ $$(find . -name '*.jar' | wc -l) -eq $$(wc -l <$(CURDIR)/scripts/$(1)/SHA256SUMS) ] || \
		{ echo "found other jars than those of scripts/$(1)/SHA256SUMS; expected exactly those; correct it or pom.xml" >&2; exit 1; }) && \
	touch $@
endef

# Only tests and the demo with Kafka need them: whoever runs jobs has Spark fetch its connector.
BROKER := $(VENV)/kafka

$(BROKER)/.fetched: scripts/kafka/pom.xml scripts/kafka/SHA256SUMS $(VENV)/.installed
	@command -v mvn >/dev/null || { echo "found no mvn: without it no test and no demo with Kafka; apt-get install maven (or brew install maven)"; exit 0; }; \
	echo "fetching Spark's connector for Kafka, and a broker to test with" && \
	$(call fetched,kafka,connector broker)

kafka: $(BROKER)/.fetched

# Only a test needs it: an S3 server that lets two writers win.
$(VENV)/s3mock/.fetched: scripts/s3mock/pom.xml scripts/s3mock/SHA256SUMS $(VENV)/.installed
	@command -v mvn >/dev/null || { echo "found no mvn: without it no test of a store with two winners; apt-get install maven (or brew install maven)"; exit 0; }; \
	echo "fetching S3Mock to test with" && \
	$(call fetched,s3mock,server)

s3mock: $(VENV)/s3mock/.fetched

# Only nightly tests need it, because to compile it takes minutes: a second S3 server that keeps its promises.
VERSITYGW := v1.8.0

$(VENV)/versitygw/$(VERSITYGW)/versitygw: $(VENV)/.installed
	@command -v go >/dev/null || { echo "found no go: without it no test on a second S3 server; install Go 1.25 or newer"; exit 0; }; \
	echo "compiling versitygw to test with; this takes a few minutes the first time" && \
	GOBIN=$(CURDIR)/$(@D) go install github.com/versity/versitygw/cmd/versitygw@$(VERSITYGW) && touch $@

versitygw: $(VENV)/versitygw/$(VERSITYGW)/versitygw

# Only nightly tests need them: Spark's own checkpoints, as its releases before have left them.
$(VENV)/goldens/.fetched: scripts/goldens/pom.xml scripts/goldens/SHA256SUMS $(VENV)/.installed
	@command -v mvn >/dev/null || { echo "found no mvn: without it no test of Spark's own checkpoints; apt-get install maven (or brew install maven)"; exit 0; }; \
	echo "fetching the checkpoints of Spark's own tests" && \
	rm -rf $(VENV)/goldens && \
	mvn --quiet --batch-mode -Dstyle.color=never --file scripts/goldens/pom.xml \
		dependency:copy -DoutputDirectory=$(CURDIR)/$(VENV)/goldens && \
	$(call checked,goldens)

goldens: $(VENV)/goldens/.fetched

demo: java $(CLASSES) $(if $(KAFKA),kafka)
	@$(BIN)/python -m examples.demo $(if $(QUERY),--query) $(if $(KAFKA),--kafka) $(if $(KEEP),--keep) $(if $(SABOTAGE),--sabotage)

stop: setup
	@$(BIN)/python -m stack stop

PYTEST := $(BIN)/python -m pytest --dist worksteal --numprocesses

# Three at a time on two cores: now and then one of them waits.
UNIT = $(PYTEST) 3 -o tmp_path_retention_policy=failed
unit: setup
	@$(UNIT) -m "unit and not nightly"

# Two at a time: each starts programs that run beside it.
test: unit $(CLASSES) kafka s3mock
	@$(PYTEST) 2 -m "not unit and not nightly and not queries and not e2e"

# Some folders of `make test`, where several machines share them.
part: $(CLASSES) kafka s3mock
	@$(PYTEST) 2 -m "not nightly" $(FOLDERS)

# One after the other in one Airflow; each goes on from what the one before has left, so the first failure ends it.
STORIES = $(BIN)/python -m pytest --capture=no --exitfirst --session-timeout 2400 tests/e2e
e2e: $(CLASSES) kafka
	@$(STORIES)

stories: $(CLASSES)
	@$(STORIES) -m "not nightly"

# The floor is what all unit tests cover, rounded down. Tracing them takes as long again, so `make unit` does not.
nightly: $(CLASSES) kafka s3mock versitygw goldens
	@ALL_EXAMPLES=1 $(UNIT) -m unit --cov=statecore --cov-report=term:skip-covered --cov-fail-under=87
	@ALL_EXAMPLES=1 $(PYTEST) 2 -m "not unit and not e2e"
	@$(STORIES)
	@$(BIN)/python -m tests.drills

# Every operator on every provider; `make test` tries each operator once.
queries: $(CLASSES) goldens
	@$(PYTEST) 2 -m queries tests/queries $(if $(ONLY),-k "$(ONLY)")

invariants: $(CLASSES)
	@$(BIN)/python -m tests.invariants

CHAOS = $(BIN)/python -m tests.chaos $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SEED),--seed $(SEED))
chaos: $(CLASSES) kafka
	@$(if $(KAFKA)$(QUERY),,$(CHAOS))
	@$(if $(QUERY),,$(CHAOS) --kafka)
	@$(if $(KAFKA),,$(CHAOS) --query)

drills: $(CLASSES)
	@$(BIN)/python -m tests.drills $(if $(ONLY),--only "$(ONLY)")

bench: setup java kafka
	@$(BIN)/python -m benchmarks $(if $(GROUP),--group $(GROUP)) $(if $(ONLY),--only $(ONLY))

policies: setup
	@mkdir -p .run
	@$(BIN)/python -m benchmarks.policies --picture .run/policies.png $(if $(ONLY),--only $(ONLY))

migration: setup
	@$(BIN)/python -m scripts.new_migration "$(NAME)"

pictures: setup
	@$(BIN)/python -m tests.web $(if $(ALL),--all .run/pictures)

# Material's notice about the end of MkDocs 1 is no warning of ours.
docs: setup
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

# In an environment of its own: the lock holds what is installed, not the tool that looks through it. Strict, because a
# package that could not be looked up is not known to be free of them.
AUDIT := .run/audit

$(AUDIT)/bin/pip-audit:
	@$(PYTHON) -m venv $(AUDIT)
	@$(AUDIT)/bin/python -m pip install --quiet pip-audit==2.10.1

audit: $(AUDIT)/bin/pip-audit
	@$(AUDIT)/bin/pip-audit --requirement requirements.lock --no-deps --disable-pip --strict

clean: stop
	rm -rf .run
