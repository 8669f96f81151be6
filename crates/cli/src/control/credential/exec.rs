//! `bulla credential exec`: runs a program with credentials in its environment.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use clap::{Args, ValueEnum};
use keys::Secret;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::super::input;
use super::store::{self, problem};
use crate::connection::Client;
use crate::exit::{Exit, Outcome, Problem};
use crate::stop;

/// Timeout for a program that was requested to stop.
const END_WITHIN: Duration = Duration::from_secs(10);
/// Timeout of a graceful shutdown of this process. It is longer than the timeout for the program.
const GRACE: Duration = Duration::from_secs(12);

/// Arguments of `bulla credential exec`.
#[derive(Args, Debug)]
pub(super) struct ExecArgs {
    /// A variable, and the credential for its value; may be repeated: PASSWORD=/team/database, KEY=/team/web#private_key
    #[arg(long = "env", short, value_name = "VARIABLE=NAME[#FIELD]", value_parser = input::pair, required = true)]
    variables: Vec<(String, String)>,
    /// Keep running, and restart the program when one of the credentials changes
    #[arg(long)]
    watch: bool,
    /// With --watch: send this signal instead of restarting the program
    #[arg(long, value_enum, value_name = "SIGNAL", requires = "watch")]
    signal: Option<Notice>,
    /// The program with its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// A signal that notifies a program of a change.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Notice {
    Hup,
    Usr1,
    Usr2,
    Term,
}

impl Notice {
    fn signal(self) -> Signal {
        match self {
            Self::Hup => Signal::HUP,
            Self::Usr1 => Signal::USR1,
            Self::Usr2 => Signal::USR2,
            Self::Term => Signal::TERM,
        }
    }
}

impl ExecArgs {
    /// Reads all credentials in one request, then replaces this process by the program. With `--watch`, supervises it as a child.
    pub(super) async fn run(&self, client: &Client) -> Outcome<Exit> {
        use std::os::unix::process::CommandExt;
        let limits = client::Limits { follow: self.watch, ..client::Limits::default() };
        let client = client.caching_client()?.limits(limits).build().map_err(|error| problem(&error))?;
        if self.watch {
            return self.supervise(&client).await;
        }
        let values = self.values(&client).await?;
        Err(self.cannot_run(&self.command(&self.command, &values).as_std_mut().exec()))
    }

    /// Returns the command `line` with the credentials in its environment.
    fn command<S: AsRef<OsStr>>(&self, line: &[S], values: &[Secret]) -> Command {
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]).kill_on_drop(true);
        for ((variable, _), value) in self.variables.iter().zip(values) {
            command.env(variable, value.expose());
        }
        command
    }

    fn cannot_run(&self, error: &std::io::Error) -> Problem {
        Problem::new(Exit::Machine, format_args!("cannot run {}: {error}", self.command[0]))
            .hint("give the program after --, for example: bulla credential exec --env A=/b -- env")
    }

    async fn values(&self, client: &client::Client) -> Outcome<Vec<Secret>> {
        let wanted: Vec<(&str, Vec<&str>)> = self
            .variables
            .iter()
            .map(|(_, name)| match name.rsplit_once('#') {
                Some((name, field)) => (name, vec![field]),
                None => (name.as_str(), Vec::new()),
            })
            .collect();
        let names: Vec<Vec<&str>> = wanted.iter().map(|(name, _)| vec![*name]).collect();
        let found = client.lookup_many(&names).await;
        let mut values = Vec::with_capacity(wanted.len());
        for ((name, fields), found) in wanted.into_iter().zip(found) {
            let found = found.map_err(|error| problem(&error))?;
            let found = found.ok_or_else(|| problem(&client::Error::NotFound(name.to_owned())))?;
            values.push(found.text(&fields).ok_or_else(|| {
                Problem::new(Exit::Refused, format_args!("{name} has no {}", fields.join(".")))
                    .hint(format!("`bulla credential get {name}` shows its fields"))
            })?);
        }
        Ok(values)
    }

    /// Supervises the program until it ends by itself, or this process is stopped.
    async fn supervise(&self, client: &client::Client) -> Outcome<Exit> {
        let stop = stop::on_signal_within(GRACE)?;
        // Subscribe before the first values are read, so that no later change is missed.
        let mut changes = client.changes();
        let first = store::wait_for_store(&stop, async || self.values(client).await);
        let Some(mut values) = first.await? else { return Ok(Exit::Interrupted) };
        let mut child = self.spawn(&values)?;
        loop {
            tokio::select! {
                () = stop.cancelled() => {
                    end(&mut child).await;
                    return Ok(Exit::Interrupted);
                }
                ended = child.wait() => {
                    let status = ended.map_err(|error| self.cannot_run(&error))?;
                    // Exit with the program's status.
                    std::process::exit(code(status));
                }
                // Without notifications of changes, cached values expire after their lifetime.
                () = tokio::time::sleep(client.limits().ttl) => {}
                _ = changes.next() => {}
            }
            let now = match self.values(client).await {
                Ok(now) => now,
                Err(problem) => {
                    tracing::warn!(
                        error = problem.message,
                        "the program continues with its current credentials"
                    );
                    continue;
                }
            };
            if now == values {
                continue;
            }
            values = now;
            match (self.signal, pid(&child)) {
                (Some(notice), Some(pid)) => {
                    // Ignore errors: the program may have just ended.
                    let _ = kill_process(pid, notice.signal());
                }
                _ => {
                    tracing::info!("a credential has changed: the program is restarted");
                    end(&mut child).await;
                    child = self.spawn(&values)?;
                }
            }
        }
    }

    fn spawn(&self, values: &[Secret]) -> Outcome<Child> {
        let spawned = match self.command(&self.command, values).spawn() {
            // exec(3) runs a script without `#!` in a shell, as all shells do. posix_spawn(3) does not.
            Err(error) if error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error()) => {
                let script = found(&self.command[0]);
                let arguments = self.command[1..].iter().map(OsString::from);
                let line: Vec<OsString> =
                    ["/bin/sh".into(), script.into_os_string()].into_iter().chain(arguments).collect();
                self.command(&line, values).spawn()
            }
            spawned => spawned,
        };
        spawned.map_err(|error| self.cannot_run(&error))
    }
}

/// Returns the path of a program. A name without a slash is looked up in the folders of `PATH`.
fn found(program: &str) -> PathBuf {
    let folders = std::env::var_os("PATH").filter(|_| !program.contains('/')).unwrap_or_default();
    let paths = std::env::split_paths(&folders).map(|folder| folder.join(program));
    paths.into_iter().find(|path| path.is_file()).unwrap_or_else(|| program.into())
}

fn pid(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
}

/// Requests the child to stop, and kills it after the timeout.
async fn end(child: &mut Child) {
    if let Some(pid) = pid(child) {
        // Ignore errors: the program may have just ended.
        let _ = kill_process(pid, Signal::TERM);
    }
    if tokio::time::timeout(END_WITHIN, child.wait()).await.is_err()
        && let Err(error) = child.kill().await
    {
        tracing::warn!(%error, "cannot stop the program");
    }
}

/// Returns the exit status as shells report it.
fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}
