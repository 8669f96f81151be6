//! `bulla credential template`: renders files with credentials, and keeps them current.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use tokio::process::Command;
use tokio::time::{Instant, MissedTickBehavior};
use zeroize::Zeroizing;

use super::store::{self, problem};
use crate::connection::Client;
use crate::exit::{Exit, Outcome, Problem};
use crate::stop;

/// Maximum bytes of a template.
const TEMPLATE_MAX: u64 = 4 << 20;
/// Timeout of the command of `--run`.
const RUN_WITHIN: Duration = Duration::from_secs(60);
/// Mode of a new file: only its owner may read it.
const MODE: u32 = 0o600;

/// Arguments of `bulla credential template`.
#[derive(Args, Debug)]
pub(super) struct TemplateArgs {
    /// The template: a file with references
    file: PathBuf,
    /// The output file, replaced atomically; - for standard output
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// File mode of the output [default: as the existing file, else 0600]
    #[arg(long, value_name = "MODE", value_parser = mode)]
    mode: Option<u32>,
    /// Path that is put before names without a slash: ((password)) becomes PATH/password
    #[arg(long, value_name = "PATH")]
    prefix: Option<String>,
    /// Keep running, and write the file again when a credential in it changes
    #[arg(long)]
    watch: bool,
    /// Shell command to run after the file has changed
    #[arg(long, value_name = "COMMAND")]
    run: Option<String>,
}

fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("{text:?} is not a file mode: write it as 0600 or 0640"))
}

impl TemplateArgs {
    pub(super) async fn run(&self, client: &Client) -> Outcome<Exit> {
        if self.writes_to_stdout() && (self.watch || self.run.is_some()) {
            return Err(Problem::usage("--watch and --run need a file, but --to - is standard output")
                .hint("give --to FILE, or write it once to standard output"));
        }
        let template = client::Template::parse(&self.read()?, self.prefix.as_deref());
        let template = template.map_err(|error| problem(&error))?;
        let limits = client::Limits { follow: self.watch, ..client::Limits::default() };
        let client = client.caching_client()?.limits(limits).build().map_err(|error| problem(&error))?;
        let mut changes = self.watch.then(|| client.changes());
        let Some(changes) = &mut changes else {
            if self.write(&template, &client).await? {
                self.run_command().await?;
            }
            return Ok(Exit::Ok);
        };
        let stop = stop::on_signal()?;
        let first = store::wait_for_store(&stop, async || self.write(&template, &client).await);
        let Some(changed) = first.await? else { return Ok(Exit::Ok) };
        let ttl = client.limits().ttl;
        // Without notifications of changes, cached values expire after this time, and a failed command is retried. One timer for
        // the whole run: changes of other names do not reset it.
        let mut tick = tokio::time::interval_at(Instant::now() + ttl, ttl);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut run_pending = changed;
        loop {
            if run_pending {
                match self.run_command().await {
                    Ok(()) => run_pending = false,
                    Err(problem) => {
                        tracing::warn!(error = problem.message, again_within = ?ttl, "the file is written, but --run failed");
                    }
                }
            }
            tokio::select! {
                () = stop.cancelled() => return Ok(Exit::Ok),
                _ = tick.tick() => {}
                change = changes.next() => if let client::Change::Name(name) = &change && !template.concerns(name) {
                    continue;
                },
            }
            match self.write(&template, &client).await {
                Ok(changed) => run_pending |= changed,
                // The existing file stays until a new one can be rendered.
                Err(problem) => {
                    tracing::warn!(error = problem.message, file = %self.to.display(), "the file is unchanged");
                }
            }
        }
    }

    fn writes_to_stdout(&self) -> bool {
        self.to.as_os_str() == "-"
    }

    fn read(&self) -> Outcome<String> {
        let mut text = String::new();
        let file = std::fs::File::open(&self.file);
        let read = file.and_then(|file| file.take(TEMPLATE_MAX + 1).read_to_string(&mut text));
        let size = read.map_err(|error| {
            Problem::usage(format_args!("cannot read {}: {error}", self.file.display()))
                .hint("check the file and its permissions")
        })?;
        if size as u64 > TEMPLATE_MAX {
            return Err(Problem::usage(format_args!("{} is too large", self.file.display()))
                .hint(format!("a template has at most {TEMPLATE_MAX} bytes")));
        }
        Ok(text)
    }

