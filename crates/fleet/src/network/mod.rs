//! Sites far from each other on one machine: each is a network namespace with an address of its own, and between every two
//! there is a way with a delay, losses, or nothing at the other end.
//!
//! Packets go through a relay in this process, so TCP does what it does on a long line: handshakes
//! take round trips, what is lost is sent again, and who is behind a hole hears nothing, not even a refusal. Nothing of it
//! needs the kernel's netem.

mod relay;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::runtime::{Builder, Runtime};

use relay::Relay;
pub use relay::Way;

/// What makes namespaces, and what has to be permitted.
const NEEDED: &str = "apt-get install -y util-linux iproute2; namespaces have to be permitted: \
    kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0, in a container --privileged";
/// Set for a test that has namespaces of its own.
const ALONE: &str = "BULLA_TEST_ALONE";
/// What is the only one to see the namespaces that are made in it, and takes them along.
const UNSHARE: [&str; 6] = ["--map-root-user", "--net", "--mount", "--pid", "--mount-proc", "--kill-child"];
/// Names of namespaces are files in there.
const BEGIN: &str = "mount -t tmpfs none /run && ip link set lo up && exec \"$0\" \"$@\"";
/// Sites at most: each is the third byte of its addresses.
const SITES_MAX: usize = 250;
/// What is not there by then is not there.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs the test that calls it in a process of its own, with namespaces that end with it; `inside` runs there. What it prints is
/// printed here. `inside` must be a closure in the test itself: the test is found by the closure's type.
///
/// # Panics
/// When the test failed, or there are no namespaces.
pub fn alone<F: FnOnce()>(inside: F) {
    if std::env::var_os(ALONE).is_some() {
        return inside();
    }
    let name = std::any::type_name::<F>();
    let name = name.split_once("::").map_or(name, |(_, path)| path);
    let name = name.split("::{{closure}}").next().unwrap_or(name);
    let program = std::env::current_exe().map_or_else(|_| OsString::from("/proc/self/exe"), OsString::from);
    let run = Command::new("unshare")
        .args(UNSHARE)
        .args(["sh", "-c", BEGIN])
        .arg(program)
        .args([name, "--exact", "--nocapture", "--include-ignored"])
        .env(ALONE, "1")
        .output()
        .unwrap_or_else(|error| panic!("{NEEDED} ({error})"));
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    print!("{out}");
    eprint!("{err}");
    assert!(run.status.success(), "{name} failed in namespaces of its own; where there are none: {NEEDED}");
    assert!(out.contains("1 passed"), "there is no test {name}");
}

/// Sites, and the ways between them. What it made ends with the process that [`alone`] runs.
pub struct Network {
    relay: Arc<Relay>,
    sites: usize,
}

/// A network namespace with an address.
#[derive(Clone, Debug)]
pub struct Site {
    name: String,
    /// Where others find it.
    pub address: Ipv4Addr,
}

impl Network {
    /// Without sites yet.
    ///
    /// # Errors
    /// The system gives no socket for packets.
    pub fn new() -> io::Result<Self> {
        Ok(Self { relay: Relay::start()?, sites: 0 })
    }

    /// One more, with an open way of no length to every other.
    ///
    /// # Errors
    /// What `ip` says, and what is to be installed.
    pub fn site(&mut self) -> io::Result<Site> {
        if self.sites == SITES_MAX {
            return Err(io::Error::other(format!("there are {SITES_MAX} sites")));
        }
        self.sites += 1;
        let number = self.sites;
        let site = Site { name: format!("site{number}"), address: Ipv4Addr::new(10, 9, number as u8, 1) };
        // The relay has no address: it answers nobody, and the kernel forwards nothing in its place. One segment is one packet.
        ip(&format!("netns add site{number}"))?;
        let mac = "02:00:00:00:00:01";
        ip(&format!("link add way{number} address {mac} type veth peer name eth0 netns site{number}"))?;
        ip(&format!("link set way{number} gso_max_segs 1 up"))?;
        let there = [
            "link set lo up".to_owned(),
            "link set eth0 gso_max_segs 1 up".to_owned(),
            format!("address add {}/24 dev eth0", site.address),
            format!("neighbour add 10.9.{number}.254 lladdr {mac} dev eth0"),
            format!("route add default via 10.9.{number}.254"),
        ];
        site.within(|| there.iter().try_for_each(|command| ip(command)))?;
        // The relay sends to where something came from.
        let began = Instant::now();
        while !self.relay.knows(site.address) {
            site.within(|| {
                UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?.send_to(&[], (Ipv4Addr::new(10, 8, 0, 1), 9))
            })?;
            if began.elapsed() > PATIENCE {
                return Err(io::Error::other("a site's packets do not arrive"));
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(site)
    }

    /// From now on the way between the two is so, there and back.
    pub fn set(&self, one: &Site, other: &Site, way: Way) {
        self.relay.set(one.address, other.address, way);
    }

    /// Packets that went between the two, both ways together, and those of them that were lost.
    #[must_use]
    pub fn packets(&self, one: &Site, other: &Site) -> (u64, u64) {
        self.relay.packets(one.address, other.address)
    }
}

fn ip(command: &str) -> io::Result<()> {
    let run = Command::new("ip").args(command.split_whitespace()).output();
    let run = run.map_err(|error| io::Error::other(format!("{NEEDED} ({error})")))?;
    if run.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("ip {command}: {}; {NEEDED}", String::from_utf8_lossy(&run.stderr))))
}

impl Site {
    /// Does it there: sockets made meanwhile are the site's, and so are processes.
    ///
    /// # Errors
    /// Its own, and that there is no such namespace.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let work = || {
            self.enter()?;
            work()
        };
        let done = thread::scope(|scope| scope.spawn(work).join());
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// For tasks whose sockets are the site's.
    ///
    /// # Errors
    /// The system gives no threads.
    pub fn runtime(&self) -> io::Result<Runtime> {
        let site = self.clone();
        let enter = move || {
            if let Err(error) = site.enter() {
                panic!("no thread enters {}: {error}", site.name);
            }
        };
        Builder::new_multi_thread().worker_threads(1).enable_all().on_thread_start(enter).build()
    }

    /// Makes it this thread's.
    fn enter(&self) -> io::Result<()> {
        let namespace = File::open(format!("/run/netns/{}", self.name))?;
        Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
    }
}
