//! `[limits]`: rate limits for clients of the control plane.

use cli::exit::{Outcome, Problem};
use serde::{Deserialize, Serialize};
use server::limit::{LimitOptions, Rate, SignInRates};

/// `[limits]`: rate limits (requests or failures per second, and bursts), and the maximum concurrent requests of one caller. A rate
/// of 0 disables a limit.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitSettings {
    caller_per_s: u32,
    caller_burst: u32,
    caller_in_flight_max: usize,
    address_per_s: u32,
    address_burst: u32,
    failures_per_s: u32,
    failures_burst: u32,
    account_failures_per_s: u32,
    account_failures_burst: u32,
    protocol_address_per_s: u32,
    protocol_address_burst: u32,
    credential_caller_per_s: u32,
    credential_caller_burst: u32,
    credential_address_per_s: u32,
    credential_address_burst: u32,
    tokens: Vec<String>,
    roles: Vec<String>,
}

impl Default for LimitSettings {
    fn default() -> Self {
        let usual = LimitOptions::default();
        let of = |rate: Option<Rate>| rate.map_or((0, 0), |rate| (rate.per_second.get(), rate.burst.get()));
        let ((caller_per_s, caller_burst), (address_per_s, address_burst)) =
            (of(usual.caller), of(usual.address));
        let (failures_per_s, failures_burst) = of(usual.failures);
        let (account_failures_per_s, account_failures_burst) = of(usual.account_failures);
        let (protocol_address_per_s, protocol_address_burst) = of(usual.protocol_address);
        let (credential_caller_per_s, credential_caller_burst) = of(usual.credential_caller);
        let (credential_address_per_s, credential_address_burst) = of(usual.credential_address);
        Self {
            caller_per_s,
            caller_burst,
            caller_in_flight_max: usual.caller_in_flight_max,
            address_per_s,
            address_burst,
            failures_per_s,
            failures_burst,
            account_failures_per_s,
            account_failures_burst,
            protocol_address_per_s,
            protocol_address_burst,
            credential_caller_per_s,
            credential_caller_burst,
            credential_address_per_s,
            credential_address_burst,
            tokens: Vec::new(),
            roles: Vec::new(),
        }
    }
}

impl LimitSettings {
    /// Returns the rate limits for clients of the control plane.
    pub(crate) fn options(&self) -> Outcome<LimitOptions> {
        let rate = |per_second: u32, burst: u32| {
            (per_second > 0).then(|| Rate::new(per_second, burst.max(per_second)))
        };
        if self.caller_in_flight_max == 0 {
            return Err(Problem::usage("limits.caller_in_flight_max must be at least 1")
                .hint("leave it out for the default, see `bulla config show`"));
        }
        Ok(LimitOptions {
            caller: rate(self.caller_per_s, self.caller_burst),
            caller_in_flight_max: self.caller_in_flight_max,
            address: rate(self.address_per_s, self.address_burst),
            failures: rate(self.failures_per_s, self.failures_burst),
            account_failures: rate(self.account_failures_per_s, self.account_failures_burst),
            protocol_address: rate(self.protocol_address_per_s, self.protocol_address_burst),
            credential_caller: rate(self.credential_caller_per_s, self.credential_caller_burst),
            credential_address: rate(self.credential_address_per_s, self.credential_address_burst),
            tokens: named("limits.tokens", &self.tokens)?,
            roles: named("limits.roles", &self.roles)?,
            sign_in: SignInRates::default(),
        })
    }
}

/// Parses `NAME RATE` or `NAME RATE BURST`. A name may contain spaces.
fn named(key: &str, all: &[String]) -> Outcome<Vec<(String, Rate)>> {
    let one = |text: &String| {
        let mut words: Vec<&str> = text.split_whitespace().collect();
        let mut number = || match words.last().and_then(|word| word.parse::<u32>().ok()) {
            Some(number) if words.len() > 1 && number > 0 => {
                words.pop();
                Some(number)
            }
            _ => None,
        };
        let (last, before) = (number(), number());
        let rate = match (last, before) {
            (Some(burst), Some(per_second)) => Rate::new(per_second, burst),
            (Some(per_second), None) => Rate::new(per_second, per_second.saturating_mul(2)),
            (None, _) => {
                return Err(Problem::usage(format_args!("{key}: {text:?} is not a name with a rate")).hint(
                    "write NAME RATE or NAME RATE BURST, in requests per second, for example \"ci 10000\"",
                ));
            }
        };
        Ok((words.join(" "), rate))
    };
    all.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_limit_is_parsed_with_name_rate_and_burst() {
        let read = |text: &str| {
            let mut all = named("limits.tokens", &[text.to_owned()]).ok()?;
            let (name, rate) = all.pop()?;
            Some((name, rate.per_second.get(), rate.burst.get()))
        };
        assert_eq!(read("ci 10000"), Some(("ci".to_owned(), 10_000, 20_000)));
        assert_eq!(read("my build 100 500"), Some(("my build".to_owned(), 100, 500)));
        for bad in ["ci", "ci 0", "ci fast", "100", ""] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn default_caller_limit_is_200_per_second_and_zero_disables_it() {
        let options = LimitSettings::default().options().unwrap();
        assert_eq!(options.caller.map(|rate| rate.per_second.get()), Some(200));
        let off = LimitSettings { caller_per_s: 0, ..LimitSettings::default() };
        assert!(off.options().unwrap().caller.is_none());
    }
}
