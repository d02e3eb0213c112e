.PHONY: run test test-abuse test-boxes test-fleet check-structure docs test-console screenshots audit help fuzz soak bench bench-links bench-router bench-listener bench-files bench-api bench-fleet bench-console bench-ktls bench-ladder check fmt

run:                ## build links, files, api and the console, and run them on embedded storage
	.ci/up.sh

test:               ## formatting, lints, known vulnerabilities and all tests; ends with durations and what was skipped
	.ci/test.sh

test-abuse:         ## clients that drip, stall, flood and nest, against the real programs; part of test
	.ci/abuse.sh

test-fleet:         ## PostgreSQL with fail-over under two services: Patroni, etcd, HAProxy, pgbouncer; part of test
	.ci/fleet.sh

test-boxes:         ## several boxes: dashboards and alerts against real scrapes, the service address by BGP and VRRP in namespaces; part of test
	.ci/boxes.sh

check-structure:    ## no cycles of modules, crates that use one another as pkgs/README.md says, lockfiles and features that fit, no ten lines twice; part of test
	tests/test_structure.py
	tests/structure.py
	python3 -B tests/test_repeats.py
	tests/repeats.py
	python3 -B tests/test_locks.py
	tests/locks.py
	python3 -B tests/test_features.py
	tests/features.py

docs:               ## links, generated pages and commands of the manual, and its HTML; ARGS=write or record makes them anew; part of test
	.ci/docs.sh $(or $(ARGS),check)

test-console:       ## the console in Chromium, before real services; ARGS="a session" runs what is named so; part of test
	.ci/console.sh $(if $(ARGS),"$(ARGS)")

screenshots:        ## pictures of the console's screens, light, dark and on a phone, into docs/screenshots
	.ci/console.sh --screenshots

audit:              ## dependencies: known vulnerabilities, licences, bans and sources
	.ci/audit.sh

fuzz:               ## parsers, the router and whole connections, each target a minute, by nightly; ARGS="10 links/code" runs this for 10 s
	.ci/fuzz.sh $(ARGS)

soak:               ## files sends 500 GB and keeps nothing of it; ARGS="20GB" or "30min" says how much, PROFILE=dev builds it fast
	cd pkgs && cargo bench --locked -p linerate-files --bench soak --profile $(if $(filter command line environment,$(origin PROFILE)),$(PROFILE),bench) -- $(ARGS)

bench: bench-links bench-router bench-listener bench-files bench-api bench-ladder  ## all benches; with ARGS=--strict one that misses a target fails

bench-links:        ## redirects against nginx and a constant handler, in the clear and by TLS; ARGS=tls or clear runs one
	.ci/bench.sh linerate-links redirect -- $(ARGS)

bench-router:       ## the router beside matchit, actix-router and path-tree
	.ci/bench-router.sh

bench-listener:     ## a hello over HTTP/1.1, 2 and 3 against axum, actix-web, nginx, Caddy and quinn with h3 alone
	.ci/bench.sh linerate-listener hello -- $(ARGS)
	.ci/bench.sh linerate-listener h3 -- $(ARGS)

bench-files:        ## files of three sizes, and more than memory holds, against nginx, static-web-server and Caddy; ARGS="1KB cold" runs these alone
	.ci/install.sh fio
	.ci/bench.sh linerate-files transfer -- $(ARGS)

bench-ktls:         ## files whose TLS the kernel does, beside those that the process encrypts: instructions, in a guest that counts them
	LINERATE_RELEASE=1 .ci/portable.sh ktls

bench-api:          ## users by id from PostgreSQL and SQLite beside pgbench, axum::serve with sqlx and actix-web
	.ci/install.sh postgres
	.ci/bench.sh linerate-api users -- $(ARGS)

