//! Validates and compiles the rules on requests.

use std::sync::Arc;
use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, StatusCode, Uri};
use ipnet::IpNet;
use x509::{HostOrIp, star};

use super::inject::Injection;
use super::rewrite::Rewrite;
use super::rule::{BadRequestRule, RuleText};
use super::setting::{InvalidSetting, check_path, header_name, invalid};
use crate::policy::{Grantee, SessionProtocol};
use crate::rule_index::{ByHost, HostPattern, RulesByPath};
use crate::setting::methods;
use crate::url_path::{other_readings, plain_path};

/// Maximum rules of one proxy. A request must try some rules one by one. The limit also detects a faulty generator of rules.
pub const RULES_MAX: usize = 10_000;
/// Maximum bytes of a pattern, a value or a page.
const TEXT_MAX: usize = 64 << 10;
/// Maximum delay of a request. A delayed request occupies the client's connection.
const DELAY_MAX: Duration = Duration::from_secs(60);

/// A rule of `[[proxy.rules]]`, compiled.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) name: Arc<str>,
    pub(super) hosts: Vec<HostPattern>,
    pub(super) server_names: Vec<HostPattern>,
    pub(super) methods: Vec<Method>,
    pub(super) paths: Vec<String>,
    pub(super) clients: Vec<IpNet>,
    pub(super) request_types: Vec<String>,
    pub(super) response_types: Vec<String>,
    pub(super) request: HeaderChanges,
    pub(super) response: HeaderChanges,
    pub(super) answer: Option<LocalReply>,
    pub(super) rewrite: Option<Rewrite>,
    pub(super) delay: Option<Duration>,
    pub(super) record: bool,
    pub(super) inject: Option<Arc<Injection>>,
}

/// Changes of headers: fields in `remove` are removed, then those in `set` are set.
#[derive(Debug, Default)]
pub(super) struct HeaderChanges {
    pub(super) remove: Vec<HeaderName>,
    pub(super) set: Vec<(HeaderName, HeaderValue)>,
}

/// A response of the proxy itself.
#[derive(Debug)]
pub(super) enum LocalReply {
    Redirect(StatusCode, HeaderValue),
    Block(StatusCode, Option<String>),
}

/// All compiled rules of `[[proxy.rules]]`. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct RequestRules(pub(super) Arc<Compiled>);

#[derive(Debug, Default)]
pub(super) struct Compiled {
    pub(super) rules: Vec<Rule>,
    index: ByHost<RulesByPath>,
    /// Whether any rule records exchanges.
    records: bool,
    /// Whether any rule has a path condition, so that the spelling of paths matters.
    pub(super) by_path: bool,
    /// Whether any rule blocks by path.
    blocks_by_path: bool,
    /// Whether any rule has a request type condition.
    pub(super) by_request_type: bool,
}

impl RequestRules {
    /// Validates and compiles rules.
    ///
    /// # Errors
    /// [`BadRequestRule`] of the first invalid rule.
    pub fn compile(texts: &[RuleText]) -> Result<Self, BadRequestRule> {
        let mut compiled = Compiled::default();
        for (position, text) in texts.iter().enumerate() {
            let named = |wrong: InvalidSetting| BadRequestRule {
                number: position + 1,
                name: text.name.chars().take(100).collect(),
                key: wrong.key,
                why: wrong.why,
                hint: wrong.hint,
            };
            if position >= RULES_MAX {
                let why = format!("more than {RULES_MAX} rules");
                return Err(named(InvalidSetting {
                    key: "rules",
                    why,
                    hint: "list several hosts and paths in one rule",
                }));
            }
            let rule = Rule::read(text, position).map_err(named)?;
            compiled.index.add(&rule.hosts, |paths| paths.add(&rule.paths, position as u32));
            compiled.records |= rule.record;
            compiled.by_path |= !rule.paths.is_empty();
            compiled.blocks_by_path |= rule.blocks_by_path();
            compiled.by_request_type |= !rule.request_types.is_empty();
            compiled.rules.push(rule);
        }
        Ok(Self(Arc::new(compiled)))
    }

