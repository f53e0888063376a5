//! `itg-log`: see its library.

use std::process::ExitCode;

fn main() -> ExitCode {
    itg_log::main()
}
