//! All programs in one, for places where they lie side by side and are moved together, as an image: what they share is
//! there once. It goes by the name it is called with, through links, or by its first word: `itg itg-send HOST`.

use std::env;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use itg_cli::say;
use itg_ditg::Program;

fn main() -> ExitCode {
    let mut words = env::args_os();
    if let Some(program) = words.next().as_deref().and_then(program) {
        return program();
    }
    let Some(name) = words.next().filter(|name| program(name).is_some()) else {
        say(
            "itg: call it by the name of a program, or with that as its first word: itg-send, itg-recv, ITGSend ...",
        );
        return ExitCode::from(2);
    };
    // It returns where it fails.
    let failed =
        env::current_exe().map(|itself| Command::new(itself).arg0(&name).args(words).exec());
    let (Ok(error) | Err(error)) = failed;
    say(format_args!("itg: {}: {error}", name.display()));
    ExitCode::FAILURE
}

/// The program that is called by a name or path.
fn program(called: &OsStr) -> Option<fn() -> ExitCode> {
    Some(match Path::new(called).file_name()?.to_str()? {
        "itg-send" => itg_send::main,
        "itg-recv" => itg_recv::main,
        "itg-log" => itg_log::main,
        "itg-decode" => itg_decode::main,
        "itg-cluster" => itg_cluster::main,
        // It looks at the name itself.
        name if Program::named(name).is_some() => || itg_ditg::run(Program::Send),
        _ => return None,
    })
}
