//! A program's command line, and the order of its options in its help: the few that most people need, then the others by
//! subject.

use std::collections::BTreeSet;

use clap::{Arg, Command, CommandFactory, Parser};

/// The command line of a program; `help` puts its options in order.
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

/// Order of a program's options in its help, by their long names; options of its commands among them.
#[derive(Clone, Copy, Debug)]
pub struct Help {
    /// Options that `-h` shows; `--help` shows all.
    pub first: &'static [&'static str],
    /// Subjects, and the options that stand under them.
    pub subjects: &'static [(&'static str, &'static [&'static str])],
    /// Command lines that show what the program is for, at the end.
    pub examples: &'static [&'static str],
}

impl Help {
    /// The command with its options in this order.
    #[must_use]
    pub fn arrange(&self, command: Command) -> Command {
        let examples: Vec<_> = self.examples.iter().map(|line| format!("  {line}")).collect();
        let examples = format!("Examples:\n{}", examples.join("\n"));
        self.sort(command.after_help(examples))
    }

    fn sort(&self, command: Command) -> Command {
        command.mut_args(|arg| self.place(arg)).mut_subcommands(|command| self.sort(command))
    }

    fn place(&self, arg: Arg) -> Arg {
        let Some(name) = arg.get_long() else { return arg };
        if self.first.contains(&name) {
            return arg;
        }
        let subject = self.subjects.iter().find(|(_, names)| names.contains(&name));
        let arg = arg.hide_short_help(true);
        match subject {
            Some((subject, _)) => arg.help_heading(*subject),
            None => arg,
        }
    }

    /// Options of the command that have no place, and places of options that it does not have.
    #[must_use]
    pub fn mistakes(&self, command: &Command) -> Vec<String> {
        let mut here = BTreeSet::new();
        let mut commands = vec![command];
        while let Some(command) = commands.pop() {
            commands.extend(command.get_subcommands());
            here.extend(command.get_arguments().filter_map(Arg::get_long));
        }
        let subjects = self.subjects.iter().flat_map(|(_, names)| names.iter());
        let placed: BTreeSet<&str> = self.first.iter().chain(subjects).copied().collect();
        let places =
            self.first.len() + self.subjects.iter().map(|(_, names)| names.len()).sum::<usize>();
        let mut mistakes: Vec<_> =
            here.difference(&placed).map(|name| format!("--{name} has no place")).collect();
        mistakes.extend(placed.difference(&here).map(|name| format!("there is no --{name}")));
        if places > placed.len() {
            mistakes.push("an option has two places".to_owned());
        }
        mistakes
    }
}
