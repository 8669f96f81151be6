//! Validates and compiles policies.

use std::collections::HashMap;
use std::sync::Arc;

use hyper::header::HeaderName;

use super::decision::{Decision, Phase, PolicyRequest, Reason, RequestFacts};
use super::glob::{GLOB_BYTES_MAX, Globs};
use super::identity::{Identity, IdentityIndex, Presented};
use super::index::{Index, Rules};
use super::path::normalised;
use super::rule::{Methods, RareConditions, Rule};
use super::session::DatabaseSession;
use super::text::{
    Action, BadPolicy, Grants, HOLD_FOR_S, HOLD_FOR_S_MAX, IdentityText, PolicyRuleText, PolicyText,
};
use crate::rule_index::HostPattern;
use crate::setting::{InvalidSetting, invalid, methods};

/// Maximum rules of one policy.
pub const POLICY_RULES_MAX: usize = 100_000;
/// Maximum identities of one policy.
pub const IDENTITIES_MAX: usize = 100_000;
/// Maximum bytes of the name of an identity, team, tag or rule.
const NAME_BYTES_MAX: usize = 255;

/// A compiled policy. Clones share it. The default has no identities and no rules, and allows all requests.
#[derive(Clone, Debug, Default)]
pub struct Policy(Arc<Compiled>);

#[derive(Debug)]
struct Compiled {
    is_active: bool,
    default: Action,
    identities: Vec<Arc<Identity>>,
    recognition: IdentityIndex,
    names: Names,
    rules: Vec<Rule>,
    index: Index,
    /// Whether any rule has a path.
    by_path: bool,
}

impl Default for Compiled {
    fn default() -> Self {
        Self {
            is_active: false,
            default: Action::Allow,
            identities: Vec::new(),
            recognition: IdentityIndex::default(),
            names: Names::default(),
            rules: Vec::new(),
            index: Index::default(),
            by_path: false,
        }
    }
}

/// Index numbers of identities, teams and tags.
#[derive(Debug, Default)]
struct Names {
    identities: HashMap<Arc<str>, u32>,
    teams: HashMap<Arc<str>, u32>,
    tags: HashMap<Arc<str>, u32>,
    next: u32,
}

impl Names {
    fn number(map: &mut HashMap<Arc<str>, u32>, next: &mut u32, name: &str) -> (Arc<str>, u32) {
        if let Some((name, number)) = map.get_key_value(name) {
            return (Arc::clone(name), *number);
        }
        let (name, number) = (Arc::<str>::from(name), *next);
        *next += 1;
        map.insert(Arc::clone(&name), number);
        (name, number)
    }

    /// Returns the names in `grants` by kind (identities, teams, tags), each kind with the index numbers of the policy's names.
    fn lists<'a>(
        &self,
        grants: &'a Grants,
    ) -> impl Iterator<Item = (&'static str, &'a [String], &HashMap<Arc<str>, u32>)> {
        [
            ("identities", &*grants.identities, &self.identities),
            ("teams", &*grants.teams, &self.teams),
            ("tags", &*grants.tags, &self.tags),
        ]
        .into_iter()
    }
}

impl Policy {
    /// Compiles a policy.
    ///
    /// # Errors
    /// [`BadPolicy`]: the first error.
    pub fn compile(text: &PolicyText) -> Result<Self, BadPolicy> {
        let is_active = text.default.is_some() || !text.identities.is_empty() || !text.rules.is_empty();
        let usual = if is_active { Action::Deny } else { Action::Allow };
        let mut compiled =
            Compiled { is_active, default: text.default.unwrap_or(usual), ..Compiled::default() };
        for (position, identity) in text.identities.iter().enumerate() {
            let added = match position < IDENTITIES_MAX {
                true => compiled.add_identity(identity),
                false => {
                    Err(invalid("name", format!("more than {IDENTITIES_MAX} identities"), "remove some"))
                }
            };
            added.map_err(|wrong| policy_error_at("identities", position, &identity.name, wrong))?;
        }
        for (position, rule) in text.rules.iter().enumerate() {
            let added = match position < POLICY_RULES_MAX {
                true => compiled.add_rule(rule, position),
                false => Err(invalid(
                    "name",
                    format!("more than {POLICY_RULES_MAX} rules"),
                    "list several hosts in one rule",
                )),
            };
            added.map_err(|wrong| policy_error_at("rules", position, &rule.name, wrong))?;
        }
        Ok(Self(Arc::new(compiled)))
    }

