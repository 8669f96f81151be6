//! Rules: conditions, assignment, and the choice of the first match.

use std::collections::BTreeSet;

use clouds::Tags;
use uuid::Uuid;

use super::assignment::Assignment;
use super::candidate::Candidate;
use super::conditions::{RuleConditions, UnmetCondition};
use super::tagged::TagKeys;

/// An ownership rule: its conditions, its position, and the values that it assigns.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rule {
    /// ID of the rule in the database and in the API.
    pub id: Uuid,
    /// Unique name.
    pub name: String,
    /// Position among the rules, lowest first; for equal positions the order is by name.
    pub position: u32,
    /// The conditions of the rule; all of them must hold.
    pub when: RuleConditions,
    /// The owner, team and environment that the rule assigns.
    pub assign: Assignment,
    /// Values that are taken from tags.
    pub from_tags: TagKeys,
}

impl Rule {
    /// Returns the first condition that is not met by `lower`, a candidate in lower case.
    fn unmet(&self, lower: &Candidate) -> Option<UnmetCondition> {
        let taken = || self.from_tags.matches_no_tag(&lower.tags).then_some(UnmetCondition::Taken);
        self.when.unmet(lower).or_else(taken)
    }

    /// Returns the assignment of the rule for a candidate.
    fn names(&self, candidate: &Candidate) -> Assignment {
        let mut assign = self.assign.clone();
        self.from_tags.fill(&candidate.tags, &mut assign);
        assign
    }

    fn needs_tags(&self) -> bool {
        self.when.tag.is_some() || !self.from_tags.is_empty()
    }

    /// Returns the keys of the tags that the rule uses.
    fn needed_tags(&self) -> impl Iterator<Item = &String> {
        self.when.tag.iter().map(|tagged| &tagged.key).chain(self.from_tags.keys())
    }
}

/// One rule in an explanation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Step<'r> {
    /// The evaluated rule.
    pub rule: &'r Rule,
    /// Description of the first condition that is not met; `None` when the rule matches.
    pub unmet: Option<String>,
}

/// All ownership rules, in the order in which they are evaluated.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Rules(Vec<Rule>);

impl Rules {
    /// Creates the list, and sorts the rules into their order.
    #[must_use]
    pub fn new(mut rules: Vec<Rule>) -> Self {
        rules.sort_by(|one, other| (one.position, &one.name).cmp(&(other.position, &other.name)));
        Self(rules)
    }

    /// Returns whether there are no rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a rule uses the names of certificates.
    #[must_use]
    pub fn uses_names(&self) -> bool {
        self.0.iter().any(|rule| rule.when.name.is_some())
    }

    /// Returns whether a rule uses protocols or groups.
    #[must_use]
    pub fn uses_sources(&self) -> bool {
        self.0.iter().any(|rule| rule.when.source.is_some())
    }

    /// Returns whether a rule uses tags.
    #[must_use]
    pub fn uses_tags(&self) -> bool {
        self.0.iter().any(Rule::needs_tags)
    }

