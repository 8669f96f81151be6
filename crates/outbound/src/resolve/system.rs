//! How this system looks names up.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use super::{Families, localhost};

const RESOLV_CONF: &str = "/etc/resolv.conf";
const HOSTS: &str = "/etc/hosts";
const DNS_PORT: u16 = 53;
/// resolv.conf(5): more are ignored there too.
const SERVERS_MAX: usize = 3;
/// resolv.conf(5), since glibc 2.26 without a limit; names beyond are slips.
const SEARCH_MAX: usize = 16;
/// Octets read of either file; real ones have a few thousand.
const FILE_MAX: usize = 1 << 20;

/// A configuration that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {RESOLV_CONF}: name the servers to ask with --dns")]
pub struct SystemError(#[source] io::Error);

/// Names that need no server.
#[derive(Debug, Default)]
pub(super) struct Hosts(HashMap<String, Vec<IpAddr>>);

impl Hosts {
    pub(super) fn system() -> Self {
        // A hosts file that cannot be read is as good as none, as for the C library.
        let text = std::fs::read(HOSTS).unwrap_or_default();
        Self::parse(&String::from_utf8_lossy(&text[..text.len().min(FILE_MAX)]))
    }

    fn parse(text: &str) -> Self {
        let mut hosts = HashMap::<String, Vec<IpAddr>>::new();
        for line in text.lines() {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            let Some(Ok(address)) = words.next().map(str::parse) else { continue };
            for name in words {
                hosts.entry(name.to_ascii_lowercase()).or_default().push(address);
            }
        }
        Self(hosts)
    }

    pub(super) fn get(&self, name: &str, families: Families) -> Option<Vec<IpAddr>> {
        if name == "localhost" || name.ends_with(".localhost") {
            return Some(localhost(families));
        }
        if self.0.is_empty() {
            return None;
        }
        let wanted = |address: &&IpAddr| match families {
            Families::V4 => address.is_ipv4(),
            Families::V6 => address.is_ipv6(),
            Families::Both => true,
        };
        let found: Vec<_> =
            self.0.get(&name.to_ascii_lowercase())?.iter().filter(wanted).copied().collect();
        (!found.is_empty()).then_some(found)
    }
}

/// The `search` and `options ndots` lines of resolv.conf(5).
#[derive(Debug, Default)]
pub(super) struct Search {
    domains: Vec<String>,
    /// A name with at least as many dots is tried as it is first.
    dots: usize,
}

impl Search {
    /// The names to try for `name`, in order.
    pub(super) fn candidates(&self, name: &str) -> Vec<String> {
        if name.ends_with('.') || self.domains.is_empty() {
            return vec![name.to_owned()];
        }
        let mut names: Vec<_> =
            self.domains.iter().map(|domain| format!("{name}.{domain}")).collect();
        let as_it_is = if name.matches('.').count() >= self.dots { 0 } else { names.len() };
        names.insert(as_it_is, name.to_owned());
        names
    }
}

pub(super) fn resolv_conf() -> Result<(Vec<SocketAddr>, Search), SystemError> {
    match std::fs::read(Path::new(RESOLV_CONF)) {
        Ok(text) => Ok(parse(&String::from_utf8_lossy(&text[..text.len().min(FILE_MAX)]))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(parse("")),
        Err(error) => Err(SystemError(error)),
    }
}

fn parse(text: &str) -> (Vec<SocketAddr>, Search) {
    let mut servers = Vec::new();
    let mut search = Search { domains: Vec::new(), dots: 1 };
    for line in text.lines() {
        let line = line.split(['#', ';']).next().unwrap_or_default();
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => {
                // A zone (`fe80::1%eth0`) is beyond what a socket address in Rust can parse.
                let address = words.next().and_then(|word| word.parse::<IpAddr>().ok());
                servers.extend(address.map(|address| SocketAddr::new(address, DNS_PORT)));
            }
            Some("search" | "domain") => {
                search.domains = words
                    .take(SEARCH_MAX)
                    .map(|domain| domain.trim_matches('.').to_owned())
                    .filter(|domain| !domain.is_empty())
                    .collect();
            }
            Some("options") => {
                let dots = words.filter_map(|word| word.strip_prefix("ndots:")?.parse().ok()).next_back();
                search.dots = dots.unwrap_or(search.dots).min(15);
            }
            _ => {}
        }
    }
    servers.truncate(SERVERS_MAX);
    if servers.is_empty() {
        servers.push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), DNS_PORT));
    }
    (servers, search)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolv_conf_is_read_as_its_manual_says() {
        let (servers, search) = parse(
            "# comment\nnameserver 192.0.2.1\nnameserver 2001:db8::1 # here\nnonsense\n\
             search corp.example. lab.example\noptions timeout:1 ndots:2\n",
        );
        assert_eq!(servers, ["192.0.2.1:53".parse().unwrap(), "[2001:db8::1]:53".parse().unwrap()]);
        assert_eq!(
            search.candidates("db"),
            ["db.corp.example", "db.lab.example", "db"]
        );
        assert_eq!(search.candidates("a.b.c")[0], "a.b.c");
        assert_eq!(search.candidates("db."), ["db."]);
        assert_eq!(parse("").0, ["127.0.0.1:53".parse().unwrap()]);
    }

    #[test]
    fn hosts_are_found_by_any_of_their_names_and_family() {
        let hosts = Hosts::parse("192.0.2.7 Gate gate.example # x\n2001:db8::7 gate\nbroken line\n");
        assert_eq!(hosts.get("gate", Families::Both).unwrap().len(), 2);
        assert_eq!(hosts.get("GATE.example", Families::V4).unwrap().len(), 1);
        assert_eq!(hosts.get("gate.example", Families::V6), None);
        assert_eq!(hosts.get("localhost", Families::V4), Some(vec![Ipv4Addr::LOCALHOST.into()]));
    }
}
