//! Heads of the audit log that are stored outside the server: signed heads, as a witness stores them, and unsigned heads of chains.

use api::audit::SignedHead;
use serde::Deserialize;
use serde_json::Value;

use crate::head;
use crate::point::ChainPoint;

/// Signed and unsigned heads that were read from one file.
#[derive(Debug, Default)]
pub struct StoredHeads {
    /// Signed heads, in the order of their numbers.
    pub signed: Vec<SignedHead>,
    /// Unsigned heads of chains.
    pub points: Vec<ChainPoint>,
}

#[derive(Deserialize)]
struct Verification {
    heads: Vec<String>,
}

impl StoredHeads {
    /// Parses a file in one of these formats: signed heads, one per line or a single one; syslog lines that end with a head; the
    /// JSON of `bulla audit verify --output json`; or a line `shard:sequence:hash` for each chain.
    ///
    /// # Errors
    /// Reason why the file has none of these formats.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut stored_heads = Self::default();
        // One JSON document over several lines.
        if let Ok(whole) = serde_json::from_str::<Value>(text) {
            stored_heads.take(whole)?;
            return Ok(stored_heads);
        }
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let at = |error: String| format!("line {}: {error}", number + 1);
            match line.find('{') {
                Some(begin) => {
                    let json = serde_json::from_str(line[begin..].trim_end())
                        .map_err(|error| at(error.to_string()))?;
                    stored_heads.take(json).map_err(at)?;
                }
                None => {
                    stored_heads.points.push(line.trim().parse().map_err(|error| at(format!("{error}")))?)
                }
            }
        }
        if stored_heads.signed.is_empty() && stored_heads.points.is_empty() {
            return Err("no head is given".to_owned());
        }
        stored_heads.signed.sort_by_key(|head| head.sequence);
        stored_heads.signed.dedup();
        Ok(stored_heads)
    }

    fn take(&mut self, json: Value) -> Result<(), String> {
        if json.get("format").is_some() {
            self.signed.push(serde_json::from_value(json).map_err(|error| error.to_string())?);
            return Ok(());
        }
        let verification: Verification = serde_json::from_value(json).map_err(|error| error.to_string())?;
        for text in &verification.heads {
            self.points.push(text.parse().map_err(|error| format!("{error}"))?);
        }
        if verification.heads.is_empty() { Err("no head is given".to_owned()) } else { Ok(()) }
    }

    /// Checks the signatures, with `key` or the key in each head, and that the heads continue each other. Returns all points of
    /// chains, and the faults.
    #[must_use]
    pub fn check(&self, key: Option<&[u8]>) -> (Vec<ChainPoint>, Vec<String>) {
        let (mut points, mut faults) = (self.points.clone(), Vec::new());
        for signed in &self.signed {
            match head::check(signed, key) {
                Ok(found) => points.extend(found),
                Err(error) => faults.push(format!("signed head {}: {error}", signed.sequence)),
            }
        }
        for pair in self.signed.windows(2) {
            let [before, next] = pair else { continue };
            if before.sequence == next.sequence {
                faults.push(format!("signed head {} exists twice with different contents", next.sequence));
            } else if key.is_none() && before.key != next.key {
                faults.push(format!(
                    "signed head {} is signed by another key: give that key with --key",
                    next.sequence
                ));
            } else {
                faults.extend(head::break_between(before, next));
            }
        }
        (points, faults)
    }
}
