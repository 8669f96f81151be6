//! Tests of policy decisions: tables, and a comparison with a reference that has no index.

use std::net::IpAddr;
use std::sync::Arc;

use hyper::HeaderMap;
use proptest::prelude::*;
use x509::HostOrIp;

use super::*;

fn list(all: &[&str]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}

fn identity(name: &str, teams: &[&str], tags: &[&str]) -> IdentityText {
    IdentityText {
        name: name.into(),
        teams: list(teams),
        tags: list(tags),
        users: vec![name.into()],
        ..IdentityText::default()
    }
}

fn rule(name: &str, host: &[&str]) -> PolicyRuleText {
    PolicyRuleText { name: name.into(), host: list(host), ..PolicyRuleText::default() }
}

fn policy() -> Policy {
    let identities = vec![
        identity("ci", &["platform"], &["build"]),
        identity("alice", &["people"], &[]),
        IdentityText {
            expires: Some("2026-01-01T00:00:00Z".parse().unwrap()),
            ..identity("old", &["platform"], &[])
        },
    ];
    let rules = vec![
        PolicyRuleText {
            action: Some(Action::Deny),
            path: list(&["/repos/*/*/keys/**"]),
            ..rule("no-keys", &["api.github.com"])
        },
        PolicyRuleText {
            teams: list(&["platform"]),
            method: list(&["GET"]),
            path: list(&["/repos/**"]),
            ..rule("read", &["api.github.com"])
        },
        PolicyRuleText {
            identities: list(&["alice"]),
            port: vec![443, 8443],
            ..rule("alice", &["*.example"])
        },
        PolicyRuleText {
            tags: list(&["build"]),
            action: Some(Action::Log),
            ..rule("tunnel", &["pinned.test", "192.0.2.1"])
        },
    ];
    Policy::compile(&PolicyText { default: None, identities, rules }).unwrap()
}

fn decide(
    policy: &Policy,
    who: &str,
    host: &str,
    port: u16,
    phase: Phase<'_>,
) -> (Action, Option<String>, Reason) {
    let host = HostOrIp::parse(host).unwrap();
    let identity = policy.identity(who).map(Arc::as_ref);
    let decision = policy.decide(&PolicyRequest { identity, host: &host, port, phase }, 1_800_000_000);
    (decision.action, decision.rule.map(|rule| rule.to_string()), decision.reason)
}

fn decide_request(policy: &Policy, who: &str, method: &str, url: &str) -> (Action, Option<String>, Reason) {
    let headers = HeaderMap::new();
    let (host, path) = url.split_at(url.find('/').unwrap());
    let facts = RequestFacts { method, path, query: None, headers: &headers, body_bytes: Some(0) };
    decide(policy, who, host, 443, Phase::Request(facts))
}

#[test]
fn first_matching_rule_decides_and_default_denies() {
    use Action::{Allow, Deny, Log};
    let policy = policy();
    for (who, method, url, action, rule) in [
        ("ci", "GET", "api.github.com/repos/o/r", Allow, Some("read")),
        ("ci", "PUT", "api.github.com/repos/o/r", Deny, None),
        ("ci", "GET", "api.github.com/user", Deny, None),
        ("ci", "GET", "api.github.com/repos/o/r/keys/1", Deny, Some("no-keys")),
        // Percent-encoded form of the same path.
        ("ci", "GET", "api.github.com/repos/o/r/%6beys/1", Deny, Some("no-keys")),
        ("ci", "GET", "github.com/repos/o/r", Deny, None),
        ("ci", "GET", "x.api.github.com/repos/o/r", Deny, None),
        ("alice", "GET", "api.github.com/repos/o/r", Deny, None),
        ("alice", "DELETE", "a.b.example/", Allow, Some("alice")),
        ("alice", "GET", "example/", Deny, None),
        ("alice", "GET", "example.evil.test/", Deny, None),
        ("nobody", "GET", "api.github.com/repos/o/r", Deny, None),
        ("ci", "GET", "192.0.2.1/", Log, Some("tunnel")),
        ("ci", "GET", "192.0.2.2/", Deny, None),
    ] {
        let decided = decide_request(&policy, who, method, url);
        assert_eq!((decided.0, decided.1.as_deref()), (action, rule), "{who} {method} {url}");
    }
    assert_eq!(decide_request(&policy, "old", "GET", "api.github.com/repos/o/r").2, Reason::Expired);
    assert_eq!(decide_request(&Policy::default(), "", "GET", "a.example/").0, Allow, "no policy at all");
}

