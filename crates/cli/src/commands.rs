//! The command groups that only need a server, grouped as in `bulla --help`.

use clap::Subcommand;

use crate::configuration::ClientConfiguration;
use crate::control::{
    self, AcmeCommand, AlertCommand, ApprovalCommand, AuditCommand, CertificateCommand, ChangeCommand,
    ConsoleArgs, CredentialArgs, DocumentCommand, IssuerCommand, JobCommand, Noun, OwnerCommand,
    PolicyCommand, ProfileDocument, RouteArgs, SearchArgs, TargetDocument, TeamDocument, TokenCommand,
    TransparencyCommand, UserCommand, WatchCommand,
};
use crate::execution::CommandFuture;

/// Issuance: certificates, credentials, and their rules.
#[derive(Debug, Subcommand)]
pub enum IssuanceCommand {
    /// Certificates: issue, renew, revoke, export; claim found ones
    Cert(Box<Noun<CertificateCommand>>),
    /// Credentials: passwords, keys, certificates, with versions
    #[command(visible_alias = "secret")]
    Credential(Box<CredentialArgs>),
    /// Profiles: what may be issued (key types, lifetimes, names)
    Profile(Noun<DocumentCommand<ProfileDocument>>),
    /// External issuers: ACME, Vault, step-ca, a program, a webhook
    Issuer(Noun<IssuerCommand>),
    /// ACME server: accounts, orders, external keys, limits
    Acme(Noun<AcmeCommand>),
}

/// Operation of a server: jobs, policies, alerts, scheduled scans, the audit log.
#[derive(Debug, Subcommand)]
pub enum OperationCommand {
    /// Deployment targets: where agents put certificates
    Target(Noun<DocumentCommand<TargetDocument>>),
    /// Policies that certificates must meet, and their violations
    Policy(Noun<PolicyCommand>),
    /// Jobs: issuance, renewal, deployment, revocation
    Job(Noun<JobCommand>),
    /// Issuance that waits for a second person's approval
    Approval(Noun<ApprovalCommand>),
    /// Changes of profiles, roles, issuers that wait for approval
    Change(Noun<ChangeCommand>),
    /// Owners of certificates, and rules that assign them
    Owner(Noun<OwnerCommand>),
    /// Teams: what they own, and their quotas
    Team(Noun<DocumentCommand<TeamDocument>>),
    /// Alerts, notification channels, silences, undelivered messages
    Alert(Noun<AlertCommand>),
    /// Certificate Transparency: certificates issued for your domains
    Ct(Noun<TransparencyCommand>),
    /// Watches: scans that the server runs on a schedule
    Watch(Noun<WatchCommand>),
    /// Audit log: search, verify, export, signed heads
    Audit(Noun<AuditCommand>),
}

/// Access to a server: tokens, users, the console, and any route of its API.
#[derive(Debug, Subcommand)]
pub enum AccessCommand {
    /// API tokens: create, list, rotate, revoke
    Token(Noun<TokenCommand>),
    /// Users who log in, and roles
    User(Noun<UserCommand>),
    /// Create a one-time link that signs a browser in to the console
    ///
    /// The session has the permissions of this command's token. The link is printed on standard output.
    Console(ConsoleArgs),
    /// Search names, serials, fingerprints, owners, paths of secrets
    Search(SearchArgs),
    /// Send any request to the server's API
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
            Self::Acme(noun) => Box::pin(control::run(noun, settings)),
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
            Self::Console(args) => Box::pin(control::run_console(args, settings)),
            Self::Search(args) => Box::pin(control::run_search(args, settings)),
            Self::Api(args) => Box::pin(control::run_route(args, settings)),
        }
    }
}
