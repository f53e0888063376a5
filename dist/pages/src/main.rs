//! `itg-pages DIR`: man pages and completions of the programs, from the same description as `--help`, for those who package
//! them: `DIR/man/PROGRAM.1` and those of its commands, `DIR/PROGRAM.bash`, `.zsh` and `.fish`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Command;
use clap::builder::Resettable;
use clap_complete::Shell;

fn main() -> Result<()> {
    let dir =
        env::args_os().nth(1).map(PathBuf::from).context("itg-pages DIR: name a directory")?;
    let programs = [
        itg_send::command(),
        itg_recv::command(),
        itg_log::command(),
        itg_decode::command(),
        itg_cluster::command(),
    ];
    programs.into_iter().try_for_each(|program| write(program, &dir))
}

/// Writes the man pages and completions of a program.
fn write(program: Command, dir: &Path) -> Result<()> {
    let man = dir.join("man");
    fs::create_dir_all(&man).with_context(|| man.display().to_string())?;
    let name = program.get_name().to_owned();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let path = dir.join(format!("{name}.{shell}"));
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut program.clone(), &name, &mut text);
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    clap_mangen::generate_to(whole(program), &man).with_context(|| man.display().to_string())
}

/// The command with what `-h` leaves out, and without what is known of this build alone.
fn whole(command: Command) -> Command {
    let command = command.long_version(Resettable::Reset);
    command.mut_args(|arg| arg.hide_short_help(false)).mut_subcommands(whole)
}
