//! Definition and parsing of the command line.

use std::path::PathBuf;

use clap::{CommandFactory, Parser, Subcommand};
use cli::candidates::CompleteArgs;
use cli::exit::EXIT_CODES;
use cli::help::{self, Group};
use cli::shell::CompletionsCommand;
use cli::spelling::{self, RenamedCommand};
use cli::{AccessCommand, GlobalArgs, IssuanceCommand, OperationCommand};

use crate::agent_command::AgentArgs;
use crate::bench::BenchArgs;
use crate::break_glass_command::BreakGlassArgs;
use crate::ca_command::CaArgs;
use crate::config_command::ConfigArgs;
use crate::doctor_command::DoctorArgs;
use crate::edge::EdgeArgs;
use crate::keys::KeyArgs;
use crate::proxy::ProxyArgs;
use crate::run_command::RunArgs;
use crate::serve_command::{ServeArgs, UpArgs};
use discover::fleet_command::FleetArgs;
use discover::inventory::InventoryArgs;
use discover::rules::RulesArgs;
use discover::scan_command::ScanArgs;

/// Groups of commands in `bulla --help`, in the order of a typical workflow.
pub(crate) const GROUPS: &[Group] = &[
    Group { heading: "Discover", commands: &["scan", "search", "inventory", "watch", "ct", "rules"] },
    Group { heading: "Certificates", commands: &["cert", "ca", "profile", "issuer", "acme"] },
    Group { heading: "Deploy", commands: &["agent", "target"] },
    Group { heading: "Secrets", commands: &["credential"] },
    Group { heading: "Keys", commands: &["key"] },
    Group { heading: "Traffic", commands: &["proxy", "run", "edge"] },
    Group {
        heading: "Operate",
        commands: &["up", "serve", "console", "alert", "audit", "job", "policy", "config", "api", "doctor"],
    },
    Group {
        heading: "People",
        commands: &["approval", "change", "owner", "team", "user", "token", "break-glass"],
    },
    Group { heading: "Tools", commands: &["fleet", "bench", "completions", "man"] },
];

/// Commands that had other names in 0.1.0.
const RENAMED: &[RenamedCommand] = &[
    (&["keys"], &["key"]),
    (&["site"], &["key", "site"]),
    (&["node"], &["key", "node"]),
    (&["key-policy"], &["key", "policy"]),
    (&["key", "status"], &["key", "master", "status"]),
    (&["key", "rotate"], &["key", "master", "rotate"]),
    (&["key", "sealed"], &["key", "list"]),
];

/// Finds, issues, deploys and guards an organisation's TLS certificates, keys and secrets.
#[derive(Debug, Parser)]
#[command(
    name = "bulla",
    version,
    after_help = EXIT_CODES,
    disable_help_subcommand = true,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Returns the definition of the command line, with the examples of each command.
    pub(crate) fn definition() -> clap::Command {
        help::with_examples(Self::command())
    }

    /// Parses the command line of this process. Exits on an error or a request for help.
    pub(crate) fn of_process() -> Self {
        let (line, renamed) =
            spelling::with_new_name(spelling::with_help(std::env::args_os().collect()), RENAMED);
        let cli = help::parse(|| help::grouped(Self::command(), GROUPS), line);
        if let Some((old, new)) = renamed {
            eprintln!(
                "bulla: `bulla {}` is now `bulla {}`; the old name will be removed",
                old.join(" "),
                new.join(" ")
            );
        }
        cli
    }
}