#[test]
fn ambiguous_path_is_denied_when_a_rule_matches_by_path() {
    let policy = policy();
    for path in
        ["/repos/../user", "/repos/o%2fr", "/repos//o", "/repos/%2e%2e/user", "/repos/a%00", "/repos/%252e"]
    {
        let (action, rule, reason) = decide_request(&policy, "ci", "GET", &format!("api.github.com{path}"));
        assert!(matches!(reason, Reason::Path(_)) && action == Action::Deny, "{path} {reason:?} {rule:?}");
    }
    // No rule for this host has a path condition: npm uses such names.
    assert_eq!(decide_request(&policy, "alice", "GET", "npm.example/@scope%2fname").0, Action::Allow);
}

#[test]
fn hold_rules_match_like_deny_rules_and_close_tunnels_that_hide_requests() {
    use Action::{Allow, Deny, Hold};
    let rules = vec![
        PolicyRuleText {
            action: Some(Hold),
            method: list(&["POST"]),
            query: [("force".to_owned(), "true".to_owned())].into(),
            hold_for_s: Some(30),
            ..rule("force", &["a.example"])
        },
        PolicyRuleText { port: vec![443, 8443], ..rule("rest", &["a.example"]) },
        PolicyRuleText { action: Some(Hold), ..rule("all", &["b.example"]) },
        rule("late", &["b.example"]),
    ];
    let policy = Policy::compile(&PolicyText { rules, ..PolicyText::default() }).unwrap();
    assert!(policy.holds() && !self::policy().holds());
    let headers = HeaderMap::new();
    // Without `port`, the rule applies to all ports. One value of several is enough.
    for (method, port, query, action, hold_for_s) in [
        ("POST", 443, "force=true", Hold, 30),
        ("POST", 8443, "force=false&force=true", Hold, 30),
        ("POST", 443, "", Allow, 0),
        ("GET", 443, "force=true", Allow, 0),
    ] {
        let facts =
            RequestFacts { method, path: "/", query: Some(query), headers: &headers, body_bytes: None };
        let host = HostOrIp::parse("a.example").unwrap();
        let request = PolicyRequest { identity: None, host: &host, port, phase: Phase::Request(facts) };
        let decision = policy.decide(&request, 0);
        assert_eq!((decision.action, decision.hold_for_s), (action, hold_for_s), "{method} {query}");
    }
    for (host, phase, action, reason) in [
        ("a.example", Phase::Connect, Hold, Reason::Rule),
        ("a.example", Phase::Probe, Allow, Reason::Rule),
        ("a.example", Phase::Tunnel, Deny, Reason::NotIntercepted),
        ("b.example", Phase::Connect, Hold, Reason::Rule),
        ("b.example", Phase::Probe, Hold, Reason::Rule),
        ("b.example", Phase::Tunnel, Hold, Reason::Rule),
    ] {
        let decided = decide(&policy, "nobody", host, 443, phase);
        assert_eq!((decided.0, decided.2), (action, reason), "{host} {phase:?}");
    }
    assert_eq!(decide_request(&policy, "nobody", "GET", "b.example/").0, Hold);
}

