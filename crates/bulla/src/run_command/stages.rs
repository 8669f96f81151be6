//! The second and third process of a run.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use cli::exit::{Exit, Outcome, Problem, chain};
use cli::memory;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getppid, set_parent_process_death_signal, wait};
use sandbox::{Files, NamespaceError, SandboxError, UnixSockets};
use tokio::process::Command as AsyncCommand;

use super::arguments::{RunArgs, Stage};
use super::control::InitConnection;
use super::processes::{BY_SIGNAL, INSIDE, THIS_PROGRAM, status_of, wait_error};
use super::signals::{self, Signals};

/// Exit status, as in shells, for a command that exists but cannot be executed.
const NOT_EXECUTABLE: i32 = 126;
const NOT_FOUND: i32 = 127;
/// Prefix of this program's environment variables. Some of them are tokens.
const OWN_VARIABLES: &str = "BULLA_";

/// Returns the command line of the next process of the run.
pub(super) fn command(args: &RunArgs, stage: Stage, control: &Path) -> AsyncCommand {
    let mut command = AsyncCommand::new(THIS_PROGRAM);
    command.args(["run", "--stage", stage.name()]);
    command.arg("--parent").arg(std::process::id().to_string()).arg("--control").arg(control);
    command.args(args.allow_unix_sockets.then_some("--allow-unix-sockets"));
    // Options come before the command.
    command
}

/// Requests the kernel to kill this process when its parent ends. Fails if the parent has already ended.
fn end_with_parent(args: &RunArgs) -> Outcome<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| {
        Problem::new(Exit::Machine, format_args!("this process cannot wait for another process: {error}"))
    })?;
    let parent = getppid().map(|parent| parent.as_raw_pid().cast_unsigned());
    match args.parent {
        Some(expected) if parent != Some(expected) => {
            Err(Problem::new(Exit::Interrupted, "the process that started this run has ended"))
        }
        _ => Ok(()),
    }
}

/// Runs the second process: creates namespaces and waits for the third process.
pub(super) fn separate(args: &RunArgs) -> Outcome<i32> {
    end_with_parent(args)?;
    sandbox::separate().map_err(|error| namespace_error(&error))?;
    // Set the parent-death signal again: the change of credentials may have cleared it.
    end_with_parent(args)?;
    let mut init = AsyncCommand::new(THIS_PROGRAM);
    init.args(["run", "--stage", Stage::Init.name()]).arg("--control").args(&args.control);
    init.args(args.allow_unix_sockets.then_some("--allow-unix-sockets"));
    for path in &args.hide {
        init.arg("--hide").arg(path);
    }
    init.args(args.read_only.then_some("--read-only"));
    for path in &args.write {
        init.arg("--write").arg(path);
    }
    init.arg("--").args(&args.command);
    // The kernel refuses new threads once children are in another process namespace.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| spawn_error(&error))?;
    runtime.block_on(async {
        // Signals to the whole process group are for the command. This process only waits.
        let _signals = Signals::listen()?;
        let mut child = init.spawn().map_err(|error| spawn_error(&error))?;
        child.wait().await.map(status_of).map_err(|error| wait_error(&error))
    })
}

fn spawn_error(error: &io::Error) -> Problem {
    Problem::new(Exit::Machine, format_args!("cannot start a process in the namespaces: {error}"))
        .hint("check the limits on processes (ulimit -u)")
}

fn namespace_error(error: &NamespaceError) -> Problem {
    if let Some(obstacle) = sandbox::obstacle() {
        let hint = format!("{}; --no-sandbox only sets the environment", obstacle.remedy);
        return Problem::new(Exit::Machine, format_args!("{}: {obstacle}", chain(error))).hint(hint);
    }
    let hint = match error {
        NamespaceError::Refused(_) => {
            "/proc/sys allows namespaces, so a container or a service manager forbids them. Start the container with \
             --security-opt seccomp=unconfined --security-opt systempaths=unconfined (Docker), or the service without \
             RestrictNamespaces= (systemd); --no-sandbox only sets the environment"
        }
        NamespaceError::Processes(_) => {
            "a container hides parts of /proc: start it with --security-opt systempaths=unconfined (Docker); \
             --no-sandbox only sets the environment"
        }
        _ => "--no-sandbox only sets the environment",
    };
    Problem::new(Exit::Machine, chain(error)).hint(hint)
}

