//! System calls.

use std::process::Command;

use libc::c_long;
use sandbox::{Programs, State, UnixSockets};

use crate::{plan, restricted, run};

/// Perl program that makes one system call for each argument, `NUMBER` or `NUMBER:FIRST`, and prints the errno of each.
const CALLS: &str = r#"for (@ARGV) { my ($n, $a) = split /:/; $! = 0; syscall(int $n, int($a // 0), 0, 0, 0, 0, 0); print $!+0, "\n" }"#;

/// Returns the errno of each call. A separate program makes the calls, with all other arguments zero.
fn errors(calls: &[(c_long, i32)]) -> Vec<i32> {
    let calls: Vec<String> = calls.iter().map(|(call, first)| format!("{call}:{first}")).collect();
    let arguments: Vec<&str> = ["-e", CALLS].into_iter().chain(calls.iter().map(String::as_str)).collect();
    let ran = run("perl", &arguments);
    let output = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    output.lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn dangerous_system_calls_are_denied() {
    let attacks = [
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_pidfd_getfd,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_io_uring_setup,
        libc::SYS_init_module,
        libc::SYS_kexec_load,
        libc::SYS_kexec_file_load,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_setns,
        libc::SYS_unshare,
        libc::SYS_open_by_handle_at,
        libc::SYS_swapon,
        libc::SYS_reboot,
        libc::SYS_settimeofday,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_keyctl,
    ]
    .map(|call| (call, 0));
    let found = restricted(plan(Programs::Started), move |report| {
        assert_eq!(report.system_calls, State::Enforced);
        errors(&attacks)
    });
    assert_eq!(found, vec![libc::EPERM; attacks.len()]);
}

#[test]
fn system_calls_are_denied_by_the_filter_itself() {
    // Any user may make these calls, so only the filter can deny them.
    let calls = [(libc::SYS_ptrace, 0), (libc::SYS_unshare, 0), (libc::SYS_keyctl, 0), (libc::SYS_clone3, 0)];
    let free = errors(&calls);
    assert!(free.iter().all(|error| *error != libc::EPERM && *error != libc::ENOSYS), "{free:?}");
    let found = restricted(plan(Programs::Started), move |_| errors(&calls));
    assert_eq!(found, [libc::EPERM, libc::EPERM, libc::EPERM, libc::ENOSYS]);
}

#[test]
fn namespaces_and_unusual_sockets_are_denied_and_common_calls_allowed() {
    let calls = [
        (libc::SYS_clone, libc::CLONE_NEWUSER),
        (libc::SYS_clone, libc::CLONE_NEWNET | libc::SIGCHLD),
        (libc::SYS_socket, libc::AF_PACKET),
        (libc::SYS_socket, libc::AF_ALG),
        (libc::SYS_socket, libc::AF_VSOCK),
    ];
    let found = restricted(plan(Programs::Started), move |_| errors(&calls));
    assert_eq!(found, vec![libc::EPERM; calls.len()]);
    restricted(plan(Programs::None), |_| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        std::os::unix::net::UnixDatagram::unbound().unwrap();
        // `clone` also creates threads.
        assert_eq!(std::thread::spawn(|| 7).join().unwrap(), 7);
    });
}

#[test]
fn role_without_programs_cannot_execute_any_in_any_thread() {
    let refused = |error: std::io::Error| assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error}");
    restricted(plan(Programs::None), move |_| {
        refused(Command::new("/bin/true").output().unwrap_err());
        std::thread::spawn(move || refused(Command::new("/bin/true").output().unwrap_err())).join().unwrap();
    });
    restricted(plan(Programs::Started), |_| assert!(run("/bin/true", &[]).status.success()));
}

#[test]
fn unix_socket_pairs_policy_denies_all_other_unix_sockets() {
    let unix = [(libc::SYS_socket, libc::AF_UNIX)];
    let confined = |unix_sockets| {
        std::thread::spawn(move || {
            sandbox::confine_thread(unix_sockets, sandbox::Files::Any("a test")).unwrap();
            let pair = std::os::unix::net::UnixDatagram::pair().map(drop);
            std::os::unix::net::UnixStream::pair().unwrap();
            std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            (errors(&unix)[0], pair.err().and_then(|error| error.raw_os_error()))
        })
        .join()
        .unwrap()
    };
    assert_eq!(confined(UnixSockets::Pairs), (libc::EPERM, Some(libc::EPERM)));
    let (socket, pair) = confined(UnixSockets::Any);
    assert!(socket != libc::EPERM && pair.is_none(), "{socket} {pair:?}");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn x32_system_call_numbers_are_denied() {
    const SECOND_NUMBERS: c_long = 0x4000_0000;
    let calls = [(SECOND_NUMBERS + libc::SYS_getpid, 0), (SECOND_NUMBERS + libc::SYS_socket, libc::AF_UNIX)];
    let found = restricted(plan(Programs::Started), move |_| errors(&calls));
    assert_eq!(found, [libc::EPERM; 2]);
}
