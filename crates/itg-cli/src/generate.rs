//! Man pages and shell completions, generated from the same description as `--help`.

use clap::Parser;

use crate::help::Help;

/// Reads the command line; `help` puts its options in order. With the feature `generate`, `PROGRAM --generate man` (or a shell: bash,
/// zsh, fish, elvish, powershell) as the only arguments prints the program's man page or completions
/// and ends it.
pub fn parse<C: Parser>(help: Option<&Help>) -> C {
    let arranged = || match help {
        Some(help) => help.arrange(C::command()),
        None => C::command(),
    };
    #[cfg(feature = "generate")]
    {
        let mut args = std::env::args().skip(1);
        if args.next().as_deref() == Some("--generate") {
            std::process::exit(release::to_stdout(arranged(), &args.next().unwrap_or_default()));
        }
    }
    let mut matches = arranged().get_matches();
    C::from_arg_matches_mut(&mut matches)
        .unwrap_or_else(|error| error.format(&mut arranged()).exit())
}

#[cfg(any(test, feature = "generate"))]
mod release {
    use clap::{Command, ValueEnum as _};
    use clap_complete::Shell;

    use crate::failure::Failure;

    /// Prints it and returns the exit code.
    #[cfg(feature = "generate")]
    pub(super) fn to_stdout(command: Command, what: &str) -> i32 {
        use std::io::Write as _;

        let printed = text(command, what).and_then(|text| {
            std::io::stdout()
                .write_all(&text)
                .map_err(|error| Failure::new(1, format!("cannot write to stdout: {error}")))
        });
        match printed {
            Ok(()) => 0,
            Err(failure) => {
                crate::verbosity::say(&failure);
                i32::from(failure.code())
            }
        }
    }

    fn text(mut command: Command, what: &str) -> Result<Vec<u8>, Failure> {
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
        Ok(text)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn man_pages_and_completions_name_the_program_and_its_options() {
            let command = || Command::new("itg-example").arg(clap::arg!(--rate <RATE> "Rate"));
            for what in ["man", "bash", "zsh", "fish"] {
                let text = text(command(), what).expect("known");
                let text = String::from_utf8(text).expect("text").replace("\\-", "-");
                assert!(text.contains("itg-example") && text.contains("rate"), "{what}: {text}");
            }
            assert_eq!(text(command(), "cobol").expect_err("unknown").code(), 2);
        }
    }
}
