//! Sites in a simulated wide area network on one machine. Each site is a network namespace with its own address. Each connection
//! between two sites has a delay and a packet loss rate, or is a black hole.
//!
//! Packets pass through a relay in this process, so TCP behaves like over a long distance: handshakes take round trips, and lost
//! packets are retransmitted. A host behind a black hole gets no response, not even a refusal. The kernel's netem is not needed.

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

pub use relay::LinkConditions;
use relay::Relay;

/// Required packages and kernel settings.
const REQUIREMENTS: &str = "apt-get install -y util-linux iproute2; namespaces have to be permitted: \
    kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0, in a container --privileged";
/// Environment variable that marks a test process with its own namespaces.
const ISOLATED: &str = "BULLA_TEST_ALONE";
/// Options of `unshare` that isolate the namespaces of a test and remove them when it ends.
const UNSHARE: [&str; 6] = ["--map-root-user", "--net", "--mount", "--pid", "--mount-proc", "--kill-child"];
/// Shell script that starts the test; named network namespaces need a private `/run`.
const INIT_SCRIPT: &str = "mount -t tmpfs none /run && ip link set lo up && exec \"$0\" \"$@\"";
/// Maximum sites: the site number is the third byte of its addresses.
const SITES_MAX: usize = 250;
/// Timeout for namespaces and links to become ready.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Runs the calling test again in a separate process with its own namespaces, which end with that process. In that process,
/// `inside` runs. The output is printed here. `inside` must be a closure in the test itself: the test is found by the closure's
/// type.
///
/// # Panics
/// When the test fails, or namespaces cannot be created.
pub fn alone<F: FnOnce()>(inside: F) {
    if std::env::var_os(ISOLATED).is_some() {
        return inside();
    }
    let name = std::any::type_name::<F>();
    let name = name.split_once("::").map_or(name, |(_, path)| path);
    let name = name.split("::{{closure}}").next().unwrap_or(name);
    let program = std::env::current_exe().map_or_else(|_| OsString::from("/proc/self/exe"), OsString::from);
    let run = Command::new("unshare")
        .args(UNSHARE)
        .args(["sh", "-c", INIT_SCRIPT])
        .arg(program)
        .args([name, "--exact", "--nocapture", "--include-ignored"])
        .env(ISOLATED, "1")
        .output()
        .unwrap_or_else(|error| panic!("{REQUIREMENTS} ({error})"));
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    print!("{out}");
    eprint!("{err}");
    assert!(
        run.status.success(),
        "{name} failed in namespaces of its own; where there are none: {REQUIREMENTS}"
    );
    assert!(out.contains("1 passed"), "there is no test {name}");
}

/// Sites, and the connections between them. Namespaces end with the process that [`alone`] starts.
pub struct Network {
    relay: Arc<Relay>,
    sites: usize,
}

/// A network namespace with an address.
#[derive(Clone, Debug)]
pub struct Site {
    name: String,
    /// Address of the site.
    pub address: Ipv4Addr,
}

impl Network {
    /// Creates a network without sites.
    ///
    /// # Errors
    /// The system returns an error for the packet socket.
    pub fn new() -> io::Result<Self> {
        Ok(Self { relay: Relay::start()?, sites: 0 })
    }

    /// Adds a site, connected to every other site without delay or loss.
    ///
    /// # Errors
    /// The error of `ip`, with the packages to install.
    pub fn site(&mut self) -> io::Result<Site> {
        if self.sites == SITES_MAX {
            return Err(io::Error::other(format!("there are {SITES_MAX} sites")));
        }
        self.sites += 1;
        let number = self.sites;
        let site = Site { name: format!("site{number}"), address: Ipv4Addr::new(10, 9, number as u8, 1) };
        // The relay has no IP address, so the kernel does not respond or forward in its place. Segmentation offload is off: one
        // segment is one packet.
        ip(&format!("netns add site{number}"))?;
        let mac = "02:00:00:00:00:01";
        ip(&format!("link add way{number} address {mac} type veth peer name eth0 netns site{number}"))?;
        ip(&format!("link set way{number} gso_max_segs 1 up"))?;
        let commands = [
            "link set lo up".to_owned(),
            "link set eth0 gso_max_segs 1 up".to_owned(),
            format!("address add {}/24 dev eth0", site.address),
            format!("neighbour add 10.9.{number}.254 lladdr {mac} dev eth0"),
            format!("route add default via 10.9.{number}.254"),
        ];
        site.within(|| commands.iter().try_for_each(|command| ip(command)))?;
        // The relay sends packets to the link from which it has received packets of the site.
        let began = Instant::now();
        while !self.relay.knows(site.address) {
            site.within(|| {
                UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?.send_to(&[], (Ipv4Addr::new(10, 8, 0, 1), 9))
            })?;
            if began.elapsed() > TIMEOUT {
                return Err(io::Error::other("a site's packets do not arrive"));
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(site)
    }

    /// Sets the properties of the connection between two sites, for both directions.
    pub fn set(&self, one: &Site, other: &Site, conditions: LinkConditions) {
        self.relay.set(one.address, other.address, conditions);
    }

    /// Returns the number of packets between two sites, for both directions together, and how many of them were lost.
    #[must_use]
    pub fn packets(&self, one: &Site, other: &Site) -> (u64, u64) {
        self.relay.packets(one.address, other.address)
    }
}

fn ip(command: &str) -> io::Result<()> {
    let run = Command::new("ip").args(command.split_whitespace()).output();
    let run = run.map_err(|error| io::Error::other(format!("{REQUIREMENTS} ({error})")))?;
    if run.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("ip {command}: {}; {REQUIREMENTS}", String::from_utf8_lossy(&run.stderr))))
}

impl Site {
    /// Runs `work` in the site: sockets and processes that it creates belong to the site.
    ///
    /// # Errors
    /// Errors of `work`, or the namespace does not exist.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let work = || {
            self.enter()?;
            work()
        };
        let done = thread::scope(|scope| scope.spawn(work).join());
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Creates a runtime whose tasks create sockets in the site.
    ///
    /// # Errors
    /// The system cannot create threads.
    pub fn runtime(&self) -> io::Result<Runtime> {
        let site = self.clone();
        let enter = move || {
            if let Err(error) = site.enter() {
                panic!("no thread enters {}: {error}", site.name);
            }
        };
        Builder::new_multi_thread().worker_threads(1).enable_all().on_thread_start(enter).build()
    }

    /// Moves the current thread into the namespace.
    fn enter(&self) -> io::Result<()> {
        let namespace = File::open(format!("/run/netns/{}", self.name))?;
        Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
    }
}