    /// Returns whether there are identities or rules.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.0.is_active
    }

    /// Returns whether there are identities. Credentials then need a grant.
    #[must_use]
    pub fn has_identities(&self) -> bool {
        !self.0.identities.is_empty()
    }

    /// Returns whether a rule holds requests.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.0.rules.iter().any(|rule| rule.action == Action::Hold)
    }

    /// Returns the number of rules.
    #[must_use]
    pub fn rules(&self) -> usize {
        self.0.rules.len()
    }

    /// Returns the identity of a client, if one matches.
    #[must_use]
    pub fn identify(&self, presented: &Presented<'_>) -> Option<&Arc<Identity>> {
        self.0.recognition.identify(presented)
    }

    /// Returns the identity with this name, if the policy has one.
    #[must_use]
    pub fn identity(&self, name: &str) -> Option<&Arc<Identity>> {
        self.0.identities.iter().find(|identity| *identity.name == *name)
    }

    /// Returns the first name in `grants` that no identity has, and its kind.
    #[must_use]
    pub fn unknown<'a>(&self, grants: &'a Grants) -> Option<(&'static str, &'a str)> {
        self.0.names.lists(grants).find_map(|(kind, list, known)| {
            list.iter().find(|name| !known.contains_key(name.as_str())).map(|name| (kind, name.as_str()))
        })
    }

    /// Decides about a request at the time `now` (seconds since 1970-01-01 UTC).
    #[must_use]
    pub fn decide(&self, request: &PolicyRequest<'_>, now: i64) -> Decision {
        if request.identity.is_some_and(|identity| identity.has_expired(now)) {
            return Decision { action: Action::Deny, rule: None, reason: Reason::Expired, hold_for_s: 0 };
        }
        match request.phase {
            Phase::Request(facts) => self.0.of_request(request, &facts),
            Phase::Connect => self.0.of_connection(request, Action::permits),
            Phase::Probe => self.0.of_connection(request, Action::permits_immediately),
            Phase::Tunnel => self.0.of_tunnel(request),
            Phase::Session(session) => self.0.of_session(request, session),
        }
    }
}

fn policy_error_at(list: &'static str, position: usize, name: &str, wrong: InvalidSetting) -> BadPolicy {
    let InvalidSetting { key, why, hint } = wrong;
    BadPolicy { list, number: position + 1, name: name.chars().take(100).collect(), key, why, hint }
}

impl Compiled {
    fn of_request(&self, request: &PolicyRequest<'_>, facts: &RequestFacts<'_>) -> Decision {
        let path = if self.by_path { normalised(facts.path) } else { Ok(facts.path.into()) };
        match &path {
            Ok(path) => {
                let test = |rule: &Rule| rule.is_for_port(request.port) && rule.matches(facts, Some(path));
                self.decided(self.first(request, Some(path), test), Reason::Rule)
            }
            Err(why) => {
                // Find the first rule that matches everything but the path. If it has no path condition, the path does not matter.
                let test = |rule: &Rule| rule.is_for_port(request.port) && rule.matches(facts, None);
                match self.first(request, None, test) {
                    Some(rule) if !rule.paths.is_empty() => denied(rule, Reason::Path(*why)),
                    found => self.decided(found, Reason::Rule),
                }
            }
        }
    }

    /// Decides about a connection whose requests are decided later. A rule with conditions on requests applies only if `counts`
    /// returns true for its action.
    fn of_connection(&self, request: &PolicyRequest<'_>, counts: fn(Action) -> bool) -> Decision {
        let test = |rule: &Rule| {
            rule.is_for_port(request.port)
                && !rule.is_for_databases()
                && (counts(rule.action) || !rule.has_request_conditions())
        };
        self.decided(self.first(request, None, test), Reason::Rule)
    }

    /// Decides about a session with a database. A session cannot be held, so a rule that holds denies it.
    fn of_session(&self, request: &PolicyRequest<'_>, session: DatabaseSession<'_>) -> Decision {
        let test = |rule: &Rule| rule.is_for_session(request.port, session);
        match self.first(request, None, test) {
            Some(rule) if rule.action == Action::Hold => denied(rule, Reason::NotHeld),
            found => self.decided(found, Reason::Rule),
        }
    }

    /// Decides about a tunnel, whose requests the proxy cannot read. Rules with conditions on requests apply only if they deny or
    /// hold: then the tunnel is denied.
    fn of_tunnel(&self, request: &PolicyRequest<'_>) -> Decision {
        let test = |rule: &Rule| {
            let counts = !rule.action.permits_immediately();
            rule.is_for_port(request.port) && (counts || !rule.has_request_conditions())
        };
        match self.first(request, None, test) {
            Some(rule) if rule.has_request_conditions() => denied(rule, Reason::NotIntercepted),
            found => self.decided(found, Reason::Rule),
        }
    }

