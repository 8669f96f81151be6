//! Exit codes, and unexpected ends.

use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fleet::{Mix, Plan};
use rustix::process::{Pid, Signal, kill_process};

use crate::world::{World, describe, run, stderr, stdout};

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn findings_change_the_exit_code_only_with_fail_on() {
    let world = World::new(&Plan { endpoints: 60, mix: Mix::AllKinds, ..Plan::default() });
    let mut truth = world.fleet().truth().into_iter();
    let expired = truth.find(|truth| truth.findings.contains(&"certificate.expired")).unwrap();
    let target = expired.target.clone();
    for (arguments, code) in [(&[][..], 0), (&["--fail-on", "critical"], 1), (&["--fail-on", "info"], 1)] {
        let output = run(world.scan(&[&target, "--no-store"]).args(arguments));
        assert_eq!(output.status.code(), Some(code), "{arguments:?} {}", describe(&output));
        assert!(stdout(&output).contains("certificate.expired"), "{}", describe(&output));
    }
}

#[test]
fn scan_without_any_answer_exits_with_3() {
    let world = World::healthy();
    let output = run(&mut world.scan(&["nowhere.fleet.test", "--no-store"]));
    assert_eq!(output.status.code(), Some(3), "{}", describe(&output));
    assert!(stdout(&output).contains("nxdomain"), "{}", describe(&output));
}

#[test]
fn unreadable_inventory_is_reported_before_the_scan() {
    let world = World::healthy();
    std::fs::write(world.path("inventory.db"), "this is no database, whatever its name says").unwrap();
    let output = run(&mut world.scan(&["@targets.txt", "--db", "inventory.db"]));
    assert_eq!(output.status.code(), Some(4), "{}", describe(&output));
    let printed = stderr(&output);
    assert!(printed.contains("inventory.db") && printed.contains("hint: "), "{printed}");
    assert!(stdout(&output).is_empty());
}

/// Runs `command` with a file size limit of `kib`. Writes fail as on a full disk, without a mount, which not every machine permits.
fn with_files_up_to(kib: u64, command: &Command) -> Command {
    /// The unit of `ulimit -f`, in bytes (POSIX).
    const BLOCK: u64 = 512;
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "trap '' XFSZ; ulimit -f \"$1\"; shift; exec \"$@\"", "sh"])
        .arg((kib * 1024 / BLOCK).to_string())
        .arg(command.get_program())
        .args(command.get_args())
        .env_clear()
        .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .current_dir(command.get_current_dir().unwrap());
    limited
}

#[test]
fn full_disk_loses_no_result_and_the_scan_is_resumed() {
    /// Space beyond the empty inventory, in KiB. The log of a scan needs much more.
    const ROOM_KIB: u64 = 200;
    let plan = Plan { endpoints: 300, mix: Mix::Healthy, dead_fraction: 0.0, ..Plan::default() };
    let world = World::new(&plan);
    let all = world.targets().len();
    run(&mut world.scan(&["nowhere.fleet.test", "--db", "empty.db"]));
    // The last process may leave all data in the log file.
    let kib = |name: &str| std::fs::metadata(world.path(name)).map_or(0, |file| file.len() / 1_024);
    let empty_kib = kib("empty.db").max(kib("empty.db-wal"));
    let mut scan = world.scan(&["@targets.txt", "--output", "json", "--quiet"]);
    let output = run(&mut with_files_up_to(empty_kib + ROOM_KIB, scan.env("BULLA_STORE_PATIENCE_S", "1")));
    assert_eq!(output.status.code(), Some(4), "{}", describe(&output));
    let printed = stderr(&output);
    assert!(printed.contains("disk") && printed.contains("--resume"), "{printed}");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["observations"].as_array().unwrap().len(), all, "all is printed");
    assert!(document["summary"]["store_error"].as_str().unwrap().contains("disk"), "{}", document["summary"]);
    assert!(world.observations(&[]) < all as u64);

    let resumed = run(&mut world.bulla(&["scan", "--resume"]));
    assert!(resumed.status.success(), "{}", describe(&resumed));
    world.assert_each_stored_once(&[]);
}

/// Starts a scan that takes a minute: some endpoints that answer, then names whose DNS server, the socket held here, never answers.
fn busy(world: &World, arguments: &[&str]) -> (Child, UdpSocket) {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let answering = world
        .fleet()
        .truth()
        .into_iter()
        .filter_map(|truth| Some(format!("{}:{}={}", truth.addresses.first()?, truth.port, truth.host)));
    let waiting = (0..200).map(|number| format!("waits{number}.fleet.test"));
    let targets: Vec<_> = answering.chain(waiting).collect();
    std::fs::write(world.path("busy.txt"), targets.join("\n")).unwrap();
    let child = world
        .bulla(&["scan", "@busy.txt", "--no-system-roots", "--ca", "roots.pem", "--timeout", "60s"])
        .arg("--dns")
        .arg(silent.local_addr().unwrap().to_string())
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    (child, silent)
}

#[test]
fn ctrl_c_prints_a_summary_and_ends_the_scan_early() {
    let world = World::healthy();
    let (mut child, _silent) = busy(&world, &["--output", "jsonl", "--no-store"]);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    out.read_line(&mut first).unwrap();
    assert!(first.contains("\"type\":\"endpoint\""), "{first}");
    let interrupted = Instant::now();
    signal(&child, Signal::INT);
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    let status = child.wait().unwrap();
    assert!(interrupted.elapsed() < Duration::from_secs(20), "{:?}", interrupted.elapsed());
    assert_eq!(status.code(), Some(130));
    let summary: serde_json::Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
    assert_eq!(summary["type"], "summary");
    assert_eq!(summary["interrupted"], true);
}

#[test]
fn closed_output_pipe_stops_the_scan() {
    let world = World::healthy();
    let (mut child, _silent) = busy(&world, &["--output", "jsonl", "--no-store"]);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    out.read_line(&mut first).unwrap();
    drop(out);
    // The next write fails on a closed pipe. If everything is already written, only the summary remains.
    signal(&child, Signal::INT);
    let status = child.wait().unwrap();
    assert!(matches!(status.code(), Some(141 | 130)), "{status}");
    let mut printed = String::new();
    child.stderr.take().unwrap().read_to_string(&mut printed).unwrap();
    assert!(!printed.contains("panicked"), "{printed}");
}
