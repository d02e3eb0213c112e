.PHONY: run test fuzz bench bench-links check fmt

run:                ## build links and serve it on embedded storage
	.ci/run-links.sh

test:               ## formatting, lints and all tests
	.ci/test.sh

fuzz:               ## import and request parsers, a minute each
	.ci/fuzz.sh

bench: bench-links  ## all benches

bench-links:        ## redirects against nginx and a constant handler
	.ci/bench.sh linerate-links redirect

check:              ## type-check only
	cd pkgs && cargo check --workspace --all-targets

fmt:                ## format
	cd pkgs && cargo fmt --all
