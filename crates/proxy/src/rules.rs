//! What becomes of a connection, by the name it is for.

use http_relay::names::{BadRule, Names};
use http_relay::target::Target;
use x509::HostOrIp;

/// What becomes of it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Action {
    /// Its requests are seen.
    #[default]
    Intercept,
    /// Its requests are seen, under a leaf like the server's own certificate.
    Mirror,
    /// Octets are passed on as they are.
    Tunnel,
    /// It is refused, with a page where there can be one.
    Reject,
}

impl Action {
    /// Whether requests are seen.
    #[must_use]
    pub fn looks(self) -> bool {
        matches!(self, Self::Intercept | Self::Mirror)
    }
}

/// All of them: a name's own before one below which it stands, the nearest of these first, then the default.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    names: Names<Action>,
    default: Action,
}

impl Rules {
    /// With `default` for whatever no pattern is for.
    #[must_use]
    pub fn new(default: Action) -> Self {
        Self { default, ..Self::default() }
    }

    /// # Errors
    /// [`BadRule`]
    pub fn add(&mut self, patterns: &[String], action: Action) -> Result<(), BadRule> {
        patterns.iter().try_for_each(|pattern| self.names.add(pattern, action))
    }

    /// For a name.
    #[must_use]
    pub fn decide(&self, name: &HostOrIp) -> Action {
        self.listed(name).unwrap_or(self.default)
    }

    /// Decides for `target` before its client has said anything. A redirected connection names no host: only an address that a list
    /// contains decides then, and the default waits for the name that the client sends.
    pub(crate) fn of_target(&self, target: &Target) -> Option<Action> {
        if target.redirected { self.listed(&target.name) } else { Some(self.decide(&target.name)) }
    }

    /// Decides for a name that a list contains, or whose parent domain does.
    fn listed(&self, name: &HostOrIp) -> Option<Action> {
        self.names.get(name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_pattern_decides() {
        let mut rules = Rules::new(Action::Intercept);
        let list = |patterns: &[&str]| patterns.iter().map(ToString::to_string).collect::<Vec<_>>();
        rules.add(&list(&["*.bank.example", "10.0.0.1", "[2001:db8::1]"]), Action::Tunnel).unwrap();
        rules.add(&list(&["*.ads.bank.example", "Evil.example"]), Action::Reject).unwrap();
        let decide = |name: &str| rules.decide(&HostOrIp::parse(name).unwrap());
        assert_eq!(decide("a.b.bank.example"), Action::Tunnel);
        assert_eq!(decide("bank.example"), Action::Intercept);
        assert_eq!(decide("x.ads.bank.example"), Action::Reject);
        assert_eq!(decide("ads.bank.example"), Action::Tunnel);
        assert_eq!(decide("EVIL.example."), Action::Reject);
        assert_eq!(decide("10.0.0.1"), Action::Tunnel);
        assert_eq!(decide("2001:db8::1"), Action::Tunnel);
        assert_eq!(decide("10.0.0.2"), Action::Intercept);
        let twice = rules.add(&list(&["evil.example"]), Action::Tunnel);
        assert_eq!(twice, Err(BadRule::Twice("evil.example".into())));
        assert!(matches!(rules.add(&list(&["a*.example"]), Action::Tunnel), Err(BadRule::Pattern(_))));
    }
}
