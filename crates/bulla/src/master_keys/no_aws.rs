//! A build without AWS: a master key in AWS KMS is an error at startup.

use cli::exit::{Outcome, Problem};
use keys::Wrapper;

use crate::config::AwsKmsSettings;

/// The configuration is refused before it comes to this.
pub(super) async fn wrapper(_: &AwsKmsSettings) -> Outcome<Box<dyn Wrapper>> {
    Err(Problem::usage("the master key is in AWS KMS, and this build has no AWS")
        .hint("build with `--features aws`"))
}