fn sandbox_error(error: &SandboxError) -> Problem {
    let hint = match error {
        SandboxError::NoLandlock(_) | SandboxError::Files(_) => {
            "--read-only needs Landlock in Linux 6.2 or newer, with landlock in the kernel parameter lsm=; otherwise leave \
             out --read-only"
        }
        _ => "--no-sandbox only sets the environment",
    };
    Problem::new(Exit::Machine, chain(error)).hint(hint)
}

/// Runs the third process, which is init of the namespaces: restricts itself, starts the command and waits for all processes.
pub(super) fn init(args: &RunArgs) -> Outcome<i32> {
    // The parent is in another process namespace and has no process id here, so it is not checked. The connection shows whether the
    // first process still runs.
    end_with_parent(args)?;
    memory::protect_self()?;
    let failed = |error: NamespaceError| namespace_error(&error);
    sandbox::loopback_up().map_err(failed)?;
    let socket = bind().map_err(|error| {
        Problem::new(Exit::Machine, format_args!("cannot listen on {INSIDE} in the namespace: {error}"))
    })?;
    let control = args.control.as_deref().unwrap_or(Path::new(""));
    let inside = InitConnection::connect(control, &socket)?;
    drop(socket);
    sandbox::mount_processes().map_err(failed)?;
    args.hide.iter().filter(|path| path.exists()).try_for_each(|path| sandbox::hide(path)).map_err(failed)?;
    let unix = match args.allow_unix_sockets {
        true => UnixSockets::Any,
        false => UnixSockets::Pairs,
    };
    let files = match args.read_only {
        true => Files::ReadOnly { writable: args.write.clone() },
        false => Files::Any("namespaces confine the program"),
    };
    if args.read_only {
        sandbox::mount_read_only(&args.write).map_err(failed)?;
    }
    sandbox::confine_thread(unix, files).map_err(|error| sandbox_error(&error))?;
    let child = match build_command(args).spawn() {
        Ok(child) => child,
        Err(error) => return Ok(report_exec_error(args, &error)),
    };
    let id = child.id();
    std::thread::spawn(move || forward(inside, id));
    reap(id)
}

/// Binds a socket. The first process listens on it.
fn bind() -> io::Result<std::os::fd::OwnedFd> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &INSIDE)?;
    Ok(socket)
}

/// Sends signals to the command. When the first process has ended, ends this process and so all processes of the namespace.
fn forward(mut inside: InitConnection, command: u32) {
    while let Some(signal) = inside.next() {
        signals::send(Some(command), signal);
    }
    std::process::exit(Exit::Interrupted as i32);
}

/// Reaps the command, and orphans, which the init process inherits.
fn reap(command: u32) -> Outcome<i32> {
    let command = Pid::from_raw(command.cast_signed());
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((ended, status))) if Some(ended) == command => return Ok(code(status)),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(wait_error(&error.into())),
        }
    }
}

fn code(status: WaitStatus) -> i32 {
    status.exit_status().unwrap_or_else(|| BY_SIGNAL + status.terminating_signal().unwrap_or_default())
}

fn build_command(args: &RunArgs) -> Command {
    let mut words = args.command.iter();
    let mut command = Command::new(words.next().map_or("".as_ref(), |program| program.as_os_str()));
    command.args(words);
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(OWN_VARIABLES.as_bytes()))
    {
        command.env_remove(name);
    }
    command
}

/// Prints why the command was not started. Returns the status of a shell.
fn report_exec_error(args: &RunArgs, error: &io::Error) -> i32 {
    let program = args.command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
    eprintln!("error: {program}: {error}");
    match error.kind() {
        io::ErrorKind::NotFound => {
            eprintln!("hint: the program is not in PATH");
            NOT_FOUND
        }
        _ => NOT_EXECUTABLE,
    }
}

/// Replaces this process by the command, without namespaces. Returns only on failure.
pub(super) fn bare(args: &RunArgs) -> Problem {
    if let Err(problem) = end_with_parent(args) {
        return problem;
    }
    let error = build_command(args).exec();
    std::process::exit(report_exec_error(args, &error))
}
