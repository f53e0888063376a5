//! `itg-recv`: see its library.

use std::process::ExitCode;

fn main() -> ExitCode {
    itg_recv::main()
}
