//! Hook commands on the host: bounded in time and output, never run through a shell.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use super::policy::{DeniedAction, Policy, Program, Refusal};
use super::target::HookCommand;
use crate::accounts::{self, Account};

/// Maximum bytes of a command's output that are kept. The rest is read and dropped, so that the command never blocks.
const OUTPUT_MAX: usize = 16 * 1_024;
/// Maximum characters of the output in a report.
const SHOWN_MAX: usize = 2_000;
/// Time to wait for remaining output after the command has exited. Background processes of the command may keep the pipe open.
const DRAIN: Duration = Duration::from_millis(200);
/// Search path for commands given without a directory.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Locale of the commands, so that their output is the same on every system.
const LANG: &str = "C.UTF-8";

/// A command to run. Stored in the journal, so that it can run again after a crash. The policy is checked each time.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Hook {
    /// Earlier versions wrote this field as "argv".
    #[serde(alias = "argv")]
    pub(crate) command: HookCommand,
    pub(crate) seconds: u32,
    /// Paths of the certificate files, passed to the hook.
    pub(crate) told: Option<MaterialPaths>,
}

/// Paths of the files that are passed to a command.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct MaterialPaths {
    pub(crate) cert: PathBuf,
    pub(crate) chain: PathBuf,
    pub(crate) fullchain: PathBuf,
    pub(crate) key: PathBuf,
}

/// Reason why a validate or reload command of a target failed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HookError {
    /// The policy of this host does not allow the command.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The command could not be started.
    #[error("{command}: cannot be started: {reason}")]
    Start {
        /// Name or path of the program.
        command: String,
        /// The error of the operating system.
        reason: String,
    },
    /// The command exited with a failure.
    #[error("{command}: {status}{output}", output = output_suffix(.output))]
    Failed {
        /// The program with its arguments.
        command: String,
        /// Exit status of the command, as text.
        status: String,
        /// The last part of the command's output.
        output: String,
    },
    /// The command reached its timeout and was killed with its child processes.
    #[error("{command}: timed out after {seconds} s and was killed{output}", output = output_suffix(.output))]
    TimedOut {
        /// The program with its arguments.
        command: String,
        /// Timeout of the command in seconds.
        seconds: u32,
        /// The last part of the command's output.
        output: String,
    },
}

fn output_suffix(output: &str) -> String {
    if output.is_empty() { String::new() } else { format!(": {output}") }
}

impl Hook {
    /// Returns the command with the settings that the policy defines for it.
    pub(crate) fn program(&self, policy: &Policy) -> Result<Program, DeniedAction> {
        let program = policy.program(&self.command, self.seconds)?;
        if self.told.is_some() && program.account.uid != accounts::own().0 {
            let what = format!("the command {}", self.command);
            let why = "gets files in the agent's folder, which only the agent's user can read, so the command must run as that user";
            return Err(DeniedAction::Never { what, why });
        }
        Ok(program)
    }

    /// Runs the command if the policy allows it, and waits for its exit.
    ///
    /// # Cancellation
    /// Dropping the future kills the command.
    pub(crate) async fn run(&self, policy: &Policy) -> Result<(), HookError> {
        let program = self.program(policy).map_err(|want| policy.refusal(vec![want]))?;
        self.run_program(&program).await
    }

    async fn run_program(&self, of: &Program) -> Result<(), HookError> {
        let command = of.argv.join(" ");
        let mut child = self.start(of)?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let told = self.told.as_ref().map(|told| told.json()).unwrap_or_default();
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let mut printed = [Vec::new(), Vec::new()];
        let [out, err] = &mut printed;
        let ended = {
            let talk = async {
                tokio::join!(feed(stdin, told), collect(stdout, out), collect(stderr, err));
            };
            let wait = async {
                tokio::pin!(talk);
                let status = tokio::select! {
                    status = child.wait() => status,
                    () = &mut talk => return child.wait().await,
                };
                // The command may exit before it has read or printed everything, or leave child processes that print.
                let _ = tokio::time::timeout(DRAIN, talk).await;
                status
            };
            tokio::time::timeout(Duration::from_secs(of.seconds.into()), wait).await
        };
        let output = shown(&printed);
        match ended {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => {
                Err(HookError::Failed { command, status: describe_exit_status(status), output })
            }
            Ok(Err(error)) => Err(HookError::Failed { command, status: error.to_string(), output }),
            Err(_) => {
                if let Some(group) = group {
                    // Fails only when the whole process group has exited already.
                    let _ = kill_process_group(group, Signal::KILL);
                }
                let _ = child.wait().await;
                Err(HookError::TimedOut { command, seconds: of.seconds, output })
            }
        }
    }

