//! Open files of the caller that the command must not inherit.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use cli::exit::{Exit, Outcome, Problem};

/// `O_CLOEXEC`, which the kernel shows in octal.
const CLOSED_ON_EXEC: u32 = 0o2_000_000;
/// Standard error. The command may have sockets as standard streams.
const STANDARD_MAX: u32 = 2;

/// Refuses to start with a socket that the command would inherit, as its connection exists already, and with a folder: paths that begin
/// at an open folder are those of the host, with the files that the command must not see.
pub(super) fn refuse() -> Outcome<()> {
    let entries = std::fs::read_dir("/proc/self/fd").map_err(|error| {
        Problem::new(Exit::Machine, format_args!("/proc/self/fd: {error}")).hint("mount /proc")
    })?;
    for entry in entries.flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Some(kind) = kind(&entry.path(), number) else { continue };
        if !is_closed_on_exec(number) {
            return Err(Problem::usage(format_args!(
                "descriptor {number} is an open {kind}, which the command would inherit"
            ))
            .hint(format!("close it for this command: bulla run … {number}>&-")));
        }
    }
    Ok(())
}

/// What must not be inherited: a socket or a folder.
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