bench-fleet:        ## commits a second with and without telling other nodes, reads by key, a million links in and out, misses, clicks, and the times of fail-over
	.ci/install.sh postgres
	.ci/bench.sh linerate-postgres commits -- $(ARGS)
	.ci/bench.sh linerate-links fleet -- $(ARGS)
	.ci/fleet.sh

bench-console:      ## the console: nobody looking, with the live map open, and the redirects beside it; ARGS=--quick, PROFILE=try builds it faster
	.ci/bench-console.sh $(ARGS)

bench-ladder:       ## the articles' stages one after the other; in pieces by ARGS=post, get, links or --quick
	.ci/install.sh postgres
	.ci/bench.sh linerate-ladder ladder --profile ladder -- $(ARGS)

.PHONY: install dist guided test-packages test-aarch64

PREFIX ?= /usr/local
PROFILE ?= release

install:            ## build, and put programs, units, manual pages and completions below DESTDIR and PREFIX (/usr/local)
	.ci/install.sh python3
	[ -n "$$LINERATE_PROGRAMS" ] || { .ci/install.sh cargo cc && cd pkgs && PATH=$$PATH:$${CARGO_HOME:-$$HOME/.cargo}/bin cargo build --profile $(PROFILE) --locked --bin linerate --bin linerate-links --bin linerate-files --bin linerate-api; }
	.ci/stage.sh "$${LINERATE_PROGRAMS:-$${CARGO_TARGET_DIR:-pkgs/target}/$(PROFILE:dev=debug)}" "$(DESTDIR)" "$(PREFIX)"

dist:               ## an archive of static programs, and a Debian package, in pkgs/target/dist; PROFILE=try builds them faster
	.ci/dist.sh $(PROFILE)

guided:             ## build the programs by a profile of what runs often in them, and print where they are, for LINERATE_PROGRAMS of install and, with TRIPLE=...-musl, of dist
	@.ci/guided.sh $(PROFILE) $(TRIPLE)

test-packages:      ## what install and dist make, each set up, served from and removed in a fresh Debian; part of test
	.ci/packages.sh

test-aarch64:       ## programs and unit tests, built for aarch64 and run on an emulated machine of that kind
	.ci/aarch64.sh

check:              ## type-check only
	cd pkgs && cargo check --workspace --all-targets

fmt:                ## format
	cd pkgs && cargo fmt --all

.PHONY: nix-check render test-nixos test-crane image

nix-check:          ## format, lint and evaluate the Nix half, and compare with tests/rendered
	.ci/nix.sh check

render:             ## write what each host comes to into tests/rendered
	.ci/nix.sh render

test-nixos:         ## build hosts' systems without a binary cache, from Debian's programs; HOSTS="tengbe vm" builds these alone
	.ci/nixos.sh $(HOSTS)

test-crane:         ## build the flake's packages of our programs by crane, and a system of them, without a binary cache; PACKAGES=linerate-links-alderlake builds it alone
	.ci/nixos.sh --packages $(PACKAGES)
	$(if $(PACKAGES),,.ci/nixos.sh --systems)

image:              ## HOST=aws-c6i-image, tengbe-image or tengbe-installer: that image, without Nix's binary cache, of Debian's programs
	.ci/nixos.sh --images pkgs/target/images $(HOST)

.PHONY: update-size
update-size:        ## OLD=DIRECTORY NEW=DIRECTORY: what a box with one version of an image downloads for another, whole or by chunks or a patch
	.ci/update-size.sh $(OLD) $(NEW)

.PHONY: vm-test vm

vm-test:            ## boot the hosts under QEMU, and run the VM tests' scripts there; ARGS="appliance appliance-cuts" runs these
	.ci/portable.sh $(ARGS)

vm:                 ## boot the appliance: links at port 8080 of this machine, files at 8090, api at 8100, by TLS files at 8443 and links at 8444
	.ci/portable.sh --boot vm

help:               ## these lines
	@sed -nE 's/^([a-z0-9-]+):[^#]*## (.*)/\1\t\2/p' Makefile | expand -t 20