    /// Returns the number of rules.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.rules.len()
    }

    /// Returns whether there are no rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.rules.is_empty()
    }

    /// Returns whether any rule needs the credential store.
    #[must_use]
    pub fn need_store(&self) -> bool {
        self.0.rules.iter().any(|rule| rule.inject.as_ref().is_some_and(|inject| inject.is_from_store()))
    }

    /// Returns whether a rule grants an identity leases of this role.
    #[must_use]
    pub fn grant_lease(&self, role: &str, grantee: &Grantee) -> bool {
        let injections = self.0.rules.iter().filter_map(|rule| rule.inject.as_ref());
        let mut of_role = injections.filter(|inject| inject.role() == Some(role));
        of_role.any(|inject| grantee.has(inject.grants()))
    }

    /// Returns whether any rule records exchanges.
    #[must_use]
    pub fn record(&self) -> bool {
        self.0.records
    }

    /// Returns the number of rules that match host and path as sent, without other conditions: a measure of the cost of a lookup.
    #[must_use]
    pub fn met(&self, host: &HostOrIp, path: &str) -> usize {
        self.0.met(host, &plain_path(path)).len()
    }
}

impl Compiled {
    /// Returns the rules for a host and a [`plain_path`], in order.
    pub(super) fn met(&self, host: &HostOrIp, path: &str) -> Vec<u32> {
        let mut met = Vec::new();
        self.index.visit(host, |paths| paths.visit(path, |found| met.extend_from_slice(found)));
        met.sort_unstable();
        met.dedup();
        met.retain(|at| self.rules.get(*at as usize).is_some_and(|rule| rule.is_for(host, path)));
        met
    }

    /// Returns the rules for a host and a [`plain_path`]. Also returns rules that block another path, if some server may read the
    /// [`plain_path`] as that path. If these other paths cannot be determined, also returns all rules that block paths of the host.
    pub(super) fn met_or_blocking(&self, host: &HostOrIp, path: &str) -> Vec<u32> {
        let mut met = self.met(host, path);
        if !self.blocks_by_path {
            return met;
        }
        let rule = |at: &u32| self.rules.get(*at as usize);
        let blocks = |at: &u32| rule(at).is_some_and(Rule::blocks_by_path);
        match other_readings(path) {
            Some(readings) => {
                met.extend(readings.iter().flat_map(|path| self.met(host, path)).filter(blocks));
            }
            None => {
                let all = 0..self.rules.len() as u32;
                met.extend(
                    all.filter(|at| blocks(at) && rule(at).is_some_and(|rule| rule.is_for_host(host))),
                );
            }
        }
        met.sort_unstable();
        met.dedup();
        met
    }
}

impl Rule {
    fn is_for_host(&self, host: &HostOrIp) -> bool {
        self.hosts.is_empty() || self.hosts.iter().any(|pattern| pattern.is_for(host))
    }

    /// Returns the protocol of sessions, if the rule is for sessions with databases, and not for requests.
    pub(super) fn session_protocol(&self) -> Option<SessionProtocol> {
        self.inject.as_ref()?.session_protocol()
    }

    fn blocks_by_path(&self) -> bool {
        !self.paths.is_empty() && matches!(self.answer, Some(LocalReply::Block(..)))
    }

    fn is_for(&self, host: &HostOrIp, path: &str) -> bool {
        self.is_for_host(host)
            && (self.paths.is_empty() || self.paths.iter().any(|pattern| star::matches(pattern, path)))
    }

