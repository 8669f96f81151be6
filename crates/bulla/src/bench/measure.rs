//! A child process with its resource usage.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cli::exit::{Exit, Outcome, Problem};

/// Resource usage of a run.
pub(crate) struct Measured {
    pub(crate) wall: Duration,
    /// User and system time.
    pub(crate) processor: Duration,
    /// The most memory resident at once.
    pub(crate) memory_kib: u64,
    pub(crate) succeeded: bool,
    /// The end of its standard error.
    pub(crate) said: String,
}

/// How often the child is looked at; memory peaks shorter than this are still seen, for the kernel
/// keeps the high water mark itself.
const LOOK: Duration = Duration::from_millis(5);
/// Units of time in /proc: USER_HZ, 100 on every architecture that Linux reports to user space.
const TICKS_PER_SECOND: u64 = 100;
/// Kept of standard error.
const SAID_CHARS_MAX: usize = 400;

/// Runs `command` to its end.
pub(crate) fn run(command: &mut Command) -> Outcome<Measured> {
    let began = Instant::now();
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(
            |error| {
                Problem::new(Exit::Machine, format_args!("cannot run {:?}: {error}", command.get_program()))
            },
        )?;
    let said = gather(&mut child);
    let mut memory_kib = 0;
    // A process that has ended keeps its times until it is waited for.
    let ticks = loop {
        memory_kib = memory_kib.max(high_water_kib(child.id()));
        let (state, ticks) = times(child.id());
        if matches!(state, None | Some('Z' | 'X')) {
            break ticks;
        }
        std::thread::sleep(LOOK);
    };
    let wall = began.elapsed();
    let status = child.wait().map_err(|error| Problem::new(Exit::Machine, error))?;
    Ok(Measured {
        wall,
        processor: Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND),
        memory_kib,
        // A scan of an estate with dead endpoints is right to report them.
        succeeded: status.success(),
        said: said.join().unwrap_or_default(),
    })
}

fn gather(child: &mut Child) -> std::thread::JoinHandle<String> {
    let stderr = child.stderr.take();
    std::thread::spawn(move || {
        let text =
            stderr.map(|stderr| std::io::read_to_string(stderr).unwrap_or_default()).unwrap_or_default();
        let skip = text.chars().count().saturating_sub(SAID_CHARS_MAX);
        text.chars().skip(skip).collect()
    })
}

/// State, and user plus system time of the process with its threads (proc_pid_stat(5)).
fn times(pid: u32) -> (Option<char>, u64) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, in parentheses, may hold anything; what counts follows it.
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
    fn a_child_is_measured_to_its_end() {
        let measured = run(Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; echo done >&2"]));
        let measured = measured.unwrap();
        assert!(measured.succeeded && measured.memory_kib > 100);
        assert_eq!(measured.said, "done\n");
        assert!(measured.processor <= measured.wall * 2);
    }
}
