//! Runs a child process and measures its resource usage.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cli::exit::{Exit, Outcome, Problem};

/// The result of a program's run: durations, peak memory, success, and the end of its error output.
pub(crate) struct Measurement {
    pub(crate) wall: Duration,
    /// User plus system CPU time.
    pub(crate) processor: Duration,
    /// Peak resident memory in KiB.
    pub(crate) memory_kib: u64,
    pub(crate) succeeded: bool,
    /// Last characters of the program's standard error.
    pub(crate) stderr_tail: String,
}

/// Interval between two checks of the child. A memory peak between two checks is not missed: the kernel records the high-water
/// mark.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Clock ticks per second in /proc: USER_HZ, which is 100 on every Linux architecture.
const TICKS_PER_SECOND: u64 = 100;
/// Maximum number of characters of standard error that are stored: the last ones.
const STDERR_CHARS_MAX: usize = 400;

/// Runs `command` until it exits.
pub(crate) fn run(command: &mut Command) -> Outcome<Measurement> {
    let began = Instant::now();
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(
            |error| {
                Problem::new(Exit::Machine, format_args!("cannot run {:?}: {error}", command.get_program()))
            },
        )?;
    let stderr_tail = gather(&mut child);
    let mut memory_kib = 0;
    // The CPU times of an exited process stay readable until `wait`.
    let ticks = loop {
        memory_kib = memory_kib.max(high_water_kib(child.id()));
        let (state, ticks) = times(child.id());
        if matches!(state, None | Some('Z' | 'X')) {
            break ticks;
        }
        std::thread::sleep(POLL_INTERVAL);
    };
    let wall = began.elapsed();
    let status = child.wait().map_err(|error| Problem::new(Exit::Machine, error))?;
    Ok(Measurement {
        wall,
        processor: Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND),
        memory_kib,
        // A scan that finds dead endpoints exits with an error code. This is not a failure.
        succeeded: status.success(),
        stderr_tail: stderr_tail.join().unwrap_or_default(),
    })
}

fn gather(child: &mut Child) -> std::thread::JoinHandle<String> {
    let stderr = child.stderr.take();
    std::thread::spawn(move || {
        let text =
            stderr.map(|stderr| std::io::read_to_string(stderr).unwrap_or_default()).unwrap_or_default();
        let skip = text.chars().count().saturating_sub(STDERR_CHARS_MAX);
        text.chars().skip(skip).collect()
    })
}

/// Returns the state and CPU time (user plus system, in ticks) of the process with its threads (proc_pid_stat(5)).
fn times(pid: u32) -> (Option<char>, u64) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The process name in parentheses may contain any character. The needed fields follow it.
    let Some((_, rest)) = stat.rsplit_once(") ") else { return (None, 0) };
    let fields: Vec<_> = rest.split(' ').collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    (rest.chars().next(), number(11) + number(12))
}

fn high_water_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_process_is_measured_until_it_exits() {
        let measured = run(Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; echo done >&2"]));
        let measured = measured.unwrap();
        assert!(measured.succeeded && measured.memory_kib > 100);
        assert_eq!(measured.stderr_tail, "done\n");
        assert!(measured.processor <= measured.wall * 2);
    }
}
