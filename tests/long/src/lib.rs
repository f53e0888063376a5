//! End-to-end tests that take longer than most: faults of clusters and log servers, the live view, D-ITG's programs in
//! every pair with ours, the commands of all pages. `cargo test --workspace` runs them, `cargo test` does not.
