//! `bulla agent`: enrols and runs the agent of this host, and manages the agents of a server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agent::client::{Agent, AgentRunError, AgentStatus};
use agent::deploy::PolicyFile;
use clap::{Args, Subcommand};
use cli::GlobalArgs;
use cli::connection::{Output, show_one};
use cli::control::AgentServerCommand;
use cli::exit::{Exit, Outcome};
use cli::units;
use enrollment::client::JoinOptions;
use keys::Secret;
use serde_json::{Value, json};
use store::Clock;
use x509::Fingerprint;

use crate::agent_folder::{FolderArgs, failed};
use crate::agent_policy::{self, PolicyArgs, PolicyFileArgs};
use crate::config::{AgentSettings, Configuration, TelemetrySettings};
use crate::joining::read;
use crate::span_export::ProcessSpans;

/// Environment variable with an enrolment token, so that the token is not in the process list.
const TOKEN_VARIABLE: &str = "BULLA_ENROLL_TOKEN";
/// Timeout at shutdown for deployments in progress. One deployment reloads a server program and verifies the result, which takes a
/// few seconds.
pub(crate) const GRACE: Duration = Duration::from_secs(65);

/// Arguments of `bulla agent`.
#[derive(Args, Debug)]
pub(crate) struct AgentArgs {
    #[command(subcommand)]
    command: AgentCommand,
}

impl AgentArgs {
    /// Returns whether the command runs the agent of this host.
    pub(crate) fn runs_agent(&self) -> bool {
        matches!(self.command, AgentCommand::Run(_) | AgentCommand::WorkOnce(_))
    }

    /// Overwrites the folder and the policy path in `settings` with the values of the flags.
    pub(crate) fn apply(&self, settings: &mut AgentSettings) {
        if let AgentCommand::Run(args) | AgentCommand::WorkOnce(args) = &self.command {
            settings.state.clone_from(&args.folder.state);
            settings.policy = args.policy.file().path().to_owned();
        }
    }
}

/// Commands for agents. The first five run on an agent's host, the others use a server's API.
#[derive(Debug, Subcommand)]
enum AgentCommand {
    /// Make this host an agent of a server: create a key here, and get a client certificate for it
    Enroll(EnrollArgs),
    /// Run the agent until stopped: create keys, deploy certificates
    Run(WorkArgs),
    /// Do the pending work once, then exit
    WorkOnce(WorkArgs),
    /// The policy: what the server may do on this host; write, show or check it
    Policy(PolicyArgs),
    /// Show this host's agent and its deployments
    Status(StatusArgs),
    #[command(flatten)]
    Server(AgentServerCommand),
}

/// Arguments of `bulla agent enroll`.
#[derive(Args, Debug)]
struct EnrollArgs {
    /// URL of the server
    #[arg(long, value_name = "URL")]
    server: String,
    /// The enrolment token
    #[arg(long, value_name = "TOKEN", env = TOKEN_VARIABLE, hide_env_values = true)]
    token: String,
    /// File of certificates to trust for the server (PEM) [default: this host's roots]
    #[arg(long, value_name = "FILE", conflicts_with = "ca_sha256")]
    ca: Option<PathBuf>,
    /// SHA-256 of the server's certificate, or of a CA certificate in the chain that it sends
    #[arg(long, value_name = "FINGERPRINT")]
    ca_sha256: Option<Fingerprint>,
    /// Name of the agent [default: this host's name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    folder: FolderArgs,
    #[command(flatten)]
    show: Output,
}

/// Arguments of `bulla agent run` and `bulla agent work-once`.
#[derive(Args, Debug)]
struct WorkArgs {
    #[command(flatten)]
    folder: FolderArgs,
    #[command(flatten)]
    policy: PolicyFileArgs,
}

/// Arguments of `bulla agent status`.
#[derive(Args, Debug)]
struct StatusArgs {
    #[command(flatten)]
    folder: FolderArgs,
    #[command(flatten)]
    show: Output,
}

/// Runs `bulla agent`.
pub(crate) async fn run(args: &AgentArgs, global: &GlobalArgs) -> Outcome<Exit> {
    match &args.command {
        AgentCommand::Enroll(args) => enroll(args).await,
        AgentCommand::Run(args) => work(args).await,
        AgentCommand::WorkOnce(args) => work_once(args).await,
        AgentCommand::Policy(args) => agent_policy::run(args).await,
        AgentCommand::Status(args) => status(args),
        AgentCommand::Server(command) => {
            let configuration = Configuration::load(global.config.as_deref())?;
            command.run(&configuration.settings.client).await
        }
    }
}

