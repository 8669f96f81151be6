//! The conditions of one rule.

use std::borrow::Cow;
use std::sync::Arc;

use hyper::Method;
use hyper::header::HeaderName;
use percent_encoding::percent_decode_str;
use x509::star;

use super::decision::RequestFacts;
use super::glob::Globs;
use super::text::Action;

/// The port of rules that allow and name no port.
const USUAL_PORT: u16 = 443;

/// A compiled rule. The host and the identity are in the index alone. It is small, as a decision reads it from memory that is seldom in a
/// cache.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) name: Arc<str>,
    pub(super) action: Action,
    pub(super) ports: Box<[u16]>,
    pub(super) methods: Methods,
    pub(super) paths: Globs,
    /// Conditions that few rules have.
    pub(super) rare: Option<Box<RareConditions>>,
}

/// Conditions that few rules have.
#[derive(Debug)]
pub(super) struct RareConditions {
    /// Names and patterns of values.
    pub(super) query: Vec<(String, String)>,
    /// Names and patterns of values.
    pub(super) headers: Vec<(HeaderName, String)>,
    pub(super) body_bytes_max: Option<u64>,
}

/// Methods. None of them stands for all.
#[derive(Debug, Default)]
pub(super) struct Methods {
    /// The usual ones, a bit each.
    usual: u16,
    others: Box<[Method]>,
}

impl Methods {
    pub(super) fn new(methods: &[Method]) -> Self {
        let bit = |method: &Method| usual_bit(method.as_str());
        let others = methods.iter().filter(|method| bit(method) == 0).cloned().collect();
        Self { usual: methods.iter().fold(0, |all, method| all | bit(method)), others }
    }

    fn is_empty(&self) -> bool {
        self.usual == 0 && self.others.is_empty()
    }

    fn include(&self, method: &str) -> bool {
        self.usual & usual_bit(method) != 0 || self.others.iter().any(|one| one == method)
    }
}

fn usual_bit(method: &str) -> u16 {
    const USUAL: [&str; 9] = ["GET", "POST", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"];
    USUAL.iter().position(|one| *one == method).map_or(0, |at| 1 << at)
}

impl Rule {
    /// A rule that denies and names no port is for all ports, one that permits for 443 alone.
    pub(super) fn is_for_port(&self, port: u16) -> bool {
        match (self.ports.is_empty(), self.action) {
            (true, Action::Deny) => true,
            (true, _) => port == USUAL_PORT,
            (false, _) => self.ports.contains(&port),
        }
    }

    /// Whether the rule has conditions that only a whole request can meet.
    pub(super) fn has_request_conditions(&self) -> bool {
        !self.methods.is_empty() || !self.paths.is_empty() || self.rare.is_some()
    }

    /// Whether a request meets all conditions on it, but for the path where that is `None`.
    pub(super) fn matches(&self, request: &RequestFacts<'_>, path: Option<&str>) -> bool {
        (self.methods.is_empty() || self.methods.include(request.method))
            && path.is_none_or(|path| self.paths.is_empty() || self.paths.matches(path))
            && self.rare.as_ref().is_none_or(|rare| self.meets(rare, request))
    }

    fn meets(&self, rare: &RareConditions, request: &RequestFacts<'_>) -> bool {
        rare.body_bytes_max.is_none_or(|most| self.has_size(request.body_bytes, most))
            && rare.query.iter().all(|(name, pattern)| self.has_parameter(request.query, name, pattern))
            && rare.headers.iter().all(|(name, pattern)| self.has_header(request, name, pattern))
    }

    /// A size that is not known is too large for a rule that permits.
    fn has_size(&self, size: Option<u64>, most: u64) -> bool {
        size.map_or(!self.action.permits(), |size| size <= most)
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

    /// Of a name that is sent several times, servers take the first, the last or all: a rule that permits needs all of them to match, and
    /// a rule that denies one.
    fn agree(&self, mut matches: impl Iterator<Item = bool>) -> bool {
        match self.action.permits() {
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