    fn read(text: &RuleText, position: usize) -> Result<Self, InvalidSetting> {
        let name: Arc<str> = match text.name.as_str() {
            "" => format!("#{}", position + 1).into(),
            name if name.len() > 100 || name.contains(|c: char| c.is_control() || c == ',') => {
                return Err(invalid(
                    "name",
                    "too long, or has a comma or control character",
                    "use a few words: api-token",
                ));
            }
            name => name.into(),
        };
        let rule = Self {
            name,
            hosts: HostPattern::read("host", &text.host)?,
            server_names: HostPattern::read("server_name", &text.server_name)?,
            methods: methods(&text.method)?,
            paths: paths(&text.path)?,
            clients: text.client.clone(),
            request_types: types("request_type", &text.request_type)?,
            response_types: types("response_type", &text.response_type)?,
            request: HeaderChanges {
                remove: names("remove_request_headers", &text.remove_request_headers)?,
                set: values("set_request_headers", &text.set_request_headers)?,
            },
            response: HeaderChanges {
                remove: names("remove_response_headers", &text.remove_response_headers)?,
                set: values("set_response_headers", &text.set_response_headers)?,
            },
            answer: answer(text)?,
            rewrite: text.rewrite.as_ref().map(Rewrite::read).transpose()?,
            delay: delay(text.delay_ms)?,
            record: text.record,
            inject: text.inject.as_ref().map(Injection::read).transpose()?.map(Arc::new),
        };
        rule.check()?;
        rule.check_session()?;
        let is_aws = |host: &String| host.ends_with(".amazonaws.com") || host.ends_with(".amazonaws.com.cn");
        if rule.inject.as_ref().is_some_and(|inject| inject.needs_aws_host()) && !text.host.iter().all(is_aws)
        {
            let hint =
                "list hosts below amazonaws.com, or set both: service = \"s3\", region = \"eu-central-1\"";
            return Err(invalid("inject", "as = \"sigv4\" takes service and region from hosts of AWS", hint));
        }
        Ok(rule)
    }

    /// Checks that a rule for sessions has no conditions on requests, and no other actions.
    fn check_session(&self) -> Result<(), InvalidSetting> {
        const HINT: &str = "leave only `name`, `host` and `inject`; use another rule for requests";
        let has_conditions = !self.server_names.is_empty()
            || !self.methods.is_empty()
            || !self.paths.is_empty()
            || !self.clients.is_empty()
            || !self.request_types.is_empty()
            || !self.response_types.is_empty();
        let acts = !self.request.is_empty()
            || !self.response.is_empty()
            || self.answer.is_some()
            || self.rewrite.is_some()
            || self.delay.is_some()
            || self.record;
        match self.session_protocol().filter(|_| has_conditions || acts) {
            Some(protocol) => {
                let why = format!("as = \"{}\" is for sessions, which have no requests", protocol.name());
                Err(invalid("inject", why, HINT))
            }
            None => Ok(()),
        }
    }

    /// Checks for settings that exclude each other.
    fn check(&self) -> Result<(), InvalidSetting> {
        if self.inject.is_some() && self.hosts.is_empty() {
            let hint = "list the hosts that get the credential: host = [\"api.example\"]";
            return Err(invalid("inject", "without `host` every server would get the credential", hint));
        }
        let on_requests = !self.request.is_empty()
            || self.rewrite.is_some()
            || self.delay.is_some()
            || self.inject.is_some()
            || matches!(self.answer, Some(LocalReply::Redirect(..)));
        if !self.response_types.is_empty() && on_requests {
            let hint = "a rule with response_type can only change response headers, block or record; use another rule for the rest";
            return Err(invalid("response_type", "known only after the request was sent", hint));
        }
        let acts = on_requests || !self.response.is_empty() || self.answer.is_some() || self.record;
        if !acts {
            let hint = "set at least one of: block, redirect, rewrite, delay_ms, record, inject, set_request_headers, …";
            return Err(invalid("name", "the rule does nothing", hint));
        }
        Ok(())
    }
}

impl HeaderChanges {
    pub(super) fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty()
    }
}

fn check_length(key: &'static str, text: &str) -> Result<(), InvalidSetting> {
    if text.len() > TEXT_MAX {
        return Err(invalid(key, format!("has {} bytes", text.len()), "at most 64 KiB"));
    }
    Ok(())
}

