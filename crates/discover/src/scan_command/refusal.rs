//! Messages about rejected targets.

use cli::exit::chain;
use cli::terminal::clean;
use scan::target::{TargetError, TargetProblem};

/// Returns the text of a rejected target, with the flag that allows it.
pub(super) fn text(error: &TargetError) -> String {
    let text = chain(error);
    let text = clean(&text);
    match &error.problem {
        // The range of the flag is 64 bits.
        TargetProblem::TooManyAddresses { addresses, .. } if u64::try_from(*addresses).is_ok() => {
            format!("{text}, or raise the limit with --max-addresses {addresses}")
        }
        _ => text.into_owned(),
    }
}
