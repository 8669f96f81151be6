//! Namespaces (namespaces(7)) of one program, which an unprivileged user may make: users, network, processes, mounts, System V IPC.

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

/// Why a process has no namespaces of its own.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// unshare(2).
    #[error("this host does not let this user make namespaces")]
    Refused(#[source] io::Error),
    /// `/proc/self/uid_map` and its neighbours.
    #[error("the user cannot be mapped into the user namespace")]
    Users(#[source] io::Error),
    /// What the next program needs to set up its namespaces.
    #[error("capabilities cannot be passed to the next program")]
    Capabilities(#[source] io::Error),
    /// Its state is down in a new network namespace.
    #[error("the loopback interface of the network namespace cannot be started")]
    Loopback(#[source] io::Error),
    /// The mounts of a new mount namespace.
    #[error("the mounts cannot be separated from those of the host")]
    Mounts(#[source] io::Error),
    /// The processes of the namespace alone.
    #[error("/proc cannot be mounted for the process namespace")]
    Processes(#[source] io::Error),
    /// A file or folder that stays visible.
    #[error("{0} cannot be hidden")]
    Hide(PathBuf, #[source] io::Error),
    /// A mount that stays writable.
    #[error("{0} cannot be made read-only")]
    ReadOnly(PathBuf, #[source] io::Error),
    /// A file or folder that cannot be written in a read-only file system.
    #[error("{0} cannot be kept writable")]
    Writable(PathBuf, #[source] io::Error),
}

/// Moves this process into namespaces of its own, in which it has the same user and group, and no network at all. Programs that it starts
/// from now on are also in a process namespace of their own: the first one is its init process, and the kernel ends all others with it.
/// They have the capabilities that [`loopback_up`], [`crate::mount_processes`], [`crate::hide`] and
/// [`crate::mount_read_only`] need. The process must have one thread.
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
    // An unprivileged user may map a group only where the groups of the process stay (user_namespaces(7)).
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{user} {user} 1")),
        ("gid_map", format!("{group} {group} 1")),
    ] {
        fs::write(Path::new("/proc/self").join(file), text).map_err(NamespaceError::Users)?;
    }
    pass_capabilities().map_err(|error| NamespaceError::Capabilities(error.into()))
}

/// Capabilities end at the next program of a user that is not root, but for ambient ones.
fn pass_capabilities() -> Result<(), Errno> {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    let mut sets = capabilities(None)?;
    sets.inheritable |= needed;
    set_capabilities(None, sets)?;
    configure_capability_in_ambient_set(CapabilitySet::SYS_ADMIN, true)?;
    configure_capability_in_ambient_set(CapabilitySet::NET_ADMIN, true)
}

/// A request of rtnetlink(7) to set `IFF_UP` of interface 1, the loopback interface of each network namespace: `struct nlmsghdr` and
/// `struct ifinfomsg`.
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
    // Sequence number, and the kernel's port: none.
    request.extend([0; 8]);
    // Family and type of the interface: any.
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
    let ask = || -> io::Result<()> {
        let kernel = socket(AddressFamily::NETLINK, SocketType::RAW, None)?;
        sendto(&kernel, &up_request(), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        // `struct nlmsghdr`, then the error as a negative number, or zero.
        let mut reply = [0; 64];
        let (length, _) = recv(&kernel, &mut reply, RecvFlags::empty())?;
        let error = reply[..length].get(16..20).and_then(|error| error.try_into().ok());
        match i32::from_ne_bytes(error.ok_or(io::ErrorKind::InvalidData)?) {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(-error)),
        }
    };
    ask().map_err(NamespaceError::Loopback)
}
