//! `itg-decode`: see its library.

use std::process::ExitCode;

fn main() -> ExitCode {
    itg_decode::main()
}
