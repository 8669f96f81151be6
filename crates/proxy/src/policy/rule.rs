//! The conditions of one rule.

use std::borrow::Cow;
use std::sync::Arc;

use hyper::Method;
use hyper::header::HeaderName;
use percent_encoding::percent_decode_str;
use x509::star;

use super::decision::RequestFacts;
use super::glob::Glob;
use super::text::Action;

/// The port of rules that allow and name no port.
const USUAL_PORT: u16 = 443;

/// A compiled rule. The host and the identity are in the index alone.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) name: Arc<str>,
    pub(super) action: Action,
    pub(super) ports: Vec<u16>,
    pub(super) methods: Vec<Method>,
    pub(super) paths: Vec<Glob>,
    /// Names and patterns of values.
    pub(super) query: Vec<(String, String)>,
    /// Names and patterns of values.
    pub(super) headers: Vec<(HeaderName, String)>,
    pub(super) body_bytes_max: Option<u64>,
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
        !self.methods.is_empty()
            || !self.paths.is_empty()
            || !self.query.is_empty()
            || !self.headers.is_empty()
            || self.body_bytes_max.is_some()
    }

    /// Whether a request meets all conditions on it, but for the path where that is `None`.
    pub(super) fn matches(&self, request: &RequestFacts<'_>, path: Option<&str>) -> bool {
        (self.methods.is_empty() || self.methods.iter().any(|method| method == request.method))
            && path
                .is_none_or(|path| self.paths.is_empty() || self.paths.iter().any(|glob| glob.matches(path)))
            && self.body_bytes_max.is_none_or(|most| self.has_size(request.body_bytes, most))
            && self.query.iter().all(|(name, pattern)| self.has_parameter(request.query, name, pattern))
            && self.headers.iter().all(|(name, pattern)| self.has_header(request, name, pattern))
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
