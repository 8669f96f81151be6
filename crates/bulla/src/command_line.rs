//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use cli::control::{KeyPolicyCommand, Noun};
use cli::exit::EXIT_CODES;
use cli::{AccessCommand, Global, IssuanceCommand, OperationCommand};

use crate::agent_command::AgentArgs;
use crate::bench::BenchArgs;
use crate::break_glass_command::BreakGlassArgs;
use crate::ca_command::CaArgs;
use crate::config_command::ConfigArgs;
use crate::edge::EdgeArgs;
use crate::fleet_command::FleetArgs;
use crate::inventory::InventoryArgs;
use crate::key_nodes::{NodeCommand, SiteCommand};
use crate::keys::KeysArgs;
use crate::proxy::ProxyArgs;
use crate::rules::RulesArgs;
use crate::scan_command::ScanArgs;
use crate::serve_command::ServeArgs;

/// Finds every TLS certificate an organisation has, and says what is wrong with it.
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
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Look at endpoints and files, and report their certificates and what is wrong with them
    Scan(Box<ScanArgs>),
    /// What is known from earlier scans: list, show, compare
    Inventory(InventoryArgs),
    /// Run everything on embedded defaults: makes its authority, its certificate and its admin token
    Up(ServeArgs),
    /// Run the control plane as a service
    Serve(ServeArgs),
    #[command(flatten)]
    Issuance(IssuanceCommand),
    /// Certification authorities: make, import, cross-sign, retire; ceremonies without a server
    Ca(Box<CaArgs>),
    /// Hosts that deploy: make this one an agent, run it; or see all of a server's
    Agent(Box<AgentArgs>),
    #[command(flatten)]
    Operation(OperationCommand),
    /// The key service: sign for TLS terminators that do not hold the keys
    Keys(KeysArgs),
    /// Sites of the key service, and what is so at each
    Site(Noun<SiteCommand>),
    /// Nodes of the key service: tokens by which they join, who is there, retiring
    Node(Noun<NodeCommand>),
    /// Policies of keys: which nodes of the key service may open which keys
    KeyPolicy(Noun<KeyPolicyCommand>),
    /// Terminate TLS for certificates whose keys are with the key service
    Edge(Box<EdgeArgs>),
    /// Look into the TLS of clients that trust the proxy's authority
    Proxy(Box<ProxyArgs>),
    #[command(flatten)]
    Access(AccessCommand),
    /// On the host of the control plane: make a token for everything, good for a day, with a record in the audit log
    ///
    /// Example: bulla break-glass --reason "the only approver has left; ticket 123"
    BreakGlass(BreakGlassArgs),
    /// The rules findings come from: severity, source and advice
    Rules(RulesArgs),
    /// A simulated estate on loopback, with ground truth, to try things out on
    Fleet(FleetArgs),
    /// Measure Bulla on this machine
    Bench(BenchArgs),
    /// The configuration: check it, or show every value and where it comes from
    Config(ConfigArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder
    Man {
        /// The folder; it is made if it does not exist
        folder: PathBuf,
    },
}
