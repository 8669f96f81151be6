//! The nouns that only need a server, grouped as `bulla --help` lists them.

use clap::Subcommand;

use crate::configuration::ClientConfiguration;
use crate::control::{
    self, AlertCommand, ApprovalCommand, AuditCommand, CertificateCommand, ChangeCommand, CredentialArgs,
    DocumentCommand, IssuerCommand, JobCommand, KeyCommand, Noun, OwnerCommand, PolicyCommand,
    ProfileDocument, RouteArgs, TargetDocument, TeamDocument, TokenCommand, TransparencyCommand, UserCommand,
    WatchCommand,
};
use crate::execution::CommandFuture;

/// What is issued: certificates, credentials, and by which rules.
#[derive(Debug, Subcommand)]
pub enum IssuanceCommand {
    /// Certificates: issue, manage, renew, revoke, export; claim what scans found
    Cert(Box<Noun<CertificateCommand>>),
    /// Credentials: passwords, keys, certificates, and programs run with them
    Credential(Box<CredentialArgs>),
    /// What may be issued: key types, lifetimes, names
    Profile(Noun<DocumentCommand<ProfileDocument>>),
    /// Who can issue beside the own authority: ACME, Vault, step-ca, a program, a webhook
    Issuer(Noun<IssuerCommand>),
}

/// What runs on a server: jobs, policies, alerts, scheduled scans, the audit log, the master key.
#[derive(Debug, Subcommand)]
pub enum OperationCommand {
    /// Where agents deploy certificates to
    Target(Noun<DocumentCommand<TargetDocument>>),
    /// Rules that certificates are held against, and what breaks them
    Policy(Noun<PolicyCommand>),
    /// Runs of issuance, renewal, deployment and revocation
    Job(Noun<JobCommand>),
    /// What waits for a second person
    Approval(Noun<ApprovalCommand>),
    /// Changes of profiles, access, issuers, targets and policies that wait for approval
    Change(Noun<ChangeCommand>),
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
}

/// Access to a server: tokens, users, and any route of its API.
#[derive(Debug, Subcommand)]
pub enum AccessCommand {
    /// API tokens
    Token(Noun<TokenCommand>),
    /// People who log in, and the roles there are
    User(Noun<UserCommand>),
    /// Ask any route of the server's API, for what has no command of its own
    Api(RouteArgs),
}

impl IssuanceCommand {
    /// Runs the command against a server.
    pub fn run<'a>(&'a self, configuration: &'a ClientConfiguration) -> CommandFuture<'a> {
        let settings = &configuration.client;
        match self {
            Self::Cert(noun) => Box::pin(control::run(noun, settings)),
            Self::Credential(args) => Box::pin(control::run_credential(args, configuration)),
            Self::Profile(noun) => Box::pin(control::run(noun, settings)),
            Self::Issuer(noun) => Box::pin(control::run(noun, settings)),
        }
    }
}

impl OperationCommand {
    /// Runs the command against a server.
    pub fn run<'a>(&'a self, configuration: &'a ClientConfiguration) -> CommandFuture<'a> {
        let settings = &configuration.client;
        match self {
            Self::Target(noun) => Box::pin(control::run(noun, settings)),
            Self::Policy(noun) => Box::pin(control::run(noun, settings)),
            Self::Job(noun) => Box::pin(control::run(noun, settings)),
            Self::Approval(noun) => Box::pin(control::run(noun, settings)),
            Self::Change(noun) => Box::pin(control::run(noun, settings)),
            Self::Owner(noun) => Box::pin(control::run(noun, settings)),
            Self::Team(noun) => Box::pin(control::run(noun, settings)),
            Self::Alert(noun) => Box::pin(control::run(noun, settings)),
            Self::Ct(noun) => Box::pin(control::run(noun, settings)),
            Self::Watch(noun) => Box::pin(control::run(noun, settings)),
            Self::Audit(noun) => Box::pin(control::run(noun, settings)),
            Self::Key(noun) => Box::pin(control::run(noun, settings)),
        }
    }
}

impl AccessCommand {
    /// Runs the command against a server.
    pub fn run<'a>(&'a self, configuration: &'a ClientConfiguration) -> CommandFuture<'a> {
        let settings = &configuration.client;
        match self {
            Self::Token(noun) => Box::pin(control::run(noun, settings)),
            Self::User(noun) => Box::pin(control::run(noun, settings)),
            Self::Api(args) => Box::pin(control::run_route(args, settings)),
        }
    }
}
