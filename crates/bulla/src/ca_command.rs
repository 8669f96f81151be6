//! `bulla ca`: certification authorities. Ceremonies run offline on this machine; the other commands use the API of a server.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use authority::ceremony::{
    self, CeremonyError, CeremonyPlan, SigningPlan, Transcript, TranscriptError, verify_transcript,
};
use clap::{Args, Subcommand};
use cli::GlobalArgs;
use cli::connection::{Client, ServerArgs};
use cli::control::{AuthorityCommand, Run};
use cli::exit::{Exit, Outcome, Problem, chain};
use cli::format::TableOrJson;
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use store::Clock;
use x509::Fingerprint;

use crate::config::Configuration;

/// Name and version of this program in transcripts.
const TOOL: &str = concat!("bulla ", env!("CARGO_PKG_VERSION"));
/// Maximum bytes of a plan or of a passphrase file.
const INPUT_MAX: u64 = 1024 * 1024;

/// Arguments of `bulla ca`.
#[derive(Args, Debug)]
pub(crate) struct CaArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(subcommand)]
    command: CaCommand,
}

/// Commands for certification authorities.
#[derive(Debug, Subcommand)]
pub(crate) enum CaCommand {
    /// Create a root on a machine without network, with a transcript that the root signs
    Ceremony(CeremonyArgs),
    #[command(flatten)]
    Server(AuthorityCommand),
}

/// Arguments of `bulla ca ceremony`.
#[derive(Args, Debug)]
pub(crate) struct CeremonyArgs {
    #[command(subcommand)]
    pub(crate) command: CeremonyCommand,
}

/// Steps of a ceremony. No step needs a server, a database or a network.
#[derive(Debug, Subcommand)]
pub(crate) enum CeremonyCommand {
    /// Print an example plan (TOML)
    Plan,
    /// Create a root from a plan: key, certificate, first revocation list, certificates for requests
    Root(RootArgs),
    /// Sign requests and a revocation list with an existing root
    Sign(SignArgs),
    /// Check a ceremony's folder: signature, every file, every certificate
    Verify(VerifyArgs),
}

/// Arguments of `bulla ca ceremony root`.
#[derive(Args, Debug)]
pub(crate) struct RootArgs {
    /// The plan (TOML); paths of requests in it are relative to the plan's folder
    #[arg(value_name = "PLAN")]
    plan: PathBuf,
    /// The output folder; it is created, or must be empty
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    #[command(flatten)]
    passphrase: PassphraseArgs,
}

/// Arguments of `bulla ca ceremony sign`.
#[derive(Args, Debug)]
pub(crate) struct SignArgs {
    /// The plan (TOML); paths of requests in it are relative to the plan's folder
    #[arg(value_name = "PLAN")]
    plan: PathBuf,
    /// The folder with the root: root.pem and root.key.pem
    #[arg(long, value_name = "FOLDER")]
    root: PathBuf,
    /// The output folder; it is created, or must be empty
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    #[command(flatten)]
    passphrase: PassphraseArgs,
}

#[derive(Args, Debug)]
struct PassphraseArgs {
    /// File whose first line is the passphrase of the root's key, 12 characters or more; - for standard input
    #[arg(long, value_name = "FILE")]
    passphrase_file: PathBuf,
}

/// Arguments of `bulla ca ceremony verify`.
#[derive(Args, Debug)]
pub(crate) struct VerifyArgs {
    /// The ceremony's folder, or a copy without the root's key
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// SHA-256 of the root's certificate, from paper; without it any root is accepted
    #[arg(long, value_name = "SHA256")]
    fingerprint: Option<Fingerprint>,
    #[command(flatten)]
    format: TableOrJson,
}

const PLAN: &str = r#"# The plan of a ceremony: bulla ca ceremony root PLAN --out FOLDER --passphrase-file FILE
operators = ["First Person", "Second Person"]
location = "Where the key is stored"

[root]
name = "root"
subject = "CN=Example Root CA, O=Example, C=DE"
key_type = "p384"             # rsa2048 rsa3072 rsa4096 p256 p384 p521 ed25519 ml-dsa-44 ml-dsa-65 ml-dsa-87
lifetime_seconds = 630720000  # 20 years of 365 days
path_length = 1               # one authority below the root, and none below that

# The root's first revocation list; make the next one with `bulla ca ceremony sign` before this one ends.
[crl]
lifetime_seconds = 31536000

# Where the root's certificate and revocation list will be found, as certificates it signs say. http, not https.
[published]
crl_url = "http://pki.example.com/root.crl"
issuer_url = "http://pki.example.com/root.cer"

# Requests to sign: `bulla ca request` makes them on the server, `bulla ca install` takes the certificates back.
#[[intermediates]]
#name = "web"
#request = "web.csr"          # PEM or DER, relative to this file
#lifetime_seconds = 157680000 # 5 years
#path_length = 0
#name_limits = { permitted = ["dns:example.com", "ip:10.0.0.0/8"], excluded = ["dns:secret.example.com"] }
"#;

