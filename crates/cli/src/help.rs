//! The help of a program with many commands. They are listed in groups, in the order of a typical workflow.

use std::fmt::Write as _;

use clap::Command;
use clap::builder::StyledStr;

/// Commands under one heading.
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

/// Returns the errors in the groups: commands that are in no group or in several, names that are not commands, and summaries that
/// exceed a line of 80 columns.
pub fn misfits(command: &Command, groups: &[Group]) -> Vec<String> {
    const LINE: usize = 80;
    let listed: Vec<&str> = groups.iter().flat_map(|group| group.commands).copied().collect();
    let width = listed.iter().map(|name| name.len()).max().unwrap_or_default();
    let mut misfits = Vec::new();
    for name in &listed {
        if command.find_subcommand(name).is_none() {
            misfits.push(format!("{name}: no such command"));
        }
    }
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let times = listed.iter().filter(|name| **name == sub.get_name()).count();
        if times != 1 {
            misfits.push(format!("{}: listed {times} times", sub.get_name()));
        }
        let columns = width + 4 + summary(sub).chars().count();
        if columns > LINE {
            misfits.push(format!("{}: its line has {columns} columns, {LINE} at most", sub.get_name()));
        }
    }
    misfits
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
    fn ungrouped_duplicate_and_overlong_commands_are_reported() {
        assert_eq!(misfits(&program(), GROUPS), Vec::<String>::new());
        let found = misfits(&program().subcommand(Command::new("more")), GROUPS);
        assert_eq!(found, ["more: listed 0 times"]);
        let twice = [Group { heading: "All", commands: &["scan", "scan", "watch", "serve", "gone"] }];
        assert_eq!(misfits(&program(), &twice), ["gone: no such command", "scan: listed 2 times"]);
        let long = program().mut_subcommand("scan", |scan| scan.about("a".repeat(75)));
        assert_eq!(misfits(&long, GROUPS), ["scan: its line has 84 columns, 80 at most"]);
    }
}
