//! `bulla agent policy`: what the server may do on this host.

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use agent::client::Agent;
use agent::deploy::{EXAMPLE, POLICY_FILE, Policy, PolicyFile, Target, missing_rules};
use clap::{Args, Subcommand};
use cli::connection::{Output, show_one};
use cli::exit::{Exit, Outcome, Problem, chain};

use crate::agent_folder::{FolderArgs, failed};

/// File mode of the policy: everyone may read it, only the owner may write it.
const MODE: u32 = 0o644;
/// Mode of the policy's folder: everyone may read it, only the owner may change it.
const FOLDER_MODE: u32 = 0o755;

/// Environment variable with the path of the policy.
const POLICY_VARIABLE: &str = "BULLA_AGENT_POLICY";

/// Returns the default path of the policy: the environment variable, else the built-in path.
pub(crate) fn default_path() -> PathBuf {
    std::env::var_os(POLICY_VARIABLE).map_or_else(|| POLICY_FILE.into(), PathBuf::from)
}

/// Arguments of `bulla agent policy`.
#[derive(Args, Debug)]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    command: PolicyCommand,
}

/// Commands of `bulla agent policy`.
#[derive(Debug, Subcommand)]
enum PolicyCommand {
    /// Write a policy that allows nothing, with an example of each rule in comments
    Init(PolicyFileArgs),
    /// Show the rules of the policy, and whether the agent accepts it
    Show(ShowArgs),
    /// Show what the targets of this agent need, and the lines that are missing in the policy
    #[command(
        after_help = "Exit code 6: the policy lacks something; 5: a target cannot be checked.\n\nExamples:\n  bulla agent policy check\n  bulla agent \
         policy check --lines >> /etc/bulla/agent.toml   # after you have reviewed the lines\n  bulla agent policy check \
         --target target.json"
    )]
    Check(CheckArgs),
}

/// Argument for the file of the agent's policy.
#[derive(Args, Debug)]
pub(crate) struct PolicyFileArgs {
    /// The policy: what the server may do on this host
    #[arg(long, value_name = "FILE", env = POLICY_VARIABLE, default_value = POLICY_FILE)]
    policy: PathBuf,
}

impl PolicyFileArgs {
    pub(crate) fn file(&self) -> PolicyFile {
        PolicyFile::new(&self.policy)
    }
}

/// Arguments of `bulla agent policy show`.
#[derive(Args, Debug)]
struct ShowArgs {
    #[command(flatten)]
    policy: PolicyFileArgs,
    #[command(flatten)]
    folder: FolderArgs,
    #[command(flatten)]
    show: Output,
}

/// Arguments of `bulla agent policy check`.
#[derive(Args, Debug)]
struct CheckArgs {
    #[command(flatten)]
    policy: PolicyFileArgs,
    #[command(flatten)]
    folder: FolderArgs,
    /// Check this target instead of the server's targets: a JSON file, as for `bulla target create`
    #[arg(long, value_name = "FILE")]
    target: Option<PathBuf>,
    /// Print the missing lines only
    #[arg(long)]
    lines: bool,
}

/// Runs `bulla agent policy`.
pub(crate) async fn run(args: &PolicyArgs) -> Outcome<Exit> {
    match &args.command {
        PolicyCommand::Init(args) => init(args),
        PolicyCommand::Show(args) => show(args),
        PolicyCommand::Check(args) => check(args).await,
    }
}

fn init(args: &PolicyFileArgs) -> Outcome<Exit> {
    let path = &args.policy;
    let cannot = |error: std::io::Error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AlreadyExists => "edit the policy, or remove it first",
            _ => "run as root, or name a file with --policy",
        };
        Problem::new(Exit::Machine, format_args!("cannot write {}: {error}", path.display())).hint(hint)
    };
    if let Some(folder) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder).map_err(cannot)?;
    }
    let opened = std::fs::OpenOptions::new().write(true).create_new(true).mode(MODE).open(path);
    opened.and_then(|mut file| file.write_all(EXAMPLE.as_bytes())).map_err(cannot)?;
    eprintln!(
        "{} is written and allows nothing yet: edit it, then run `bulla agent policy check`",
        path.display()
    );
    Ok(Exit::Ok)
}

fn load(policy: &PolicyFileArgs, folder: &FolderArgs) -> Outcome<Policy> {
    policy.file().load(&folder.state).map_err(|error| {
        Problem::usage(chain(&error))
            .hint("until the policy is corrected, this agent refuses every deployment")
    })
}

fn show(args: &ShowArgs) -> Outcome<Exit> {
    let policy = load(&args.policy, &args.folder)?;
    let document = serde_json::to_value(&policy).map_err(|error| Problem::new(Exit::Machine, error))?;
    show_one(&document, &args.show)?;
    Ok(Exit::Ok)
}

async fn check(args: &CheckArgs) -> Outcome<Exit> {
    let policy = Arc::new(load(&args.policy, &args.folder)?);
    let (mut text, mut all, mut unchecked) = (String::new(), Vec::new(), false);
    let targets = targets(args).await?;
    if targets.is_empty() {
        eprintln!("{} is valid; this agent has no targets to check yet", policy.file_path().display());
    }
    for (name, target) in targets {
        match missing_rules(&policy, &target).await {
            Ok(missing) if missing.is_empty() => text += &format!("{name}: allowed\n"),
            Ok(missing) => {
                text += &format!("{name}: not allowed\n");
                missing.iter().for_each(|want| text += &format!("  {want}\n"));
                all.extend(missing);
            }
            Err(error) => {
                text += &format!("{name}: cannot be checked: {error}\n");
                unchecked = true;
            }
        }
    }
    let lines = policy.policy_lines_for(&all);
    if args.lines {
        text = lines;
    } else if !lines.is_empty() {
        text += &format!("\nLines missing from {}:\n{lines}", policy.file_path().display());
    }
    std::io::stdout().write_all(text.as_bytes()).map_err(|error| Problem::output(&error))?;
    Ok(match all.is_empty() || args.lines {
        true if unchecked => Exit::Machine,
        true => Exit::Ok,
        false => Exit::Refused,
    })
}

/// Returns the targets to check, each with its name.
async fn targets(args: &CheckArgs) -> Outcome<Vec<(String, Target)>> {
    let Some(path) = &args.target else {
        let own = Agent::targets(&args.folder.state).await.map_err(|error| failed(&error))?;
        return Ok(own.into_iter().map(|work| (work.name, work.target)).collect());
    };
    let wrong = |error: String| {
        Problem::usage(format_args!("{}: {error}", path.display()))
            .hint("the file must contain the JSON of a target")
    };
    let text = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let mut value: serde_json::Value =
        serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
    // The file contains the whole body of `POST /api/v1/targets`, or only the value of `target`.
    if let Some(inner) = value.get_mut("target") {
        value = inner.take();
    }
    let target = serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
    Ok(vec![(path.display().to_string(), target)])
}
