//! Canonical encoding of plans. Its SHA-256 is the `plan_sha256` of approvals, changes and enrolments.
//!
//! The server and the commands use the same encoding: a command can verify the hash of the plan that a server shows.

/// First text of the encoding of an issuance plan. Two versions of the encoding never have the same hash.
pub const ISSUANCE_PLAN: &str = "bulla issuance plan 1";

/// First text of the encoding of a change's plan.
pub const CHANGE_PLAN: &str = "bulla change plan 1";

/// Returns the canonical encoding of fields: `encoding`, then each field as its name, the number of its values and the values. Each
/// text is preceded by its length. Lengths and numbers have 8 bytes, big-endian.
#[must_use]
pub fn encoded<'a>(encoding: &str, fields: impl Iterator<Item = (&'a str, &'a [String])>) -> Vec<u8> {
    let mut out = Vec::with_capacity(1_024);
    text(&mut out, encoding);
    for (name, values) in fields {
        text(&mut out, name);
        number(&mut out, values.len());
        for value in values {
            text(&mut out, value);
        }
    }
    out
}

fn number(out: &mut Vec<u8>, of: usize) {
    out.extend((of as u64).to_be_bytes());
}

fn text(out: &mut Vec<u8>, text: &str) {
    number(out, text.len());
    out.extend(text.as_bytes());
}
