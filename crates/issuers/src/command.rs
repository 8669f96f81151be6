//! Runs an operator's program: without a shell, with bounded time and output. Its process group is killed at the end.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::{Duration, Instant};

use callout::excerpt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use crate::error::IssuerError;

/// Maximum bytes of a program's standard output. A certificate chain has a few thousand.
const OUTPUT_MAX: u64 = 1024 * 1024;
/// Maximum bytes of a program's standard error that are kept.
const ERRORS_MAX: u64 = 8 * 1024;
/// Environment variables that programs inherit in addition to their own: enough to find tools and write files.
const INHERITED: [&str; 6] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER"];

/// A program with its fixed arguments. `Debug` omits its variables, which may contain secrets.
#[derive(Clone)]
pub(crate) struct Command {
    program: String,
    arguments: Vec<String>,
    environment: BTreeMap<String, String>,
    run_as: Option<RunAs>,
    limit: Duration,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Command")
            .field("program", &self.program)
            .field("run_as", &self.run_as)
            .finish_non_exhaustive()
    }
}

/// A user other than the server's, for a server that runs as root. The program gets that user's groups.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct RunAs {
    name: String,
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    home: String,
}

impl RunAs {
    pub(crate) fn new(name: &str, uid: u32, gid: u32, home: &str) -> Self {
        Self { name: name.to_owned(), uid, gid, groups: vec![gid], home: home.to_owned() }
    }

    /// Sets the groups that the text of `/etc/group` lists for the user.
    pub(crate) fn with_groups(mut self, text: &str) -> Self {
        self.groups = sandbox::groups_of(&self.name, self.gid, text);
        self
    }

    pub(crate) fn uid(&self) -> u32 {
        self.uid
    }
}

/// Exit code and output of a program's run.
#[derive(Clone, Debug)]
pub(crate) struct CommandOutput {
    /// Exit code. 128 plus the signal number after a signal, as in shells.
    pub(crate) code: i32,
    pub(crate) output: Vec<u8>,
    /// Start of the standard error, sanitized for display.
    pub(crate) errors: String,
}

impl Command {
    pub(crate) fn new(argv: &[String], limit: Duration) -> Result<Self, IssuerError> {
        let Some((program, arguments)) = argv.split_first().filter(|(program, _)| !program.is_empty()) else {
            return Err(IssuerError::misconfigured("no program is given"));
        };
        Ok(Self {
            program: program.clone(),
            arguments: arguments.to_vec(),
            environment: BTreeMap::new(),
            run_as: None,
            limit: limit.clamp(Duration::from_secs(1), Duration::from_secs(3_600)),
        })
    }

    /// Sets environment variables in addition to the inherited ones.
    pub(crate) fn with_environment(mut self, variables: &BTreeMap<String, String>) -> Self {
        self.environment.clone_from(variables);
        self
    }

    /// Sets the user. `None` means the server's own user.
    pub(crate) fn with_user(mut self, user: Option<RunAs>) -> Self {
        self.run_as = user;
        self
    }

    /// Sets a timeout, if it is shorter than the current one.
    pub(crate) fn with_timeout(mut self, limit: Option<Duration>) -> Self {
        self.limit = limit.map_or(self.limit, |limit| limit.max(Duration::from_secs(1)).min(self.limit));
        self
    }

    /// Builds the process with the settings that all runs share.
    fn build(&self) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(&self.program);
        command
            .args(&self.arguments)
            .env_clear()
            .envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(user) = &self.run_as {
            command.uid(user.uid).current_dir("/");
            command.env("HOME", &user.home).env("USER", &user.name);
        }
        command.envs(&self.environment);
        command
    }

    fn spawn(&self, command: &mut tokio::process::Command) -> std::io::Result<tokio::process::Child> {
        let Some(user) = &self.run_as else { return command.spawn() };
        let runtime = tokio::runtime::Handle::current();
        sandbox::spawn_in_groups(user.gid, &user.groups, || {
            let _entered = runtime.enter();
            command.spawn()
        })
    }

    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    pub(crate) fn program(&self) -> &str {
        &self.program
    }

    /// Runs the program with further arguments, environment and input.
    ///
    /// # Cancellation
    /// Dropping the future kills the program.
    pub(crate) async fn run(
        &self,
        arguments: &[&str],
        environment: &[(&str, String)],
        input: &[u8],
        deadline: Instant,
    ) -> Result<CommandOutput, IssuerError> {
        let until = deadline.min(Instant::now() + self.limit);
        let mut command = self.build();
        command.args(arguments).envs(environment.iter().map(|(name, value)| (name, value)));
        let mut child = self.spawn(&mut command).map_err(|error| {
            IssuerError::misconfigured(format!("{} cannot be started: {error}", self.program))
        })?;
        let group = ProcessGroup(child.id());
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let feed = async {
            let Some(mut stdin) = stdin else { return };
            // A program need not read its input.
            let _ = stdin.write_all(input).await;
        };
        let work = async {
            let (_, output, errors, status) =
                tokio::join!(feed, read(stdout, OUTPUT_MAX), read(stderr, ERRORS_MAX), child.wait());
            (output, errors, status)
        };
        let ended = tokio::time::timeout_at(until.into(), work).await;
        drop(group);
        let Ok((output, errors, status)) = ended else {
            return Err(IssuerError::TimedOut { stage: "the program runs" });
        };
        let status =
            status.map_err(|error| IssuerError::unavailable(format!("{}: {error}", self.program)))?;
        if output.len() as u64 > OUTPUT_MAX {
            return Err(IssuerError::unavailable(format!(
                "{} wrote more than {OUTPUT_MAX} bytes",
                self.program
            )));
        }
        let code = std::os::unix::process::ExitStatusExt::signal(&status).map(|signal| 128 + signal);
        Ok(CommandOutput {
            code: code.or(status.code()).unwrap_or(-1),
            output,
            errors: excerpt(&String::from_utf8_lossy(&errors)),
        })
    }
}

