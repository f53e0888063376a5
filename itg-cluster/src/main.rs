//! `itg-cluster`: see its library.

use std::process::ExitCode;

fn main() -> ExitCode {
    itg_cluster::main()
}
