//! Messages about rejected targets.

use cli::exit::chain;
use cli::terminal::clean;
use scan::target::{TargetError, TargetProblem};

/// Returns the text of a rejected target, with the flag that allows it.
pub(super) fn text(error: &TargetError) -> String {
    let text = chain(error);
    let text = clean(&text);
    match &error.problem {
        // The value of `--max-addresses` has 64 bits, so it cannot allow more than 2^64 - 1 addresses.
        TargetProblem::TooManyAddresses { addresses, .. } if u64::try_from(*addresses).is_ok() => {
            format!("{text}, or raise the limit with --max-addresses {addresses}")
        }
        _ => text.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use scan::target::{TargetOptions, Targets};

    use super::*;

    #[test]
    fn too_large_network_is_rejected_with_the_flag_that_allows_it() {
        let refused = |network: &str| {
            let mut targets = Targets::new(vec![network.to_owned()], TargetOptions::default());
            text(&targets.next().unwrap().unwrap_err())
        };
        let large = refused("10.0.0.0/8");
        assert!(
            large.ends_with("split the network, or raise the limit with --max-addresses 16777216"),
            "{large}"
        );
        let too_large = refused("2001:db8::/32");
        assert!(too_large.ends_with("split the network"), "{too_large}");
    }
}