#[test]
fn connect_and_tunnel_are_decided_without_the_request() {
    use Action::{Allow, Deny, Log};
    let policy = policy();
    for (who, host, port, phase, action, reason) in [
        ("ci", "api.github.com", 443, Phase::Connect, Allow, Reason::Rule),
        ("ci", "api.github.com", 8443, Phase::Connect, Deny, Reason::Default),
        // The rules of this host need method and path, which a tunnel hides.
        ("ci", "api.github.com", 443, Phase::Tunnel, Deny, Reason::NotIntercepted),
        ("ci", "pinned.test", 443, Phase::Tunnel, Log, Reason::Rule),
        ("alice", "a.example", 8443, Phase::Tunnel, Allow, Reason::Rule),
        ("alice", "api.github.com", 443, Phase::Connect, Deny, Reason::Default),
        ("nobody", "pinned.test", 443, Phase::Tunnel, Deny, Reason::Default),
    ] {
        let decided = decide(&policy, who, host, port, phase);
        assert_eq!((decided.0, decided.2), (action, reason), "{who} {host}:{port} {phase:?}");
    }
}

#[test]
fn rules_match_by_query_headers_and_body_size() {
    let rules = vec![PolicyRuleText {
        query: [("state".to_owned(), "open*".to_owned())].into(),
        header: [("x-team".to_owned(), "a/*".to_owned())].into(),
        body_bytes_max: Some(10),
        ..rule("all", &["a.example"])
    }];
    let policy = Policy::compile(&PolicyText { rules, ..PolicyText::default() }).unwrap();
    let is_allowed = |query: &str, teams: &[&'static str], body_bytes| {
        let mut headers = HeaderMap::new();
        for team in teams {
            headers.append("x-team", hyper::header::HeaderValue::from_static(team));
        }
        let facts =
            RequestFacts { method: "GET", path: "/", query: Some(query), headers: &headers, body_bytes };
        decide(&policy, "", "a.example", 443, Phase::Request(facts)).0 == Action::Allow
    };
    assert!(
        is_allowed("state=open", &["a/b"], Some(10)) && is_allowed("x=1&st%61te=open+now", &["a/b"], Some(0))
    );
    assert!(!is_allowed("state=open", &["a/b"], Some(11)) && !is_allowed("state=open", &["a/b"], None));
    assert!(!is_allowed("state=open&state=closed", &["a/b"], Some(0)), "servers may take either");
    assert!(!is_allowed("state=open", &["a/b", "c"], Some(0)) && !is_allowed("state=open", &[], Some(0)));
    assert!(!is_allowed("", &["a/b"], Some(0)));
}

#[test]
fn clients_are_identified_by_user_certificate_or_network() {
    let spiffe: Arc<str> = "spiffe://mesh.example/ci".into();
    let identities = vec![
        IdentityText { certificates: vec![spiffe.to_string(), "CN=ci".into()], ..identity("ci", &[], &[]) },
        IdentityText {
            users: vec![],
            networks: vec!["10.1.0.0/16".parse().unwrap()],
            ..identity("rack", &[], &[])
        },
    ];
    let policy = Policy::compile(&PolicyText { identities, ..PolicyText::default() }).unwrap();
    let known = |evidence, address: &str| {
        let presented = Presented { evidence, address: address.parse::<IpAddr>().unwrap() };
        policy.identify(&presented).map(|identity| identity.name.to_string())
    };
    let uris = [spiffe];
    assert_eq!(known(Evidence::User("ci"), "192.0.2.1").as_deref(), Some("ci"));
    assert_eq!(
        known(Evidence::Certificate { subject: "CN=x", uris: &uris }, "192.0.2.1").as_deref(),
        Some("ci")
    );
    assert_eq!(
        known(Evidence::Certificate { subject: "CN=ci", uris: &[] }, "192.0.2.1").as_deref(),
        Some("ci")
    );
    assert_eq!(known(Evidence::Nothing, "::ffff:10.1.2.3").as_deref(), Some("rack"));
    // A user name that equals a certificate subject does not count as that certificate. An authenticated client is not identified
    // by its network.
    assert_eq!(known(Evidence::User("CN=ci"), "10.1.2.3"), None);
    assert_eq!(known(Evidence::Certificate { subject: "ci", uris: &[] }, "10.1.2.3"), None);
    assert_eq!(known(Evidence::Nothing, "192.0.2.1"), None);
}

