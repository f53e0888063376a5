//! `itg-send`: see its library.

use std::process::ExitCode;

fn main() -> ExitCode {
    itg_send::main()
}
