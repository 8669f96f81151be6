//! Metrics of a key service (OpenMetrics text), and their change between two samples.

use std::collections::{BTreeMap, BTreeSet};

/// Prefix of the metrics that are read. Other metrics are ignored.
const METRIC_PREFIX: &str = "bulla_keyless_";

/// Labels, in the order in which they are written.
type Labels = Vec<(String, String)>;

/// Metrics of one service at one time.
#[derive(Clone, Debug, Default)]
pub(super) struct Exposition(BTreeMap<(String, Labels), f64>);

impl Exposition {
    /// Parses OpenMetrics text. Skips all lines except the metrics of the key service. Returns `None` if the text has no such
    /// metric, because the server is then not a key service.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let samples = text.lines().filter(|line| line.starts_with(METRIC_PREFIX)).filter_map(sample);
        let all: BTreeMap<_, _> = samples.map(|(name, labels, value)| ((name, labels), value)).collect();
        (!all.is_empty()).then_some(Self(all))
    }
}

/// Parses `NAME{LABEL="VALUE",…} VALUE`.
fn sample(line: &str) -> Option<(String, Labels, f64)> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let (label, value) = rest.split_once("=\"")?;
            let (value, after) = quoted(value)?;
            labels.push((label.trim_start_matches(',').to_owned(), value));
            rest = after;
        }
        rest = &rest[1..];
    }
    let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
    Some((name.to_owned(), labels, value))
}

/// Parses a label's value up to its closing quote. Returns the value and the remaining text.
fn quoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut chars) = (String::new(), text.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

/// Metrics of one or more services between two samples: counters as rates per second, other metrics as in the second sample.
#[derive(Clone, Debug, Default)]
pub(super) struct Rates(BTreeMap<(String, Labels), f64>);

impl Rates {
    /// Computes the rates. A counter that is lower than before has been reset.
    pub(super) fn between(before: &Exposition, after: &Exposition, seconds: f64) -> Self {
        let seconds = seconds.max(0.001);
        let rate = |(series, now): (&(String, Labels), &f64)| {
            if !is_counter(&series.0) {
                return (series.clone(), *now);
            }
            let was = before.0.get(series).copied().unwrap_or_default();
            let more = if *now >= was { now - was } else { *now };
            (series.clone(), more / seconds)
        };
        Self(after.0.iter().map(rate).collect())
    }

    /// Adds the metrics of another service.
    pub(super) fn add(&mut self, other: &Self) {
        for (series, value) in &other.0 {
            let total = self.0.entry(series.clone()).or_default();
            // Measures such as ratios cannot be added: take the worst.
            *total = if is_non_additive(&series.0) { total.max(*value) } else { *total + value };
        }
    }

    /// Returns the sum of a metric over all series with the given labels.
    pub(super) fn sum(&self, name: &str, of: &[(&str, &str)]) -> f64 {
        // Start from 0.0: an empty `sum` would be printed as -0.
        self.of(name, of).fold(0.0, |all, (_, value)| all + value)
    }

    /// Returns the worst value of a measure that cannot be added; `None` without a value.
    pub(super) fn worst(&self, name: &str, of: &[(&str, &str)]) -> Option<f64> {
        self.of(name, of).map(|(_, value)| *value).reduce(f64::max)
    }

    /// Returns the values that a label of a metric has.
    pub(super) fn values<'s>(&'s self, name: &str, label: &str) -> BTreeSet<&'s str> {
        let labels = self.of(name, &[]).flat_map(|(labels, _)| labels);
        labels.filter(|(own, _)| own == label).map(|(_, value)| value.as_str()).collect()
    }

    /// Returns the quantile `part` of a histogram, in the unit of the metric, by linear interpolation within a bucket. `None` without
    /// observations. Values above all buckets count as the last bound.
    pub(super) fn quantile(&self, name: &str, of: &[(&str, &str)], part: f64) -> Option<f64> {
        let bucket = format!("{name}_bucket");
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for (labels, count) in self.of(&bucket, of) {
            let bound = labels.iter().find(|(label, _)| label == "le")?.1.parse().ok()?;
            match buckets.iter_mut().find(|(known, _)| *known == bound) {
                Some((_, total)) => *total += count,
                None => buckets.push((bound, *count)),
            }
        }
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let all = buckets.last().map(|(_, count)| *count).filter(|count| *count > 0.0)?;
        let (wanted, mut below) = (all * part, (0.0, 0.0));
        for (bound, count) in buckets {
            if count >= wanted && count > below.1 {
                if bound.is_infinite() {
                    return Some(below.0);
                }
                return Some(below.0 + (bound - below.0) * (wanted - below.1) / (count - below.1));
            }
            below = (bound, count);
        }
        Some(below.0)
    }

    fn of<'s>(&'s self, name: &str, of: &[(&str, &str)]) -> impl Iterator<Item = (&'s Labels, &'s f64)> {
        let from = (name.to_owned(), Labels::new());
        let series = self.0.range(from..).take_while(move |((own, _), _)| own == name);
        let is_of = |labels: &Labels| {
            of.iter().all(|(label, value)| labels.iter().any(|(own, total)| own == label && total == value))
        };
        series.filter(move |((_, labels), _)| is_of(labels)).map(|((_, labels), value)| (labels, value))
    }
}

