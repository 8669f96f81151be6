//! System calls that fail with `EPERM` (seccomp(2)).

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, apply_filter, sock_filter,
};

use crate::plan::{Programs, UnixSockets};

/// Calls that access memory and descriptors of other processes.
const PROCESSES: &[c_long] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
];
/// Calls that change the kernel's code, and kernel subsystems with many known vulnerabilities.
const KERNEL: &[c_long] = &[
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_syslog,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
];
/// Calls for mounts, root folders and namespaces.
const MOUNTS: &[c_long] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
];
/// Calls that change the machine: its clock, name, swap, or power state.
const MACHINE: &[c_long] = &[
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_acct,
    libc::SYS_vhangup,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
];
/// Calls for keys in the kernel.
const KEYS: &[c_long] = &[libc::SYS_add_key, libc::SYS_request_key, libc::SYS_keyctl];
/// Calls that only exist on x86-64.
#[cfg(target_arch = "x86_64")]
const PROCESSOR: &[c_long] = &[libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt, libc::SYS_uselib];
#[cfg(not(target_arch = "x86_64"))]
const PROCESSOR: &[c_long] = &[];
/// Calls that execute programs.
const EXECUTION: &[c_long] = &[libc::SYS_execve, libc::SYS_execveat];

/// Address families of sockets that are allowed. Netlink is needed to list the network interfaces.
const FAMILIES: &[i32] = &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
/// Flags of clone(2) that create a namespace.
const NAMESPACES: &[i32] = &[
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Filters the system calls of this thread and of threads that it starts. Also sets no_new_privs.
pub(crate) fn filter(programs: Programs) -> Result<(), Error> {
    // First, calls that fail with ENOSYS. A filter cannot read the flags of clone3, which are behind a pointer, so the C library
    // must fall back to clone.
    apply_filter(&program(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), libc::ENOSYS)?)?;
    apply_filter(&program(denied_rules(programs)?, libc::EPERM)?)?;
    #[cfg(target_arch = "x86_64")]
    apply_filter(&reject_x32_calls())?;
    Ok(())
}

/// Rejects the alternative call numbers (x32), which rules by number do not cover.
#[cfg(target_arch = "x86_64")]
fn reject_x32_calls() -> BpfProgram {
    const SECOND_NUMBERS: u32 = 0x4000_0000;
    let step = |code: u32, jt, jf, k| sock_filter { code: code as u16, jt, jf, k };
    vec![
        // Load the call number, the first field of `struct seccomp_data`.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, SECOND_NUMBERS),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned()),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

/// Rejects system calls by which a process in a network namespace reaches the host: Unix sockets to the host's servers, and input
/// for its terminal.
pub(crate) fn confine(unix: UnixSockets) -> Result<(), Error> {
    apply_filter(&program(confine_rules(unix)?, libc::EPERM)?)
}

fn confine_rules(unix: UnixSockets) -> Result<BTreeMap<c_long, Vec<SeccompRule>>, BackendError> {
    /// Mask of a socket's type, without its flags.
    const KIND: u64 = 0xf;
    let second = |compare, value: u64| -> Result<SeccompRule, BackendError> {
        SeccompRule::new(vec![SeccompCondition::new(1, SeccompCmpArgLen::Dword, compare, value)?])
    };
    let typed_in = [libc::TIOCSTI, libc::TIOCLINUX];
    let typed_in = typed_in.map(|request| second(SeccompCmpOp::Eq, request));
    let mut rules = BTreeMap::from([(libc::SYS_ioctl, typed_in.into_iter().collect::<Result<Vec<_>, _>>()?)]);
    if unix == UnixSockets::Pairs {
        let unix = condition(SeccompCmpOp::Eq, libc::AF_UNIX)?;
        rules.insert(libc::SYS_socket, vec![SeccompRule::new(vec![unix])?]);
        // A datagram socket of a pair could be connected to another address later. The kernel treats RAW as DGRAM.
        let unbound = [libc::SOCK_DGRAM, libc::SOCK_RAW];
        let unbound = unbound.map(|kind| second(SeccompCmpOp::MaskedEq(KIND), kind.cast_unsigned().into()));
        rules.insert(libc::SYS_socketpair, unbound.into_iter().collect::<Result<_, _>>()?);
    }
    Ok(rules)
}

fn denied_rules(programs: Programs) -> Result<BTreeMap<c_long, Vec<SeccompRule>>, BackendError> {
    let executed = match programs {
        Programs::None => EXECUTION,
        Programs::Started => &[],
    };
    let always = [PROCESSES, KERNEL, MOUNTS, MACHINE, KEYS, PROCESSOR, executed].concat();
    let mut rules: BTreeMap<c_long, Vec<SeccompRule>> =
        always.into_iter().map(|call| (call, Vec::new())).collect();
    let other = |family: &i32| condition(SeccompCmpOp::Ne, *family);
    let other = FAMILIES.iter().map(other).collect::<Result<Vec<_>, _>>()?;
    rules.insert(libc::SYS_socket, vec![SeccompRule::new(other)?]);
    let namespace = |flag: &i32| {
        let mask = SeccompCmpOp::MaskedEq(flag.cast_unsigned().into());
        SeccompRule::new(vec![condition(mask, *flag)?])
    };
    rules.insert(libc::SYS_clone, NAMESPACES.iter().map(namespace).collect::<Result<_, _>>()?);
    Ok(rules)
}

/// Returns a condition on the first argument: the family of socket(2), or the flags of clone(2).
fn condition(compare: SeccompCmpOp, value: i32) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(0, SeccompCmpArgLen::Dword, compare, value.cast_unsigned().into())
}

fn program(rules: BTreeMap<c_long, Vec<SeccompRule>>, errno: i32) -> Result<BpfProgram, BackendError> {
    let arch = std::env::consts::ARCH.try_into()?;
    let on_match = SeccompAction::Errno(errno.cast_unsigned());
    SeccompFilter::new(rules, SeccompAction::Allow, on_match, arch)?.try_into()
}