    /// Starts the command. The command inherits nothing of the agent's environment, because that environment may contain secrets.
    fn start(&self, of: &Program) -> Result<Child, HookError> {
        let (program, arguments) = of.argv.split_first().ok_or_else(|| HookError::Start {
            command: String::new(),
            reason: "no program is given".to_owned(),
        })?;
        let mut command = Command::new(program);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.stdin(if self.told.is_some() { Stdio::piped() } else { Stdio::null() });
        command.process_group(0).kill_on_drop(true);
        let Account { name, uid, gid, home } = &of.account;
        command.current_dir("/").env_clear().env("PATH", PATH).env("LANG", LANG);
        command.env("HOME", home).env("USER", name).env("LOGNAME", name);
        command.envs(&of.environment);
        if let Some(told) = &self.told {
            command.envs(told.variables());
        }
        if accounts::own() != (*uid, *gid) {
            command.uid(*uid);
        }
        spawn(&mut command, &of.account)
            .map_err(|error| HookError::Start { command: program.clone(), reason: error.to_string() })
    }
}

/// Spawns the command as another user with that user's groups.
fn spawn(command: &mut Command, account: &Account) -> std::io::Result<Child> {
    if accounts::own() == (account.uid, account.gid) {
        return command.spawn();
    }
    let runtime = tokio::runtime::Handle::current();
    sandbox::spawn_in_groups(account.gid, &accounts::groups_of(account), || {
        let _entered = runtime.enter();
        command.spawn()
    })
}

impl MaterialPaths {
    fn variables(&self) -> Vec<(&'static str, std::ffi::OsString)> {
        let mut all = vec![
            ("BULLA_CERT", self.cert.clone().into()),
            ("BULLA_CHAIN", self.chain.clone().into()),
            ("BULLA_FULLCHAIN", self.fullchain.clone().into()),
            ("BULLA_KEY", self.key.clone().into()),
        ];
        if let Some(leaf) = self.leaf() {
            all.push(("BULLA_FINGERPRINT", leaf.fingerprint.to_string().into()));
        }
        all
    }

    /// Returns the leaf in the current files: after a rollback, the previous one.
    fn leaf(&self) -> Option<x509::Certificate> {
        let text = std::fs::read(&self.cert).ok()?;
        let (_, der) = x509::pem::certificates(&text).next()?;
        x509::Certificate::parse(&der).ok()
    }

    fn json(&self) -> Vec<u8> {
        let leaf = self.leaf();
        let names: Vec<String> =
            leaf.iter().flat_map(|leaf| &leaf.subject_alt_names).map(name_text).collect();
        let value = serde_json::json!({
            "fingerprint": leaf.as_ref().map(|leaf| leaf.fingerprint.to_string()),
            "names": names,
            "not_before": leaf.as_ref().map(|leaf| leaf.not_before.0),
            "not_after": leaf.as_ref().map(|leaf| leaf.not_after.0),
            "files": { "cert": self.cert, "chain": self.chain, "fullchain": self.fullchain, "key": self.key },
        });
        value.to_string().into_bytes()
    }
}

async fn feed(stdin: Option<tokio::process::ChildStdin>, text: Vec<u8>) {
    if let Some(mut stdin) = stdin {
        // A command that does not use its standard input may close it.
        let _ = stdin.write_all(&text).await;
    }
}