/// Runs `bulla ca`.
pub(crate) async fn run(args: &CaArgs, global: &GlobalArgs) -> Outcome<Exit> {
    match &args.command {
        CaCommand::Ceremony(ceremony) => match &ceremony.command {
            CeremonyCommand::Plan => cli::exit::print(PLAN.trim_end())?,
            CeremonyCommand::Root(args) => root(args).await?,
            CeremonyCommand::Sign(args) => sign(args).await?,
            CeremonyCommand::Verify(args) => verify(args)?,
        },
        CaCommand::Server(command) => {
            let configuration = Configuration::load(global.config.as_deref())?;
            command.run(&Client::open(&args.server, &configuration.settings.client)?).await?;
        }
    }
    Ok(Exit::Ok)
}

async fn root(args: &RootArgs) -> Outcome<()> {
    let plan: CeremonyPlan = read_plan(&args.plan)?;
    let passphrase = args.passphrase.read()?;
    let passphrase = passphrase.expose_secret().as_bytes();
    let (requests, clock) = (folder_of(&args.plan), Clock::system());
    let created = ceremony::create_root(&plan, requests, &args.out, passphrase, &clock, TOOL).await;
    print_transcript(&created.map_err(|error| failed(&error))?, &args.out)
}

async fn sign(args: &SignArgs) -> Outcome<()> {
    let plan: SigningPlan = read_plan(&args.plan)?;
    let passphrase = args.passphrase.read()?;
    let passphrase = passphrase.expose_secret().as_bytes();
    let (requests, clock) = (folder_of(&args.plan), Clock::system());
    let created = ceremony::sign(&plan, requests, &args.root, &args.out, passphrase, &clock, TOOL).await;
    print_transcript(&created.map_err(|error| failed(&error))?, &args.out)
}

/// Verifies the files of the ceremony on disk, and prints the transcript.
fn print_transcript(transcript: &Transcript, folder: &Path) -> Outcome<()> {
    verify_transcript(folder, Some(&transcript.root.fingerprint)).map_err(|error| refused(&error))?;
    cli::exit::print(transcript.to_text().trim_end())?;
    eprintln!(
        "Written to {}. Keep the fingerprint on paper: {}",
        folder.display(),
        transcript.root.fingerprint
    );
    Ok(())
}

fn verify(args: &VerifyArgs) -> Outcome<()> {
    let verified =
        verify_transcript(&args.folder, args.fingerprint.as_ref()).map_err(|error| refused(&error))?;
    if args.format.is_json()? {
        let json = serde_json::to_string_pretty(&verified.transcript);
        return cli::exit::print(&json.map_err(|error| Problem::new(Exit::Machine, error))?);
    }
    cli::exit::print(verified.transcript.to_text().trim_end())?;
    for name in &verified.absent {
        eprintln!("{name} is not in this copy, and was not checked.");
    }
    match args.fingerprint {
        Some(_) => eprintln!("The transcript is valid, and the root has the expected fingerprint."),
        None => eprintln!(
            "The transcript is valid. Compare the root's fingerprint with the one on paper: {}",
            verified.transcript.root.fingerprint
        ),
    }
    Ok(())
}

impl PassphraseArgs {
    fn read(&self) -> Outcome<SecretString> {
        let path = &self.passphrase_file;
        let mut text = String::new();
        let read = match path.as_os_str() == "-" {
            true => std::io::stdin().take(INPUT_MAX).read_to_string(&mut text),
            false => File::open(path).and_then(|file| file.take(INPUT_MAX).read_to_string(&mut text)),
        };
        let whole = SecretString::from(text);
        read.map_err(|error| {
            Problem::new(Exit::Machine, format_args!("{}: {error}", path.display()))
                .hint("give a file whose first line is the passphrase, or - for standard input")
        })?;
        Ok(whole.expose_secret().lines().next().unwrap_or_default().into())
    }
}

fn read_plan<T: DeserializeOwned>(path: &Path) -> Outcome<T> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(INPUT_MAX).read_to_string(&mut text));
    read.map_err(|error| {
        Problem::new(Exit::Machine, format_args!("the plan {}: {error}", path.display()))
            .hint("`bulla ca ceremony plan` prints a plan to start from")
    })?;
    toml::from_str(&text).map_err(|error| {
        Problem::usage(format_args!("the plan {}: {}", path.display(), error.to_string().trim_end()))
            .hint("`bulla ca ceremony plan` prints a plan with every key explained")
    })
}

fn folder_of(plan: &Path) -> &Path {
    plan.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn failed(error: &CeremonyError) -> Problem {
    let exit = match error {
        CeremonyError::File { .. } | CeremonyError::Sign(_) => Exit::Machine,
        _ => Exit::Usage,
    };
    Problem::new(exit, chain(error))
}

fn refused(error: &TranscriptError) -> Problem {
    let exit = match error {
        TranscriptError::File { .. } => Exit::Machine,
        _ => Exit::Refused,
    };
    Problem::new(exit, chain(error))
}
