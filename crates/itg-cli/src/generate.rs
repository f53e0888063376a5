//! Man pages and shell completions, generated from the same description as `--help`.

use clap::Parser;

use crate::help::Help;

/// Reads the command line; `help` puts its options in order. With the feature `generate`, `PROGRAM --generate man DIR`
/// writes the man pages of the program and its commands into a directory, and `--generate` with a shell (bash, zsh,
/// fish, elvish, powershell) prints its completions: as the only arguments, and the program ends.
pub fn parse<C: Parser>(help: Option<&Help>) -> C {
    let arranged = || match help {
        Some(help) => help.arrange(C::command()),
        None => C::command(),
    };
    #[cfg(feature = "generate")]
    {
        let mut args = std::env::args().skip(1);
        if args.next().as_deref() == Some("--generate") {
            let (what, place) = (args.next().unwrap_or_default(), args.next());
            std::process::exit(release::exit_code(arranged(), &what, place.as_deref()));
        }
    }
    let mut matches = arranged().get_matches();
    C::from_arg_matches_mut(&mut matches)
        .unwrap_or_else(|error| error.format(&mut arranged()).exit())
}

#[cfg(any(test, feature = "generate"))]
mod release {
    use clap::builder::Resettable;
    use clap::{Command, ValueEnum as _};
    use clap_complete::Shell;

    use crate::failure::Failure;

    /// Generates it and returns the exit code.
    #[cfg(feature = "generate")]
    pub(super) fn exit_code(command: Command, what: &str, place: Option<&str>) -> i32 {
        use std::io::Write as _;

        let done = match place {
            Some(place) if what == "man" => man_pages(command, place),
            _ => completions(command, what).and_then(|text| {
                std::io::stdout()
                    .write_all(&text)
                    .map_err(|error| Failure::new(1, format!("cannot write to stdout: {error}")))
            }),
        };
        match done {
            Ok(()) => 0,
            Err(failure) => {
                crate::verbosity::say(&failure);
                i32::from(failure.code())
            }
        }
    }

    /// Writes a page each for the program and its commands, with all options.
    fn man_pages(command: Command, place: &str) -> Result<(), Failure> {
        clap_mangen::generate_to(whole(command), place)
            .map_err(|error| Failure::new(1, format!("man pages in {place}: {error}")))
    }

    /// The command with what `-h` leaves out, and without what is known of this build alone.
    fn whole(command: Command) -> Command {
        let command = command.long_version(Resettable::Reset);
        command.mut_args(|arg| arg.hide_short_help(false)).mut_subcommands(whole)
    }

    fn completions(mut command: Command, shell: &str) -> Result<Vec<u8>, Failure> {
        let shell = Shell::from_str(shell, true).map_err(|_| {
            Failure::new(2, format!("cannot generate `{shell}`: use man DIR, bash, zsh or fish"))
        })?;
        let (name, mut text) = (command.get_name().to_owned(), Vec::new());
        clap_complete::generate(shell, &mut command, name, &mut text);
        Ok(text)
    }

    #[cfg(test)]
    mod tests {
        use clap::arg;

        use super::*;
        use crate::help::Help;

        fn command() -> Command {
            let help = Help { first: &["rate"], subjects: &[("Rare", &["dscp"])], examples: &[] };
            let with_options = |command: Command| {
                command.arg(arg!(--rate <RATE> "Packets")).arg(arg!(--dscp <CLASS> "Mark"))
            };
            let run = with_options(Command::new("run").about("Runs"));
            let whole = with_options(Command::new("itg-example")).subcommand(run);
            help.arrange(whole.version("1").long_version("1\ncommit: unknown"))
        }

        #[test]
        fn man_pages_of_a_program_and_its_commands_explain_every_option() {
            let dir = tempfile::tempdir().expect("a directory");
            man_pages(command(), &dir.path().display().to_string()).expect("pages");
            for page in ["itg-example.1", "itg-example-run.1"] {
                let text = std::fs::read_to_string(dir.path().join(page)).expect(page);
                for word in ["rate", "Packets", "dscp", "Mark"] {
                    assert!(text.contains(word), "{page}: no {word} in {text}");
                }
                assert!(!text.contains("commit"), "{page}: {text}");
            }
            assert!(man_pages(command(), "/nowhere").is_err());
        }

        #[test]
        fn completions_name_the_program_and_its_options() {
            for shell in ["bash", "zsh", "fish"] {
                let text = completions(command(), shell).expect("known");
                let text = String::from_utf8(text).expect("text");
                assert!(text.contains("itg-example") && text.contains("rate"), "{shell}: {text}");
            }
            assert_eq!(completions(command(), "cobol").expect_err("unknown").code(), 2);
        }
    }
}
