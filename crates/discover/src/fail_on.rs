//! The condition under which a completed scan fails (`--fail-on`).

use std::str::FromStr;

use x509::Severity;

use crate::output::Tally;

/// The severity of a host that does not respond.
const NO_ANSWER: Severity = Severity::High;

/// The severities and failures that make the exit code of a scan 1 (`--fail-on`).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FailOn {
    severity: Option<Severity>,
    no_answer: bool,
}

impl FailOn {
    /// Returns whether a scan with these counts fails.
    pub(crate) fn fails(self, tally: &Tally) -> bool {
        let findings = self.severity.is_some_and(|limit| tally.worst >= Some(limit));
        let dead_count = self.no_answer || self.severity.is_some_and(|limit| limit <= NO_ANSWER);
        findings || dead_count && tally.no_answer > 0
    }
}

impl FromStr for FailOn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut found = Self::default();
        for word in text.split(',') {
            match word.trim() {
                "never" => {}
                "no-answer" => found.no_answer = true,
                severity => {
                    let severity =
                        severity.parse::<Severity>().map_err(|error| format!("{error}, or no-answer"))?;
                    found.severity = Some(found.severity.map_or(severity, |known| known.min(severity)));
                }
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fail_on_counts_no_answer_as_high_severity() {
        let tally = |worst, no_answer| {
            let mut tally = Tally::default();
            (tally.worst, tally.no_answer) = (worst, no_answer);
            tally
        };
        let table = [
            ("never", tally(Some(Severity::Critical), 9), false),
            ("high", tally(None, 0), false),
            ("high", tally(None, 1), true),
            ("medium", tally(None, 1), true),
            ("critical", tally(None, 1), false),
            ("critical,no-answer", tally(None, 1), true),
            ("no-answer", tally(Some(Severity::Critical), 0), false),
            ("critical", tally(Some(Severity::Critical), 0), true),
            ("high,low", tally(Some(Severity::Low), 0), true),
        ];
        for (text, tally, want) in table {
            assert_eq!(text.parse::<FailOn>().unwrap().fails(&tally), want, "{text} {tally:?}");
        }
        assert!("loud".parse::<FailOn>().is_err());
    }
}
