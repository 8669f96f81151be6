//! Samples in the OpenMetrics text format, for pages.

/// A sample: its name, its labels such as `outcome=full status=2xx`, and its value as written.
#[derive(Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: String,
    pub(crate) value: String,
}

/// Parses the samples whose name matches. Lines that are not samples are skipped.
pub(crate) fn samples(text: &str, wanted: impl Fn(&str) -> bool) -> Vec<Sample> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(sample)
        .filter(|one| wanted(&one.name))
        .collect()
}

fn sample(line: &str) -> Option<Sample> {
    let (name, labels, rest) = match line.split_once('{') {
        Some((name, rest)) => {
            // A label value may contain a brace; the sample's value never does.
            let (labels, rest) = rest.rsplit_once('}')?;
            (name, labels_of(labels), rest)
        }
        None => {
            let (name, rest) = line.split_once(' ')?;
            (name, String::new(), rest)
        }
    };
    let value = rest.split_whitespace().next()?;
    let whole = value.strip_suffix(".0").unwrap_or(value);
    Some(Sample { name: name.to_owned(), labels, value: whole.to_owned() })
}

fn labels_of(text: &str) -> String {
    let pairs: Vec<String> = text.split("\",").map(|pair| pair.replace('"', "")).collect();
    pairs.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_samples_are_parsed_with_labels_and_values() {
        let text = "# TYPE a counter\na_total{outcome=\"full\",door=\"x}y\"} 7.0\nb 0.25\nc_total{} 3\nbroken\n# EOF\n";
        let all = samples(text, |_| true);
        let of = |index: usize| {
            let sample: &Sample = &all[index];
            (sample.name.as_str(), sample.labels.as_str(), sample.value.as_str())
        };
        assert_eq!(all.len(), 3);
        assert_eq!(of(0), ("a_total", "outcome=full door=x}y", "7"));
        assert_eq!(of(1), ("b", "", "0.25"));
        assert_eq!(of(2), ("c_total", "", "3"));
        assert_eq!(samples(text, |name| name == "b").len(), 1);
    }
}