    /// Returns whether, in any of the pairs, the two sets of tags differ in a tag that a rule uses.
    #[must_use]
    pub(crate) fn uses_differing_tag<'t>(
        &self,
        pairs: impl IntoIterator<Item = (&'t Tags, &'t Tags)>,
    ) -> bool {
        let keys: BTreeSet<String> =
            self.0.iter().flat_map(Rule::needed_tags).map(|key| key.to_ascii_lowercase()).collect();
        let seen = |tags: &'t Tags| -> Vec<(String, &'t String)> {
            let lower = tags.iter().map(|(key, value)| (key.to_ascii_lowercase(), value));
            lower.filter(|(key, _)| keys.contains(key)).collect()
        };
        !keys.is_empty() && pairs.into_iter().any(|(one, other)| seen(one) != seen(other))
    }

    /// Returns the assignment of the first matching rule.
    #[must_use]
    pub fn of(&self, candidate: &Candidate) -> Option<Assignment> {
        self.of_any(std::slice::from_ref(candidate))
    }

    /// Returns the assignment of the first rule that matches any of several candidates. The first candidate that this rule matches
    /// provides the values.
    #[must_use]
    pub fn of_any(&self, candidates: &[Candidate]) -> Option<Assignment> {
        let lower: Vec<Candidate> = candidates.iter().map(Candidate::lower).collect();
        self.0.iter().find_map(|rule| {
            let matches = lower.iter().position(|candidate| rule.unmet(candidate).is_none())?;
            Some(rule.names(&candidates[matches]))
        })
    }

    /// Returns the rules up to the first match, each with the reason why it does not match. [`Rules::of`] returns the assignment
    /// of the matching rule.
    #[must_use]
    pub fn explain(&self, candidate: &Candidate) -> Vec<Step<'_>> {
        let lower = candidate.lower();
        let mut steps = Vec::new();
        for rule in &self.0 {
            let unmet = rule.unmet(&lower).map(|unmet| rule.when.why(unmet, candidate));
            let matches = unmet.is_none();
            steps.push(Step { rule, unmet });
            if matches {
                break;
            }
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use clouds::TAG_KEY_BYTES_MAX;
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::conditions::Conditions;
    use super::super::error::BadRule;
    use super::super::glob::BadGlob;
    use super::super::limits::{LABEL_BYTES_MAX, TAGS_MAX};
    use super::*;

    fn candidate() -> Candidate {
        Candidate {
            host: "10.1.2.3".to_owned(),
            server_name: "shop.pay.example".to_owned(),
            address: Some("10.1.2.3".parse().unwrap()),
            names: vec!["shop.pay.example".to_owned(), "*.shop.example".to_owned()],
            issuer: "CN=R11, O=Let's Encrypt, C=US".to_owned(),
            protocol: "tls".to_owned(),
            group: "prod".to_owned(),
            tags: [("Team", "Pay"), ("cost-center", "4711"), ("empty", ""), ("Team", "web")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        }
    }

    fn conditions(of: &[(&str, &str)]) -> Conditions {
        let get = |field: &str| of.iter().find(|(one, _)| *one == field).map(|(_, text)| (*text).to_owned());
        Conditions {
            host: get("host"),
            name: get("name"),
            network: get("network"),
            source: get("source"),
            issuer: get("issuer"),
            tag: get("tag"),
        }
    }

    fn rule(name: &str, position: u32, of: &[(&str, &str)]) -> Rule {
        Rule {
            id: Uuid::nil(),
            name: name.to_owned(),
            position,
            when: RuleConditions::parse(&conditions(of)).unwrap(),
            assign: Assignment { team: Some(name.to_owned()), ..Assignment::default() },
            from_tags: TagKeys::default(),
        }
    }

    fn team_of(rules: &Rules, candidate: &Candidate) -> Option<String> {
        rules.of(candidate).and_then(|assign| assign.team)
    }

    const CONDITIONS: &[(&[(&str, &str)], Option<&str>)] = &[
        (&[], None),
        (&[("host", "*.pay.example")], None), // by the server name
        (&[("host", "10.1.*")], None),
        (&[("host", "*.bank.example")], Some("host *.bank.example: the host is 10.1.2.3, shop.pay.example")),
        (&[("name", "*.SHOP.example")], None),
        (
            &[("name", "*.bank.example")],
            Some("name *.bank.example: the certificate has shop.pay.example, *.shop.example"),
        ),
        (&[("network", "10.0.0.0/8")], None),
        (&[("network", "10.1.2.3")], None),
        (&[("network", "::ffff:10.1.2.3")], None),
        (&[("network", "10.1.3.7/24")], Some("network 10.1.3.0/24: the address is 10.1.2.3")),
        (&[("network", "fd00::/8")], Some("network fd00::/8: the address is 10.1.2.3")),
        (&[("source", "tls")], None),
        (&[("source", "PROD")], None),
        (&[("source", "aws-*")], Some("source aws-*: the source is tls, prod")),
        (&[("issuer", "let's encrypt")], None),
        (&[("issuer", "DigiCert")], Some("issuer digicert: the issuer is CN=R11, O=Let's Encrypt, C=US")),
        (&[("tag", "team")], None),
        (&[("tag", "empty")], None),
        (&[("tag", "TEAM=pay")], None),
        (&[("tag", "team=w*")], None), // any of its values
        (&[("tag", "empty=*")], None),
        (
            &[("tag", "team=bank")],
            Some("tag team=bank: the tags are Team=Pay, cost-center=4711, empty=, Team=web"),
        ),
        (&[("tag", "tea")], Some("tag tea: the tags are Team=Pay, cost-center=4711, empty=, Team=web")),
        // All given conditions must hold.
        (
            &[("host", "*.pay.example"), ("network", "10.0.0.0/8"), ("source", "prod"), ("issuer", "R11")],
            None,
        ),
        (
            &[("host", "*.pay.example"), ("source", "staging")],
            Some("source staging: the source is tls, prod"),
        ),
    ];

    #[test]
    fn rule_applies_only_if_all_its_conditions_hold() {
        for (of, why) in CONDITIONS {
            let rules = Rules::new(vec![rule("one", 1, of)]);
            let steps = rules.explain(&candidate());
            assert_eq!(steps[0].unmet.as_deref(), *why, "{of:?}");
            assert_eq!(rules.of(&candidate()).is_some(), why.is_none(), "{of:?}");
        }
    }

    #[test]
    fn unknown_attributes_meet_no_condition() {
        for of in [
            ("host", "*"),
            ("name", "*"),
            ("network", "0.0.0.0/0"),
            ("source", "*"),
            ("issuer", "x"),
            ("tag", "team"),
        ] {
            let rules = Rules::new(vec![rule("one", 1, &[of])]);
            let unmet = rules.explain(&Candidate::default())[0].unmet.clone().unwrap();
            assert!(unmet.contains("not known"), "{unmet}");
        }
        let many = Candidate { names: (0..9).map(|n| format!("n{n}.example")).collect(), ..candidate() };
        let unmet = Rules::new(vec![rule("one", 1, &[("name", "x")])]).explain(&many)[0].unmet.clone();
        assert!(unmet.unwrap().ends_with("n4.example and 4 more"));
    }

    #[test]
    fn first_matching_rule_wins() {
        let all = vec![
            rule("rest", 900, &[]),
            rule("b", 10, &[("host", "*.pay.example")]),
            rule("a", 10, &[("host", "*.pay.example")]),
            rule("first", 1, &[("host", "*.bank.example")]),
        ];
        let rules = Rules::new(all);
        let names: Vec<_> = rules.explain(&candidate()).iter().map(|step| step.rule.name.clone()).collect();
        assert_eq!(
            names,
            ["first", "a"],
            "of equal positions the name decides; what is behind is not looked at"
        );
        assert_eq!(team_of(&rules, &candidate()).as_deref(), Some("a"));
        assert_eq!(team_of(&rules, &Candidate::default()).as_deref(), Some("rest"));
        let bank = Candidate { host: "x.bank.example".to_owned(), ..Candidate::default() };
        assert_eq!(
            rules.of_any(&[candidate(), bank]).unwrap().team.as_deref(),
            Some("first"),
            "the rules' order counts, not the places'"
        );
        assert_eq!(rules.of_any(&[]), None);
        assert_eq!(Rules::default().explain(&candidate()), []);
    }

    #[test]
    fn ownership_is_taken_from_tags_if_present() {
        let key = |key: &str| Some(key.to_owned());
        let taking = |from_tags: TagKeys, assign: Assignment| {
            Rules::new(vec![Rule { assign, from_tags, ..rule("tags", 1, &[]) }, rule("rest", 2, &[])])
        };
        let platform = Assignment {
            team: Some("platform".to_owned()),
            environment: Some("lab".to_owned()),
            ..Assignment::default()
        };
        for (from_tags, team, owner, environment) in [
            // The first of several values is taken, with its original case.
            (TagKeys { team: key("team"), ..TagKeys::default() }, "Pay", None, Some("lab")),
            (
                TagKeys { owner: key("COST-CENTER"), ..TagKeys::default() },
                "platform",
                Some("4711"),
                Some("lab"),
            ),
            // One value is enough; others come from the rule itself.
            (
                TagKeys { team: key("none"), owner: key("cost-center"), environment: key("empty") },
                "platform",
                Some("4711"),
                Some("lab"),
            ),
            // No value is found: the rule does not match.
            (TagKeys { team: key("none"), ..TagKeys::default() }, "rest", None, None),
            (TagKeys { team: key("empty"), ..TagKeys::default() }, "rest", None, None),
        ] {
            let rules = taking(from_tags.clone(), platform.clone());
            let named = rules.of(&candidate()).unwrap();
            let actual = (named.team.as_deref(), named.owner.as_deref(), named.environment.as_deref());
            assert_eq!(actual, (Some(team), owner, environment), "{from_tags:?}");
        }
        let none = taking(TagKeys { team: key("none"), ..TagKeys::default() }, Assignment::default());
        let why = none.explain(&candidate())[0].unmet.clone().unwrap();
        assert_eq!(
            why,
            "no tag to copy the value from: the tags are Team=Pay, cost-center=4711, empty=, Team=web"
        );
        assert!(none.uses_tags() && !Rules::new(vec![rule("one", 1, &[])]).uses_tags());
        assert!(Rules::new(vec![rule("one", 1, &[("tag", "team")])]).uses_tags());
        // With several candidates, the first one that the rule matches provides the values.
        let other = Candidate { tags: vec![("team".to_owned(), "web".to_owned())], ..Candidate::default() };
        let rules = taking(TagKeys { team: key("team"), ..TagKeys::default() }, Assignment::default());
        let named = rules.of_any(&[Candidate::default(), other, candidate()]).unwrap();
        assert_eq!(named.team.as_deref(), Some("web"));
    }

    /// Deployments change labels frequently. Only tags that rules use may change an owner.
    #[test]
    fn only_tags_used_by_rules_distinguish_certificates() {
        let tags = |of: &[(&str, &str)]| -> Tags {
            of.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let from_tags = TagKeys { owner: Some("Who".to_owned()), ..TagKeys::default() };
        let all = vec![rule("one", 1, &[("tag", "Team=pay*")]), Rule { from_tags, ..rule("two", 2, &[]) }];
        let (rules, none) = (Rules::new(all), Rules::new(vec![rule("one", 1, &[("host", "*")])]));
        let was = tags(&[("TEAM", "pay"), ("who", "ann"), ("version", "1")]);
        for (now, apart) in [
            (tags(&[("team", "pay"), ("who", "ann"), ("version", "2")]), false),
            (tags(&[("team", "Pay"), ("who", "ann")]), true), // as written it is what is taken
            (tags(&[("team", "pay"), ("who", "bob")]), true),
            (tags(&[("who", "ann")]), true),
        ] {
            assert_eq!(rules.uses_differing_tag([(&was, &was), (&was, &now)]), apart, "{now:?}");
            assert!(!none.uses_differing_tag([(&was, &now)]));
        }
    }

    #[test]
    fn invalid_rules_are_rejected() {
        let refused = |of: (&str, &str)| RuleConditions::parse(&conditions(&[of])).unwrap_err();
        assert_eq!(refused(("host", "")), BadRule::Glob { field: "host", source: BadGlob });
        assert_eq!(refused(("network", "10.0.0.0/33")), BadRule::Network("10.0.0.0/33".to_owned()));
        assert_eq!(refused(("network", "pay.example")), BadRule::Network("pay.example".to_owned()));
        assert_eq!(refused(("issuer", " ")), BadRule::Issuer);
        for odd in ["", "=pay", " =pay", "team=", "te\nam", &"x".repeat(TAG_KEY_BYTES_MAX + 1)] {
            assert_eq!(refused(("tag", odd)), BadRule::Tag, "{odd:?}");
        }
        assert_eq!(TagKeys { owner: Some(String::new()), ..TagKeys::default() }.check(), Err(BadRule::Tag));
        let assign = |team: &str| Assignment { team: Some(team.to_owned()), ..Assignment::default() };
        assert_eq!(assign("pay").check(), Ok(()));
        assert_eq!(assign(" ").check(), Err(BadRule::Label("the team")));
        assert_eq!(assign(&"x".repeat(LABEL_BYTES_MAX + 1)).check(), Err(BadRule::Label("the team")));
        assert_eq!(Assignment::default().check(), Err(BadRule::Nothing));
        let tags = |count: usize| Assignment {
            tags: (0..count).map(|n| (format!("t{n}"), "v".to_owned())).collect(),
            ..Assignment::default()
        };
        assert_eq!(tags(TAGS_MAX).check(), Ok(()));
        assert_eq!(tags(TAGS_MAX + 1).check(), Err(BadRule::TooManyTags));
        let empty = Assignment { tags: [("pci".to_owned(), String::new())].into(), ..Assignment::default() };
        assert_eq!(empty.check(), Err(BadRule::Label("a tag")));
    }

    proptest! {
        /// The input order of rules is irrelevant: the matching rule with the lowest position wins.
        #[test]
        fn matching_rule_with_the_lowest_position_wins(
            positions in proptest::collection::vec((0_u32..5, 0_usize..4), 0..12).prop_shuffle(),
        ) {
            const HOSTS: [&str; 4] = ["*", "*.pay.example", "10.*", "*.other.example"];
            let all: Vec<Rule> = positions
                .iter()
                .enumerate()
                .map(|(n, (position, host))| rule(&format!("r{n:02}"), *position, &[("host", HOSTS[*host])]))
                .collect();
            let wanted = all
                .iter()
                .filter(|one| one.when.host.as_ref().is_some_and(|glob| glob.as_str() != HOSTS[3]))
                .min_by_key(|one| (one.position, one.name.clone()))
                .map(|one| one.name.clone());
            let rules = Rules::new(all.clone());
            prop_assert_eq!(team_of(&rules, &candidate()), wanted.clone());
            let backwards = Rules::new(all.into_iter().rev().collect());
            prop_assert_eq!(&backwards, &rules);
            let last = rules.explain(&candidate()).pop().filter(|step| step.unmet.is_none());
            prop_assert_eq!(last.map(|step| step.rule.name.clone()), wanted, "the explanation agrees");
        }

        #[test]
        fn rule_conditions_round_trip_through_json(host in "[a-zA-Z*.]{1,20}", bits in 0_u8..=32, issuer in "[A-Z ]{0,5}x",
            tag in "[a-zA-Z/:.-]{1,9}(=[a-zA-Z*=]{1,9})?") {
            let network = format!("10.9.8.7/{bits}");
            let of = [
                ("host", host.as_str()), ("network", network.as_str()), ("issuer", issuer.as_str()), ("tag", tag.as_str()),
            ];
            let when = RuleConditions::parse(&conditions(&of)).unwrap();
            let decoded: RuleConditions = serde_json::from_value(json!(when)).unwrap();
            prop_assert_eq!(decoded, when);
        }
    }
}
