# Short commands for daily work (https://just.systems). Each is plain cargo: without `just`, type the lines yourself.

# Formatting, clippy, fast tests: before each commit
check: format lint test

# Formatting as the gate wants it
format:
    cargo fmt --all --check

# Warnings are errors in the gate
lint:
    cargo clippy --workspace --all-targets --locked -- -D warnings

# Tests of the pure crates that take seconds, and the rules of the house
test:
    cargo test -p itg-core -p itg-record -p itg-stats -p itg-experiment -p itg-process -p itg-report --locked
    cargo test -p itg-tests --test house --test documents --locked

# The README's first command
quickstart:
    cargo run --bin itg-cluster -- run profiles/quickstart.toml --local

# The whole gate: as root on Debian, many minutes
gate:
    .ci/run
