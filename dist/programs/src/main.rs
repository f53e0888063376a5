//! All programs in one, for places where they lie side by side and are moved together, as an image: what they share is
//! there once. It goes by the name it is called with, through links.

use std::env;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(program) = itg_ditg::called() {
        return itg_ditg::run(program);
    }
    let called = env::args_os().next();
    let name = called.as_deref().map(Path::new).and_then(Path::file_name);
    match name.and_then(|name| name.to_str()) {
        Some("itg-send") => itg_send::main(),
        Some("itg-recv") => itg_recv::main(),
        Some("itg-log") => itg_log::main(),
        Some("itg-decode") => itg_decode::main(),
        Some("itg-cluster") => itg_cluster::main(),
        _ => {
            itg_cli::say(
                "itg: call it by the name of a program, through a link: itg-send, itg-recv, ITGSend ...",
            );
            ExitCode::from(2)
        }
    }
}