/// Commands of `bulla`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Scan endpoints, files and clouds for certificates and problems
    Scan(Box<ScanArgs>),
    /// List, show and compare scan results
    Inventory(InventoryArgs),
    /// Run all roles with embedded defaults, for evaluation
    Up(UpArgs),
    /// Run the control plane as a service
    Serve(ServeArgs),
    #[command(flatten)]
    Issuance(IssuanceCommand),
    /// Certification authorities: create, import, cross-sign, retire
    Ca(Box<CaArgs>),
    /// Agents: hosts that deploy certificates; make this host an agent
    Agent(Box<AgentArgs>),
    #[command(flatten)]
    Operation(OperationCommand),
    /// The key service, its policies and sites, and the master key
    Key(KeyArgs),
    /// TLS terminator whose private keys stay with the key service
    Edge(Box<EdgeArgs>),
    /// TLS-intercepting proxy: inspect traffic, inject credentials
    Proxy(Box<ProxyArgs>),
    /// Run a command that reaches the network only through a proxy
    ///
    /// On Linux the command runs in its own namespaces: it reaches no network, no Unix socket of the host and no process of the
    /// host. The proxy decides which servers the command reaches, and injects credentials that the command never sees.
    Run(Box<RunArgs>),
    #[command(flatten)]
    Access(AccessCommand),
    /// Create an emergency token on the host of the control plane
    ///
    /// The token has all permissions and is valid for one day. The audit log has a record of it.
    BreakGlass(BreakGlassArgs),
    /// Rules that produce findings: severity, source, advice
    Rules(RulesArgs),
    /// Simulated estate on loopback, with ground truth, for tests
    Fleet(FleetArgs),
    /// Measure Bulla on this machine
    Bench(BenchArgs),
    /// Check the configuration, or show the origin of each value
    Config(ConfigArgs),
    /// Check this machine, the configuration and the server
    Doctor(DoctorArgs),
    /// Install or print completions for your shell
    #[command(subcommand)]
    Completions(CompletionsCommand),
    /// Print the possible completions of a word, for the completion scripts
    #[command(hide = true)]
    Complete(CompleteArgs),
    /// Write the manual pages to a folder
    Man {
        /// The folder; it is created if it does not exist
        folder: PathBuf,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_lists_each_command_in_one_group_on_one_line() {
        assert_eq!(help::group_errors(&Cli::command(), GROUPS), Vec::<String>::new());
    }

    /// Calls `see` for each visible command without subcommands, with the command's path.
    fn walk(command: &clap::Command, path: &str, see: &mut impl FnMut(&str, &clap::Command)) {
        let path = format!("{path}{}", command.get_name());
        if !command.has_subcommands() {
            see(&path, command);
        }
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            walk(sub, &format!("{path} "), see);
        }
    }

    /// Returns the output formats that the help of `--output` lists; empty if it lists none, as for commands that only print a
    /// table or JSON.
    fn formats(command: &clap::Command) -> Vec<String> {
        let output = command.get_arguments().find(|argument| argument.get_long() == Some("output"));
        let listed = output.filter(|output| !output.is_hide_possible_values_set());
        let values = listed.map(|output| output.get_possible_values()).unwrap_or_default();
        values.iter().map(|value| value.get_name().to_owned()).collect()
    }

    #[test]
    fn every_noun_has_the_common_verbs() {
        fn visit(command: &clap::Command, path: &str, wrong: &mut Vec<String>) {
            let path = format!("{path}{} ", command.get_name());
            let has = |verb| command.find_subcommand(verb).is_some();
            for (own, common) in [("add", "create"), ("remove", "delete")] {
                if has(own) && !has(common) {
                    wrong.push(format!("{path}{own}: no alias {common}"));
                }
            }
            if has("add") && has("set") && !has("update") {
                wrong.push(format!("{path}set: no alias update"));
            }
            command.get_subcommands().for_each(|sub| visit(sub, &path, wrong));
        }
        let mut wrong = Vec::new();
        visit(&Cli::command(), "", &mut wrong);
        assert_eq!(wrong, Vec::<String>::new());
    }

    #[test]
    fn every_command_has_an_example() {
        let mut without = Vec::new();
        walk(&Cli::command(), "", &mut |path, command| {
            if help::examples(command, path).is_empty() {
                without.push(path.to_owned());
            }
        });
        assert_eq!(without, Vec::<String>::new(), "add an example to crates/cli/src/examples.txt");
    }

    #[test]
    fn every_list_has_the_same_output_options() {
        let (mut lists, mut wrong) = (0, Vec::new());
        walk(&Cli::command(), "", &mut |path, command| {
            let has = |name| command.get_arguments().any(|argument| argument.get_long() == Some(name));
            let is_list = command.get_name() == "list"
                || command.get_visible_aliases().any(|alias| alias == "list")
                || has("after")
                || has("watch") && has("output");
            if !is_list {
                return;
            }
            lists += 1;
            let formats = formats(command);
            let of_lists = ["table", "wide", "json", "yaml", "csv", "name"];
            if !of_lists.iter().all(|format| formats.iter().any(|known| known == format)) {
                wrong.push(format!("{path}: --output has {formats:?}"));
            }
            for name in ["query", "watch"] {
                if !has(name) {
                    wrong.push(format!("{path}: no --{name}"));
                }
            }
        });
        assert!(lists > 40, "only {lists} were found");
        assert_eq!(wrong, Vec::<String>::new());
    }

    #[test]
    fn every_command_with_the_common_formats_takes_a_query() {
        // A scan prints results while it runs: `bulla scan --output jsonl | jq …`.
        const WITHOUT: &[&str] = &["bulla scan"];
        let mut wrong = Vec::new();
        walk(&Cli::command(), "", &mut |path, command| {
            let is_common = formats(command).iter().any(|format| format == "yaml");
            let has_query = command.get_arguments().any(|argument| argument.get_long() == Some("query"));
            if is_common && !has_query && !WITHOUT.contains(&path) {
                wrong.push(path.to_owned());
            }
        });
        assert_eq!(wrong, Vec::<String>::new(), "--output without --query");
    }

    #[test]
    fn renamed_commands_exist_only_under_their_new_name() {
        for (old, new) in RENAMED {
            let find = |words: &[&str]| {
                words.iter().try_fold(Cli::command(), |command, word| command.find_subcommand(word).cloned())
            };
            assert!(find(old).is_none(), "{old:?}");
            assert!(find(new).is_some(), "{new:?}");
        }
    }
}
