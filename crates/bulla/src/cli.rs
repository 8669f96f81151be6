//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::agent_command::AgentArgs;
use crate::bench::BenchArgs;
use crate::ca_command::CaArgs;
use crate::control::{
    AlertCommand, ApprovalCommand, AuditCommand, CertificateCommand, CredentialArgs, DocumentCommand,
    IssuerCommand, JobCommand, KeyCommand, KeyPolicyCommand, NodeCommand, Noun, OwnerCommand, PolicyCommand,
    ProfileDocument, RouteArgs, SiteCommand, TargetDocument, TeamDocument, TokenCommand, TransparencyCommand,
    UserCommand, WatchCommand,
};
use crate::edge_command::EdgeArgs;
use crate::exit::EXIT_CODES;
use crate::fleet_command::FleetArgs;
use crate::inventory::InventoryArgs;
use crate::keys_command::KeysArgs;
use crate::proxy_command::ProxyArgs;
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

/// Options of every command.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "General")]
pub(crate) struct Global {
    /// Configuration file (TOML) [default: ~/.config/bulla/bulla.toml, if it exists]
    #[arg(long, global = true, value_name = "FILE", env = "BULLA_CONFIG", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,
    /// What to log on standard error: error, warn, info, debug, trace, or a filter like scan=debug
    // rustls warns of each peer that hangs up in its own way; among thousands that is noise.
    #[arg(
        long,
        global = true,
        value_name = "FILTER",
        env = "BULLA_LOG",
        hide_env_values = true,
        default_value = "warn,rustls=error"
    )]
    pub(crate) log: String,
    /// Log as JSON lines
    #[arg(long, global = true)]
    pub(crate) log_json: bool,
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
    /// Certificates: issue, manage, renew, revoke, export; claim what scans found
    Cert(Box<Noun<CertificateCommand>>),
    /// Credentials: passwords, keys, certificates, and programs run with them
    Credential(Box<CredentialArgs>),
    /// What may be issued: key types, lifetimes, names
    Profile(Noun<DocumentCommand<ProfileDocument>>),
    /// Who can issue beside the own authority: ACME, Vault, step-ca, a program, a webhook
    Issuer(Noun<IssuerCommand>),
    /// Certification authorities: make, import, cross-sign, retire; ceremonies without a server
    Ca(Box<CaArgs>),
    /// Hosts that deploy: make this one an agent, run it; or see all of a server's
    Agent(Box<AgentArgs>),
    /// Where agents deploy certificates to
    Target(Noun<DocumentCommand<TargetDocument>>),
    /// Rules that certificates are held against, and what breaks them
    Policy(Noun<PolicyCommand>),
    /// Runs of issuance, renewal, deployment and revocation
    Job(Noun<JobCommand>),
    /// What waits for a second person
    Approval(Noun<ApprovalCommand>),
    /// Who answers for certificates, and rules that say who does for what scans found
    Owner(Noun<OwnerCommand>),
    /// Teams that do
    Team(Noun<DocumentCommand<TeamDocument>>),
    /// Alerts, who is told of them, and messages that did not arrive
    Alert(Noun<AlertCommand>),
    /// Certificate Transparency: what was issued for the domains that are watched
    Ct(Noun<TransparencyCommand>),
    /// Scans that the server makes by itself, on schedule
    Watch(Noun<WatchCommand>),
    /// What happened, by whom, and whether the log is whole
    Audit(Noun<AuditCommand>),
    /// The master key, and private keys that are sealed to policies
    Key(Noun<KeyCommand>),
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
    /// API tokens
    Token(Noun<TokenCommand>),
    /// People who log in, and the roles there are
    User(Noun<UserCommand>),
    /// Ask any route of the server's API, for what has no command of its own
    Api(RouteArgs),
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

/// `bulla config`
#[derive(Args, Debug)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Read the file and the environment, and say what is wrong
    Check,
    /// Print every key with its value and where the value comes from
    Show,
}