    /// Writes the file if its content changes. Returns whether it was written.
    async fn write(&self, template: &client::Template, client: &client::Client) -> Outcome<bool> {
        let text = template.render(client).await.map_err(|error| problem(&error))?;
        if self.writes_to_stdout() {
            let mut out = std::io::stdout().lock();
            let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            return written.map(|()| false).map_err(|error| Problem::output(&error));
        }
        put(&self.to, &text, self.mode).map_err(|error| {
            Problem::new(Exit::Machine, format_args!("cannot write {}: {error}", self.to.display()))
                .hint("check the folder and its permissions")
        })
    }

    /// Runs the command of `--run`, for at most [`RUN_WITHIN`].
    async fn run_command(&self) -> Outcome<()> {
        match &self.run {
            Some(command) => run(command).await,
            None => Ok(()),
        }
    }
}

/// Replaces a file atomically, and keeps its mode and owner. Returns false if the file is already as requested.
fn put(path: &Path, text: &str, mode: Option<u32>) -> std::io::Result<bool> {
    // For a symbolic link, replace its target.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let existing = std::fs::symlink_metadata(&path).ok();
    let current_mode = existing.as_ref().map(|existing| existing.permissions().mode() & 0o777);
    let mode = mode.or(current_mode).unwrap_or(MODE);
    if current_mode == Some(mode) && same(&path, text)? {
        return Ok(false);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = folder.join(format!(".{name}.new-{}", std::process::id()));
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let write = || {
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(MODE).open(&new)?;
        file.write_all(text.as_bytes())?;
        if let Some(existing) = &existing {
            let made = file.metadata()?;
            if (made.uid(), made.gid()) != (existing.uid(), existing.gid()) {
                fchown(&file, Some(existing.uid()), Some(existing.gid()))?;
            }
        }
        // Set the mode explicitly, so that the umask does not change it.
        file.set_permissions(std::fs::Permissions::from_mode(mode))?;
        file.sync_all()?;
        std::fs::rename(&new, &path)?;
        std::fs::File::open(folder)?.sync_all()
    };
    let written = write();
    if written.is_err() {
        // Remove the partial file, which contains values.
        let _ = std::fs::remove_file(&new);
    }
    written.map(|()| true)
}

fn same(path: &Path, text: &str) -> std::io::Result<bool> {
    let file = std::fs::File::open(path)?;
    if file.metadata()?.len() != text.len() as u64 {
        return Ok(false);
    }
    let mut existing = Zeroizing::new(Vec::with_capacity(text.len() + 1));
    file.take(text.len() as u64 + 1).read_to_end(&mut existing)?;
    Ok(existing.as_slice() == text.as_bytes())
}

async fn run(command: &str) -> Outcome<()> {
    let failed = |why: String| {
        Problem::new(Exit::Machine, format_args!("{command:?} {why}"))
            .hint("the file is written; only --run failed")
    };
    let mut shell = Command::new("sh");
    let running = shell.arg("-c").arg(command).kill_on_drop(true).status();
    match tokio::time::timeout(RUN_WITHIN, running).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(failed(format!("ended with {status}"))),
        Ok(Err(error)) => Err(failed(format!("cannot be run: {error}"))),
        Err(_) => Err(failed(format!("did not end within {RUN_WITHIN:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_replaced_and_keeps_its_mode_and_symlink() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let mode_of = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert!(put(&path, "one", None).unwrap());
        assert_eq!((std::fs::read_to_string(&path).unwrap().as_str(), mode_of(&path)), ("one", 0o600));
        assert!(!put(&path, "one", None).unwrap(), "nothing to do");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(put(&link, "two", None).unwrap());
        assert!(link.is_symlink(), "a link stays one");
        assert_eq!((std::fs::read_to_string(&path).unwrap().as_str(), mode_of(&path)), ("two", 0o640));
        assert!(put(&path, "two", Some(0o666)).unwrap(), "the mode is part of it, whatever the umask");
        assert_eq!(mode_of(&path), 0o666);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left behind");
        assert!(put(&folder.path().join("none/out"), "x", None).is_err());
    }
}