fn paths(paths: &[String]) -> Result<Vec<String>, InvalidSetting> {
    for path in paths {
        check_length("path", path)?;
        if !path.starts_with(['/', '*']) || path.contains(['?', '#', ' ']) || !path.is_ascii() {
            let hint = "a path begins with / or *, is escaped as in URLs, and has no query: /v1/*";
            return Err(invalid("path", format!("{path:?} is not a path"), hint));
        }
        check_path("path", path)?;
    }
    Ok(paths.to_vec())
}

fn types(key: &'static str, types: &[String]) -> Result<Vec<String>, InvalidSetting> {
    let read = |text: &String| {
        let plain = text.split_once('/').filter(|(main, sub)| !main.is_empty() && !sub.is_empty());
        let hint = "for example application/json, or image/*; no parameters";
        let ok = plain.is_some() && text.is_ascii() && !text.contains([';', ' ', ',']);
        if ok {
            Ok(text.to_ascii_lowercase())
        } else {
            Err(invalid(key, format!("{text:?} is not a media type"), hint))
        }
    };
    types.iter().map(read).collect()
}

fn names(key: &'static str, texts: &[String]) -> Result<Vec<HeaderName>, InvalidSetting> {
    texts.iter().map(|text| header_name(key, text)).collect()
}

fn values(
    key: &'static str,
    texts: &std::collections::BTreeMap<String, String>,
) -> Result<Vec<(HeaderName, HeaderValue)>, InvalidSetting> {
    let read = |(name, text): (&String, &String)| {
        check_length(key, text)?;
        let hint = "a header value must be one line of visible characters";
        let value = HeaderValue::from_str(text).map_err(|_| {
            invalid(key, format!("the value of {name} has a line break or a control character"), hint)
        })?;
        Ok((header_name(key, name)?, value))
    };
    texts.iter().map(read).collect()
}

fn delay(ms: Option<u64>) -> Result<Option<Duration>, InvalidSetting> {
    match ms.map(Duration::from_millis) {
        Some(delay) if delay > DELAY_MAX => Err(invalid("delay_ms", "longer than a minute", "60000 at most")),
        delay => Ok(delay),
    }
}

