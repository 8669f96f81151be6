//! Compares sample output on a page with real output.

use std::collections::BTreeSet;

/// Returns what the output lacks. The rule:
///
/// - JSON: every key of the sample is a key of the output.
/// - Other text: the first word of each line of the sample is the first word of a line of the output.
///   Words that have a digit, a `/` or an `…` match any word.
pub(crate) fn differences(sample: &[String], output: &str) -> Vec<String> {
    let start = sample.iter().find(|line| !line.trim().is_empty());
    if start.is_none_or(|line| line.trim_start().starts_with(['{', '['])) {
        let known = keys(output);
        return keys(&sample.join("\n")).into_iter().filter(|key| !known.contains(key)).collect();
    }
    let known: BTreeSet<&str> = output.lines().filter_map(first_word).collect();
    let is_any = |word: &str| word.contains(|c: char| c.is_ascii_digit() || "/…".contains(c));
    let words = sample.iter().filter_map(|line| first_word(line)).filter(|word| !is_any(word));
    words.filter(|word| !known.contains(word)).map(str::to_owned).collect()
}

fn first_word(line: &str) -> Option<&str> {
    line.split_whitespace().next()
}

/// Returns the JSON keys of a text that may be shortened.
fn keys(text: &str) -> BTreeSet<String> {
    let parts: Vec<&str> = text.split('"').collect();
    let is_key = |after: &str| after.trim_start().starts_with(':');
    parts.windows(2).filter(|pair| is_key(pair[1])).map(|pair| pair[0].to_owned()).collect()
}

#[test]
fn keys_and_first_words_are_compared() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let json = lines("{\"items\":[{\"id\":\"01…\"}, …");
    assert!(differences(&json, "{\"items\":[{\"id\":\"5\",\"more\":1}]}").is_empty());
    assert_eq!(differences(&json, "{\"rows\":[{\"id\":\"5\"}]}"), ["items"]);
    let table = lines(" Name  State\n …\n issuing  active");
    assert!(differences(&table, " Name  State\n root  active\n issuing  retired\n").is_empty());
    assert_eq!(differences(&table, " Name  State\n root  active\n"), ["issuing"]);
}
