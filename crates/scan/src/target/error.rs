//! Targets that were not understood.

use std::fmt;
use std::path::PathBuf;

use super::host_name::InvalidHost;

/// Characters of the user's own text repeated in an error: enough to find it again.
const SHOWN_MAX: usize = 100;

/// Where a target was written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TargetOrigin {
    /// On the command line.
    Argument,
    /// In a file named with `@`.
    Line {
        /// The file.
        file: PathBuf,
        /// The first line is 1.
        line: u64,
    },
    /// On standard input.
    StandardInput {
        /// The first line is 1.
        line: u64,
    },
}

impl fmt::Display for TargetOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument => f.write_str("target"),
            Self::Line { file, line } => write!(f, "{}:{line}", file.display()),
            Self::StandardInput { line } => write!(f, "standard input:{line}"),
        }
    }
}

/// A target that was not understood. Those before and after it are not affected.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{place}: `{text}`: {problem}")]
pub struct TargetError {
    /// Origin of the target: argument, file and line.
    pub place: TargetOrigin,
    /// The text, without control characters and passwords, shortened.
    pub text: String,
    /// The error, and the correction.
    pub problem: TargetProblem,
}

/// Why a list of ports was not understood.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum InvalidPorts {
    /// Nothing between two commas, or nothing at all.
    #[error("a port is missing; write for example 443,8443,9000-9010")]
    Missing,
    /// Not a number from 1 to 65,535.
    #[error("`{0}` is not a port; ports are numbers from 1 to 65535")]
    NotAPort(String),
    /// A range that runs backwards.
    #[error("the range {first}-{last} runs backwards; write {last}-{first}")]
    Backwards {
        /// As written.
        first: u16,
        /// As written.
        last: u16,
    },
}

/// An invalid target. The text says what to do.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TargetProblem {
    /// Nothing there.
    #[error("nothing is named; write a host, host:port, network, URL, @file or path")]
    Empty,
    /// A file, a list or standard input, where only the network is looked at.
    #[error("a file, a list or standard input; only hosts, addresses, networks and URLs may be named here")]
    NotOfNetwork,
    /// Not a host name, or not one that can be connected to.
    #[error("not a host name: {0}")]
    HostName(#[from] InvalidHost),
    /// The name in `=name`.
    #[error("not a server name after `=`: {0}")]
    ServerName(InvalidHost),
    /// Not a port.
    #[error("{0}")]
    Port(#[from] InvalidPorts),
    /// Only digits and dots, yet no address.
    #[error("not an IPv4 address; four numbers from 0 to 255 without leading zeros")]
    Ipv4,
    /// Brackets or colons, yet no address.
    #[error("not an IPv6 address; with a port write [2001:db8::1]:443")]
    Ipv6,
    /// `fe80::1%eth0`
    #[error("an address with a zone (%) belongs to this machine's links alone and cannot be a target")]
    Zone,
    /// After a slash, no prefix length.
    #[error(
        "not a network; write for example 192.0.2.0/24 or 2001:db8::/120 (a URL needs its scheme: https://…, a path ./…)"
    )]
    Network,
    /// More addresses than the bound.
    #[error("{addresses} addresses, more than {max}; split the network{}", raise_limit_hint(*addresses))]
    TooManyAddresses {
        /// In the network.
        addresses: u128,
        /// The bound in force.
        max: u64,
    },
    /// Addresses times ports times names.
    #[error("the network times its ports times its server names is more than can be counted; split it")]
    TooManyTargets,
    /// A scheme that is not known.
    #[error(
        "`{0}://` is not a scheme that leads to TLS here; known are https, smtp, lmtp, imap, pop3, sieve, ftp, ldap, postgres, mysql, mssql, xmpp, xmpp-server, nntp, rdp and the forms that are TLS from the first byte, such as smtps or ldaps"
    )]
    Scheme(String),
    /// `http://`
    #[error("http:// has no TLS; write https://, or host:port for TLS on another port")]
    PlainHttp,
    /// `file://host/…` with a host that is not this machine.
    #[error("file: names a file of this machine; write file:///path or just the path")]
    FileHost,
    /// `@` or `-` in a file or on standard input.
    #[error("a list of targets cannot name another list; give both on the command line")]
    NestedList,
    /// `-` twice.
    #[error("standard input can be read only once")]
    StandardInputTwice,
    /// A list longer per line than any target.
    #[error("the line is longer than {max} bytes")]
    LineTooLong {
        /// The bound in force.
        max: usize,
    },
    /// A list that is not text.
    #[error("the line is not UTF-8 text")]
    NotUtf8,
    /// A list that cannot be read (further).
    #[error("the list cannot be read: {0}")]
    Unreadable(String),
}

/// The flag that allows so many, as far as anything can be counted.
fn raise_limit_hint(addresses: u128) -> String {
    match u64::try_from(addresses) {
        Ok(addresses) => format!(", or raise the bound with --max-addresses {addresses}"),
        Err(_) => String::new(),
    }
}

impl TargetError {
    pub(super) fn new(place: TargetOrigin, text: &str, problem: TargetProblem) -> Self {
        Self { place, text: shown(&without_password(text)), problem }
    }
}

/// Text as it may be shown on a terminal: no control characters, bounded.
pub(super) fn shown(text: &str) -> String {
    let mut kept: String = text.chars().filter(|c| !c.is_control()).take(SHOWN_MAX).collect();
    if text.chars().count() > SHOWN_MAX {
        kept.push('…');
    }
    kept
}

/// `postgres://user:secret@host` without `user:secret@`, since errors end up in logs.
fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..authority_end].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => text.to_owned(),
    }
}
