//! The help of a program with many commands. They are listed in groups, in the order of a typical workflow.

use std::ffi::OsString;
use std::fmt::Write as _;

use clap::builder::StyledStr;
use clap::error::ErrorKind;
use clap::{Command, FromArgMatches};

/// A group of commands under one heading of the help.
pub struct Group {
    /// The topic of the commands.
    pub heading: &'static str,
    /// Names of the commands, in listing order.
    pub commands: &'static [&'static str],
}

/// Replaces the single list of subcommands in the help of `command` by `groups`. clap does not support headings for subcommands
/// (clap-rs/clap issue 1553), so the list is part of the template.
pub fn grouped(command: Command, groups: &[Group]) -> Command {
    let template = template(&command, groups);
    command.help_template(template)
}

/// Examples of the commands of all programs, one a line, in the order of the help.
const EXAMPLES: &str = include_str!("examples.txt");

/// Returns the examples of a command. `path` is the command as it is typed: `bulla cert list`.
pub fn examples(command: &Command, path: &str) -> Vec<&'static str> {
    let is_of_command = |rest: &str| {
        let word = rest.split_whitespace().next().unwrap_or_default();
        (rest.is_empty() || rest.starts_with(' ')) && command.find_subcommand(word).is_none()
    };
    EXAMPLES.lines().filter(|line| line.strip_prefix(path).is_some_and(is_of_command)).collect()
}

/// Adds the examples of each command to its help. Examples name the program `bulla`, which is replaced by the program's name.
pub fn with_examples(command: Command) -> Command {
    let program = command.get_name().to_owned();
    with_examples_below(command, &program, "bulla")
}

/// Returns whether a command has examples with explanations.
fn has_own_examples(command: &Command) -> bool {
    let texts = [command.get_after_help(), command.get_after_long_help()];
    texts.into_iter().flatten().any(|text| text.to_string().contains("Example"))
}

/// Parses a command line. Exits on an error or a request for help. Adds the examples for help only: searching them for each command
/// takes half of the time of a short command.
pub fn parse<P: FromArgMatches>(command: impl Fn() -> Command, line: Vec<OsString>) -> P {
    let parsed = command().try_get_matches_from(&line).and_then(|matches| P::from_arg_matches(&matches));
    parsed.unwrap_or_else(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            with_examples(command())
                .try_get_matches_from(line)
                .map_or_else(|help| help.exit(), |_| error.exit())
        }
        _ => error.exit(),
    })
}

fn with_examples_below(mut command: Command, program: &str, path: &str) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    for name in names {
        let path = format!("{path} {name}");
        command = command.mut_subcommand(name, |sub| with_examples_below(sub, program, &path));
    }
    let examples = examples(&command, path);
    if examples.is_empty() || has_own_examples(&command) {
        return command;
    }
    let mut text = "Examples:".to_owned();
    for line in examples {
        let _ = write!(text, "\n  {}", line.replacen("bulla", program, 1));
    }
    if let Some(other) = command.get_after_help() {
        let _ = write!(text, "\n\n{other}");
    }
    command.after_help(text)
}

fn template(command: &Command, groups: &[Group]) -> StyledStr {
    let styles = command.get_styles();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let named = |name: &&str| command.find_subcommand(name).map(|found| (found.get_name(), summary(found)));
    let width =
        groups.iter().flat_map(|group| group.commands).map(|name| name.len()).max().unwrap_or_default();
    let mut text = StyledStr::new();
    // Writing to a `StyledStr` cannot fail.
    let _ = write!(text, "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n");
    for group in groups {
        let _ = write!(text, "\n{header}{}:{header:#}\n", group.heading);
        for (name, summary) in group.commands.iter().filter_map(named) {
            let _ = writeln!(text, "  {literal}{name:width$}{literal:#}  {summary}");
        }
    }
    let _ = write!(text, "\n{header}Options:{header:#}\n{{options}}{{after-help}}");
    text
}

fn summary(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

/// Returns the errors in the groups: commands in no group or in several, unknown command names, and summary lines of more than 80
/// columns.
pub fn group_errors(command: &Command, groups: &[Group]) -> Vec<String> {
    const LINE: usize = 80;
    let listed: Vec<&str> = groups.iter().flat_map(|group| group.commands).copied().collect();
    let width = listed.iter().map(|name| name.len()).max().unwrap_or_default();
    let mut group_errors = Vec::new();
    for name in &listed {
        if command.find_subcommand(name).is_none() {
            group_errors.push(format!("{name}: no such command"));
        }
    }
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let times = listed.iter().filter(|name| **name == sub.get_name()).count();
        if times != 1 {
            group_errors.push(format!("{}: listed {times} times", sub.get_name()));
        }
        let columns = width + 4 + summary(sub).chars().count();
        if columns > LINE {
            group_errors.push(format!("{}: its line has {columns} columns, {LINE} at most", sub.get_name()));
        }
    }
    group_errors
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUPS: &[Group] = &[
        Group { heading: "Discover", commands: &["scan", "watch"] },
        Group { heading: "Operate", commands: &["serve"] },
    ];

    fn program() -> Command {
        let sub = |name: &'static str, about: &'static str| Command::new(name).about(about);
        Command::new("it").about("Does it").subcommands([
            sub("serve", "Run the server"),
            sub("scan", "Scan endpoints"),
            sub("watch", "Scheduled scans"),
        ])
    }

    #[test]
    fn help_lists_commands_under_headings_in_order() {
        let help = grouped(program(), GROUPS).render_help().to_string();
        let wanted = "\nDiscover:\n  scan   Scan endpoints\n  watch  Scheduled scans\n\nOperate:\n  serve  Run the server\n\nOptions:\n";
        assert!(help.contains(wanted), "{help}");
        assert!(!help.contains("Commands:"), "{help}");
    }

    #[test]
    fn examples_are_of_the_command_and_name_the_program() {
        let list = Command::new("list").after_help("More.");
        let token = Command::new("token").subcommand(Command::new("delete"));
        let program =
            Command::new("other").subcommand(Command::new("job").subcommand(list)).subcommand(token);
        // `bulla token` runs nothing, and `bulla token delete` is not its example.
        let token = program.find_subcommand("token").unwrap();
        assert!(!examples(token, "bulla token").contains(&"bulla token delete ci"));
        let program = with_examples(program);
        let help = |path: [&str; 2]| {
            let command = path.iter().fold(&program, |command, name| command.find_subcommand(name).unwrap());
            command.get_after_help().map(ToString::to_string)
        };
        assert_eq!(help(["job", "list"]).unwrap(), "Examples:\n  other job list --watch\n\nMore.");
        assert_eq!(help(["token", "delete"]).unwrap(), "Examples:\n  other token delete ci");
    }

    #[test]
    fn ungrouped_duplicate_and_overlong_commands_are_reported() {
        assert_eq!(group_errors(&program(), GROUPS), Vec::<String>::new());
        let found = group_errors(&program().subcommand(Command::new("more")), GROUPS);
        assert_eq!(found, ["more: listed 0 times"]);
        let twice = [Group { heading: "All", commands: &["scan", "scan", "watch", "serve", "gone"] }];
        assert_eq!(group_errors(&program(), &twice), ["gone: no such command", "scan: listed 2 times"]);
        let long = program().mut_subcommand("scan", |scan| scan.about("a".repeat(75)));
        assert_eq!(group_errors(&long, GROUPS), ["scan: its line has 84 columns, 80 at most"]);
    }
}
