//! Detects open files of the caller that the command must not inherit.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use cli::exit::{Exit, Outcome, Problem};

/// The flag `O_CLOEXEC`, which the kernel shows in octal.
const CLOSED_ON_EXEC: u32 = 0o2_000_000;
/// Highest number of a standard stream. The command may have sockets as standard streams.
const STANDARD_MAX: u32 = 2;

/// Refuses to start with an inherited socket or folder. A socket is an existing connection. Paths relative to an open folder lead
/// to the host's files, including hidden ones.
pub(super) fn refuse() -> Outcome<()> {
    let entries = std::fs::read_dir("/proc/self/fd").map_err(|error| {
        Problem::new(Exit::Machine, format_args!("cannot read /proc/self/fd: {error}")).hint("mount /proc")
    })?;
    for entry in entries.flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Some(kind) = kind(&entry.path(), number) else { continue };
        if !is_closed_on_exec(number) {
            return Err(Problem::usage(format_args!(
                "file descriptor {number} is an open {kind}, which the command would inherit"
            ))
            .hint(format!("close it for this command: bulla run … {number}>&-")));
        }
    }
    Ok(())
}

/// Returns the kind of a file that must not be inherited: a socket or a folder.
fn kind(path: &Path, number: u32) -> Option<&'static str> {
    let found = path.metadata().ok()?.file_type();
    match () {
        () if found.is_dir() => Some("folder"),
        () if found.is_socket() && number > STANDARD_MAX => Some("socket"),
        () => None,
    }
}

fn is_closed_on_exec(number: u32) -> bool {
    let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
    let flags = about.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    // A descriptor that was closed in the meantime has no flags.
    flags.is_none_or(|flags| flags & CLOSED_ON_EXEC != 0)
}
