//! Namespaces (namespaces(7)) of one program, which an unprivileged user may create: users, network, processes, mounts, System V
//! IPC.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, recv, sendto, socket};
use rustix::process::{getegid, geteuid};
use rustix::thread::{
    CapabilitySet, UnshareFlags, capabilities, configure_capability_in_ambient_set, set_capabilities,
};

/// The reason why a process could not get its own namespaces.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// unshare(2) failed.
    #[error("this host does not allow this user to create namespaces")]
    Refused(#[source] io::Error),
    /// `/proc/self/uid_map` or a related file could not be written.
    #[error("cannot map the user into the user namespace")]
    Users(#[source] io::Error),
    /// The capabilities for the setup could not be passed to the next program.
    #[error("cannot pass capabilities to the next program")]
    Capabilities(#[source] io::Error),
    /// The loopback interface could not be started. It is down in a new network namespace.
    #[error("cannot start the loopback interface of the network namespace")]
    Loopback(#[source] io::Error),
    /// The mounts could not be separated from the host's.
    #[error("cannot separate the mounts from the mounts of the host")]
    Mounts(#[source] io::Error),
    /// `/proc` of the process namespace could not be mounted.
    #[error("cannot mount /proc for the process namespace")]
    Processes(#[source] io::Error),
    /// A file or folder could not be hidden.
    #[error("cannot hide {0} from the program")]
    Hide(PathBuf, #[source] io::Error),
    /// A mount could not be made read-only.
    #[error("cannot make {0} read-only")]
    ReadOnly(PathBuf, #[source] io::Error),
    /// The working directory, or a writable file or folder, is in the host's shared memory. The program cannot reach it, because it
    /// gets a separate shared memory.
    #[error("{0} is in /dev/shm, and the program gets its own /dev/shm: choose another folder")]
    SharedMemory(PathBuf),
    /// A file or folder could not be kept writable in a read-only file system.
    #[error("cannot mount {0} as writable in the read-only file system")]
    Writable(PathBuf, #[source] io::Error),
}

/// Moves this process to new namespaces with the same user and group, and without a network. Programs that it starts from now on
/// also get their own process namespace. The first one is its init process, and all others end with it. These programs have the
/// capabilities that [`loopback_up`], [`crate::mount_processes`], [`crate::hide`] and [`crate::mount_read_only`] need. The process
/// must have only one thread.
///
/// # Errors
/// [`NamespaceError`]
pub fn separate() -> Result<(), NamespaceError> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    let all = UnshareFlags::NEWUSER
        | UnshareFlags::NEWNET
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWNS
        | UnshareFlags::NEWIPC;
    #[expect(
        deprecated,
        reason = "unsound for shared descriptor tables (FILES) only, which these flags leave alone"
    )]
    rustix::thread::unshare(all).map_err(|error| NamespaceError::Refused(error.into()))?;
    // An unprivileged user may map a group only if `setgroups` is denied (user_namespaces(7)).
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{user} {user} 1")),
        ("gid_map", format!("{group} {group} 1")),
    ] {
        fs::write(Path::new("/proc/self").join(file), text).map_err(NamespaceError::Users)?;
    }
    make_capabilities_ambient().map_err(|error| NamespaceError::Capabilities(error.into()))
}

/// Makes the capabilities ambient. Otherwise a program of a user other than root would lose them at exec.
fn make_capabilities_ambient() -> Result<(), Errno> {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    let mut sets = capabilities(None)?;
    sets.inheritable |= needed;
    set_capabilities(None, sets)?;
    configure_capability_in_ambient_set(CapabilitySet::SYS_ADMIN, true)?;
    configure_capability_in_ambient_set(CapabilitySet::NET_ADMIN, true)
}

/// Builds an rtnetlink(7) request that sets `IFF_UP` of interface 1, the loopback interface of each network namespace: `struct
/// nlmsghdr` and `struct ifinfomsg`.
fn up_request() -> Vec<u8> {
    const RTM_NEWLINK: u16 = 16;
    const NLM_F_REQUEST: u16 = 1;
    const NLM_F_ACK: u16 = 4;
    const LENGTH: u32 = 32;
    const IFF_UP: u32 = 1;
    let mut request = Vec::new();
    request.extend(LENGTH.to_ne_bytes());
    request.extend(RTM_NEWLINK.to_ne_bytes());
    request.extend((NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
    // Sequence number 0, and port 0 for the kernel.
    request.extend([0; 8]);
    // Any address family and type of interface.
    request.extend([0; 4]);
    for word in [1, IFF_UP, IFF_UP] {
        request.extend(u32::to_ne_bytes(word));
    }
    request
}

/// Starts the loopback interface of this network namespace.
///
/// # Errors
/// [`NamespaceError::Loopback`]
pub fn loopback_up() -> Result<(), NamespaceError> {
    let bring_up = || -> io::Result<()> {
        let kernel = socket(AddressFamily::NETLINK, SocketType::RAW, None)?;
        sendto(&kernel, &up_request(), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        // A `struct nlmsghdr`, then the error as a negative number, or zero.
        let mut reply = [0; 64];
        let (length, _) = recv(&kernel, &mut reply, RecvFlags::empty())?;
        let error = reply[..length].get(16..20).and_then(|error| error.try_into().ok());
        match i32::from_ne_bytes(error.ok_or(io::ErrorKind::InvalidData)?) {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(-error)),
        }
    };
    bring_up().map_err(NamespaceError::Loopback)
}