#[test]
fn invalid_policy_error_names_rule_and_key() {
    let wrong = |change: fn(&mut PolicyText)| {
        let mut text = PolicyText {
            identities: vec![identity("ci", &["t"], &[])],
            rules: vec![rule("first", &["a.example"])],
            ..PolicyText::default()
        };
        change(&mut text);
        Policy::compile(&text).unwrap_err().to_string()
    };
    for (change, message) in [
        (
            (|text| text.rules[0].teams = list(&["typo"])) as fn(&mut PolicyText),
            "rules[1] (first): teams: no identity has \"typo\"",
        ),
        (
            |text| text.rules[0].host = list(&["https://a"]),
            "rules[1] (first): host: \"https://a\" is not a host name or address",
        ),
        (|text| text.rules[0].host = list(&["a*.example"]), "is not a host name or address"),
        (
            |text| text.rules[0].path = list(&["/a//b"]),
            "rules[1] (first): path: \"/a//b\" never matches: the path has an empty segment",
        ),
        (|text| text.rules[0].path = list(&["/%41"]), "never matches: its normal form is \"/A\""),
        (|text| text.rules[0].method = list(&["get"]), "method: \"get\" is not an HTTP method"),
        (|text| text.rules[0].port = vec![0], "port: 0 is not a port"),
        (
            |text| text.rules[0].hold_for_s = Some(60),
            "rules[1] (first): hold_for_s: the rule does not hold requests",
        ),
        (
            |text| (text.rules[0].action, text.rules[0].hold_for_s) = (Some(Action::Hold), Some(7_200)),
            "hold_for_s: 7200 is not from 1 to 3600 seconds",
        ),
        (
            |text| text.identities[0].users.clear(),
            "identities[1] (ci): users: the identity has no users, certificates, jwt or networks",
        ),
        (
            |text| text.identities.push(identity("ci", &[], &[])),
            "identities[2] (ci): name: \"ci\" is used twice",
        ),
        (
            |text| text.identities.push(IdentityText { users: vec!["ci".into()], ..identity("b", &[], &[]) }),
            "identities[2] (b): users: \"ci\" already belongs to another",
        ),
        (
            |text| {
                let claims = [("sub".to_owned(), "*".to_owned())].into();
                text.identities[0].jwt = vec![JwtText { issuer: "x".into(), claims }];
            },
            "identities[1] (ci): jwt: no claim of \"x\" is restricted to a value",
        ),
    ] {
        assert!(wrong(change).contains(message), "{} is not {message}", wrong(change));
    }
}

/// Tries the rules in order, without an index. Tests compare the indexed lookup with it.
fn by_definition(
    text: &PolicyText,
    who: Option<&IdentityText>,
    method: &str,
    host: &str,
    path: &str,
) -> (Action, Option<String>) {
    let is_who = |rule: &PolicyRuleText| {
        let is_anyone = rule.identities.is_empty() && rule.teams.is_empty() && rule.tags.is_empty();
        is_anyone
            || who.is_some_and(|who| {
                rule.identities.contains(&who.name)
                    || rule.teams.iter().any(|team| who.teams.contains(team))
                    || rule.tags.iter().any(|tag| who.tags.contains(tag))
            })
    };
    let is_host = |pattern: &String| match pattern.strip_prefix('*') {
        Some(rest) => host.ends_with(rest) && host.len() > rest.len(),
        None => pattern == host,
    };
    let found = text.rules.iter().find(|rule| {
        is_who(rule)
            && (rule.host.is_empty() || rule.host.iter().any(is_host))
            && (rule.method.is_empty() || rule.method.iter().any(|one| one == method))
            && (rule.path.is_empty() || glob::Globs::new(&rule.path).matches(path))
    });
    found.map_or((text.default.unwrap_or(Action::Deny), None), |rule| {
        (rule.action.unwrap_or(Action::Allow), Some(rule.name.clone()))
    })
}