/// Keeps the last [`OUTPUT_MAX`] bytes of a pipe.
async fn collect(pipe: Option<impl AsyncRead + Unpin>, tail: &mut Vec<u8>) {
    let Some(mut pipe) = pipe else { return };
    let mut chunk = vec![0; 4_096];
    while let Ok(read @ 1..) = pipe.read(&mut chunk).await {
        tail.extend_from_slice(&chunk[..read]);
        if tail.len() > 2 * OUTPUT_MAX {
            tail.drain(..tail.len() - OUTPUT_MAX);
        }
    }
}

/// Returns the end of the output on one line, without control characters. The reason of a failure is usually at the end.
fn shown(printed: &[Vec<u8>; 2]) -> String {
    let text: String = printed
        .iter()
        .flat_map(|bytes| String::from_utf8_lossy(bytes).chars().collect::<Vec<_>>())
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect();
    let text = text.trim();
    let skip = text.chars().count().saturating_sub(SHOWN_MAX);
    text.chars().skip(skip).collect()
}

fn describe_exit_status(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended badly".to_owned(),
    }
}

/// Formats a general name as human-readable text, without its type.
pub(crate) fn name_text(name: &x509::GeneralName) -> String {
    use x509::GeneralName as G;
    match name {
        G::Ip(address) => address.to_string(),
        G::Dns(text)
        | G::BadIp(text)
        | G::Email(text)
        | G::Uri(text)
        | G::Directory(text)
        | G::Other(text) => text.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn run(argv: &[&str], seconds: u32) -> Result<(), HookError> {
        let argv: Vec<String> = argv.iter().map(|&text| text.to_owned()).collect();
        let hook = Hook { command: HookCommand::Argv(argv.clone()), seconds, told: None };
        let account = accounts::user(&accounts::own_name()).unwrap();
        hook.run_program(&Program { argv, account, seconds, environment: Default::default() }).await
    }

    #[tokio::test]
    async fn failed_command_reports_its_exit_code_and_output() {
        let error = run(&["sh", "-c", "echo first; echo second >&2; exit 3"], 10).await.unwrap_err();
        assert_eq!(error.to_string(), "sh -c echo first; echo second >&2; exit 3: exit code 3: first second");
    }

    #[tokio::test]
    async fn missing_command_is_reported_as_start_error() {
        let error = run(&["/nowhere/at/all"], 10).await.unwrap_err();
        assert!(matches!(error, HookError::Start { .. }), "{error}");
    }

    #[tokio::test]
    async fn hanging_command_is_killed_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let script = format!("sleep 1000 & echo $! > {}; wait", file.display());
        let argv = ["sh", "-c", &script];
        let hanging = run(&argv, 600);
        let over = async {
            // Wait until the command runs; then let its timeout expire.
            for _ in 0..6_000 {
                if std::fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n')) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            tokio::time::pause();
            tokio::time::advance(Duration::from_secs(600)).await;
            tokio::time::resume();
        };
        let (ended, ()) = tokio::join!(hanging, over);
        let error = ended.unwrap_err();
        assert!(matches!(error, HookError::TimedOut { seconds: 600, .. }), "{error}");
        let pid: i32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        let pid = Pid::from_raw(pid).unwrap();
        // The killed process may remain a zombie for a moment.
        for _ in 0..1_200 {
            let state =
                std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
            if state.is_empty() || state.contains(") Z") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the child of the hook still runs");
    }

    #[tokio::test]
    async fn endless_output_is_truncated_and_background_processes_do_not_block() {
        let script = "i=0; while [ $i -lt 20000 ]; do echo 0123456789; i=$((i+1)); done; sleep 1000 & exit 7";
        let error = run(&["sh", "-c", script], 30).await.unwrap_err();
        let HookError::Failed { status, output, .. } = error else { panic!("{error}") };
        assert_eq!((status.as_str(), output.chars().count()), ("exit code 7", SHOWN_MAX));
    }

    #[test]
    fn hooks_in_journals_of_earlier_versions_are_parsed() {
        let read: Hook =
            serde_json::from_str(r#"{"argv": ["nginx", "-s", "reload"], "seconds": 60, "told": null}"#)
                .unwrap();
        assert_eq!(read.command.to_string(), "nginx -s reload");
        assert_eq!(serde_json::from_value::<Hook>(serde_json::to_value(&read).unwrap()).unwrap(), read);
    }
}
