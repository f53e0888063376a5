//! D-ITG's programs, under their names and with their command lines.
//!
//! They are one program that goes by the name it is called with, so that a package holds it once: five files of the
//! same content, or five links to one.

mod dec;
mod log;
mod manager;
mod recv;
mod send;

use std::env;
use std::path::Path;
use std::process::ExitCode;

/// A program of D-ITG.
#[derive(Clone, Copy, Debug)]
pub enum Program {
    /// The decoder.
    Dec,
    /// The log server.
    Log,
    /// What asks a daemon for flows.
    Manager,
    /// The receiver.
    Recv,
    /// The sender.
    Send,
}

impl Program {
    /// The program of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "ITGDec" => Self::Dec,
            "ITGLog" => Self::Log,
            "ITGManager" => Self::Manager,
            "ITGRecv" => Self::Recv,
            "ITGSend" => Self::Send,
            _ => return None,
        })
    }
}

/// Runs the program whose name this process was called with; another name leads to `program`.
#[must_use]
pub fn run(program: Program) -> ExitCode {
    let called = env::args_os().next();
    let name = called.as_deref().map(Path::new).and_then(Path::file_name);
    match name.and_then(|name| name.to_str()).and_then(Program::named).unwrap_or(program) {
        Program::Dec => dec::main(),
        Program::Log => log::main(),
        Program::Manager => manager::main(),
        Program::Recv => recv::main(),
        Program::Send => send::main(),
    }
}