    fn decided(&self, rule: Option<&Rule>, reason: Reason) -> Decision {
        match rule {
            Some(rule) => Decision {
                action: rule.action,
                rule: Some(Arc::clone(&rule.name)),
                reason,
                hold_for_s: rule.hold_for_s,
            },
            None => Decision { action: self.default, rule: None, reason: Reason::Default, hold_for_s: 0 },
        }
    }

    /// Returns the first rule for identity, host and `path` that satisfies `test`. If `path` is `None`, tries the rules for all
    /// paths.
    fn first(
        &self,
        request: &PolicyRequest<'_>,
        path: Option<&str>,
        test: impl Fn(&Rule) -> bool,
    ) -> Option<&Rule> {
        let keys = request.identity.map_or(&[][..], |identity| &identity.keys);
        let mut best = u32::MAX;
        let mut search = |list: &[u32]| {
            let earlier = list.iter().take_while(|rule| **rule < best);
            let found = earlier.copied().find(|rule| self.rules.get(*rule as usize).is_some_and(&test));
            best = found.unwrap_or(best);
        };
        self.index.visit(request.host, keys, &mut |rules: &Rules| rules.visit(path, &mut search));
        self.rules.get(best as usize)
    }

    fn add_identity(&mut self, text: &IdentityText) -> Result<(), InvalidSetting> {
        const RECOGNISED: &str = "give one of users, certificates, jwt or networks: users = [\"ci\"]";
        validate_name("name", &text.name)?;
        if self.names.identities.contains_key(text.name.as_str()) {
            return Err(invalid(
                "name",
                format!("{:?} is used twice", text.name),
                "give each identity a unique name",
            ));
        }
        let is_recognised = [text.users.len(), text.certificates.len(), text.jwt.len(), text.networks.len()];
        if is_recognised == [0; 4] {
            return Err(invalid(
                "users",
                "the identity has no users, certificates, jwt or networks",
                RECOGNISED,
            ));
        }
        let names = &mut self.names;
        let (name, key) = Names::number(&mut names.identities, &mut names.next, &text.name);
        let mut keys = vec![key];
        let mut all = |map: &mut HashMap<Arc<str>, u32>, key: &'static str, list: &[String]| {
            let mut named = Vec::new();
            for text in list {
                validate_name(key, text)?;
                let (name, number) = Names::number(map, &mut names.next, text);
                keys.push(number);
                named.push(name);
            }
            Ok(named)
        };
        let teams = all(&mut names.teams, "teams", &text.teams)?;
        let tags = all(&mut names.tags, "tags", &text.tags)?;
        let expires = text.expires.map(|expires| expires.as_second());
        let identity = Arc::new(Identity { name, teams, tags, expires, budget: text.budget, keys });
        self.recognition.add(text, &identity)?;
        self.identities.push(identity);
        Ok(())
    }

    fn add_rule(&mut self, text: &PolicyRuleText, position: usize) -> Result<(), InvalidSetting> {
        let name: Arc<str> = match text.name.as_str() {
            "" => format!("#{}", position + 1).into(),
            name => {
                validate_name("name", name)?;
                name.into()
            }
        };
        if !text.preset.is_empty() {
            return Err(invalid(
                "preset",
                format!("unknown preset {:?}", text.preset),
                "presets are available in configuration files only",
            ));
        }
        let keys = self.keys(&text.grants())?;
        let hosts = HostPattern::read("host", &text.host)?;
        text.path.iter().try_for_each(|path| validate_path(path))?;
        let rule = Rule {
            name,
            action: text.action.unwrap_or(Action::Allow),
            hold_for_s: hold_for_s(text)?,
            ports: text.port.clone().into(),
            methods: Methods::new(&methods(&text.method)?),
            paths: Globs::new(&text.path),
            rare: rare_conditions(text)?,
        };
        if text.port.contains(&0) {
            return Err(invalid("port", "0 is not a port", "for example port = [443, 8443]"));
        }
        self.by_path |= !rule.paths.is_empty();
        self.index.add(&hosts, &keys, &text.path, self.rules.len() as u32);
        self.rules.push(rule);
        Ok(())
    }

    /// Returns the index numbers of the identities, teams and tags of a rule.
    fn keys(&self, grants: &Grants) -> Result<Vec<u32>, InvalidSetting> {
        let keys = self.names.lists(grants).flat_map(|(key, list, known)| {
            list.iter().map(move |name| known.get(name.as_str()).copied().ok_or((key, name)))
        });
        keys.collect::<Result<_, _>>().map_err(|(key, name)| {
            let hint = "see the names, teams and tags in [[proxy.policy.identities]]";
            invalid(key, format!("no identity has {name:?}"), hint)
        })
    }
}

