//! `ITGRecv` of D-ITG.
#![allow(non_snake_case, reason = "the name under which scripts call it")]

use std::process::ExitCode;

fn main() -> ExitCode {
    itg_ditg::run(itg_ditg::Program::Recv)
}
