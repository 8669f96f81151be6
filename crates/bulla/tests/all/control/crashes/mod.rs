//! Crash safety of the real binary. The binary is killed at every commit and at every file change, before and after, and its disk
//! is filled. Then everything acknowledged must exist, once.
//!
//! The loader preloads the library that kills (`shim.c`), so the product has no code for it. For PostgreSQL a proxy in front of the
//! database does the same (`proxy.rs`).
//!
//! A run of all tests uses a few of the points, `.ci/run tests` uses more, `BULLA_CRASHES=all` uses every one.

mod agent;
mod credential;
mod disk;
mod flow;
mod lease;
mod proxy;
mod rotation;
mod server;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::world::{describe, run};

/// The points at which a process with the shim is killed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    /// Commits of SQLite.
    Database,
    /// Changes of files below the test folder.
    Files,
}

/// Kills before the write, or after the write and before it is acknowledged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Side {
    Before,
    After,
}

/// Fields of the page that shim and test share, eight bytes each, in this order.
#[derive(Clone, Copy)]
enum Field {
    ClockUs,
    Points,
    At,
    After,
    Full,
    Offline,
}

/// Longer than every lease: the longest is two minutes.
const PAST_LEASES_US: u64 = 130 * 1_000_000;

/// The compiled shim, and the page that controls it. All processes of a test server share one clock.
#[derive(Clone)]
pub(crate) struct Shim {
    folder: PathBuf,
    page: Arc<File>,
}

impl Shim {
    const LIBRARY: &str = "crashes.so";
    const PAGE: &str = "crashes.page";
    const PAGE_BYTES: u64 = 4_096;

    fn new(folder: &Path) -> Self {
        // Paths of open files have no symbolic links.
        let folder = folder.canonicalize().unwrap();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/control/crashes/shim.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"]);
        let output = compiler.arg(folder.join(Self::LIBRARY)).arg(source).output();
        let output = output
            .unwrap_or_else(|error| panic!("this test needs cc: apt-get install -y gcc libc6-dev ({error})"));
        assert!(output.status.success(), "cc: {}", describe(&output));
        let page =
            File::options().read(true).write(true).create_new(true).open(folder.join(Self::PAGE)).unwrap();
        page.set_len(Self::PAGE_BYTES).unwrap();
        Self { folder, page: Arc::new(page) }
    }

    /// Loads the shim into a process that is not attacked. The process uses the shared clock.
    pub(crate) fn enter(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", self.folder.join(Self::LIBRARY))
            .env("CRASHES_PAGE", self.folder.join(Self::PAGE))
            .env("CRASHES_FOLDER", &self.folder);
    }

    /// Marks the process as the one to attack.
    pub(crate) fn attack(&self, command: &mut Command, role: Role) {
        let role = match role {
            Role::Database => "database",
            Role::Files => "files",
        };
        command.env("CRASHES_ROLE", role);
    }

    /// Disarms the shim. Returns the number of points since it was armed.
    fn disarm(&self) -> u64 {
        self.set(Field::At, 0);
        self.get(Field::Points)
    }

    fn get(&self, field: Field) -> u64 {
        let mut bytes = [0; 8];
        self.page.read_exact_at(&mut bytes, field as u64 * 8).unwrap();
        u64::from_ne_bytes(bytes)
    }

    fn set(&self, field: Field, value: u64) {
        self.page.write_all_at(&value.to_ne_bytes(), field as u64 * 8).unwrap();
    }

    /// Moves the clock so that every lease granted so far has expired.
    fn past_leases(&self) {
        self.set(Field::ClockUs, self.get(Field::ClockUs) + PAST_LEASES_US);
    }
}

/// Gives a server that is not started yet a movable clock. The returned function sets it to a number of days from now.
pub(crate) fn jump_clock(house: &mut super::House) -> impl Fn(i64) + use<> {
    const DAY_US: i64 = 86_400 * 1_000_000;
    let shim = Shim::new(&house.path(""));
    house.put(shim.clone(), false);
    move |days| shim.set(Field::ClockUs, days.wrapping_mul(DAY_US) as u64)
}

/// The points at which a process can be killed.
trait Points {
    /// Kills the process at the point with this number. 0: at no point.
    fn arm(&self, at: u64, side: Side);
    /// Returns the number of points since it was armed.
    fn counted(&self) -> u64;
}

impl Points for Shim {
    fn arm(&self, at: u64, side: Side) {
        self.set(Field::At, 0);
        self.set(Field::After, u64::from(side == Side::After));
        self.set(Field::Points, 0);
        self.set(Field::At, at);
    }

    fn counted(&self) -> u64 {
        self.get(Field::Points)
    }
}

/// Spreads points over `all`, both sides of each. The number is `BULLA_CRASHES`, all points for `all`, or `few` by default.
fn pairs(all: u64, few: u64) -> Vec<(u64, Side)> {
    let wanted = match std::env::var("BULLA_CRASHES").as_deref() {
        Err(_) => few,
        Ok("all") => all,
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("BULLA_CRASHES is {text:?}: a number, or all")),
    };
    let wanted = wanted.clamp(1, all.max(1));
    let spread = (0..wanted).map(|number| 1 + number * all / wanted);
    spread.flat_map(|at| [(at, Side::Before), (at, Side::After)]).collect()
}

/// Runs a command that must succeed.
fn does(command: &mut Command) {
    let output = run(command);
    assert!(output.status.success(), "{command:?}: {}", describe(&output));
}