fn answer(text: &RuleText) -> Result<Option<LocalReply>, InvalidSetting> {
    let known = |key, code: u16| {
        StatusCode::from_u16(code)
            .map_err(|_| invalid(key, format!("{code} is not an HTTP status"), "for example 403"))
    };
    let stray = |key, of| invalid(key, format!("allowed only with `{of}`"), "remove it, or give both");
    if text.page.is_some() && text.block.is_none() {
        return Err(stray("page", "block"));
    }
    if text.redirect_status.is_some() && text.redirect.is_none() {
        return Err(stray("redirect_status", "redirect"));
    }
    match (text.block, &text.redirect) {
        (Some(_), Some(_)) => {
            Err(invalid("block", "cannot be combined with redirect", "remove one of the two"))
        }
        (Some(code), None) if !(400..600).contains(&code) => {
            Err(invalid("block", format!("{code} is not an error status"), "400 to 599, for example 403"))
        }
        (Some(code), None) => {
            check_length("page", text.page.as_deref().unwrap_or_default())?;
            Ok(Some(LocalReply::Block(known("block", code)?, text.page.clone())))
        }
        (None, Some(to)) => {
            let code = text.redirect_status.unwrap_or(302);
            if ![301, 302, 303, 307, 308].contains(&code) {
                return Err(invalid(
                    "redirect_status",
                    format!("{code} is not a redirect status"),
                    "301, 302, 303, 307 or 308",
                ));
            }
            let uri = to.parse::<Uri>().ok().filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")));
            let value = uri.and_then(|_| HeaderValue::from_str(to).ok());
            let value = value
                .ok_or_else(|| invalid("redirect", format!("{to:?} is not a URL"), "https://HOST/PATH"))?;
            Ok(Some(LocalReply::Redirect(known("redirect_status", code)?, value)))
        }
        (None, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Form, InjectText, RewriteText};
    use super::*;

    fn refused(text: RuleText) -> String {
        RequestRules::compile(&[RuleText { block: Some(403), ..RuleText::default() }, text])
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn invalid_rule_error_names_rule_and_reason() {
        let set = |name: &str, value: &str| RuleText {
            set_request_headers: [(name.to_owned(), value.to_owned())].into(),
            ..RuleText::default()
        };
        for value in ["a\r\nHost: evil", "a\nb", "a\0"] {
            assert!(
                refused(set("X-A", value)).contains("rule 2: set_request_headers: the value of X-A"),
                "{value:?}"
            );
        }
        for name in ["Content-Length", "transfer-encoding", "Host", "Connection", "Upgrade"] {
            assert!(refused(set(name, "1")).contains("rules cannot change"), "{name}");
        }
        assert!(refused(set("X A", "1")).contains("is not a header name"));
        let rewrite = |from: &str| {
            let rewrite = RewriteText { path: Some(from.into()), to: Some("/new/".into()), host: None };
            RuleText { rewrite: Some(rewrite), ..RuleText::default() }
        };
        let inject = || Some(InjectText { credential: Some("/a".into()), ..InjectText::default() });
        let session = |change: &dyn Fn(&mut RuleText, &mut InjectText)| {
            let form = Form::Postgresql;
            let mut inject = InjectText { credential: Some("/a".into()), form, ..InjectText::default() };
            let mut text = RuleText { host: vec!["db.example".into()], ..RuleText::default() };
            change(&mut text, &mut inject);
            RuleText { inject: Some(inject), ..text }
        };
        let table = [
            (
                session(&|text, _| text.path = vec!["/x".into()]),
                "inject: as = \"postgresql\" is for sessions",
            ),
            (session(&|text, _| text.record = true), "inject: as = \"postgresql\" is for sessions"),
            (session(&|_, inject| inject.allow_echo = true), "inject: `allow_echo` is about responses"),
            (
                session(&|_, inject| (inject.form, inject.database) = (Form::Bearer, vec!["x".into()])),
                "inject: `database` is allowed only",
            ),
            (session(&|_, inject| inject.field = Some("password".into())), "with `field` require `user`"),
            (RuleText { block: Some(200), ..RuleText::default() }, "block: 200"),
            (RuleText { page: Some("x".into()), ..RuleText::default() }, "page: allowed only with `block`"),
            (RuleText { inject: inject(), ..RuleText::default() }, "inject: without `host`"),
            (
                RuleText { host: vec!["https://a".into()], record: true, ..RuleText::default() },
                "host: \"https://a\"",
            ),
            (RuleText { path: vec!["v1".into()], record: true, ..RuleText::default() }, "path: \"v1\""),
            (RuleText { path: vec!["/%61".into()], record: true, ..RuleText::default() }, "path: \"/%61\""),
            (RuleText { path: vec!["//a".into()], record: true, ..RuleText::default() }, "path: \"//a\""),
            (rewrite("/%6Fld/"), "rewrite: \"/%6Fld/\" never matches"),
            (rewrite("/a/../"), "rewrite: \"/a/../\" never matches"),
            (RuleText { redirect: Some("/x".into()), ..RuleText::default() }, "redirect: \"/x\""),
            (RuleText { delay_ms: Some(60_001), ..RuleText::default() }, "delay_ms: "),
            (
                RuleText { name: "mine".into(), ..RuleText::default() },
                "rule 2 (mine): name: the rule does nothing",
            ),
            (
                RuleText { response_type: vec!["a/b".into()], delay_ms: Some(1), ..RuleText::default() },
                "response_type: known only after",
            ),
        ];
        for (text, wanted) in table {
            let message = refused(text);
            assert!(message.contains(wanted), "{wanted}: {message}");
        }
    }
}
