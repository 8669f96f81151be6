//! The mounts of one program, in its own mount namespace ([`crate::separate`]).

use std::ffi::CStr;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind, mount_bind_recursive, mount_change, mount_remount,
};

use crate::namespaces::NamespaceError;

/// Separates the mounts of this mount namespace from the host's, and mounts `/proc` of this process namespace. Kernel
/// settings in it are read-only, because a process of root could change them without a capability.
///
/// # Errors
/// [`NamespaceError`]
pub fn mount_processes() -> Result<(), NamespaceError> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(|error| NamespaceError::Mounts(error.into()))?;
    let processes = || {
        mount("proc", "/proc", "proc", SAFE_FLAGS, None)?;
        mount_bind("/proc/sys", "/proc/sys")?;
        mount_remount("/proc/sys", MountFlags::BIND | MountFlags::RDONLY | SAFE_FLAGS, c"")
    };
    processes().map_err(|error| NamespaceError::Processes(error.into()))?;
    let trigger = Path::new("/proc/sysrq-trigger");
    if trigger.exists() { hide(trigger) } else { Ok(()) }
}

const SAFE_FLAGS: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);
/// Mount options of an empty folder.
const EMPTY: &CStr = c"size=4k,mode=0555";

/// Mounts an empty folder over a folder of this mount namespace, or an empty file over a file.
///
/// # Errors
/// [`NamespaceError::Hide`]
pub fn hide(path: &Path) -> Result<(), NamespaceError> {
    let hidden = match path.is_dir() {
        true => mount("tmpfs", path, "tmpfs", SAFE_FLAGS | MountFlags::RDONLY, EMPTY),
        false => mount_bind("/dev/null", path),
    };
    hidden.map_err(|error| NamespaceError::Hide(path.to_owned(), error.into()))
}

/// Makes all mounts of this mount namespace read-only, except these files and folders. Gives the program its own shared memory.
/// Enters the working directory again, because it may be on another mount afterwards. Call this after [`mount_processes`] and
/// [`hide`].
///
/// # Errors
/// [`NamespaceError`]
pub fn mount_read_only(writable: &[PathBuf]) -> Result<(), NamespaceError> {
    let working_dir = std::env::current_dir().map_err(|error| NamespaceError::Writable(".".into(), error))?;
    if let Some(path) = writable.iter().chain([&working_dir]).find(|path| path.starts_with(SHARED_MEMORY)) {
        return Err(NamespaceError::SharedMemory(path.clone()));
    }
    for path in writable {
        let bound = mount_bind_recursive(path, path);
        bound.map_err(|error| NamespaceError::Writable(path.clone(), error.into()))?;
    }
    if Path::new(SHARED_MEMORY).is_dir() {
        mount("tmpfs", SHARED_MEMORY, "tmpfs", SAFE_FLAGS, c"mode=1777")
            .map_err(|error| NamespaceError::Writable(SHARED_MEMORY.into(), error.into()))?;
    }
    let text = fs::read_to_string("/proc/self/mountinfo").map_err(NamespaceError::Mounts)?;
    let stays_writable = |point: &Path| {
        point.starts_with(SHARED_MEMORY)
            || point.starts_with("/proc")
            || writable.iter().any(|path| point.starts_with(path))
    };
    for (point, flags) in text.lines().filter_map(mount_of).filter(|(point, _)| !stays_writable(point)) {
        match mount_remount(&point, MountFlags::BIND | MountFlags::RDONLY | flags, c"") {
            // The mount is below another mount, or not accessible to this user, so the program has no path to it.
            Ok(()) | Err(Errno::INVAL | Errno::NOENT | Errno::ACCESS) => {}
            Err(error) => return Err(NamespaceError::ReadOnly(point, error.into())),
        }
    }
    std::env::set_current_dir(working_dir).map_err(|error| NamespaceError::Writable(".".into(), error))
}

/// Folder of POSIX shared memory (shm_overview(7)).
const SHARED_MEMORY: &str = "/dev/shm";

/// Parses a line of `/proc/self/mountinfo` (proc(5)). Returns the path of a mount, and its flags that a user namespace cannot
/// clear.
fn mount_of(line: &str) -> Option<(PathBuf, MountFlags)> {
    let mut columns = line.split(' ').skip(4);
    let (point, options) = (columns.next()?, columns.next()?);
    let flags = options.split(',').map(|option| match option {
        "nosuid" => MountFlags::NOSUID,
        "nodev" => MountFlags::NODEV,
        "noexec" => MountFlags::NOEXEC,
        _ => MountFlags::empty(),
    });
    Some((unescaped(point), flags.fold(MountFlags::empty(), MountFlags::union)))
}

/// Decodes a path in which spaces and similar characters are `\NNN`, in octal.
fn unescaped(text: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let mut bytes = Vec::new();
    let mut parts = text.split('\\');
    bytes.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        let code = part.get(..3).and_then(|code| u8::from_str_radix(code, 8).ok());
        bytes.extend(code);
        bytes.extend_from_slice(part.get(3..).unwrap_or_default().as_bytes());
    }
    std::ffi::OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_line_is_parsed_into_mount_point_and_locked_flags() {
        let line =
            r"36 35 98:0 /mnt1 /mnt/a\040b\134c rw,nosuid,noexec,relatime master:1 - ext3 /dev/root rw";
        let (point, flags) = mount_of(line).unwrap();
        assert_eq!(point, Path::new(r"/mnt/a b\c"));
        assert_eq!(flags, MountFlags::NOSUID | MountFlags::NOEXEC);
        assert!(mount_of("1 2 3").is_none());
    }
}
