//! The conditions of one rule.

use std::borrow::Cow;
use std::sync::Arc;

use hyper::Method;
use hyper::header::HeaderName;
use percent_encoding::percent_decode_str;
use x509::star;

use super::decision::RequestFacts;
use super::glob::Globs;
use super::session::DatabaseSession;
use super::text::Action;

/// Default port of rules that allow requests.
const USUAL_PORT: u16 = 443;

/// A compiled rule, without its host and identity, which are only in the index. It is small, because a decision reads it from
/// memory that is rarely cached.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) name: Arc<str>,
    pub(super) action: Action,
    /// Deadline of held requests in seconds.
    pub(super) hold_for_s: u16,
    pub(super) ports: Box<[u16]>,
    pub(super) methods: Methods,
    pub(super) paths: Globs,
    /// Conditions on query, header fields, body size and databases; `None` if the rule has none of them.
    pub(super) rare: Option<Box<RareConditions>>,
}

/// Conditions on query, headers, body size and databases. Boxed, because few rules have them.
#[derive(Debug)]
pub(super) struct RareConditions {
    /// Parameter names and patterns of their values.
    pub(super) query: Vec<(String, String)>,
    /// Field names and patterns of their values.
    pub(super) headers: Vec<(HeaderName, String)>,
    pub(super) body_bytes_max: Option<u64>,
    /// Patterns of databases. A rule with databases is for sessions, not for requests.
    pub(super) databases: Vec<String>,
}

/// A set of methods. An empty set means all methods.
#[derive(Debug, Default)]
pub(super) struct Methods {
    /// Bit set of the common methods.
    usual: u16,
    others: Box<[Method]>,
}

impl Methods {
    pub(super) fn new(methods: &[Method]) -> Self {
        let bit = |method: &Method| standard_method_bit(method.as_str());
        let others = methods.iter().filter(|method| bit(method) == 0).cloned().collect();
        Self { usual: methods.iter().fold(0, |all, method| all | bit(method)), others }
    }

    fn is_empty(&self) -> bool {
        self.usual == 0 && self.others.is_empty()
    }

    fn include(&self, method: &str) -> bool {
        self.usual & standard_method_bit(method) != 0 || self.others.iter().any(|one| one == method)
    }
}

fn standard_method_bit(method: &str) -> u16 {
    const USUAL: [&str; 9] = ["GET", "POST", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"];
    USUAL.iter().position(|one| *one == method).map_or(0, |at| 1 << at)
}

impl Rule {
    /// Returns whether the rule applies to the port. Without configured ports, a rule that denies or holds applies to all ports. A
    /// rule that permits applies only to port 443.
    pub(super) fn is_for_port(&self, port: u16) -> bool {
        self.covers_port(port, USUAL_PORT)
    }

    fn covers_port(&self, port: u16, usual_port: u16) -> bool {
        match (self.ports.is_empty(), self.action) {
            (true, Action::Deny | Action::Hold) => true,
            (true, _) => port == usual_port,
            (false, _) => self.ports.contains(&port),
        }
    }

    fn databases(&self) -> &[String] {
        self.rare.as_ref().map_or(&[], |rare| &rare.databases)
    }

    /// Returns whether the rule is for sessions with databases, and not for requests.
    pub(super) fn is_for_databases(&self) -> bool {
        !self.databases().is_empty()
    }

    /// Returns whether the rule applies to a session at this port. Without configured ports, a rule that permits applies only to
    /// the default port of the protocol. A rule without databases applies only if it denies or holds and has no conditions on
    /// requests.
    pub(super) fn is_for_session(&self, port: u16, session: DatabaseSession<'_>) -> bool {
        self.covers_port(port, session.protocol.usual_port())
            && match self.is_for_databases() {
                true => self.databases().iter().any(|pattern| star::matches(pattern, session.database)),
                false => !self.action.permits_immediately() && !self.has_request_conditions(),
            }
    }

    /// Returns whether the rule has conditions that only a whole request can meet.
    pub(super) fn has_request_conditions(&self) -> bool {
        !self.methods.is_empty() || !self.paths.is_empty() || self.rare.is_some()
    }

    /// Returns whether a request meets all conditions of the rule. With `None`, the path is not checked.
    pub(super) fn matches(&self, request: &RequestFacts<'_>, path: Option<&str>) -> bool {
        !self.is_for_databases()
            && (self.methods.is_empty() || self.methods.include(request.method))
            && path.is_none_or(|path| self.paths.is_empty() || self.paths.matches(path))
            && self.rare.as_ref().is_none_or(|rare| self.meets_rare_conditions(rare, request))
    }

    fn meets_rare_conditions(&self, rare: &RareConditions, request: &RequestFacts<'_>) -> bool {
        rare.body_bytes_max.is_none_or(|most| self.has_size(request.body_bytes, most))
            && rare.query.iter().all(|(name, pattern)| self.has_parameter(request.query, name, pattern))
            && rare.headers.iter().all(|(name, pattern)| self.has_header(request, name, pattern))
    }

    /// Returns whether a body meets the size limit. If the size is unknown, returns true for a rule that denies or holds, and false
    /// for a rule that permits immediately.
    fn has_size(&self, size: Option<u64>, most: u64) -> bool {
        size.map_or(!self.action.permits_immediately(), |size| size <= most)
    }

    fn has_parameter(&self, query: Option<&str>, name: &str, pattern: &str) -> bool {
        let pairs =
            query.unwrap_or_default().split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let values = pairs
            .filter(|(found, _)| decoded(found) == name)
            .map(|(_, value)| star::matches(pattern, &decoded(value)));
        self.agree(values)
    }

    fn has_header(&self, request: &RequestFacts<'_>, name: &HeaderName, pattern: &str) -> bool {
        let values = request.headers.get_all(name).iter();
        self.agree(values.map(|value| value.to_str().is_ok_and(|value| star::matches(pattern, value))))
    }

    /// Combines the matches of several values with the same name. Servers use the first value, the last or all of them. Therefore
    /// all values must match a rule that permits, and one value a rule that denies or holds.
    fn agree(&self, mut matches: impl Iterator<Item = bool>) -> bool {
        match self.action.permits_immediately() {
            true => matches.next().is_some_and(|first| first) && matches.all(|one| one),
            false => matches.any(|one| one),
        }
    }
}

fn decoded(text: &str) -> Cow<'_, str> {
    match text.contains('+') {
        true => Cow::Owned(percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()),
        false => percent_decode_str(text).decode_utf8_lossy(),
    }
}
