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

#[cfg(test)]
mod tests {
    use clap::arg;
    use itg_cli::Help;

    use super::*;

    #[test]
    fn every_option_is_explained_and_completed() {
        let help = Help { first: &["rate"], subjects: &[("Rare", &["dscp"])], examples: &[] };
        let with_options = |command: Command| {
            command.arg(arg!(--rate <RATE> "Packets")).arg(arg!(--dscp <CLASS> "Mark"))
        };
        let run = with_options(Command::new("run").about("Runs"));
        let program = with_options(Command::new("itg-example")).subcommand(run);
        let program = help.arrange(program.version("1").long_version("1\ncommit: unknown"));
        let dir = tempfile::tempdir().expect("a directory");
        write(program.clone(), dir.path()).expect("pages");
        let text = |name: &str| fs::read_to_string(dir.path().join(name)).expect(name);
        for page in ["man/itg-example.1", "man/itg-example-run.1"] {
            for word in ["rate", "Packets", "dscp", "Mark"] {
                assert!(text(page).contains(word), "{page}: no {word}");
            }
            assert!(!text(page).contains("commit"), "{page}");
        }
        for shell in ["bash", "zsh", "fish"] {
            let text = text(&format!("itg-example.{shell}"));
            assert!(text.contains("itg-example") && text.contains("rate"), "{shell}: {text}");
        }
        assert!(write(program, Path::new("/proc/nowhere")).is_err());
    }
}
