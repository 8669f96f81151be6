//! Crash safety of the real binary: it is killed at every commit and at every change of a file, before and after, its
//! disk is filled, and then everything acknowledged has to be there, once.
//!
//! What kills is put into the process by the loader (`shim.c`), so that nothing in the product knows of it. On
//! PostgreSQL a proxy in front of the database does the same (`proxy.rs`).
//!
//! A run of all tests tries a few of the points, `.ci/run tests` more, `BULLA_CRASHES=all` every one.

mod agent;
mod credential;
mod disk;
mod flow;
mod proxy;
mod rotation;
mod server;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::world::{describe, run};

/// What a process with the shim in it is killed at.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    /// Commits of SQLite.
    Database,
    /// Changes of files below the house's folder.
    Files,
}

/// Before the write, or after it and before anybody is told of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Side {
    Before,
    After,
}

/// Values of the page that shim and test share, eight bytes each, in this order.
#[derive(Clone, Copy)]
enum Field {
    ClockUs,
    Points,
    At,
    After,
    Full,
    Offline,
}

/// Past every lease: two minutes is the longest.
const PAST_LEASES_US: u64 = 130 * 1_000_000;

/// The shim, compiled, and the page it is steered by. All processes of a house share one clock.
#[derive(Clone)]
pub(crate) struct Shim {
    folder: PathBuf,
    page: Arc<File>,
}

impl Shim {
    const LIBRARY: &str = "crashes.so";
    const PAGE: &str = "crashes.page";
    const PAGE_OCTETS: u64 = 4_096;

    fn new(folder: &Path) -> Self {
        // Paths of open files come without symbolic links.
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
        page.set_len(Self::PAGE_OCTETS).unwrap();
        Self { folder, page: Arc::new(page) }
    }

    /// Puts it into a process, as a bystander: it has the house's clock.
    pub(crate) fn enter(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", self.folder.join(Self::LIBRARY))
            .env("CRASHES_PAGE", self.folder.join(Self::PAGE))
            .env("CRASHES_FOLDER", &self.folder);
    }

    /// The process is the one that is attacked.
    pub(crate) fn attack(&self, command: &mut Command, role: Role) {
        let role = match role {
            Role::Database => "database",
            Role::Files => "files",
        };
        command.env("CRASHES_ROLE", role);
    }

    /// Kills nothing any more; answers the points since it was armed.
    fn disarm(&self) -> u64 {
        self.set(Field::At, 0);
        self.get(Field::Points)
    }

    fn get(&self, field: Field) -> u64 {
        let mut octets = [0; 8];
        self.page.read_exact_at(&mut octets, field as u64 * 8).unwrap();
        u64::from_ne_bytes(octets)
    }

    fn set(&self, field: Field, value: u64) {
        self.page.write_all_at(&value.to_ne_bytes(), field as u64 * 8).unwrap();
    }

    /// Later: every lease given by now has ended.
    fn past_leases(&self) {
        self.set(Field::ClockUs, self.get(Field::ClockUs) + PAST_LEASES_US);
    }
}

/// Gives a house that is not up yet a clock that its test moves by days, from the time it is now.
pub(crate) fn jump_clock(house: &mut super::House) -> impl Fn(i64) + use<> {
    const DAY_US: i64 = 86_400 * 1_000_000;
    let shim = Shim::new(&house.path(""));
    house.put(shim.clone(), false);
    move |days| shim.set(Field::ClockUs, days.wrapping_mul(DAY_US) as u64)
}

/// Where a process can be killed.
trait Points {
    /// It dies at the point of this number from now on; 0: at none.
    fn arm(&self, at: u64, side: Side);
    /// Points since it was armed.
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

/// A spread of so many points, both sides of each: as many as `BULLA_CRASHES` says, all of them for `all`, `few` without
/// it.
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

/// A command that has to go well.
fn does(command: &mut Command) {
    let output = run(command);
    assert!(output.status.success(), "{command:?}: {}", describe(&output));
}
