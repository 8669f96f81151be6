//! `bulla credential export`: writes a file that only its recipients can open.

use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgGroup, Args};
use keys::age::{self, AgeWriter, Recipient, Seal};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use zeroize::Zeroizing;

use super::record::{End, FORMAT, Head, Line, Record, plain};
use super::remote::{Failure, PAGE, Remote, names_and_ancestors};
use super::transfer::{FailureLine, Progress, failures};
use crate::connection::{Client, Output, document_of, show_one};
use crate::exit::{Exit, Outcome, Problem};
use crate::stop;

/// Minimum characters of a passphrase, because a file allows unlimited guesses.
const PASSPHRASE_MIN: usize = 12;

/// Timeout of a graceful stop: deriving a key from a passphrase takes a second or two.
const GRACE: Duration = Duration::from_secs(10);

/// Arguments of `bulla credential export`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("recipient").required(true).args(["passphrase_file", "recipients", "plain"]))]
pub(super) struct ExportArgs {
    /// Only credentials below this path
    #[arg(long, value_name = "PATH", default_value = "/")]
    path: String,
    /// The file to write; an existing file is not overwritten
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// Encrypt with the passphrase in this file
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
    /// Encrypt to this age recipient (age1…); may be repeated
    #[arg(long = "recipient", value_name = "RECIPIENT")]
    recipients: Vec<Recipient>,
    /// Do not encrypt: the file contains all secrets in plain text, in the format of CredHub's client (YAML)
    #[arg(long, conflicts_with_all = ["all_versions", "permissions"])]
    plain: bool,
    /// Export every version, not only the current ones
    #[arg(long)]
    all_versions: bool,
    /// Include permissions
    #[arg(long)]
    permissions: bool,
    #[command(flatten)]
    show: Output,
}

/// The result of an export, printed as JSON or as a table.
#[derive(Serialize)]
struct ExportReport<'a> {
    file: &'a Path,
    credentials: u64,
    permissions: u64,
    failed: Vec<FailureLine<'a>>,
}

impl ExportArgs {
    /// Exports until complete or stopped. A stopped export leaves no file.
    pub(super) async fn run(&self, client: &Arc<Client>) -> Outcome<Exit> {
        let stop = stop::on_signal_within(GRACE)?;
        tokio::select! {
            written = self.write(client) => written,
            () = stop.cancelled() => {
                let what = format_args!("stopped: nothing was written to {}", self.to.display());
                Err(Problem::new(Exit::Interrupted, what))
            }
        }
    }

    async fn write(&self, client: &Arc<Client>) -> Outcome<Exit> {
        let seal = self.seal()?;
        let from = client.base().to_owned();
        let remote = Remote::own(client);
        let entries = remote.entries(&self.path).await?;
        let mut file = Draft::create(&self.to)?;
        let head = Head {
            format: FORMAT,
            from,
            path: self.path.clone(),
            made_at: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        };
        let mut out =
            Sink::begin(seal.as_ref(), file.writer()?, head).map_err(|error| self.write_error(&error))?;
        let mut end = End::default();
        let mut failed: Vec<Failure> = Vec::new();
        let mut progress = Progress::new("exported", entries.len());
        for page in entries.chunks(PAGE) {
            for answer in remote.records(page, self.all_versions).await? {
                match answer {
                    Ok(record) => {
                        out.credential(record).map_err(|error| self.write_error(&error))?;
                        end.credentials += 1;
                    }
                    Err(failure) => failed.push(failure),
                }
            }
            progress.at(end.credentials);
        }
        if self.permissions {
            let (grants, unknown) = remote.grants(&names_and_ancestors(&entries)).await;
            failed.extend(unknown);
            for grant in grants {
                out.line(&Line::Permission(grant)).map_err(|error| self.write_error(&error))?;
                end.permissions += 1;
            }
        }
        out.end(end).map_err(|error| self.write_error(&error))?;
        file.finish()?;
        let report = ExportReport {
            file: &self.to,
            credentials: end.credentials,
            permissions: end.permissions,
            failed: failures(&failed),
        };
        show_one(&document_of(&report)?, &self.show)?;
        match failed.is_empty() {
            true => Ok(Exit::Ok),
            false => Err(Problem::new(
                Exit::Incomplete,
                format_args!("{} of the credentials could not be read", failed.len()),
            )
            .hint("the export contains all others; `failed` lists these")),
        }
    }

