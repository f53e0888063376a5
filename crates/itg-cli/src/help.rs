//! A program's command line, and its help: `-h` shows the few options that most people need, which have no subject
//! (`help_heading`); `--help` shows the others, too, by subject.

use clap::{Arg, Command, CommandFactory, Parser};

/// The command line of a program; with `help` its options are in order.
#[must_use]
pub fn command<C: CommandFactory>(help: Option<&Help>) -> Command {
    match help {
        Some(help) => help.arrange(C::command()),
        None => C::command(),
    }
}

/// Reads the command line of this process.
#[must_use]
pub fn parse<C: Parser>(help: Option<&Help>) -> C {
    let mut matches = command::<C>(help).get_matches();
    C::from_arg_matches_mut(&mut matches)
        .unwrap_or_else(|error| error.format(&mut command::<C>(help)).exit())
}

/// Help of a program with many options.
#[derive(Clone, Copy, Debug)]
pub struct Help {
    /// Command lines that show what the program is for, at the end.
    pub examples: &'static [&'static str],
}

impl Help {
    /// The command with this help.
    #[must_use]
    pub fn arrange(&self, command: Command) -> Command {
        let examples: Vec<_> = self.examples.iter().map(|line| format!("  {line}")).collect();
        shorten(command.after_help(format!("Examples:\n{}", examples.join("\n"))))
    }
}

/// Keeps options that have a subject out of `-h`.
fn shorten(command: Command) -> Command {
    let hide = |arg: Arg| match arg.get_help_heading() {
        Some(_) => arg.hide_short_help(true),
        None => arg,
    };
    command.mut_args(hide).mut_subcommands(shorten)
}