prop_compose! {
    fn some_rule()(
        who in prop::collection::vec(prop::sample::select(vec!["i:a", "i:b", "t:red", "t:blue", "g:x"]), 0..3),
        host in prop::collection::vec(prop::sample::select(vec!["a.test", "b.a.test", "*.a.test", "*.test", "c.b.a.test"]), 0..3),
        method in prop::collection::vec(prop::sample::select(vec!["GET", "PUT"]), 0..2),
        path in prop::collection::vec("/(x|y|\\*|\\*\\*)(/(x|y|\\*|\\*\\*)){0,2}", 0..3),
        action in prop::sample::select(vec![None, Some(Action::Allow), Some(Action::Deny), Some(Action::Log), Some(Action::Hold)]),
    ) -> PolicyRuleText {
        let of = |kind: &str| who.iter().filter_map(|one| one.strip_prefix(kind)).map(str::to_owned).collect::<Vec<_>>();
        PolicyRuleText {
            identities: of("i:"), teams: of("t:"), tags: of("g:"),
            host: list(&host), method: list(&method), path, action, port: vec![443],
            ..PolicyRuleText::default()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn index_finds_the_first_matching_rule(
        mut rules in prop::collection::vec(some_rule(), 0..12),
        who in prop::sample::select(vec!["a", "b", "nobody"]),
        host in prop::sample::select(vec!["a.test", "b.a.test", "c.b.a.test", "test", "x.test"]),
        method in prop::sample::select(vec!["GET", "PUT", "DELETE"]),
        path in "/(x|y|z)?(/(x|y|z)){0,3}",
    ) {
        for (at, rule) in rules.iter_mut().enumerate() {
            rule.name = format!("rule-{at}");
        }
        let identities = vec![identity("a", &["red"], &["x"]), identity("b", &["blue", "red"], &[])];
        let text = PolicyText { default: None, identities, rules };
        let policy = Policy::compile(&text).unwrap();
        let path = if path.starts_with("//") { "/".to_owned() } else { path };
        let decided = decide_request(&policy, who, method, &format!("{host}{path}"));
        let who = text.identities.iter().find(|identity| identity.name == who);
        prop_assert_eq!((decided.0, decided.1.clone()), by_definition(&text, who, method, host, &path));
        // If a request is allowed, its connection must not be denied.
        if decided.0.permits() {
            let connected = decide(&policy, who.map_or("", |who| &who.name), host, 443, Phase::Connect);
            prop_assert!(connected.0.permits());
        }
        if decided.0.permits_immediately() {
            let probed = decide(&policy, who.map_or("", |who| &who.name), host, 443, Phase::Probe);
            prop_assert!(probed.0.permits_immediately());
        }
        // A tunneled connection may carry any request.
        let tunnelled = decide(&policy, who.map_or("", |who| &who.name), host, 443, Phase::Tunnel);
        if tunnelled.0.permits() {
            prop_assert!(decided.0.permits(), "{:?}", tunnelled);
        }
        if tunnelled.0.permits_immediately() {
            prop_assert!(decided.0.permits_immediately(), "{:?}", tunnelled);
        }
    }
}

fn session(database: &str) -> Phase<'_> {
    Phase::Session(DatabaseSession { protocol: SessionProtocol::Postgresql, database })
}

#[test]
fn session_needs_a_rule_with_its_database() {
    let identities = vec![identity("ci", &["platform"], &[]), identity("alice", &["people"], &[])];
    let database = |name: &str, databases: &[&str]| PolicyRuleText {
        database: list(databases),
        ..rule(name, &["db.example"])
    };
    let rules = vec![
        PolicyRuleText { action: Some(Action::Deny), ..database("secret", &["secret*"]) },
        PolicyRuleText { teams: list(&["platform"]), ..database("shop", &["shop", "shop_*"]) },
        PolicyRuleText { port: vec![5433], ..database("all", &["*"]) },
        PolicyRuleText { port: vec![443, 5432], ..rule("web", &["db.example", "web.example"]) },
        PolicyRuleText { action: Some(Action::Hold), ..rule("held", &["held.example"]) },
        PolicyRuleText { action: Some(Action::Deny), path: list(&["/x"]), ..rule("path", &["more.example"]) },
        PolicyRuleText { database: list(&["x"]), ..rule("more", &["more.example"]) },
    ];
    let policy = Policy::compile(&PolicyText { default: None, identities, rules }).unwrap();
    for (who, host, port, name, wanted) in [
        ("ci", "db.example", 5432, "shop", (Action::Allow, Some("shop"))),
        ("ci", "db.example", 5432, "shop_2", (Action::Allow, Some("shop"))),
        ("ci", "db.example", 5432, "Shop", (Action::Deny, None)),
        ("alice", "db.example", 5432, "shop", (Action::Deny, None)),
        ("alice", "db.example", 5433, "shop", (Action::Allow, Some("all"))),
        ("alice", "db.example", 5433, "secrets", (Action::Deny, Some("secret"))),
        ("ci", "web.example", 5432, "shop", (Action::Deny, None)),
        ("ci", "held.example", 5432, "shop", (Action::Deny, Some("held"))),
        ("ci", "more.example", 5432, "x", (Action::Allow, Some("more"))),
    ] {
        let (action, by, _) = decide(&policy, who, host, port, session(name));
        assert_eq!((action, by.as_deref()), wanted, "{who} {host}:{port} {name}");
    }
    assert_eq!(decide(&policy, "ci", "held.example", 5432, session("x")).2, Reason::NotHeld);
    // Without `port`, a rule is for the default port of the session's protocol.
    for (protocol, port, wanted) in [
        (SessionProtocol::Redis, 6379, Action::Allow),
        (SessionProtocol::Redis, 5432, Action::Deny),
        (SessionProtocol::Postgresql, 6379, Action::Deny),
    ] {
        let phase = Phase::Session(DatabaseSession { protocol, database: "shop" });
        assert_eq!(decide(&policy, "ci", "db.example", port, phase).0, wanted, "{protocol:?} {port}");
    }
    // Rules about databases allow neither requests nor intercepted connections. A rule that denies a database also denies tunnels.
    for phase in [Phase::Connect, Phase::Probe, Phase::Tunnel] {
        assert_eq!(decide(&policy, "alice", "db.example", 5433, phase).0, Action::Deny, "{phase:?}");
        assert_eq!(decide(&policy, "ci", "more.example", 5432, phase).0, Action::Deny, "{phase:?}");
    }
    assert_eq!(decide_request(&policy, "ci", "GET", "more.example/").0, Action::Deny);
    assert_eq!(
        decide_request(&policy, "ci", "GET", "db.example/"),
        (Action::Allow, Some("web".into()), Reason::Rule)
    );
    let tunnel = decide(&policy, "ci", "db.example", 443, Phase::Tunnel);
    assert_eq!((tunnel.0, tunnel.2), (Action::Deny, Reason::NotIntercepted));
}

#[test]
fn rule_about_databases_has_no_conditions_on_requests() {
    let text = PolicyRuleText { database: list(&["shop"]), ..rule("shop", &["db.example"]) };
    for (wrong, word) in [
        (PolicyRuleText { method: list(&["GET"]), ..text.clone() }, "conditions on requests"),
        (PolicyRuleText { path: list(&["/x"]), ..text.clone() }, "conditions on requests"),
        (PolicyRuleText { action: Some(Action::Hold), ..text.clone() }, "cannot be held"),
        (PolicyRuleText { database: list(&[""]), ..text }, "empty"),
    ] {
        let bad = Policy::compile(&PolicyText { rules: vec![wrong], ..PolicyText::default() }).unwrap_err();
        assert!(bad.key == "database" && bad.why.contains(word), "{bad}");
    }
}
