//! Validation with dns-01 (RFC 8555 section 8.4) and dns-account-01 (draft-ietf-acme-dns-account-label-03).

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use data_encoding::BASE32_NOPAD;

use super::resolver::Dns;
use super::{Failure, Proven, ValidationRequest};
use crate::acme::jose::sha256;
use crate::acme::problem::Kind;

/// Maximum number of bytes of a record that are quoted to the client.
const QUOTED_MAX: usize = 100;
/// Number of bytes of the account hash in the account label.
const LABEL_HASH_BYTES: usize = 10;

/// Validates the TXT record below `host` that contains the hash of the key authorization.
pub(crate) async fn dns01(dns: &Dns, host: &str, question: &ValidationRequest) -> Result<Proven, Failure> {
    check_txt(dns, format!("_acme-challenge.{host}"), question).await
}

/// Validates like `dns01`, but below the label of the account, so that several accounts can validate one name at the same time.
pub(crate) async fn dns_account01(
    dns: &Dns,
    host: &str,
    question: &ValidationRequest,
) -> Result<Proven, Failure> {
    check_txt(dns, format!("{}._acme-challenge.{host}", account_label(&question.account_url)), question).await
}

async fn check_txt(dns: &Dns, name: String, question: &ValidationRequest) -> Result<Proven, Failure> {
    let expected = URL_SAFE_NO_PAD.encode(sha256(question.key_authorization().as_bytes()));
    let records = dns
        .txt(&name)
        .await
        .map_err(|error| Failure::transient(Kind::Dns, format!("TXT lookup for {name}: {error}")))?;
    if records.iter().any(|record| verify_slices_are_equal(record, expected.as_bytes()).is_ok()) {
        return Ok(Proven::by(format!("TXT record at {name}")));
    }
    Err(match records.first() {
        None => Failure::transient(Kind::Dns, format!("no TXT record at {name}")),
        Some(record) => {
            let quoted = String::from_utf8_lossy(&record[..record.len().min(QUOTED_MAX)]).into_owned();
            let more = records.len() - 1;
            Failure::transient(
                Kind::IncorrectResponse,
                format!(
                    "the TXT record {quoted:?} (and {more} more) at {name} does not match the expected {expected:?}"
                ),
            )
        }
    })
}

/// Returns the account label: `_` and the first bytes of the hash of the account URL.
fn account_label(account_url: &str) -> String {
    let hash = sha256(account_url.as_bytes());
    // RFC 4648 section 6, in lower case; DNS names are case-insensitive.
    format!("_{}", BASE32_NOPAD.encode(&hash[..LABEL_HASH_BYTES]).to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    // The example in section 3.2 of the draft.
    #[test]
    fn account_label_matches_the_draft_example() {
        assert_eq!(account_label("https://example.com/acme/acct/ExampleAccount"), "_ujmmovf2vn55tgye");
    }
}
