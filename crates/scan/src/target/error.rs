//! Errors of targets that cannot be parsed or read.

use std::fmt;
use std::path::PathBuf;

use super::host_name::InvalidHost;

/// Maximum characters of the user's text that an error repeats: enough to find the text.
const SHOWN_MAX: usize = 100;

/// Position of an invalid target in the input.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TargetOrigin {
    /// An argument of the command line.
    Argument,
    /// A line of a file that was given as `@file`.
    Line {
        /// Path of the file.
        file: PathBuf,
        /// Line number, from 1.
        line: u64,
    },
    /// A line of standard input.
    StandardInput {
        /// Line number, from 1.
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

/// A target that cannot be parsed or read. Other targets are not affected.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{origin}: `{text}`: {problem}")]
pub struct TargetError {
    /// Position of the target in the input.
    pub origin: TargetOrigin,
    /// The text of the target, without control characters and passwords, truncated to 100 characters.
    pub text: String,
    /// The error, with a hint how to correct it.
    pub problem: TargetProblem,
}

/// Reason why a list of ports is invalid.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum InvalidPorts {
    /// The list is empty, or nothing is between two commas.
    #[error("a port is missing; write for example 443,8443,9000-9010")]
    Missing,
    /// The text is not a number from 1 to 65,535.
    #[error("`{0}` is not a port; ports are numbers from 1 to 65535")]
    NotAPort(String),
    /// The first port of a range is greater than the last one.
    #[error("the range {first}-{last} runs backwards; write {last}-{first}")]
    Backwards {
        /// First port, as written.
        first: u16,
        /// Last port, as written.
        last: u16,
    },
}

/// Reason why a target is invalid. The message says how to correct it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TargetProblem {
    /// The text is empty.
    #[error("the target is empty; write a host, host:port, network, URL, @file or path")]
    Empty,
    /// The target is a file, a list or standard input, but only network targets are allowed.
    #[error("files, lists and standard input are not allowed here; write a host, address, network or URL")]
    NotOfNetwork,
    /// The host name is invalid.
    #[error("not a host name: {0}")]
    HostName(#[from] InvalidHost),
    /// The server name in `=name` is invalid.
    #[error("not a server name after `=`: {0}")]
    ServerName(InvalidHost),
    /// The port or list of ports is invalid.
    #[error("{0}")]
    Port(#[from] InvalidPorts),
    /// The text has only digits and dots, but is not an IPv4 address.
    #[error("not an IPv4 address; four numbers from 0 to 255 without leading zeros")]
    Ipv4,
    /// The text has brackets or colons, but is not an IPv6 address.
    #[error("not an IPv6 address; with a port write [2001:db8::1]:443")]
    Ipv6,
    /// The address has a zone, such as `fe80::1%eth0`.
    #[error("an address with a zone (%) is valid on one link of this machine only and cannot be a target")]
    Zone,
    /// The text after the slash is not a prefix length.
    #[error(
        "not a network; write for example 192.0.2.0/24 or 2001:db8::/120 (a URL needs its scheme: https://…, a path ./…)"
    )]
    Network,
    /// The network has more addresses than the limit.
    #[error("{addresses} addresses, more than the limit of {max}; split the network")]
    TooManyAddresses {
        /// Addresses of the network.
        addresses: u128,
        /// Maximum addresses of a network.
        max: u64,
    },
    /// The product of addresses, ports and server names exceeds 64 bits.
    #[error("the network has too many targets (addresses × ports × server names); split it")]
    TooManyTargets,
    /// The scheme is unknown.
    #[error(
        "`{0}://` is not a supported scheme; use https, smtp, lmtp, imap, pop3, sieve, ftp, ldap, postgres, mysql, mssql, xmpp, xmpp-server, nntp, rdp, or a scheme with TLS from the first byte, such as smtps or ldaps"
    )]
    Scheme(String),
    /// The scheme is `http`, which does not use TLS.
    #[error("http:// does not use TLS; write https://, or host:port for TLS on another port")]
    PlainHttp,
    /// A `file://host/…` URL names another host than this machine.
    #[error("a file:// URL must not name a host: write file:///path, or only the path")]
    FileHost,
    /// A file or standard input contains `@file` or `-`.
    #[error("a list of targets cannot contain another list; give both on the command line")]
    NestedList,
    /// `-` was given twice.
    #[error("standard input can be read only once")]
    StandardInputTwice,
    /// A line of a list is too long.
    #[error("the line is longer than {max} bytes")]
    LineTooLong {
        /// Maximum bytes of a line.
        max: usize,
    },
    /// A line of a list is not UTF-8.
    #[error("the line is not UTF-8 text")]
    NotUtf8,
    /// Reading a list failed, with this error of the operating system.
    #[error("the list cannot be read: {0}")]
    Unreadable(String),
}

impl TargetError {
    pub(super) fn new(origin: TargetOrigin, text: &str, problem: TargetProblem) -> Self {
        Self { origin, text: shown(&without_password(text)), problem }
    }
}

/// Removes control characters and truncates the text, so that it can be printed to a terminal.
pub(super) fn shown(text: &str) -> String {
    let mut printable: String = text.chars().filter(|c| !c.is_control()).take(SHOWN_MAX).collect();
    if text.chars().count() > SHOWN_MAX {
        printable.push('…');
    }
    printable
}

/// Removes `user:secret@` from `postgres://user:secret@host`, because errors are logged.
fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..authority_end].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => text.to_owned(),
    }
}
