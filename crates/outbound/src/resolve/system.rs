//! Reads this machine's `/etc/resolv.conf` and `/etc/hosts`.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use super::name::WireName;
use super::options::Options;

/// Maximum name servers read from the file, as in resolv.conf(5).
const NAMESERVERS_MAX: usize = 3;
/// Maximum search domains read from the file: the limit of glibc before 2.26.
const SEARCH_MAX: usize = 6;
/// Largest `ndots`, as in resolv.conf(5).
const NDOTS_MAX: usize = 15;
/// Maximum bytes read of either file. Block lists of a million lines are smaller.
const FILE_MAX: usize = 64 * 1_024 * 1_024;
/// Port of name servers.
const DNS_PORT: u16 = 53;

/// Returns name servers and options of `/etc/resolv.conf`. Without the file, or without name servers in it, the name server is the
/// one on this machine, as in resolv.conf(5).
pub(crate) fn upstreams_and_options() -> (Vec<SocketAddr>, Options) {
    let (mut upstreams, options) = read_resolv_conf(&read(Path::new("/etc/resolv.conf")));
    if upstreams.is_empty() {
        upstreams.push(SocketAddr::from(([127, 0, 0, 1], DNS_PORT)));
    }
    (upstreams, options)
}

/// Returns the name servers of this machine, in order: the servers in `/etc/resolv.conf`, read now, or else the one on this machine.
/// Never empty.
#[must_use]
pub fn name_servers() -> Vec<SocketAddr> {
    upstreams_and_options().0
}

pub(crate) fn hosts() -> HashMap<WireName, Vec<IpAddr>> {
    read_hosts(&read(Path::new("/etc/hosts")))
}

/// Reads a file. Returns an empty text if it does not exist or is too long: both files are optional.
fn read(path: &Path) -> String {
    let bytes = match std::fs::read(path) {
        Ok(bytes) if bytes.len() <= FILE_MAX => bytes,
        Ok(_) => {
            tracing::warn!(path = %path.display(), "file ignored: longer than 64 MiB");
            return String::new();
        }
        Err(_) => return String::new(),
    };
    String::from_utf8_lossy(&bytes).into_owned()
}

fn read_resolv_conf(text: &str) -> (Vec<SocketAddr>, Options) {
    let (mut upstreams, mut options) = (Vec::new(), Options::default());
    for line in text.lines() {
        let mut words = line.split(['#', ';']).next().unwrap_or_default().split_whitespace();
        match words.next() {
            Some("nameserver") if upstreams.len() < NAMESERVERS_MAX => {
                upstreams.extend(words.next().and_then(address_of));
            }
            // The last `search` or `domain` line wins.
            Some("search" | "domain") => {
                options.search = words.take(SEARCH_MAX).map(str::to_owned).collect();
            }
            Some("options") => {
                for ndots in words.filter_map(|word| word.strip_prefix("ndots:")?.parse().ok()) {
                    options.ndots = NDOTS_MAX.min(ndots);
                }
            }
            _ => {}
        }
    }
    (upstreams, options)
}

fn address_of(word: &str) -> Option<SocketAddr> {
    // Link-local servers have a zone, `fe80::1%eth0`, which SocketAddrV6 accepts only as a number.
    if let Ok(address) = word.parse::<IpAddr>() {
        return Some(SocketAddr::new(address, DNS_PORT));
    }
    format!("[{word}]:{DNS_PORT}").parse().ok()
}

fn read_hosts(text: &str) -> HashMap<WireName, Vec<IpAddr>> {
    let mut hosts: HashMap<WireName, Vec<IpAddr>> = HashMap::new();
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(address) = words.next().and_then(|word| word.parse::<IpAddr>().ok()) else {
            continue;
        };
        for name in words.filter_map(|word| WireName::parse(word).ok()) {
            let addresses = hosts.entry(name).or_default();
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolv_conf_is_parsed_as_documented() {
        let (upstreams, options) = read_resolv_conf(
            "# comment\nnameserver 192.0.2.1 ; near\nnameserver 2001:db8::1\nnameserver what\n\
             nameserver 192.0.2.3 # far\nnameserver 192.0.2.4\ndomain old.example\n\
             search a.example b.example\noptions rotate ndots:2 timeout:1\n",
        );
        let expected: Vec<SocketAddr> =
            ["192.0.2.1:53", "[2001:db8::1]:53", "192.0.2.3:53"].map(|a| a.parse().unwrap()).into();
        assert_eq!(upstreams, expected);
        assert_eq!(options.search, ["a.example", "b.example"]);
        assert_eq!(options.ndots, 2);
    }

    #[test]
    fn hosts_file_maps_each_name_to_all_its_addresses() {
        let hosts = read_hosts("127.0.0.1 a.example A # one\n::1 a.example\nnonsense b\n");
        let name = WireName::parse("a.example").unwrap();
        assert_eq!(hosts[&name], ["127.0.0.1".parse::<IpAddr>().unwrap(), "::1".parse().unwrap()]);
        assert_eq!(hosts.len(), 2);
    }
}
