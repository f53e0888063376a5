//! Man pages and shell completions, generated from the same description as `--help`.

use std::io::Write as _;

use clap::{Parser, ValueEnum as _};
use clap_complete::Shell;

use crate::failure::Failure;
use crate::words::say;

/// Reads the command line. `PROGRAM --generate man` (or a shell: bash, zsh, fish, elvish, powershell)
/// as the only arguments prints the program's man page or completions and ends it.
pub fn parse<C: Parser>() -> C {
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some("--generate") {
        let what = args.next().unwrap_or_default();
        let code = match generate(C::command(), &what) {
            Ok(()) => 0,
            Err(failure) => {
                say(&failure);
                2
            }
        };
        std::process::exit(code);
    }
    C::parse()
}

fn generate(mut command: clap::Command, what: &str) -> Result<(), Failure> {
    let mut text = Vec::new();
    if what == "man" {
        clap_mangen::Man::new(command)
            .render(&mut text)
            .map_err(|error| Failure::new(1, format!("man page: {error}")))?;
    } else {
        let shell = Shell::from_str(what, true).map_err(|_| {
            Failure::new(2, format!("cannot generate `{what}`: use man, bash, zsh or fish"))
        })?;
        let name = command.get_name().to_owned();
        clap_complete::generate(shell, &mut command, name, &mut text);
    }
    std::io::stdout()
        .write_all(&text)
        .map_err(|error| Failure::new(1, format!("cannot write to stdout: {error}")))
}
