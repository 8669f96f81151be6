//! Results of a scan, compared with the ground truth.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::Path;

use cli::exit::{Exit, Outcome, Problem};
use serde::Deserialize;

/// Maximum number of differences that are listed. Further differences are only counted.
const DIFFERENCES_MAX: usize = 20;

/// Comparison of a scan's results with the ground truth.
#[derive(Default)]
pub(crate) struct Verdicts {
    pub(crate) answered: u64,
    right: u64,
    /// Reported outcomes and findings that are false.
    wrong: u64,
    /// True findings that were not reported.
    missed: u64,
    pub(crate) differences: Vec<String>,
}

impl fmt::Display for Verdicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} / {} / {}", self.right, self.wrong, self.missed)
    }
}

#[derive(Deserialize)]
struct Truth {
    target: String,
    outcome: String,
    findings: BTreeSet<String>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Line {
    Endpoint {
        endpoint: String,
        outcome: String,
        findings: Vec<Finding>,
    },
    Estate {
        code: String,
        endpoints: Vec<String>,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Finding {
    code: String,
}

/// Compares a scan's output (JSON lines) with the ground truth.
pub(crate) fn compare(truth: &Path, results: &Path) -> Outcome<Verdicts> {
    let mut expected = HashMap::new();
    lines(truth, |truth: Truth| {
        expected.insert(truth.target.clone(), truth);
    })?;
    let mut seen = HashMap::<String, (String, BTreeSet<String>)>::new();
    lines(results, |line: Line| match line {
        Line::Endpoint { endpoint, outcome, findings } => {
            let entry = seen.entry(endpoint).or_default();
            entry.0 = outcome;
            entry.1.extend(findings.into_iter().map(|finding| finding.code));
        }
        Line::Estate { code, endpoints } => {
            for endpoint in endpoints {
                seen.entry(endpoint).or_default().1.insert(code.clone());
            }
        }
        Line::Other => {}
    })?;
    let mut verdicts = Verdicts::default();
    for (target, truth) in &expected {
        let found = seen.get(target);
        verdicts.judge(target, truth, found);
    }
    Ok(verdicts)
}

impl Verdicts {
    fn judge(&mut self, target: &str, truth: &Truth, found: Option<&(String, BTreeSet<String>)>) {
        let Some((outcome, findings)) = found else {
            self.missed += 1 + truth.findings.len() as u64;
            self.add_difference(format!("{target} was not scanned"));
            return;
        };
        self.answered += u64::from(outcome == "answered");
        if *outcome == truth.outcome {
            self.right += 1;
        } else {
            self.wrong += 1;
            self.add_difference(format!("{target}: {outcome}, should be {}", truth.outcome));
        }
        // A finding about several endpoints names only the first endpoint. Such findings are not compared here.
        let own = |code: &&String| !code.starts_with("estate.");
        for code in truth.findings.iter().filter(own) {
            if findings.contains(code) {
                self.right += 1;
            } else {
                self.missed += 1;
                self.add_difference(format!("{target}: missed {code}"));
            }
        }
        for code in findings.difference(&truth.findings).filter(own) {
            self.wrong += 1;
            self.add_difference(format!("{target}: false {code}"));
        }
    }

    fn add_difference(&mut self, text: String) {
        if self.differences.len() < DIFFERENCES_MAX {
            self.differences.push(text);
        }
    }
}

fn lines<T: for<'d> Deserialize<'d>>(path: &Path, mut take: impl FnMut(T)) -> Outcome<()> {
    let failed = |why: String| Problem::new(Exit::Machine, format_args!("{}: {why}", path.display()));
    let file = std::fs::File::open(path).map_err(|error| failed(error.to_string()))?;
    for line in BufReader::new(file).lines() {
        let line = line.map_err(|error| failed(error.to_string()))?;
        take(serde_json::from_str(&line).map_err(|error| failed(error.to_string()))?);
    }
    Ok(())
}