/// Reads one byte more than the limit, to detect an excess. The rest is drained, so that the program does not block on a full pipe.
async fn read(from: Option<impl AsyncRead + Unpin>, most: u64) -> Vec<u8> {
    let Some(mut from) = from else { return Vec::new() };
    let mut bytes = Vec::new();
    // After a read error, use the bytes that were read before the error.
    let _ = (&mut from).take(most + 1).read_to_end(&mut bytes).await;
    let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    bytes
}

/// Kills the program's process group when dropped: otherwise child processes would outlive the program.
struct ProcessGroup(Option<u32>);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let id = self.0.and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(group) = id {
            // Fails if the process group has already exited.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Command {
        let argv = ["/bin/sh", "-c", script].map(str::to_owned);
        Command::new(&argv, limit).unwrap()
    }

    async fn run(script: &str, input: &[u8]) -> Result<CommandOutput, IssuerError> {
        let environment = [("BULLA_NAME", "a b".to_owned())];
        let later = Instant::now() + Duration::from_secs(20);
        shell(script, Duration::from_secs(20)).run(&["zero", "one"], &environment, input, later).await
    }

    #[tokio::test]
    async fn command_passes_input_environment_arguments_output_and_exit_code() {
        let ran = run("cat; echo \" $BULLA_NAME $1\"; echo oops >&2; exit 3", b"in").await.unwrap();
        assert_eq!((ran.code, ran.output.as_slice(), ran.errors.as_str()), (3, &b"in a b one\n"[..], "oops"));
        assert_eq!(run("kill -TERM $$", b"").await.unwrap().code, 128 + 15);
        assert_eq!(run("exit 0", &vec![7; 1 << 20]).await.unwrap().code, 0, "input need not be read");
    }

    #[tokio::test]
    async fn other_environment_variables_are_not_inherited() {
        let ran = run("env", b"").await.unwrap();
        let text = String::from_utf8(ran.output).unwrap();
        assert!(text.contains("BULLA_NAME=a b") && !text.contains("CARGO"), "{text}");
    }

    #[tokio::test]
    async fn command_runs_with_its_variables_and_user() {
        let later = Instant::now() + Duration::from_secs(20);
        let variables = [("REGION", "north"), ("BULLA_NAME", "of the configuration"), ("HOME", "/elsewhere")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        // Only root can change the user; other users keep theirs.
        let root = rustix::process::geteuid().is_root();
        let groups = "web:x:33:www,nobody\nother:x:44:www\n";
        let user = root.then(|| RunAs::new("nobody", 65_534, 65_534, "/nonexistent").with_groups(groups));
        let script = "echo $(id -u) $(id -g) $(id -G) $REGION $BULLA_NAME $HOME $USER";
        let command = shell(script, Duration::from_secs(20)).with_environment(&variables).with_user(user);
        assert!(!format!("{command:?}").contains("north"));
        let ran = command.run(&[], &[("BULLA_NAME", "run".to_owned())], &[], later).await.unwrap();
        let output = String::from_utf8(ran.output).unwrap();
        assert!(output.contains("north run /elsewhere"), "{output}");
        let own = rustix::process::geteuid().as_raw();
        let ids = if root { "65534 65534 65534 33 ".to_owned() } else { format!("{own} ") };
        assert!(output.starts_with(&ids) && (!root || output.ends_with("nobody\n")), "{output}");
    }

    #[tokio::test]
    async fn endless_output_missing_program_and_timeout_are_errors() {
        let later = Instant::now() + Duration::from_secs(3_600);
        assert!(run("head -c 2000000 /dev/zero", b"").await.is_err());
        let missing = Command::new(&["/nonexistent/program".to_owned()], Duration::from_secs(1)).unwrap();
        let error = missing.run(&[], &[], &[], later).await.unwrap_err();
        assert!(matches!(error, IssuerError::Misconfigured { .. }), "{error}");
        assert!(Command::new(&[], Duration::from_secs(1)).is_err());
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("pid");
        let script = format!("(echo $$ > {0}.tmp; mv {0}.tmp {0}; sleep 300) & wait", mark.display());
        let slow = async { shell(&script, Duration::from_secs(600)).run(&[], &[], &[], later).await };
        let over = async {
            // Wait until the program runs; then let its timeout expire.
            for _ in 0..6_000 {
                if mark.exists() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            tokio::time::pause();
            tokio::time::advance(Duration::from_secs(600)).await;
            tokio::time::resume();
        };
        let (slow, ()) = tokio::join!(slow, over);
        assert_eq!(slow.unwrap_err(), IssuerError::TimedOut { stage: "the program runs" });
        assert!(mark.exists(), "it did run");
    }
}
