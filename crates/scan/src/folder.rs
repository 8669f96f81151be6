//! Files and directories as targets. Their certificates are judged like certificates of endpoints, except for the rules about handshakes
//! and names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use x509::Certificate;

use crate::clock::now_us;
use crate::files::{CertificateFound, Contents, FileError, Passwords, Walk, WalkedFile};
use crate::judge::Judge;
use crate::observation::Observation;
use crate::progress::Progress;
use crate::target::Target;
use events::ProbeOutcome;

/// Walks `path` and reports each chain found. Blocks on disk access.
pub(crate) fn read(
    path: &Path,
    passwords: &Passwords,
    judge: &Judge,
    out: &mpsc::Sender<Observation>,
    progress: &Progress,
    stop: &CancellationToken,
) {
    for file in Walk::new(path, passwords).stopped_by(|| stop.is_cancelled()) {
        for observation in observations(file, judge) {
            progress.finished(observation.outcome);
            // The receiver is dropped only when the scan is stopped.
            if out.blocking_send(observation).is_err() {
                return;
            }
        }
    }
}

fn observations(file: WalkedFile, judge: &Judge) -> Vec<Observation> {
    let WalkedFile { path, result } = file;
    match result {
        Ok(contents) => observe_contents(&path, contents, judge),
        Err(error) => {
            let outcome = match &error {
                FileError::PasswordNeeded | FileError::WrongPassword { .. } => ProbeOutcome::PasswordNeeded,
                FileError::NoCertificate => ProbeOutcome::NoCertificateInFile,
                FileError::Malformed { .. } => ProbeOutcome::Malformed,
                FileError::TooLarge { .. } | FileError::TooDeep { .. } => ProbeOutcome::LimitExceeded,
                FileError::Unreadable(_) | FileError::Special(_) => ProbeOutcome::Unreadable,
            };
            let target = Arc::new(Target::file(&path));
            vec![Observation::ended(target, now_us(), outcome, Some(error.to_string()))]
        }
    }
}

fn observe_contents(path: &Path, contents: Contents, judge: &Judge) -> Vec<Observation> {
    let format = contents.format.name();
    let notes = contents.notes.join("; ");
    let several = contents.chains().nth(1).is_some();
    contents
        .chains()
        .map(|chain| {
            let target = Target::file(&if several { entry_path(path, chain) } else { path.to_owned() });
            let detail = if notes.is_empty() { format.to_owned() } else { format!("{format}; {notes}") };
            let mut observation =
                Observation::ended(Arc::new(target), now_us(), ProbeOutcome::Answered, Some(detail));
            for found in chain {
                match Certificate::parse(&found.der) {
                    Ok(certificate) => observation.chain.push(Arc::new(certificate)),
                    Err(error) => observation.unparsed.push(error.to_string()),
                }
                if observation.chain.is_empty() {
                    // If the leaf is unreadable, its issuer must not be judged as the leaf.
                    break;
                }
            }
            judge.judge_file(&mut observation);
            observation
        })
        .collect()
}

/// Returns `path#alias`, or `path#3` for an entry without an alias.
fn entry_path(path: &Path, chain: &[CertificateFound]) -> PathBuf {
    let first = &chain[0];
    let mut entry_path = path.as_os_str().to_owned();
    entry_path.push("#");
    entry_path.push(first.alias.clone().unwrap_or_else(|| first.entry.to_string()));
    entry_path.into()
}