async fn enroll(args: &EnrollArgs) -> Outcome<Exit> {
    let ca_pem = args.ca.as_deref().map(read).transpose()?;
    let options = JoinOptions {
        server: args.server.clone(),
        token: Secret::new(args.token.trim()),
        ca_pem,
        ca_sha256: args.ca_sha256,
        name: args.name.clone(),
        state: args.folder.state.clone(),
    };
    let enrolled = Agent::enroll(&options).await.map_err(|error| failed(&error))?;
    show(&enrolled, &args.show)?;
    eprintln!("{}", next_steps(&agent_policy::default_path()));
    Ok(Exit::Ok)
}

/// Returns the instructions that are printed after the enrolment.
fn next_steps(policy: &Path) -> String {
    let then = match policy.exists() {
        true => format!("enrolled: the policy {} lists what the server may do on this host", policy.display()),
        false => "enrolled: write the policy with `bulla agent policy init`; it lists what the server may do on this host"
            .to_owned(),
    };
    format!("{then}\nnext: run `bulla agent run`, as a service of this host")
}

/// Opens the agent whose state is in this folder. Prints a warning if there is no policy.
pub(crate) async fn open(state: &Path, policy: PolicyFile) -> Outcome<Agent> {
    if !policy.path().exists() {
        tracing::warn!(
            policy = %policy.path().display(),
            "this agent has no policy, so every deployment is refused: run `bulla agent policy init`"
        );
    }
    Agent::open(state, policy, Clock::system()).await.map_err(|error| failed(&error))
}

async fn work(args: &WorkArgs) -> Outcome<Exit> {
    let stop = cli::stop::on_signal_within(GRACE)?;
    let mut agent = open(&args.folder.state, args.policy.file()).await?;
    eprintln!("the agent {} waits for jobs of its server", agent.name());
    let spans = ProcessSpans::start(&TelemetrySettings::default())?;
    let ran = agent.run(stop).await;
    spans.finish().await;
    ran.map_err(|error| failed(&error))?;
    Ok(Exit::Ok)
}

async fn work_once(args: &WorkArgs) -> Outcome<Exit> {
    let mut agent = open(&args.folder.state, args.policy.file()).await?;
    let spans = ProcessSpans::start(&TelemetrySettings::default())?;
    let worked = agent.work_once().await;
    spans.finish().await;
    let worked = worked.map_err(|error| failed(&error))?;
    eprintln!("{} jobs done, {} failed", worked.done, worked.failed);
    Ok(if worked.failed == 0 { Exit::Ok } else { Exit::Incomplete })
}

fn status(args: &StatusArgs) -> Outcome<Exit> {
    let state = &args.folder.state;
    let found = Agent::status(state).map_err(|error| failed(&error))?;
    let found = found.ok_or_else(|| failed(&AgentRunError::NotEnrolled(state.clone())))?;
    show(&found, &args.show)?;
    Ok(Exit::Ok)
}

fn show(status: &AgentStatus, output: &Output) -> Outcome<()> {
    let certificates: Vec<Value> = status
        .certificates
        .iter()
        .map(|entry| {
            json!({ "name": entry.name, "names": entry.names, "fingerprint": entry.fingerprint,
                    "expires_at": units::rfc3339(entry.not_after), "certificate": entry.certificate })
        })
        .collect();
    let document = json!({
        "agent": status.agent,
        "name": status.name,
        "server": status.server,
        "certificate_expires_at": units::rfc3339(status.certificate_not_after),
        "deployments_cut_off": status.cut_off,
        "certificates": certificates,
    });
    show_one(&document, output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use enrollment::client::ApiError;

    #[test]
    fn policy_is_suggested_only_where_there_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let policy = folder.path().join("agent.toml");
        assert!(next_steps(&policy).contains("bulla agent policy init"));
        std::fs::write(&policy, "").unwrap();
        let steps = next_steps(&policy);
        assert!(!steps.contains("policy init") && steps.contains(&policy.display().to_string()), "{steps}");
    }

    #[test]
    fn agent_errors_map_to_exit_codes() {
        let refused = ApiError::Refused {
            server: "https://a".to_owned(),
            status: 401,
            reason: "no".to_owned(),
            retry_after: None,
        };
        assert_eq!(failed(&refused.into()).exit, Exit::Refused);
        let unavailable = ApiError::Unavailable { server: "https://a".to_owned(), reason: "gone".to_owned() };
        assert_eq!(failed(&unavailable.into()).exit, Exit::Server);
        assert_eq!(failed(&AgentRunError::NotEnrolled(PathBuf::new())).exit, Exit::Usage);
    }
}