fn is_counter(name: &str) -> bool {
    ["_total", "_bucket", "_count", "_sum"].iter().any(|end| name.ends_with(end))
}

/// Returns whether the metric is a measure that cannot be added, such as a distance or a ratio.
fn is_non_additive(name: &str) -> bool {
    name.ends_with("_round_trip_seconds") || name.ends_with("_ratio")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_lines_are_parsed_and_malformed_ones_rejected() {
        for (line, name, labels, value) in [
            ("bulla_keyless_keys 7", "bulla_keyless_keys", &[][..], 7.0),
            ("bulla_keyless_x_total{a=\"b\"} 1.5 1234", "bulla_keyless_x_total", &[("a", "b")][..], 1.5),
            (
                r#"bulla_keyless_x{a="q\"\\\n}",le="+Inf"} 2"#,
                "bulla_keyless_x",
                &[("a", "q\"\\\n}"), ("le", "+Inf")],
                2.0,
            ),
        ] {
            let labels: Labels = labels.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
            assert_eq!(sample(line), Some((name.to_owned(), labels, value)), "{line}");
        }
        for broken in
            ["bulla_keyless_x", "bulla_keyless_x{a=\"b} 1", "bulla_keyless_x{a} 1", "bulla_keyless_x{", "x y"]
        {
            assert_eq!(sample(broken), None, "{broken}");
        }
        assert!(Exposition::parse("# HELP x\nprocess_x 1\n# EOF\n").is_none(), "somebody else's figures");
    }

    fn read(text: &str) -> Exposition {
        Exposition::parse(text).unwrap()
    }

    #[test]
    fn counters_become_rates_and_a_reset_counter_starts_at_zero() {
        let before = read("bulla_keyless_a_total 10\nbulla_keyless_b_total 100\nbulla_keyless_c 5\n");
        let after = read(
            "bulla_keyless_a_total 30\nbulla_keyless_b_total 8\nbulla_keyless_c 3\nbulla_keyless_d_total 4\n",
        );
        let rates = Rates::between(&before, &after, 2.0);
        let of = |name: &str| rates.sum(name, &[]);
        assert_eq!((of("bulla_keyless_a_total"), of("bulla_keyless_b_total")), (10.0, 4.0));
        assert_eq!((of("bulla_keyless_c"), of("bulla_keyless_d_total")), (3.0, 2.0));
    }

    #[test]
    fn rates_of_services_are_summed_and_round_trips_take_the_maximum() {
        let one = read("bulla_keyless_a_total 2\nbulla_keyless_site_round_trip_seconds{site=\"x\"} 0.01\n");
        let two = read("bulla_keyless_a_total 3\nbulla_keyless_site_round_trip_seconds{site=\"x\"} 0.2\n");
        let nothing = Exposition::default();
        let mut rates = Rates::between(&nothing, &one, 1.0);
        rates.add(&Rates::between(&nothing, &two, 1.0));
        assert_eq!(rates.sum("bulla_keyless_a_total", &[]), 5.0);
        assert_eq!(rates.worst("bulla_keyless_site_round_trip_seconds", &[("site", "x")]), Some(0.2));
        assert_eq!(rates.worst("bulla_keyless_site_round_trip_seconds", &[("site", "y")]), None);
        assert!(rates.sum("bulla_keyless_none", &[]).is_sign_positive(), "-0 is no figure for people");
    }

    #[test]
    fn quantiles_use_only_observations_between_two_scrapes() {
        let histogram = |counts: [u64; 4]| {
            let line = |(le, count): (&str, u64)| {
                format!("bulla_keyless_h_bucket{{op=\"p\",le=\"{le}\"}} {count}\n")
            };
            read(&["0.001", "0.002", "0.004", "+Inf"].into_iter().zip(counts).map(line).collect::<String>())
        };
        // 1,000 slow observations before; since then 50 below 1 ms, 40 below 2 ms, 10 below 4 ms.
        let (before, after) = (histogram([0, 0, 1_000, 1_000]), histogram([50, 90, 1_100, 1_100]));
        let rates = Rates::between(&before, &after, 1.0);
        let of = |part: f64| rates.quantile("bulla_keyless_h", &[("op", "p")], part).unwrap();
        assert!((of(0.5) - 0.001).abs() < 1e-9, "{}", of(0.5));
        assert!((of(0.7) - 0.0015).abs() < 1e-9, "{}", of(0.7));
        assert!((of(0.99) - 0.0038).abs() < 1e-9, "{}", of(0.99));
        assert_eq!(rates.quantile("bulla_keyless_h", &[("op", "q")], 0.5), None);
        assert_eq!(Rates::between(&after, &after, 1.0).quantile("bulla_keyless_h", &[], 0.5), None);
        let beyond = Rates::between(&histogram([0; 4]), &histogram([0, 0, 0, 5]), 1.0);
        assert_eq!(beyond.quantile("bulla_keyless_h", &[], 0.5), Some(0.004), "the last bound that is known");
    }
}