fn denied(rule: &Rule, reason: Reason) -> Decision {
    Decision { action: Action::Deny, rule: Some(Arc::clone(&rule.name)), reason, hold_for_s: 0 }
}

/// Returns the deadline of held requests in seconds; 0 if the rule does not hold.
fn hold_for_s(text: &PolicyRuleText) -> Result<u16, InvalidSetting> {
    let (is_hold, given) = (text.action == Some(Action::Hold), text.hold_for_s);
    let range = format!("from 1 to {HOLD_FOR_S_MAX} seconds");
    match given.unwrap_or(if is_hold { HOLD_FOR_S } else { 0 }) {
        0 if given.is_none() => Ok(0),
        _ if !is_hold => Err(invalid(
            "hold_for_s",
            "the rule does not hold requests",
            "remove hold_for_s, or set action = \"hold\"",
        )),
        seconds @ 1..=HOLD_FOR_S_MAX => Ok(seconds as u16),
        other => {
            Err(invalid("hold_for_s", format!("{other} is not {range}"), "for example hold_for_s = 120"))
        }
    }
}

fn validate_name(key: &'static str, name: &str) -> Result<(), InvalidSetting> {
    match name.is_empty()
        || name.len() > NAME_BYTES_MAX
        || name.contains(|c: char| c.is_control() || c == ',')
    {
        true => Err(invalid(
            key,
            format!("{:?} is not a valid name", name.chars().take(100).collect::<String>()),
            "use 1 to 255 bytes without commas and control characters",
        )),
        false => Ok(()),
    }
}

fn validate_path(path: &str) -> Result<(), InvalidSetting> {
    const HINT: &str =
        "for example /repos/*/issues or /v1/**: no query, no %41 for A, no dot segments, no //";
    let is_glob = path.starts_with(['/', '*']) && path.is_ascii() && !path.contains(['?', '#', ' ']);
    if !is_glob || path.len() > GLOB_BYTES_MAX {
        return Err(invalid("path", format!("{path:?} is not a path pattern"), HINT));
    }
    // A pattern that is not in normal form never matches.
    let whole = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    match normalised(&whole) {
        Ok(plain) if plain == whole => Ok(()),
        Ok(plain) => {
            Err(invalid("path", format!("{path:?} never matches: its normal form is {plain:?}"), HINT))
        }
        Err(why) => Err(invalid("path", format!("{path:?} never matches: {why}"), HINT)),
    }
}

fn rare_conditions(text: &PolicyRuleText) -> Result<Option<Box<RareConditions>>, InvalidSetting> {
    const HINT: &str = "a session has no requests: use a rule with `database`, `host` and `port` only";
    let query = |(name, value): (&String, &String)| Ok((name.clone(), value_pattern("query", value)?));
    if !text.database.is_empty() && text.has_request_conditions() {
        return Err(invalid("database", "the rule also has conditions on requests", HINT));
    }
    if !text.database.is_empty() && text.action == Some(Action::Hold) {
        return Err(invalid("database", "a session cannot be held", "use action = \"allow\" or \"deny\""));
    }
    if text.database.iter().any(String::is_empty) {
        return Err(invalid("database", "a name is empty", "for example database = [\"shop\", \"shop_*\"]"));
    }
    let database = |pattern: &String| value_pattern("database", pattern);
    let rare = RareConditions {
        query: text.query.iter().map(query).collect::<Result<_, _>>()?,
        headers: text.header.iter().map(header).collect::<Result<_, _>>()?,
        body_bytes_max: text.body_bytes_max,
        databases: text.database.iter().map(database).collect::<Result<_, _>>()?,
    };
    let is_empty = rare.query.is_empty()
        && rare.headers.is_empty()
        && rare.body_bytes_max.is_none()
        && rare.databases.is_empty();
    Ok((!is_empty).then(|| Box::new(rare)))
}

fn value_pattern(key: &'static str, pattern: &str) -> Result<String, InvalidSetting> {
    match pattern.len() <= GLOB_BYTES_MAX {
        true => Ok(pattern.to_owned()),
        false => Err(invalid(key, format!("the pattern has {} bytes", pattern.len()), "at most 1,024 bytes")),
    }
}

fn header((name, value): (&String, &String)) -> Result<(HeaderName, String), InvalidSetting> {
    let parsed: HeaderName = name.parse().map_err(|_| {
        invalid("header", format!("{name:?} is not a header name"), "a header name such as X-Team")
    })?;
    Ok((parsed, value_pattern("header", value)?))
}