    fn seal(&self) -> Outcome<Option<Seal>> {
        if self.plain {
            return Ok(None);
        }
        let Some(path) = &self.passphrase_file else {
            return Ok(Some(Seal::Recipients(self.recipients.clone())));
        };
        let passphrase = secret_of(path)?;
        if passphrase.expose_secret().chars().count() < PASSPHRASE_MIN {
            return Err(Problem::usage(format_args!(
                "the passphrase has fewer than {PASSPHRASE_MIN} characters"
            ))
            .hint("anyone with the file can try passphrases without limit: use a longer one"));
        }
        Ok(Some(Seal::Passphrase(passphrase)))
    }

    fn write_error(&self, error: &dyn std::error::Error) -> Problem {
        Problem::new(Exit::Machine, format_args!("cannot write {}: {error}", self.to.display()))
            .hint("check the permissions of the folder and the disk; the incomplete file was removed")
    }
}

/// Returns the secret in a file, without the final line break.
pub(super) fn secret_of(path: &Path) -> Outcome<SecretString> {
    let text = std::fs::read_to_string(path).map(Zeroizing::new).map_err(|error| {
        Problem::usage(format_args!("cannot read {}: {error}", path.display()))
            .hint("check the file and its permissions")
    })?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned().into())
}

/// A file that is written under a temporary name, and gets its final name once it is complete. Only its owner can read it.
struct Draft {
    path: PathBuf,
    draft: PathBuf,
    done: bool,
}

impl Draft {
    fn create(path: &Path) -> Outcome<Self> {
        if path.exists() {
            return Err(Problem::usage(format_args!("{} already exists", path.display()))
                .hint("give another name, or remove the file"));
        }
        let mut draft = path.as_os_str().to_owned();
        draft.push(format!(".new-{}", std::process::id()));
        Ok(Self { path: path.to_owned(), draft: draft.into(), done: false })
    }

    fn writer(&self) -> Outcome<BufWriter<std::fs::File>> {
        let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.draft);
        file.map(BufWriter::new).map_err(|error| self.failed(&error))
    }

    fn finish(&mut self) -> Outcome<()> {
        let synced = std::fs::File::open(&self.draft).and_then(|file| file.sync_all());
        // Link instead of rename: a file created in the meantime is not overwritten.
        synced
            .and_then(|()| std::fs::hard_link(&self.draft, &self.path))
            .map_err(|error| self.failed(&error))?;
        self.done = true;
        Ok(())
    }

    fn failed(&self, error: &std::io::Error) -> Problem {
        Problem::new(Exit::Machine, format_args!("cannot write {}: {error}", self.path.display()))
            .hint("check the permissions of the folder and the disk")
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // Remove the draft's name after success or failure.
        let _ = std::fs::remove_file(&self.draft);
    }
}

/// The output for the lines of an export: encrypted with age, or plain text.
enum Sink<W: Write> {
    Sealed(AgeWriter<W>),
    Plain(W),
}

impl<W: Write> Sink<W> {
    fn begin(seal: Option<&Seal>, mut out: W, head: Head) -> Result<Self, age::AgeError> {
        match seal {
            None => {
                out.write_all(b"credentials:\n")?;
                Ok(Self::Plain(out))
            }
            Some(seal) => {
                let mut sink = Self::Sealed(age::encrypt(seal, out)?);
                sink.line(&Line::Export(head))?;
                Ok(sink)
            }
        }
    }

    fn credential(&mut self, record: Record) -> std::io::Result<()> {
        match self {
            Self::Plain(out) => out.write_all(Zeroizing::new(plain(&record)).as_bytes()),
            Self::Sealed(_) => self.line(&Line::Credential(record)),
        }
    }

    fn line(&mut self, line: &Line) -> std::io::Result<()> {
        let Self::Sealed(out) = self else { return Ok(()) };
        let mut text = Zeroizing::new(serde_json::to_vec(line)?);
        text.push(b'\n');
        out.write_all(&text)
    }

    fn end(mut self, end: End) -> Result<(), age::AgeError> {
        self.line(&Line::End(end))?;
        match self {
            Self::Sealed(out) => out.finish().map(drop),
            Self::Plain(mut out) => Ok(out.flush()?),
        }
    }
}
